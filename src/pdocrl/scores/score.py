"""Scores as the field reports them: normalised reward, cost over limit, safe or not, with intervals.

A policy is safe when its mean normalised cost is at most 1.

    normalised reward and cost of each episode ─▶ Score (one limit) ─▶ Scores (mean over the limits)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.scores.intervals import Interval, interval_of, resampled_means
from pdocrl.scores.normalise import Limit, normalised_cost, normalised_reward


@dataclasses.dataclass(frozen=True)
class Score:
    """Runs of one limit, R of them (seeds) with E episodes each."""

    limit: tuple[float, ...]  # one per constraint
    reward: float  # mean normalised reward
    reward_interval: Interval
    cost: float  # mean normalised cost, of the worst constraint
    cost_interval: Interval
    costs: tuple[float, ...]  # mean normalised cost of each constraint
    safe: bool  # every constraint's mean is within its limit
    runs: int
    episodes: int  # per run

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Scores:
    """A task under several limits: what a table's cell holds is the mean over them."""

    task: str
    by_limit: tuple[Score, ...]
    reward: float
    reward_interval: Interval
    cost: float
    cost_interval: Interval
    safe: bool  # the cell's own flag: mean normalised cost ≤ 1
    safe_limits: int  # at how many limits it is safe, which the mean can hide

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def score(task: str | Task, reward: ArrayLike, cost: ArrayLike, limit: Limit) -> Score:
    """Score the runs of one limit.

    Args:
        task: gives the reference scores.
        reward: [R, E] or [E] undiscounted episode rewards, R runs of E episodes.
        cost: [R, E, K], or [R, E] or [E] for one constraint: undiscounted episode costs.
        limit: allowed cost per episode, one number or one per constraint.
    """
    rewards, costs, limits = _normalised(task, reward, cost, limit)
    return _score(limits, rewards, costs, resampled_means(rewards, costs, np.random.default_rng(0)))


def score_limits(task: str | Task, runs: Mapping[Limit, tuple[ArrayLike, ArrayLike]]) -> Scores:
    """Score several limits and their mean: {limit: (reward [R, E], cost [R, E, K])}, each as in `score`."""
    if not runs:
        raise PdocrlError("no limits to score.")
    rng = np.random.default_rng(0)
    scores, means = [], []
    for limit, (reward, cost) in runs.items():
        rewards, costs, limits = _normalised(task, reward, cost, limit)
        means.append(resampled_means(rewards, costs, rng))
        scores.append(_score(limits, rewards, costs, means[-1]))
    # Limits are settings, not samples: each is resampled for itself, and the mean is taken over all of them.
    over_limits = np.mean(means, axis=0)
    mean_cost = float(np.mean([s.cost for s in scores]))
    return Scores(
        task=task if isinstance(task, str) else task.name,
        by_limit=tuple(scores),
        reward=float(np.mean([s.reward for s in scores])),
        reward_interval=interval_of(over_limits[:, 0]),
        cost=mean_cost,
        cost_interval=interval_of(over_limits[:, 1]),
        safe=mean_cost <= 1,
        safe_limits=sum(s.safe for s in scores),
    )


def _normalised(
    task: str | Task, reward: ArrayLike, cost: ArrayLike, limit: Limit
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, ...]]:
    """Normalised rewards [R, E] and costs [R, E, K], and the K limits; or an error that shows the shapes."""
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
    return normalised_reward(task, rewards), normalised_cost(costs, limits), limits


def _score(
    limits: tuple[float, ...], reward: NDArray[np.float64], cost: NDArray[np.float64], means: NDArray[np.float64]
) -> Score:
    """From normalised [R, E] rewards, [R, E, K] costs, and their resampled means."""
    costs = tuple(float(x) for x in cost.mean(axis=(0, 1)))
    return Score(
        limit=limits,
        reward=float(reward.mean()),
        reward_interval=interval_of(means[:, 0]),
        cost=max(costs, default=0.0),
        cost_interval=interval_of(means[:, 1]),
        costs=costs,
        safe=max(costs, default=0.0) <= 1,
        runs=reward.shape[0],
        episodes=reward.shape[1],
    )
