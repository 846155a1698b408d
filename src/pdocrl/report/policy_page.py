"""The policy of a solved log on its page: a heat map state × action, a slider along the frontier, explanations.

map.json, result.json ─▶ stops ─▶ `PolicyHeatMap`, whose script moves the map, the mark on the frontier and the words
"""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import PolicyHeatMap
from pdocrl.tabular.analysis import PolicyMap
from pdocrl.tabular.result.record import FrontierPoint, SolvedRecord
from pdocrl.tabular.result.tables import satisfied, span

HEIGHT = 220.0


def policy_heat_map(result: SolvedRecord, found: PolicyMap) -> PolicyHeatMap:
    """The block of a page; without a frontier it has one position, the policy that was solved for."""
    points, policies, solved = _points(result, found)
    line = result.frontier
    drawing = Markup("") if line is None else _curve(line.column, points, solved)
    return PolicyHeatMap(
        drawings={} if line is None else {"Reward along the limit": drawing},
        column="" if line is None else line.column,
        states=found.states,
        actions=found.actions,
        left_out=found.states_total - len(found.states),
        stops=[_told(point, i == solved, result) for i, point in enumerate(points)],
        start=solved,
        policies=policies,
        rows=found.rows,
        values={"reward": found.value} | found.costs,
    )


def _points(result: SolvedRecord, found: PolicyMap) -> tuple[list[FrontierPoint], list[list[list[float]]], int]:
    """The frontier with the result in its place, their policies, and which of them is the result."""
    line = result.frontier
    column = "" if line is None else line.column
    own = FrontierPoint(
        limit=result.limits.get(column, float("inf")),
        value=result.value,
        interval=None if result.intervals is None else result.intervals.value,
        cost=result.costs.get(column, 0.0),
        multiplier=result.multipliers.get(column, 0.0),
        status=result.status,
        satisfied=all(satisfied(result, name) for name in result.limits),
        low_count_share=result.low_count_share,
    )
    along = [] if line is None else list(zip(line.points, (one.policy for one in found.frontier), strict=True))
    # A column that had no limit of its own stands behind the loosest.
    ordered = sorted([*along, (own, found.policy)], key=lambda pair: pair[0].limit)
    place = next(i for i, (point, _) in enumerate(ordered) if point is own)
    return [point for point, _ in ordered], [policy for _, policy in ordered], place


def _told(point: FrontierPoint, solved: bool, result: SolvedRecord) -> dict[str, object]:
    """What the script writes at a position."""
    column = "" if result.frontier is None else result.frontier.column
    name = "none" if np.isinf(point.limit) else f"{point.limit:.4g}"
    says = f"reward {point.value:.4g}" + (f" ({span(point.interval)})" if point.interval else "")
    if column:
        says += f", {column} {point.cost:.4g}" + (f", multiplier {point.multiplier:.4g}" if point.satisfied else "")
    says += "; limits satisfied" if point.satisfied else "; the limits cannot all be satisfied"
    return {"limit": name, "says": says + (" (the solved policy)" if solved else ""), "yes": point.satisfied}


def _curve(column: str, points: list[FrontierPoint], solved: int) -> Markup:
    """Reward against the limit; the script moves the dashed line."""
    shown = [point for point in points if np.isfinite(point.limit)]
    spans = [point.interval or (point.value, point.value) for point in shown]
    x = chart.spanning([point.limit for point in shown], LEFT + 8, WIDTH - RIGHT)
    y = chart.spanning(np.array(spans), HEIGHT - BOTTOM, TOP + 12, also=tuple(point.value for point in shown))
    body = chart.axes(x, y, f"limit on {column}", "reward")
    within = [point for point in shown if point.satisfied]
    if within:
        path = x(np.array([point.limit for point in within])), y(np.array([point.value for point in within]))
        body += chart.curve(0, *path, ends=False)
    told = []
    for point, (low, high) in zip(shown, spans, strict=True):
        words = f"limit {point.limit:.4g}: reward {point.value:.4g}" + ("" if point.satisfied else ", not satisfied")
        body += chart.whisker(0, float(x(point.limit)), float(y(low)), float(y(high)))
        body += chart.mark(0, float(x(point.limit)), float(y(point.value)), words, filled=point.satisfied)
        told.append(words)
    for i, point in enumerate(points):
        if np.isfinite(point.limit):
            line = chart.upright(float(x(point.limit)), y.end - 4, y.start)
            body += f'<g class="stop{"" if i == solved else " off"}" data-stop="{i}">{line}</g>'
    title = f"Reward against the limit on {column}"
    return chart.drawing("frontier-solved", HEIGHT, title, f"{'; '.join(told)}.", body)
