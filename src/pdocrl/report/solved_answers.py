"""What else was asked of a solved log, on its page: along a limit, against other policies, in a state, more rows."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Block, Panels, Section, Tables
from pdocrl.table import DASH, Table
from pdocrl.tabular.compared_file import ComparedFile
from pdocrl.tabular.solved_file import ExplainedAction, Frontier, SolvedFile

HEIGHT = 220.0


def answered(result: SolvedFile, compared: ComparedFile | None) -> list[Section]:
    """One section for each thing that was asked, in the order people ask."""
    found = []
    if result.frontier is not None:
        title = f"What the limit on {result.frontier.column} costs"
        found.append(Section(title, [_drawn(result.frontier), Tables([_along(result.frontier).html()])]))
    if compared is not None:
        found.append(Section("Against other policies, by the same log", [Tables([_compared(compared).html()])]))
    if result.explain:
        where = f"In state {result.explained}" if result.explained else "In the state asked about"
        found.append(Section(where, [Tables([_explained(result.explain).html()])]))
    if result.clusterings:
        found.append(Section("What other cells would have given", [Tables([_cells(result).html()])]))
    if result.more_data and any(result.more_data.values()):
        found.append(Section("Where more rows would help most", [Tables([_more(result).html()])]))
    return found


def _drawn(line: Frontier) -> Block:
    caption = (
        "Reward against the limit, with the interval of each. Hollow where the limit cannot be kept. "
        "Where the curve is flat the limit costs nothing."
    )
    return Panels({f"limit on {line.column}": _curve(line)}, caption)


def _curve(line: Frontier) -> Markup:
    spans = [point.interval or (point.value, point.value) for point in line.points]
    x = chart.spanning([point.limit for point in line.points], LEFT + 8, WIDTH - RIGHT)
    y = chart.spanning(np.array(spans), HEIGHT - BOTTOM, TOP + 12, also=tuple(p.value for p in line.points))
    body = chart.axes(x, y, f"limit on {line.column}", "reward")
    kept = [point for point in line.points if point.kept]
    if kept:
        body += chart.curve(0, x([p.limit for p in kept]), y([p.value for p in kept]))
    told = []
    for point, (low, high) in zip(line.points, spans, strict=True):
        words = f"limit {point.limit:.4g}: reward {point.value:.4g}" + ("" if point.kept else ", not kept")
        body += chart.whisker(0, float(x(point.limit)), float(y(low)), float(y(high)))
        body += chart.mark(0, float(x(point.limit)), float(y(point.value)), words, filled=point.kept)
        told.append(words)
    title = f"Reward against the limit on {line.column}"
    return chart.drawing("frontier-solved", HEIGHT, title, f"{'; '.join(told)}.", body)


def _along(line: Frontier) -> Table:
    rows = [
        [f"{p.limit:.4g}", p.value, span(p.interval) if p.interval else DASH, p.cost, f"{p.multiplier:.4g}",
         "yes" if p.kept else "no"]
        for p in line.points
    ]  # fmt: skip
    heads = ["Limit", "Reward", "Interval", line.column, "Price of one more", "Kept"]
    return Table.of(heads, rows, f"Along the limit on {line.column}")


def _compared(compared: ComparedFile) -> Table:
    names = list(compared.policies[0].estimate)
    level = f"{100 * compared.level:g} %"
    rows = []
    for number, policy in enumerate(compared.policies):
        cells = [f"{policy.estimate[n]:.4g} ({policy.low[n]:.4g} … {policy.high[n]:.4g})" for n in names]
        lead = span(policy.lead["reward"]) if number else DASH
        rows.append([policy.name, *cells, lead, f"{100 * policy.outside:.2g} %"])
    heads = ["Policy", *(f"{name} ({level})" for name in names), "Leads the first by", "Time outside the log"]
    return Table.of(heads, rows, "Against other policies, by the same log")


def _explained(actions: list[ExplainedAction]) -> Table:
    costs = list(actions[0].costs)
    rows = [
        [str(a.action), a.rows, f"{100 * a.log:.3g} %", f"{100 * a.policy:.3g} %", a.value, *a.costs.values()]
        for a in actions
    ]
    heads = ["Action", "Rows", "The log did", "The policy does", "Reward from here", *(f"{c} from here" for c in costs)]
    return Table.of(heads, rows, "What each action would bring")


def _cells(result: SolvedFile) -> Table:
    rows = [["this one", result.value, *result.costs.values()]]
    rows += [[f"learned from half {k}", c.value, *c.costs.values()] for k, c in enumerate(result.clusterings or [], 1)]
    return Table.of(["Cells", "Reward", *result.costs], rows, "What other cells would have given")


def _more(result: SolvedFile) -> Table:
    rows = [
        [what, str(need.state), str(need.action), need.rows, f"{100 * need.share:.2g} %"]
        for what, needs in (result.more_data or {}).items()
        for need in needs
    ]
    heads = ["To be surer of", "State", "Action", "Rows now", "Share of the doubt"]
    return Table.of(heads, rows, "Where more rows would help most")


def span(interval: tuple[float, float]) -> str:
    """Its two ends."""
    return f"{interval[0]:.4g} … {interval[1]:.4g}"
