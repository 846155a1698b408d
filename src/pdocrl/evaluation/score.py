"""Scores as the field reports them: normalised reward, cost over limit, safe or not, with intervals over trainings.

    episodes ─▶ AtLimit (the runs of one limit) ─▶ Cell (a method on a task, several limits) ─▶ Score, what is shown

A policy is safe when its mean normalised cost is at most 1. With several constraints the worst decides: the one whose
mean over all runs is the largest, and over all limits where several are averaged. (The mean of each run's worst, or of
each limit's, would be larger by chance alone. What is left of that falls with the number of trainings.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import field
from numpy.typing import ArrayLike

from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.intervals import (
    Floats,
    Interval,
    Measured,
    Over,
    binomial_interval,
    interquartile_mean,
    interval_words,
    mean_over_limits,
)
from pdocrl.evaluation.normalise import Limit, normalised_cost, normalised_reward
from pdocrl.limits import Limit as TailLimit
from pdocrl.records import Part

CVAR = TailLimit("cost", 1.0, "<=", "cvar", level=0.9)  # on normalised cost, where the limit is 1


class Tail(Part, frozen=True, kw_only=True):
    """How often and how far single episodes exceed their limit, which a mean hides; over all runs of a score.

    The interval (Clopper–Pearson) is exact for further independent episodes of these policies; it knows nothing of
    other trainings, nor that several runs met the same starts.
    """

    over: int  # episodes that cost more than the limit, in any constraint
    episodes: int
    share_interval: Interval  # 95 %
    cvar: float  # CVaR90 of the normalised cost: mean of the costliest tenth, of the worst constraint

    @property
    def share(self) -> float:
        return self.over / self.episodes

    def words(self) -> tuple[str, str]:
        """ "3 of 60 (5 %)" and "[1, 14] %"."""
        low, high = self.share_interval
        return f"{self.over} of {self.episodes} ({100 * self.share:.0f} %)", f"[{100 * low:.0f}, {100 * high:.0f}] %"


class Score(Part, frozen=True, kw_only=True):
    """A method on a task: at one limit, or as the mean over several, which are then in `by_limit`."""

    limit: list[float] | None  # one per constraint; None: the mean over limits
    reward: float  # mean normalised reward
    reward_interval: Interval | None  # 95 %; None: nothing varied that could tell
    reward_iqm: float  # interquartile mean over runs
    cost: float  # mean normalised cost, of the worst constraint
    cost_interval: Interval | None
    cost_iqm: float
    costs: list[float]  # of each constraint, at one limit
    intervals_over: Over  # "episodes": one training only, so nothing is said of how trainings differ
    safe: bool  # mean normalised cost ≤ 1; of limits on tails: they hold
    safe_limits: int  # at how many limits it is safe, which the mean can hide
    limits: int
    runs: int
    trainings: int
    episodes: int  # per run
    by_limit: list[Score] = field(default_factory=list)
    tail: Tail | None = None  # None: read from a file of before version 0.3
    trainings_over: int | None = None  # trainings whose mean cost exceeds the limit; None: of before version 0.3

    def words(self, what: Literal["reward", "cost"]) -> str:
        """The interval as tables show it: "[0.10, 0.20]", and what it is over where that is not trainings."""
        pair = self.reward_interval if what == "reward" else self.cost_interval
        return interval_words(pair) + (" episodes" if pair and self.intervals_over == "episodes" else "")

    def sentence(self) -> str:
        """Reward and cost with their intervals, and at how many limits it is safe."""
        figures = f"reward {self.reward:.3f} {self.words('reward')}, cost {self.cost:.3f} {self.words('cost')}"
        over = ""
        if self.trainings_over is not None and self.trainings > 1:
            low, high = binomial_interval(self.trainings_over, self.trainings)
            over = f"; over the limit on average: {self.trainings_over} of {self.trainings} trainings"
            over += f" [{100 * low:.0f}, {100 * high:.0f}] %"
        return f"{figures}, safe at {self.safe_limits} of {self.limits} limits{over}"


@dataclasses.dataclass(frozen=True, eq=False)
class AtLimit:
    """Runs of one method on one task at one limit: R runs of E episodes."""

    limit: tuple[float, ...]  # [K] asked when playing
    rewards: Floats  # [R, E] normalised
    costs: Floats  # [R, E, K] normalised
    trainings: tuple[Hashable, ...]  # [R] names of the trainings; runs at other limits may share them
    kept: bool | None = None  # whether limits on tails that they were asked for hold; None: the limit is on the mean

    @property
    def reward(self) -> float:
        return float(self.rewards.mean())

    @cached_property
    def worst_costs(self) -> Floats:
        """[R, E] of the constraint whose mean is the largest; zeros without constraints."""
        return _worst((self,))[0]

    @property
    def cost(self) -> float:
        """Of the worst constraint."""
        return float(self.worst_costs.mean())

    @property
    def safe(self) -> bool:
        return self.cost <= 1 if self.kept is None else self.kept

    @property
    def over(self) -> int:
        """Episodes over the limit, in any constraint."""
        return int((self.costs > 1 + 1e-9).any(axis=-1).sum())  # but for rounding

    @property
    def run_rewards(self) -> Floats:
        """[R]"""
        return np.asarray(self.rewards.mean(axis=1))

    @property
    def run_costs(self) -> Floats:
        """[R] each run by its own worst constraint, which decides whether that run is safe."""
        return np.asarray(self.costs.mean(axis=1).max(axis=1, initial=0.0))

    @cached_property
    def score(self) -> Score:
        return _score((self,), self.limit)


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """One method on one task: what a table's cell holds is the mean over its limits."""

    task: str
    method: str
    limits: tuple[AtLimit, ...]
    failures: int = 0  # runs whose training stopped early

    @cached_property
    def score(self) -> Score:
        return _score(self.limits, None)

    @cached_property
    def reward(self) -> Measured:
        return _measured(self.limits)[0]

    @cached_property
    def cost(self) -> Measured:
        return _measured(self.limits)[1]

    @property
    def reward_std(self) -> float:
        """Over limits × seeds, as the field prints it: it mixes the limits' effect with the seeds'."""
        return float(self.run_rewards.std())

    @property
    def cost_std(self) -> float:
        return float(self.worst_run_costs.std())

    @property
    def worst_run_costs(self) -> Floats:
        """[limits × seeds] mean normalised cost of each run, of the cell's worst constraint."""
        return _worst_of_runs(self.limits)

    @property
    def run_rewards(self) -> Floats:
        """[limits × seeds] mean normalised reward of each run."""
        return np.concatenate([at.run_rewards for at in self.limits])

    @property
    def run_costs(self) -> Floats:
        """[limits × seeds] mean normalised cost of each run, of its own worst constraint."""
        return np.concatenate([at.run_costs for at in self.limits])


def at_limit(
    task: str | Task,
    reward: ArrayLike,
    cost: ArrayLike,
    limit: Limit,
    trainings: Sequence[Hashable] | None = None,
    kept: bool | None = None,
) -> AtLimit:
    """Runs of one limit, undiscounted episode sums as normalised ones; or an error that shows the shapes.

    Args:
        task: gives the reference scores.
        reward: [R, E] or [E] undiscounted episode rewards, R runs of E episodes.
        cost: [R, E, K], or [R, E] or [E] for one constraint: undiscounted episode costs.
        limit: allowed cost per episode, one number or one per constraint.
        trainings: [R] the name of each run's training; without it every run is a training of its own.
        kept: of limits on tails, whether the episodes keep them; `limit` is then the amount of cost in them.
    """
    limits = (float(limit),) if isinstance(limit, int | float) else tuple(float(x) for x in limit)
    rewards = np.asarray(reward, dtype=np.float64)
    costs = np.asarray(cost, dtype=np.float64)
    shown = f"rewards {rewards.shape} and costs {costs.shape} with {len(limits)} limits"
    if costs.ndim == rewards.ndim and len(limits) == 1:
        costs = costs[..., None]
    if rewards.ndim == 1:
        rewards, costs = rewards[None], costs[None]
    if rewards.ndim != 2 or rewards.size == 0 or costs.shape != (*rewards.shape, len(limits)):
        raise PdocrlError(f"{shown}: expected rewards [runs, episodes] and costs [runs, episodes, limits].")
    if not (np.isfinite(rewards).all() and np.isfinite(costs).all()):
        raise PdocrlError("a reward or cost to be scored is not finite.")
    names = tuple((limits, run) for run in range(len(rewards))) if trainings is None else tuple(trainings)
    return AtLimit(limits, normalised_reward(task, rewards), normalised_cost(costs, limits), names, kept)


def _worst(limits: Sequence[AtLimit]) -> list[Floats]:
    """Per limit [R, E] of the constraint whose mean over these limits is the largest; zeros without constraints."""
    if not limits[0].limit:
        return [np.zeros_like(at.rewards) for at in limits]
    k = int(np.mean([at.costs.mean(axis=(0, 1)) for at in limits], axis=0).argmax())
    return [np.asarray(at.costs[:, :, k]) for at in limits]


def _worst_of_runs(limits: Sequence[AtLimit]) -> Floats:
    """[limits × seeds] mean over the episodes of each run, of that constraint."""
    return np.concatenate([costs.mean(axis=1) for costs in _worst(limits)])


def _measured(limits: Sequence[AtLimit]) -> tuple[Measured, Measured]:
    """Reward and cost over these limits."""
    trainings = [at.trainings for at in limits]
    return (
        mean_over_limits([at.rewards for at in limits], trainings),
        mean_over_limits(_worst(limits), trainings),
    )


def _score(limits: Sequence[AtLimit], limit: tuple[float, ...] | None) -> Score:
    reward, cost = _measured(limits)
    runs = np.concatenate([at.run_rewards for at in limits])
    paid: dict[Hashable, list[float]] = {}  # training → mean normalised cost of its runs
    for at, costs in zip(limits, _worst(limits), strict=True):
        for name, cost_of_run in zip(at.trainings, costs.mean(axis=1), strict=True):
            paid.setdefault(name, []).append(float(cost_of_run))
    least = 0.0 if all((at.costs >= 0).all() for at in limits) else -np.inf
    return Score(
        limit=None if limit is None else list(limit),
        reward=reward.value,
        reward_interval=reward.interval(),
        reward_iqm=interquartile_mean(runs),
        cost=cost.value,
        cost_interval=cost.interval(least),
        cost_iqm=interquartile_mean(_worst_of_runs(limits)),
        costs=[] if limit is None else [float(x) for x in limits[0].costs.mean(axis=(0, 1))],
        intervals_over=reward.over,
        safe=limits[0].safe if len(limits) == 1 else all(at.kept is not False for at in limits) and cost.value <= 1,
        safe_limits=sum(at.safe for at in limits),
        limits=len(limits),
        trainings_over=sum(float(np.mean(own)) > 1 for own in paid.values()),
        runs=len(runs),
        trainings=len({name for at in limits for name in at.trainings}),
        episodes=int(limits[0].rewards.shape[1]),
        by_limit=[] if limit is not None else [at.score for at in limits],
        tail=_tail(limits),
    )


def _tail(limits: Sequence[AtLimit]) -> Tail:
    """Over all episodes; the CVaR is the mean over limits of each limit's own."""
    over, episodes = sum(at.over for at in limits), sum(at.rewards.size for at in limits)
    return Tail(
        over=over,
        episodes=episodes,
        share_interval=binomial_interval(over, episodes),
        cvar=float(np.mean([CVAR.of(costs.ravel()) for costs in _worst(limits)])),
    )
