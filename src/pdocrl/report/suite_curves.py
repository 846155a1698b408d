"""A benchmark's pictures of how it came about: reward and cost while training, λ and w, one panel per task.

A line is the mean over seeds of one method, its band the range they span. Without a limit chosen it is the mean over
the limits, too, as in the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdocrl.data.tasks import Task
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from pdocrl.report.html import attributes
from pdocrl.report.suite_record import Curve, Floats, SuiteRecord
from pdocrl.scores.normalise import normalised_cost, normalised_reward

HEIGHT = 190.0
Curves = Mapping[tuple[str, int], Curve]  # by limit and seed
Line = tuple[float, str]  # where, and what it is
ALL = "all"


def learning(record: SuiteRecord) -> dict[str, str]:
    """{task: pictures} of reward and cost on the way, from the evaluations while training. Empty without any."""
    found = {}
    for task in record.tasks:
        own = [training for training in record.trainings if training.task == task and training.evaluations]
        if own:
            earned = functools.partial(_reward, record.task(task))
            reward = {t.method: t.evaluated(earned) for t in own}
            cost = {t.method: t.evaluated(_worst_cost) for t in own}
            found[task] = _panel(record, task, "reward", "normalised reward", reward)
            found[task] += _panel(record, task, "cost", "cost / limit", cost, (1.0, "limit"))
    return found


def multipliers(record: SuiteRecord) -> dict[str, str]:
    """{task: picture} of λ, for the methods that have one."""
    return _metric(record, "lambda", "λ")


def density_ratios(record: SuiteRecord) -> dict[str, str]:
    """{task: picture} of the mean of w over the batch, for the methods that have one."""
    return _metric(record, "w", "mean of w", line=(1.0, "1"))


def _metric(record: SuiteRecord, name: str, label: str, line: Line | None = None) -> dict[str, str]:
    found = {}
    for task in record.tasks:
        curves = {t.method: own for t in record.trainings if t.task == task and (own := t.metric(name))}
        if curves:
            found[task] = _panel(record, task, name, label, curves, line)
    return found


def _reward(task: Task, line: dict[str, Any]) -> float:
    return float(normalised_reward(task, line["reward"]))


def _worst_cost(line: dict[str, Any]) -> float:
    return float(normalised_cost(line["cost"], line["cost_limit"]).max(initial=0.0))


def _panel(
    record: SuiteRecord, task: str, name: str, label: str, curves: Mapping[str, Curves], line: Line | None = None
) -> str:
    """Curves of all methods, a line across to hold them against; costs on a root axis, as in the other pictures."""
    drawn = {
        (method, limit): band
        for method, own in curves.items()
        for limit in [ALL, *record.limits]
        if (band := over_seeds(own, limit)) is not None
    }
    everything = np.concatenate([np.concatenate(band[1:]) for band in drawn.values()])
    steps = np.concatenate([band[0] for band in drawn.values()])
    x = Axis(0.0, float(steps.max()), LEFT, WIDTH - RIGHT)
    bottom, top = HEIGHT - BOTTOM, TOP + 12
    if name == "cost":
        y = chart.from_zero(everything, bottom, top)
    else:
        y = chart.spanning(everything, bottom, top, also=(0.0,))
    body = chart.axes(x, y, "training step", label)
    if line is not None:
        body += chart.level(float(y(line[0])), LEFT, WIDTH - RIGHT, line[1])
    for (method, limit), (at, mean, low, high) in drawn.items():
        kept = chart.thin(len(at), 40)
        series, place = record.series(method), x(at[kept])
        # Of one limit alone: drawn only when the reader chooses that limit.
        alone = "" if limit == ALL else ' class="off" data-alone=""'
        body += f"<g{attributes(method=method, limit=limit)}{alone}>"
        body += chart.band(series, place, y(low[kept]), y(high[kept])) if (high > low).any() else ""
        body += chart.curve(series, place, y(mean[kept])) + "</g>"
    ends = "; ".join(f"{method} {band[1][-1]:.3g}" for (method, limit), band in drawn.items() if limit == ALL)
    description = f"Mean over limits and seeds against the training step. At the end: {ends}."
    return chart.drawing(
        f"{name}-{record.tasks.index(task)}", HEIGHT, f"{task}: {label} while training", description, body
    )


def over_seeds(curves: Curves, limit: str) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Steps, and mean, lowest and highest over seeds [T] of one limit, or of each seed's mean over all limits."""
    by_seed: dict[int, list[Curve]] = {}
    for (own, seed), curve in curves.items():
        if limit in (ALL, own):
            by_seed.setdefault(seed, []).append(curve)
    if not by_seed:
        return None
    # A run that broke off early is left out: beyond its end, the mean would be of other runs.
    last = max(at[-1] for own in by_seed.values() for at, _ in own)
    whole = [[curve for curve in own if curve[0][-1] == last] for own in by_seed.values()]
    steps = np.array(sorted(set.intersection(*(set(at.tolist()) for own in whole for at, _ in own))))
    seeds = np.array(
        [np.mean([value[np.searchsorted(at, steps)] for at, value in own], axis=0) for own in whole if own]
    )
    return steps, seeds.mean(axis=0), seeds.min(axis=0), seeds.max(axis=0)
