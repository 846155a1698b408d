"""Pictures of how it came about: reward and cost while training, λ and w and what else was reported, a panel per task.

A line is the mean over seeds of one method, its band the range they span. With several methods it is the mean over the
limits, too, as in the tables, unless the reader chooses a limit; with one method every limit has its line.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from pdocrl.data.tasks import Task
from pdocrl.evaluation.intervals import Floats
from pdocrl.evaluation.normalise import normalised_cost, normalised_reward
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from pdocrl.report.pictures import Drawings
from pdocrl.report.record import Curve, EvaluationLine, Results, Run, Training

HEIGHT = 190.0
Curves = Mapping[Run, Curve]
Line = tuple[float, str]  # where, and what it is
ALL = "all"


def learning(record: Results) -> Drawings:
    """{task: pictures} of reward and costs on the way, from the evaluations while training. Empty without any."""
    found = {}
    for name in record.tasks:
        own = [training for training in record.trainings if training.task == name and training.evaluations]
        task = record.task(name)
        if not own or task is None:
            continue
        earned = functools.partial(_reward, task)
        found[name] = _panel(record, name, "reward", "normalised reward", _joined(own, earned))
        costs = max(len(line.cost) for training in own for line in training.evaluations)
        for k in range(costs):
            which = f" {k + 1}" if costs > 1 else ""
            curves = _joined(own, functools.partial(_cost, k))
            found[name] += _panel(record, name, f"cost{k or ''}", f"cost{which} / limit", curves, (1.0, "limit"))
    return found


def multipliers(record: Results) -> Drawings:
    """{task: pictures} of λ, one per constraint, for the methods that have them."""
    return metrics(record, ["lambda", *(f"lambda_{k}" for k in range(9))], {})


def density_ratios(record: Results) -> Drawings:
    """{task: pictures} of w: its mean over the batch, and the share of the batch where it is stuck at its bound."""
    words = {"w": "mean of w", "w_at_clip": "share of w at its bound"}
    bounds = {training.ratio_bound for training in record.trainings if training.metric("w")}
    bound = bounds.pop() if len(bounds) == 1 else None
    line = (1.0, "1") if bound is None else (bound, f"bound {bound:g}")
    return metrics(record, list(words), words, {"w": line})


def others(record: Results) -> Drawings:
    """{task: pictures} of whatever else the agents reported."""
    names = dict.fromkeys(name for training in record.trainings for name in training.metric_names())
    shown = {"w", "w_at_clip"}
    return metrics(record, [n for n in names if n not in shown and n.split("_")[0] != "lambda"], {})


def metrics(
    record: Results, names: Sequence[str], words: Mapping[str, str], lines: Mapping[str, Line] | None = None
) -> Drawings:
    """{task: pictures} of the metrics of these names that some training has."""
    found: Drawings = {}
    for task in record.tasks:
        for name in names:
            trainings = [training for training in record.trainings if training.task == task]
            curves = {run: curve for training in trainings for run, curve in training.metric(name).items()}
            if curves:
                label = words.get(name, name.replace("lambda", "λ").replace("_", " "))
                panel = _panel(record, task, name, label, curves, (lines or {}).get(name))
                found[task] = found.get(task, Markup("")) + panel
    return found


def _joined(trainings: Sequence[Training], value: functools.partial[float]) -> dict[Run, Curve]:
    return {run: curve for training in trainings for run, curve in training.evaluated(value).items()}


def _reward(task: Task, line: EvaluationLine, limit: Sequence[float]) -> float:
    return float(normalised_reward(task, line.reward))


def _cost(k: int, line: EvaluationLine, limit: Sequence[float]) -> float:
    return float(normalised_cost(line.cost[k], limit[k]))


def _panel(record: Results, task: str, name: str, label: str, curves: Curves, line: Line | None = None) -> Markup:
    """Curves of all methods, a line across to hold them against; costs on a root axis, as in the other pictures."""
    choices = record.limits if record.by_limit else [ALL, *record.limits]
    drawn = {
        (method, limit): band
        for method in dict.fromkeys(run[0] for run in curves)
        for limit in choices
        if (band := over_seeds({run: curve for run, curve in curves.items() if run[0] == method}, limit)) is not None
    }
    everything = np.concatenate([np.concatenate(band[1:]) for band in drawn.values()])
    steps = np.concatenate([band[0] for band in drawn.values()])
    x = Axis(0.0, float(steps.max()), LEFT, WIDTH - RIGHT)
    bottom, top = HEIGHT - BOTTOM, TOP + 12
    also = (0.0,) if line is None else (0.0, line[0])
    if label.endswith("/ limit"):
        y = chart.from_zero(everything, bottom, top)
    else:
        y = chart.spanning(everything, bottom, top, also=also)
    body = chart.axes(x, y, "training step", label)
    if line is not None:
        body += chart.level(float(y(line[0])), LEFT, WIDTH - RIGHT, line[1])
    for (method, limit), (at, mean, low, high) in drawn.items():
        kept = chart.thin(len(at), 40)
        series, place = record.series(method, "" if limit == ALL else limit), x(at[kept])
        inside = chart.band(series, place, y(low[kept]), y(high[kept])) if (high > low).any() else ""
        inside += chart.curve(series, place, y(mean[kept]))
        body += chart.group(inside, hidden=limit != ALL and not record.by_limit, method=method, limit=limit)
    shown = record.limits if record.by_limit else [ALL]
    told = {record.key(method, limit): band[1][-1] for (method, limit), band in drawn.items() if limit in shown}
    ends = "; ".join(f"{key} {value:.3g}" for key, value in told.items())
    over = "seeds" if record.by_limit else "limits and seeds"
    description = f"Mean over {over} against the training step. At the end: {ends}."
    return chart.drawing(
        f"{name}-{record.tasks.index(task)}", HEIGHT, f"{task}: {label} while training", description, body
    )


def over_seeds(curves: Curves, limit: str) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Steps, and mean, lowest and highest over seeds [T] of one limit, or of each seed's mean over all limits."""
    by_seed: dict[int, list[Curve]] = {}
    for (_, own, seed), curve in curves.items():
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
