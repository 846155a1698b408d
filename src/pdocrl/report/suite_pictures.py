"""A benchmark's pictures of what was reached, one panel per task: the reward–cost plane, every episode's cost, and the
off-policy estimates against the roll-outs.

Costs are shares of the limit, on a root axis: 1 is the limit, and what lies far beyond stays on the paper.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.html import attributes
from pdocrl.report.suite_record import Run, SuiteRecord, Training, limit_name

ROW, GAP = 11.0, 7.0  # of a limit in a picture of episodes, and between methods
LETTER = 6.7  # width of one, about


def legend(record: SuiteRecord, methods: list[str] | None = None) -> str:
    """Which shape and colour is which method."""
    shown = record.methods if methods is None else methods
    items = (f"<li{attributes(method=m)}>{chart.glyph(record.series(m))}{escape(m)}</li>" for m in shown)
    return f'<ul class="legend" aria-label="Methods">{"".join(items)}</ul>'


def panels(drawings: dict[str, str]) -> str:
    """One small picture per task, as many side by side as there is room for."""
    shown = (
        f"<figure{attributes(task=task)}><h3>{escape(task)}</h3>{drawing}</figure>"
        for task, drawing in drawings.items()
    )
    return f'<div class="grid-of">{"".join(shown)}</div>'


def planes(record: SuiteRecord) -> dict[str, str]:
    """{task: picture}: every run where it was scored, the limit as a line."""
    return {task: _plane(record, task, own) for task in record.tasks if (own := record.runs_of(task))}


def _plane(record: SuiteRecord, task: str, runs: list[Run]) -> str:
    height = 250.0
    x = chart.from_zero([run.cost for run in runs], LEFT, WIDTH - RIGHT)
    y = chart.spanning([run.reward for run in runs], height - BOTTOM, TOP + 12, also=(0.0,))
    body = chart.axes(x, y, "cost / limit", "normalised reward")
    body += chart.upright(float(x(1)), y.end - 4, y.start, "limit")
    for run in runs:
        words = f"{run.method}, limit {run.limit}, seed {run.seed}: reward {run.reward:.2f}, cost {run.cost:.2f}"
        body += chart.mark(
            record.series(run.method), float(x(run.cost)), float(y(run.reward)), words,
            filled=run.safe, more=attributes(method=run.method, limit=run.limit),
        )  # fmt: skip
    safe = sum(run.safe for run in runs)
    best = max((run for run in runs if run.safe), key=lambda run: run.reward, default=None)
    description = f"{len(runs)} runs by cost and reward, {safe} of them within their limit. "
    description += (
        "None is safe." if best is None else f"The highest safe reward is {best.reward:.2f}, by {best.method}."
    )
    return chart.drawing(f"plane-{record.tasks.index(task)}", height, f"{task}: reward against cost", description, body)


def episode_costs(record: SuiteRecord) -> dict[str, str]:
    """{task: picture}: a stroke per episode, a row per method and limit, the method's shape at the mean."""
    return {task: _costs(record, task, own) for task in record.tasks if (own := record.runs_of(task))}


def _costs(record: SuiteRecord, task: str, runs: list[Run]) -> str:
    rows: dict[str, dict[str, list[Run]]] = {}
    for method in record.methods:
        for limit in record.limits:
            own = [run for run in runs if (run.method, run.limit) == (method, limit)]
            if own:
                rows.setdefault(method, {})[limit] = own
    bottom = TOP + sum(ROW * len(limits) + GAP for limits in rows.values())
    names = LETTER * max(len(method) for method in rows) + 24
    x = chart.from_zero(np.concatenate([run.episode_costs for run in runs]), names, WIDTH - RIGHT)
    body = chart.base(x, bottom, "cost of an episode / limit") + chart.upright(float(x(1)), TOP - 4, bottom)
    top, told = TOP, []
    for method, limits in rows.items():
        series = record.series(method)
        body += f"<g{attributes(method=method)}>"
        body += chart.words(0, top + ROW * len(limits) / 2 + 4, method, kind="name")
        for limit, own in limits.items():
            cost = np.concatenate([run.episode_costs for run in own])
            mean, middle = float(cost.mean()), top + ROW / 2
            words = f"{method}, limit {limit}: mean {mean:.2f}, {(cost > 1).sum()} of {len(cost)} episodes over"
            body += f"<g{attributes(limit=limit)}>{chart.words(names - 5, middle + 3.5, limit, 'end', 'tiny')}"
            body += chart.strokes(x(cost), middle, ROW - 3, series)
            body += chart.mark(series, float(x(mean)), middle, words, filled=mean <= 1) + "</g>"
            told.append(words)
            top += ROW
        body += "</g>"
        top += GAP
    description = f"Costs of all episodes as shares of the limit. {'; '.join(told)}."
    name = f"costs-{record.tasks.index(task)}"
    return chart.drawing(name, bottom + 34, f"{task}: cost of every episode", description, body)


def estimates(record: SuiteRecord) -> dict[str, str]:
    """{task: pictures}: reward and cost as estimated from the data alone, against those played; needs ope.json."""
    found = {}
    for task in record.tasks:
        pairs = [
            (training, run, told)
            for training in record.trainings
            if training.task == task and training.ope is not None
            for told in training.ope["runs"]
            for run in _played(record, training, told)
        ]
        if pairs:
            found[task] = _estimate(record, task, "reward", pairs) + _estimate(record, task, "cost", pairs)
    return found


def _played(record: SuiteRecord, training: Training, told: dict[str, Any]) -> list[Run]:
    """The scored run an estimate is about; none before it is scored."""
    key = (training.task, training.method, limit_name(told["cost_limit"]), told["seed"])
    return [run for run in record.runs if (run.task, run.method, run.limit, run.seed) == key]


def _estimate(record: SuiteRecord, task: str, what: str, pairs: list[tuple[Training, Run, dict[str, Any]]]) -> str:
    known = [pair for pair in pairs if pair[2][f"normalized_{what}"] is not None]
    if not known:
        return ""
    height = 220.0
    played = np.array([getattr(run, what) for _, run, _ in known])
    told = np.array([told[f"normalized_{what}"] for _, _, told in known])
    between = np.array([told[f"normalized_{what}_interval"] for _, _, told in known])  # [n, 2]
    everything = np.concatenate([played, told, between.ravel()])
    if what == "cost":
        x = chart.from_zero(played, LEFT, WIDTH - RIGHT)
        y = chart.from_zero(everything, height - BOTTOM, TOP + 12)
    else:
        x = chart.spanning(played, LEFT, WIDTH - RIGHT)
        y = chart.spanning(everything, height - BOTTOM, TOP + 12)
    body = chart.axes(x, y, f"{what} played", f"{what} estimated")
    same = np.linspace(max(x.low, y.low), min(x.high, y.high), 40)
    body += chart.dashed(x(same), y(same))
    for (training, run, own), value, (low, high) in zip(known, told, between, strict=True):
        words = f"{run.method}, limit {run.limit}, seed {run.seed}: {what} {getattr(run, what):.2f} played, "
        words += f"{value:.2f} [{low:.2f}, {high:.2f}] estimated"
        words += "" if own["trusted"] else "; not trusted"
        at = float(x(getattr(run, what)))
        series = record.series(training.method)
        body += f"<g{attributes(method=run.method, limit=run.limit)}>"
        body += chart.whisker(series, at, float(y(low)), float(y(high)))
        body += chart.mark(series, at, float(y(value)), words, filled=own["trusted"]) + "</g>"
    inside = int(((between[:, 0] <= played) & (played <= between[:, 1])).sum())
    description = f"{len(known)} runs. In {inside} of them the played {what} lies in the 95 % interval of the estimate."
    name = f"ope-{what}-{record.tasks.index(task)}"
    return chart.drawing(name, height, f"{task}: {what} estimated and played", description, body)
