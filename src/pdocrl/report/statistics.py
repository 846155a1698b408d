"""From rows to what tables say: cells with intervals, average ranks, probabilities of improvement, profiles.

    rows ─▶ Cell (task × method) ─▶ Standing (a method over all tasks), Comparison (two methods over all tasks)

Which of two results is better is decided in the spirit of "safe or not": a safe one beats an unsafe one, of two safe
ones the higher reward wins, of two unsafe ones the lower cost. Every interval is one of
`pdocrl.evaluation.intervals`. The
same rows give the same intervals.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.stats

from pdocrl.bench.results import Row
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.intervals import Floats, Interval, interquartile_mean, share_interval
from pdocrl.evaluation.normalise import normalised_cost
from pdocrl.evaluation.score import AtLimit, Cell
from pdocrl.limits import Limit

_UNSAFE = 1e6  # puts every unsafe result below every safe one; |normalised reward| and cost are far smaller
DRAWS = 2000  # of every cell, to see how ranks would change with them
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of reward, in a table's profile


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method over all tasks it was run on."""

    method: str
    tasks: int
    rank: float  # mean over tasks; 1 is the best
    rank_interval: Interval | None
    safe_tasks: int
    safe_limits: int  # of all (task, limit)
    limits: int
    over: float  # share of all episodes that cost more than their limit
    reward: float  # means over tasks
    reward_iqm: float  # interquartile mean over all runs
    cost: float
    cost_iqm: float
    profile: tuple[float, ...]  # share of runs that are safe and earn at least each of LEVELS


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How probable it is that a run of one method is better than a run of the other at the same limit."""

    method: str
    other: str
    probability: float  # mean over the tasks both were run on; ties count one half
    interval: Interval | None  # None: of one training no spread is known
    tasks: int

    @property
    def clear(self) -> bool:
        """Whether the interval lies above one half."""
        return self.interval is not None and self.interval[0] > 0.5


def make_cells(rows: Iterable[Row]) -> list[Cell]:
    """One cell per task and method: tasks, and methods within them, in the rows' order."""
    found: dict[tuple[str, str], dict[tuple[float, ...], dict[int, list[Row]]]] = {}
    for row in rows:
        at = found.setdefault((row.task, row.method), {}).setdefault(row.cost_limit, {})
        at.setdefault(row.seed, []).append(row)
    cells = [
        Cell(
            task,
            method,
            tuple(_at_limit(task, method, limit, list(runs.values())) for limit, runs in limits.items()),
            sum(run[0].failure is not None for runs in limits.values() for run in runs.values()),
        )
        for (task, method), limits in found.items()
    ]
    methods, tasks = names_of(cells)
    return sorted(cells, key=lambda cell: (tasks.index(cell.task), methods.index(cell.method)))


def best_safe(cells: Sequence[Cell], task: str) -> str | None:
    """The safe method with the highest reward on a task; none where two safe ones are equal."""
    safe = sorted((c.score.reward, c.method) for c in cells if c.task == task and c.score.safe)
    if not safe or (len(safe) > 1 and np.isclose(safe[-1][0], safe[-2][0], rtol=0, atol=1e-9)):
        return None
    return safe[-1][1]


def standings(cells: Sequence[Cell]) -> list[Standing]:
    """Average ranks, the best first. A method is ranked among those that were run on the same task.

    A rank's interval holds 95 % of the ranks that draws of all cells, each from its own t distribution, would give.
    """
    methods, tasks = names_of(cells)
    by_place = {(cell.task, cell.method): cell for cell in cells}
    ranks = np.full((DRAWS + 1, len(tasks), len(methods)), np.nan)  # row 0: as measured; then the draws
    for t, task in enumerate(tasks):
        there = [m for m, method in enumerate(methods) if (task, method) in by_place]
        drawn = [_drawn(by_place[task, methods[m]]) for m in there]
        reward, cost = (np.stack([pair[i] for pair in drawn], axis=1) for i in (0, 1))
        ranks[:, t, there] = scipy.stats.rankdata(-merit(reward, cost), axis=1)
    mean = np.nanmean(ranks, axis=1) if cells else ranks[:, 0]
    made = []
    for m, method in enumerate(methods):
        own = [cell for cell in cells if cell.method == method]
        known = all(cell.reward.error is not None for cell in cells if cell.task in {c.task for c in own})
        low, high = np.quantile(mean[1:, m], [0.025, 0.975])
        rewards = np.concatenate([cell.run_rewards for cell in own])
        costs = np.concatenate([cell.run_costs for cell in own])
        played = [at for cell in own for at in cell.limits]
        made.append(
            Standing(
                method=method,
                tasks=len(own),
                rank=float(mean[0, m]),
                rank_interval=(float(low), float(high)) if known else None,
                safe_tasks=sum(cell.score.safe for cell in own),
                safe_limits=sum(cell.score.safe_limits for cell in own),
                limits=sum(len(cell.limits) for cell in own),
                over=sum(at.over for at in played) / sum(at.rewards.size for at in played),
                reward=float(np.mean([cell.score.reward for cell in own])),
                reward_iqm=interquartile_mean(rewards),
                cost=float(np.mean([cell.score.cost for cell in own])),
                cost_iqm=interquartile_mean(np.concatenate([cell.worst_run_costs for cell in own])),
                profile=tuple(float(((costs <= 1) & (rewards >= level)).mean()) for level in LEVELS),
            )
        )
    return sorted(made, key=lambda standing: (standing.rank, -standing.reward))


def compare(cells: Sequence[Cell], method: str, other: str) -> Comparison | None:
    """Of two methods, over the tasks and limits both were run on; None without any.

    Pairs of limits that share a training are not pairs anew: they count as those of one limit.
    """
    by_place = {(cell.task, cell.method): cell for cell in cells}
    tasks = [t for t in names_of(cells)[1] if (t, method) in by_place and (t, other) in by_place]
    shares: list[float] = []
    sizes: list[list[tuple[int, int]]] = []  # per task, of pairs that have nothing in common: runs against runs
    for task in tasks:
        mine = {at.limit: at for at in by_place[task, method].limits}
        theirs = {at.limit: at for at in by_place[task, other].limits}
        shared = [limit for limit in mine if limit in theirs]
        if not shared:
            continue
        won = [_won(mine[limit], theirs[limit]) for limit in shared]  # [R, R′] each
        shares.append(float(np.mean([w.mean() for w in won])))
        own = [w.shape for w in won]
        again = any(_plays_twice([at[limit] for limit in shared]) for at in (mine, theirs))
        sizes.append([min(own)] if again else own)
    if not shares:
        return None
    parts = [(1 / len(shares) / len(own), *pair) for own in sizes for pair in own]
    share = float(np.mean(shares))
    return Comparison(method, other, share, share_interval(share, parts), len(shares))


def _plays_twice(limits: Sequence[AtLimit]) -> bool:
    """Whether some training plays at several of these limits."""
    names = [name for at in limits for name in at.trainings]
    return len(set(names)) < len(names)


def merit(reward: Floats, cost: Floats) -> Floats:
    """One number per result whose order is the rule above: reward if safe, else far below it, falling with the cost."""
    return np.where(cost <= 1, reward, -_UNSAFE - cost)


def names_of(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Methods and tasks in the order they appear."""
    return list(dict.fromkeys(c.method for c in cells)), list(dict.fromkeys(c.task for c in cells))


def _drawn(cell: Cell) -> tuple[Floats, Floats]:
    """[1 + DRAWS] reward and cost: as measured, then drawn from a stream of this cell's own."""
    rng = np.random.default_rng(zlib.crc32(f"{cell.task}/{cell.method}".encode()))
    reward, cost = (np.append(found.value, found.draws(DRAWS, rng)) for found in (cell.reward, cell.cost))
    return reward, np.maximum(cost, 0.0)


def _won(mine: AtLimit, theirs: AtLimit) -> Floats:
    """[R, R′] 1 where my run is better, one half where both are equal."""
    a, b = merit(mine.run_rewards, mine.run_costs), merit(theirs.run_rewards, theirs.run_costs)
    return np.asarray((a[:, None] > b) + 0.5 * (a[:, None] == b))


def _at_limit(task: str, method: str, limit: tuple[float, ...], runs: list[list[Row]]) -> AtLimit:
    counts = {len(run) for run in runs} | {len({row.episode for row in run}) for run in runs}
    if len(counts) > 1:
        shown = ", ".join(str(count) for count in sorted(counts))
        raise PdocrlError(f"{method} on {task} at limit {limit}: runs of {shown} episodes cannot be averaged.")
    rewards = np.array([[row.normalized_reward for row in run] for run in runs])
    costs = np.array([[row.cost for row in run] for run in runs]).reshape(*rewards.shape, len(limit))
    normal = normalised_cost(costs, limit) if limit else costs
    return AtLimit(limit, rewards, normal, tuple(run[0].training for run in runs), _kept(runs[0][0].limits, costs))


def _kept(limits: str, costs: Floats) -> bool | None:
    """Whether limits on tails hold for one cost, [R, E, 1]; rows hold no costs of steps, so `max` is left out."""
    asked = [one for one in map(Limit.parse, filter(None, limits.split(", "))) if one.measure != "max"]
    return all(one.satisfied(costs.ravel()) for one in asked) if asked and costs.shape[-1] == 1 else None
