"""Pictures of what was reached, one panel per task: the reward–cost plane, every episode's cost, limits and costs,
performance profiles, and off-policy estimates against roll-outs.

Costs are shares of the limit, on a root axis: 1 is the limit, and what lies far beyond stays on the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from pdocrl.data.dataset import Dataset
from pdocrl.evaluation.intervals import Floats
from pdocrl.evaluation.score import RunScore, Summary
from pdocrl.ope.result import OpeRun
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from pdocrl.report.record import Results
from pdocrl.table import amount

ROW, GAP = 11.0, 7.0  # of a limit in a picture of episodes, and between methods
MARK = 10.0  # no two marks of a method are nearer
SHADES = 4  # --safe-0 … --safe-3 of the stylesheet: tighter limits are darker

Drawings = dict[str, Markup]  # task → its pictures


def data_planes(record: Results) -> Drawings:
    """{cost: picture}: the data's episodes by cost and return, the limits, and where the policies lie."""
    if record.dataset is None:
        return {}
    return {
        name.replace("_", " "): _data_plane(record, record.dataset, k)
        for k, name in enumerate(record.dataset.cost_names)
    }


def _data_plane(record: Results, dataset: Dataset, k: int) -> Markup:
    cost, earned = dataset.cost_return[:, k], dataset.reward_return
    asked = sorted({run.cost_limit[k] for run in record.runs} or _trained_limits(record, k))
    height = 300.0
    means = [(run, run.cost[k], run.reward) for run in record.runs]
    everything = np.concatenate([cost, [c for _, c, _ in means]])
    x = chart.spanning(everything, LEFT + 8, WIDTH - RIGHT, also=(0.0, *asked))
    y = chart.spanning(np.concatenate([earned, [r for *_, r in means]]), height - BOTTOM, TOP + 12)
    body = chart.axes(x, y, f"{dataset.cost_names[k].replace('_', ' ')} of an episode", "return")
    body += logged_episodes(dataset, k, asked, x, y)
    body += chart.limits(x, y.end - 4, y.start, asked)
    places = [(float(x(spent)), float(y(gained))) for _, spent, gained in means]
    for (run, spent, gained), place, seen in zip(means, places, chart.apart(places, 15.0), strict=True):
        words = f"{run.method}, limit {run.limit}, seed {run.seed}: return {amount(gained)}, cost {amount(spent, 1)}"
        series = record.series(run.method, run.limit)
        mark = chart.mark(series, *seen, words, filled=spent <= run.cost_limit[k], large=True)
        body += chart.group(chart.leader(place, seen) + mark, method=run.method, limit=run.limit)
    told = "; ".join(
        f"{run.method}, limit {run.limit}: return {amount(gained)}, cost {amount(spent, 1)}"
        for run, spent, gained in means
    )
    description = f"{dataset.n_episodes} logged episodes by cost and return, with the limits. Policies: {told}."
    return chart.drawing(f"data-{k}", height, "The data and the policies", description, body)


def logged_episodes(dataset: Dataset, k: int, limits: Sequence[float], x: Axis, y: Axis) -> str:
    """The dots of the data, darker the tighter the limit they satisfy, and the best return logged at no more cost."""
    cost, earned = dataset.cost_return[:, k], dataset.reward_return
    tightest = np.searchsorted(np.sort(limits), cost)  # number of the tightest limit each episode satisfies
    body = ""
    for i in range(len(limits) + 1):
        own = tightest == i
        kind = f"safe-{min(i, SHADES - 1)}" if i < len(limits) else "over"
        body += chart.dots(kind, x(cost[own]), y(earned[own])) if own.any() else ""
    order = np.argsort(cost, kind="stable")
    best = np.maximum.accumulate(earned[order])
    rises = np.append(True, best[1:] > best[:-1])
    return body + chart.frontier(x(cost[order][rises]), y(best[rises]), x.end)


def _trained_limits(record: Results, k: int) -> set[float]:
    """What to draw before anything was played."""
    plans = [training.plan for training in record.trainings if training.plan is not None]
    return {run["cost_limit"][k] for plan in plans for run in plan.runs if len(run["cost_limit"]) > k}


def planes(record: Results) -> Drawings:
    """{task: picture}: every run where it was scored, the limit as a line."""
    return {task: _plane(record, task, own) for task in record.tasks if (own := record.runs_of(task))}


def _plane(record: Results, task: str, runs: list[RunScore]) -> Markup:
    height = 250.0
    x = chart.from_zero([run.normalized_cost for run in runs], LEFT, WIDTH - RIGHT)
    y = chart.spanning([run.normalized_reward for run in runs], height - BOTTOM, TOP + 12, also=(0.0,))
    body = chart.axes(x, y, "cost / limit", "normalised reward")
    body += chart.upright(float(x(1)), y.end - 4, y.start, "limit")
    for run in runs:
        reward, cost = run.normalized_reward, run.normalized_cost
        words = f"{run.method}, limit {run.limit}, seed {run.seed}: reward {reward:.2f}, cost {cost:.2f}"
        series = record.series(run.method, run.limit)
        mark = chart.mark(series, float(x(cost)), float(y(reward)), words, filled=run.safe)
        body += chart.group(mark, method=run.method, limit=run.limit)
    safe = sum(run.safe for run in runs)
    best = max((run for run in runs if run.safe), key=lambda run: run.normalized_reward, default=None)
    description = f"{len(runs)} runs by cost and reward, {safe} of them within their limit. "
    if best is None:
        description += "None is safe."
    else:
        description += f"The highest safe reward is {best.normalized_reward:.2f}, by {best.method}."
    return chart.drawing(f"plane-{record.tasks.index(task)}", height, f"{task}: reward against cost", description, body)


def episode_costs(record: Results) -> Drawings:
    """{task: pictures}: a stroke per episode, a row per method and limit, the shape at the mean; one per constraint."""
    found = {}
    for task in record.tasks:
        own = record.runs_of(task)
        if own and own[0].cost_limit:
            found[task] = Markup("").join(_costs(record, task, own, k) for k in range(len(own[0].cost_limit)))
    return found


def _costs(record: Results, task: str, runs: list[RunScore], k: int) -> Markup:
    rows: dict[str, dict[str, list[RunScore]]] = {}
    for method in record.ranked:
        for limit in record.limits:
            own = [run for run in runs if (run.method, run.limit) == (method, limit)]
            if own:
                rows.setdefault(method, {})[limit] = own
    bottom = TOP + sum(ROW * len(limits) + GAP for limits in rows.values())
    names = chart.LETTER * max(len(method) for method in rows) + 24
    x = chart.from_zero(np.concatenate([run.normalised_costs[:, k] for run in runs]), names, WIDTH - RIGHT)
    which = f" {k + 1}" if len(runs[0].cost_limit) > 1 else ""
    body = chart.base(x, bottom, f"cost{which} of an episode / limit") + chart.upright(float(x(1)), TOP - 4, bottom)
    top, told = TOP, []
    for method, limits in rows.items():
        inside = chart.words(0, top + ROW * len(limits) / 2 + 4, method, kind="name")
        for limit, own in limits.items():
            cost = np.concatenate([run.normalised_costs[:, k] for run in own])
            mean, middle = float(cost.mean()), top + ROW / 2
            series = record.series(method, limit)
            words = f"{method}, limit {limit}: mean {mean:.2f}, {(cost > 1).sum()} of {len(cost)} episodes over"
            row = chart.words(names - 5, middle + 3.5, limit, "end", "tiny")
            row += chart.strokes(x(cost), middle, ROW - 3, series)
            row += chart.mark(series, float(x(mean)), middle, words, filled=mean <= 1)
            inside += chart.group(row, limit=limit)
            told.append(words)
            top += ROW
        body += chart.group(inside, method=method)
        top += GAP
    description = f"Costs of all episodes as shares of the limit. {'; '.join(told)}."
    name = f"costs{k or ''}-{record.tasks.index(task)}"
    return chart.drawing(name, bottom + 34, f"{task}: cost of every episode", description, body)


def asked_and_played(record: Results) -> Drawings:
    """{task: pictures}: reward and cost against the limit that was asked for, of methods with several limits."""
    found = {}
    for task in record.scored_tasks:
        own = [one for one in record.summaries if one.task == task and one.limits > 1]
        own = [one for one in own if len(one.by_limit[0].costs) == 1]
        if own:
            found[task] = _against_limit(record, task, own, "cost") + _against_limit(record, task, own, "reward")
    return found


def _against_limit(record: Results, task: str, summaries: list[Summary], what: str) -> Markup:
    height = 220.0
    asked = {one.method: np.array([at.limit for at in one.by_limit])[:, 0] for one in summaries}
    scale = {m: own if what == "cost" else np.ones(len(own)) for m, own in asked.items()}  # shares → costs per episode
    means, between = {}, {}
    for one in summaries:
        means[one.method] = np.array([getattr(at, what) for at in one.by_limit]) * scale[one.method]
        spans = [getattr(at, f"{what}_interval") or (getattr(at, what),) * 2 for at in one.by_limit]
        between[one.method] = np.array(spans) * scale[one.method][:, None]
    x = chart.spanning(np.concatenate(list(asked.values())), LEFT, WIDTH - RIGHT, also=(0.0,))
    # An interval of two or three trainings can be very wide; the means decide the scale, and bars end at the frame.
    highest = max(1.5 * float(np.concatenate(list(means.values())).max()), x.high if what == "cost" else 0.0)
    values = np.concatenate([*means.values(), np.minimum(np.concatenate(list(between.values())).ravel(), highest)])
    least = 1.5 * min(float(np.concatenate(list(means.values())).min()), 0.0)
    tightest = min(own.min() for own in asked.values()) if what == "cost" else 0.0
    y = chart.spanning(np.maximum(values, least), height - BOTTOM, TOP + 12, also=(0.0, float(tightest)))
    label = "cost played" if what == "cost" else "normalised reward"
    body = chart.axes(x, y, "limit asked", label)
    if what == "cost":
        same = np.array([0.0, min(x.high, y.high)])
        body += chart.dashed(x(same), y(same))
    told = []
    beside = _beside(x, np.unique(np.concatenate(list(asked.values()))), len(summaries))
    for one, aside in zip(summaries, beside, strict=True):
        method, order = one.method, np.argsort(asked[one.method])
        series = record.methods.index(method)
        across, up = x(asked[method][order]) + aside, y(means[method][order])
        places = [(float(a), float(b)) for a, b in zip(across, up, strict=True)]
        inside = chart.curve(series, across, up, ends=False)
        for i, place, seen in zip(order, places, chart.apart(places, MARK), strict=True):
            low, high = np.clip(between[method][i], y.low, y.high)
            words = f"{method}, limit {asked[method][i]:g} asked: {what} {means[method][i]:.2f}"
            inside += chart.whisker(series, place[0], float(y(low)), float(y(high))) + chart.leader(place, seen)
            inside += chart.mark(series, *seen, words, filled=one.by_limit[i].safe)
            told.append(words)
        body += chart.group(inside, method=method)
    name = f"asked-{what}-{record.tasks.index(task)}"
    return chart.drawing(name, height, f"{task}: {label} against the limit asked", f"{'; '.join(told)}.", body)


def _beside(x: Axis, limits: Floats, count: int) -> Floats:
    """[count] how far each method's marks stand to the side of their limit, so that equal results are all seen."""
    room = float(np.diff(x(limits)).min(initial=10 * MARK))
    return np.asarray((np.arange(count) - (count - 1) / 2) * min(0.8 * MARK, 0.8 * room / count), np.float64)


def profiles(record: Results) -> Drawings:
    """{"all tasks": pictures}: the share of runs that are safe with more than so much reward, of runs that cost no
    more, and of single episodes that cost no more."""
    if len(record.methods) < 2 or len(record.runs) < 2:
        return {}
    return {"all scored tasks": Markup("").join(_profile(record, what) for what in ("reward", "cost", "episode cost"))}


def _profile(record: Results, what: str) -> Markup:
    height, of_episodes = 220.0, what == "episode cost"
    rewards = np.array([run.normalized_reward for run in record.runs])
    costs, methods = np.array([run.normalized_cost for run in record.runs]), [run.method for run in record.runs]
    if of_episodes:
        played = [(run.method, one.normalized_cost) for run in record.runs for one in run.episodes]
        costs, methods = np.array([cost for _, cost in played]), [method for method, _ in played]
    if what == "reward":
        x = chart.spanning(rewards, LEFT, WIDTH - RIGHT, also=(0.0,))
    else:
        x = chart.Axis(0.0, 3.0, LEFT, WIDTH - RIGHT)
    y = chart.Axis(0.0, 1.05, height - BOTTOM, TOP + 12)
    label = "share of runs, safe and above" if what == "reward" else "share of runs at most"
    label = "share of episodes at most" if of_episodes else label
    body = chart.axes(x, y, "normalised reward" if what == "reward" else "cost / limit", label)
    body += chart.upright(float(x(1)), y.end - 4, y.start, "limit") if what != "reward" else ""
    at = np.linspace(x.low, x.high, 80)
    told = []
    for method in record.ranked:
        own = np.array([name == method for name in methods])
        if not own.any():
            continue
        if what == "reward":
            share = ((costs[own] <= 1) & (rewards[own] >= at[:, None])).mean(axis=1)
        else:
            share = (costs[own] <= at[:, None]).mean(axis=1)
        body += chart.group(chart.curve(record.methods.index(method), x(at), y(share)), method=method)
        told.append(f"{method} {share[int(np.argmin(abs(at - (0.5 if what == 'reward' else 1.0))))]:.2f}")
    where = "at a reward of 0.5" if what == "reward" else "at the limit"
    over = "single episodes" if of_episodes else "all runs"
    description = f"Performance profile over {over}. Shares {where}: {'; '.join(told)}."
    return chart.drawing(
        f"profile-{what.replace(' ', '-')}", height, f"Performance profile of {what}", description, body
    )


def estimates(record: Results) -> Drawings:
    """{task: pictures}: reward and cost as estimated from the data alone, against those played; needs ope.json."""
    found = {}
    for task in record.tasks:
        pairs = judged(record, task)
        if pairs:
            found[task] = _estimate(record, task, "reward", pairs) + _estimate(record, task, "cost", pairs)
    return found


def judged(record: Results, task: str) -> list[tuple[RunScore, OpeRun]]:
    """Runs that were both estimated and played at the limit of their training."""
    played = {(run.method, run.limit, run.seed): run for run in record.runs_of(task)}
    return [
        (played[run], told)
        for training in record.trainings
        if training.task == task and training.ope is not None
        for run, told in zip(training.runs, training.ope.runs, strict=True)
        if run in played
    ]


def _estimate(record: Results, task: str, what: str, pairs: list[tuple[RunScore, OpeRun]]) -> Markup:
    known = [
        (run, told, value, span)
        for run, told in pairs
        if (value := getattr(told, f"normalized_{what}")) is not None
        and (span := getattr(told, f"normalized_{what}_interval")) is not None
    ]
    if not known:
        return Markup("")
    height = 220.0
    played: Floats = np.array([getattr(run, f"normalized_{what}") for run, *_ in known])
    between: Floats = np.array([span for *_, span in known])  # [n, 2]
    everything = np.concatenate([played, [value for *_, value, _ in known], between.ravel()])
    make = chart.from_zero if what == "cost" else chart.spanning
    x, y = make(played, LEFT, WIDTH - RIGHT), make(everything, height - BOTTOM, TOP + 12)
    body = chart.axes(x, y, f"{what} played", f"{what} estimated")
    same = np.linspace(max(x.low, y.low), min(x.high, y.high), 40)
    body += chart.dashed(x(same), y(same))
    for at_run, (run, told, value, (low, high)) in zip(played.tolist(), known, strict=True):
        words = f"{run.method}, limit {run.limit}, seed {run.seed}: {what} {at_run:.2f} played, "
        words += f"{value:.2f} [{low:.2f}, {high:.2f}] estimated"
        words += "" if told.trusted else "; not trusted"
        at, series = float(x(at_run)), record.series(run.method, run.limit)
        mark = chart.whisker(series, at, float(y(low)), float(y(high)))
        mark += chart.mark(series, at, float(y(value)), words, filled=told.trusted)
        body += chart.group(mark, method=run.method, limit=run.limit)
    inside = int(((between[:, 0] <= played) & (played <= between[:, 1])).sum())
    description = f"{len(known)} runs. In {inside} of them the played {what} lies in the 95 % interval of the estimate."
    name = f"ope-{what}-{record.tasks.index(task)}"
    return chart.drawing(name, height, f"{task}: {what} estimated and played", description, body)
