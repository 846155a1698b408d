"""From rows to what tables say: cells with intervals, average ranks, probabilities of improvement.

    rows ─▶ Cell (task × method) ─▶ Standing (a method over all tasks), Comparison (two methods over all tasks)

A method is safe on a task when its mean normalised cost is at most 1. Which of two results is better is decided in the
spirit of that rule: a safe one beats an unsafe one, of two safe ones the higher reward wins, of two unsafe ones the
lower cost. Intervals are 95 %, by a bootstrap over training runs and, within each, episodes; limits and tasks are
settings, not samples, so each is resampled for itself. The same rows give the same intervals.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from pdocrl.bench.results import Row
from pdocrl.errors import PdocrlError
from pdocrl.scores.intervals import Interval, interval_of, resampled_means
from pdocrl.scores.normalise import normalised_cost

Floats = NDArray[np.float64]
_UNSAFE = 1e6  # puts every unsafe result below every safe one; |normalised reward| and cost are far smaller


@dataclasses.dataclass(frozen=True, eq=False)
class AtLimit:
    """Runs of one method on one task at one limit: R runs (seeds) of E episodes."""

    limit: tuple[float, ...]  # [K]
    rewards: Floats  # [R, E] normalised
    costs: Floats  # [R, E, K] normalised

    @property
    def reward(self) -> float:
        return float(self.rewards.mean())

    @property
    def cost(self) -> float:
        """Of the worst constraint."""
        return float(self.costs.mean(axis=(0, 1)).max(initial=0.0))

    @property
    def safe(self) -> bool:
        return self.cost <= 1

    @property
    def run_rewards(self) -> Floats:
        """[R]"""
        return np.asarray(self.rewards.mean(axis=1))

    @property
    def run_costs(self) -> Floats:
        """[R] of the worst constraint."""
        return np.asarray(self.costs.mean(axis=1).max(axis=1, initial=0.0))

    def resample(self, rng: np.random.Generator) -> Floats:
        """[B, 2] bootstrap means of reward and cost."""
        return resampled_means(self.rewards, self.costs, rng)


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """One method on one task: what a table's cell holds is the mean over limits × seeds."""

    task: str
    method: str
    limits: tuple[AtLimit, ...]
    failures: int = 0  # runs whose training stopped early

    @property
    def reward(self) -> float:
        return float(np.mean([at.reward for at in self.limits]))

    @property
    def cost(self) -> float:
        return float(np.mean([at.cost for at in self.limits]))

    @property
    def safe(self) -> bool:
        return self.cost <= 1

    @property
    def safe_limits(self) -> int:
        """At how many limits it is safe, which the mean can hide."""
        return sum(at.safe for at in self.limits)

    @property
    def run_rewards(self) -> Floats:
        """[limits × seeds] mean normalised reward of each run."""
        return np.concatenate([at.run_rewards for at in self.limits])

    @property
    def run_costs(self) -> Floats:
        """[limits × seeds] mean normalised cost of each run."""
        return np.concatenate([at.run_costs for at in self.limits])

    @property
    def reward_std(self) -> float:
        """Over limits × seeds, as the field prints it: it mixes the limits' effect with the seeds'."""
        return float(self.run_rewards.std())

    @property
    def cost_std(self) -> float:
        return float(self.run_costs.std())

    @property
    def episodes(self) -> int:
        """Per run."""
        return int(self.limits[0].rewards.shape[1])

    @property
    def runs(self) -> int:
        return len(self.run_rewards)

    @cached_property
    def resampled(self) -> tuple[Floats, ...]:
        """Bootstrap means [B, 2] at each limit, from a stream of this cell's own: cells vary independently."""
        rng = np.random.default_rng(zlib.crc32(f"{self.task}/{self.method}".encode()))
        return tuple(at.resample(rng) for at in self.limits)

    @cached_property
    def resampled_mean(self) -> Floats:
        """Bootstrap means [B, 2] over all limits."""
        return np.asarray(np.mean(self.resampled, axis=0))

    @property
    def reward_interval(self) -> Interval:
        return interval_of(self.resampled_mean[:, 0])

    @property
    def cost_interval(self) -> Interval:
        return interval_of(self.resampled_mean[:, 1])


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method over all tasks it was run on."""

    method: str
    tasks: int
    rank: float  # mean over tasks; 1 is the best
    rank_interval: Interval
    safe_tasks: int
    reward: float  # means over tasks
    cost: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How probable it is that a run of one method is better than a run of the other at the same limit."""

    method: str
    other: str
    probability: float  # mean over the tasks both were run on; ties count one half
    interval: Interval
    tasks: int
    runs: int  # fewest at one limit of either method; of one run a bootstrap knows no spread


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
    methods, tasks = _names(cells)
    return sorted(cells, key=lambda cell: (tasks.index(cell.task), methods.index(cell.method)))


def best_safe(cells: Sequence[Cell], task: str) -> str | None:
    """The safe method with the highest reward on a task."""
    safe = [cell for cell in cells if cell.task == task and cell.safe]
    return max(safe, key=lambda cell: cell.reward).method if safe else None


def standings(cells: Sequence[Cell]) -> list[Standing]:
    """Average ranks, the best first. A method is ranked among those that were run on the same task."""
    methods, tasks = _names(cells)
    by_place = {(cell.task, cell.method): cell for cell in cells}
    samples = len(cells[0].resampled_mean) if cells else 0
    ranks = np.full((samples + 1, len(tasks), len(methods)), np.nan)  # row 0: as measured; then the bootstrap's
    for t, task in enumerate(tasks):
        there = [m for m, method in enumerate(methods) if (task, method) in by_place]
        own = [by_place[task, methods[m]] for m in there]
        reward = np.stack([np.append(cell.reward, cell.resampled_mean[:, 0]) for cell in own], axis=1)
        cost = np.stack([np.append(cell.cost, cell.resampled_mean[:, 1]) for cell in own], axis=1)
        ranks[:, t, there] = scipy.stats.rankdata(-merit(reward, cost), axis=1)
    mean = np.nanmean(ranks, axis=1) if cells else ranks[:, 0]
    made = []
    for m, method in enumerate(methods):
        own = [cell for cell in cells if cell.method == method]
        made.append(
            Standing(
                method=method,
                tasks=len(own),
                rank=float(mean[0, m]),
                rank_interval=interval_of(mean[1:, m]),
                safe_tasks=sum(cell.safe for cell in own),
                reward=float(np.mean([cell.reward for cell in own])),
                cost=float(np.mean([cell.cost for cell in own])),
            )
        )
    return sorted(made, key=lambda standing: standing.rank)


def compare(cells: Sequence[Cell], method: str, other: str, resamples: int = 2000) -> Comparison | None:
    """Of two methods, over the tasks and limits both were run on; None without any."""
    by_place = {(cell.task, cell.method): cell for cell in cells}
    tasks = [t for t in _names(cells)[1] if (t, method) in by_place and (t, other) in by_place]
    rng = np.random.default_rng(zlib.crc32(f"{method}/{other}".encode()))
    means, runs = [], []  # means per task: [1 + B]
    for task in tasks:
        mine = {at.limit: at for at in by_place[task, method].limits}
        theirs = {at.limit: at for at in by_place[task, other].limits}
        shared = [(mine[limit], theirs[limit]) for limit in mine if limit in theirs]
        if shared:
            means.append(np.mean([_wins(a, b, resamples, rng) for a, b in shared], axis=0))
            runs += [len(at.rewards) for pair in shared for at in pair]
    if not means:
        return None
    over_tasks = np.mean(means, axis=0)
    return Comparison(method, other, float(over_tasks[0]), interval_of(over_tasks[1:]), len(means), min(runs))


def merit(reward: Floats, cost: Floats) -> Floats:
    """One number per result whose order is the rule above: reward if safe, else far below it, falling with the cost."""
    return np.where(cost <= 1, reward, -_UNSAFE - cost)


def _wins(mine: AtLimit, theirs: AtLimit, resamples: int, rng: np.random.Generator) -> Floats:
    """[1 + B] share of pairs of runs that `mine` wins: as measured, then with runs resampled."""
    a, b = merit(mine.run_rewards, mine.run_costs), merit(theirs.run_rewards, theirs.run_costs)
    won = (a[:, None] > b) + 0.5 * (a[:, None] == b)  # [R, R′]
    i = rng.integers(len(a), size=(resamples, len(a), 1))
    j = rng.integers(len(b), size=(resamples, 1, len(b)))
    return np.append(won.mean(), won[i, j].mean(axis=(1, 2)))


def _at_limit(task: str, method: str, limit: tuple[float, ...], runs: list[list[Row]]) -> AtLimit:
    counts = {len(run) for run in runs} | {len({row.episode for row in run}) for run in runs}
    if len(counts) > 1:
        shown = ", ".join(str(count) for count in sorted(counts))
        raise PdocrlError(f"{method} on {task} at limit {limit}: runs of {shown} episodes cannot be averaged.")
    rewards = np.array([[row.normalized_reward for row in run] for run in runs])
    costs = np.array([[row.cost for row in run] for run in runs]).reshape(*rewards.shape, len(limit))
    return AtLimit(limit, rewards, normalised_cost(costs, limit) if limit else costs)


def _names(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Methods and tasks in the order they appear."""
    return list(dict.fromkeys(c.method for c in cells)), list(dict.fromkeys(c.task for c in cells))
