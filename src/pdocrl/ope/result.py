"""What `pdocrl ope` says of each policy, and what ope.json holds: estimates, intervals, one verdict, one flag.

method                  whose numbers stand in each run; every method's are under its `by_method`
level, horizon          0.95, and the steps of an episode whose undiscounted sums are estimated
data                    {name, digest}
versions, settings      what made the numbers
calibration             of the ensemble on groups of episodes it had not seen; see `pdocrl.ope.calibrate`
task, agent, step       of the training
runs[i]                 in the plan's order; every run has
    agent, cost_limit [K], seed, and the settings the runs vary
    reward, reward_interval [low, high]
    cost [K], cost_interval [K][low, high]
    normalized_reward, normalized_reward_interval      null without a task
    normalized_cost, normalized_cost_interval          of the worst constraint; null without constraints
    within_limit        true: shown, false: shown to be over, null: neither
    verdict             the same in words
    trusted, doubts     false with the reasons, when the data cannot carry the estimate; see `pdocrl.ope.support`
    outside, effective_sample_size                     what the flag is decided by
    by_method           {method: {reward, reward_interval, cost, cost_interval}}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.tasks import Task
from pdocrl.scores.normalise import normalised_cost, normalised_reward

FILE = "ope.json"
LEVEL = 0.95
VERDICTS = {True: "within limit at 95 %", False: "over the limit", None: "not shown"}

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """One method's word on one policy: undiscounted episode sums, reward first and then the K costs."""

    value: Floats  # [1 + K]
    resampled: Floats  # [B, 1 + K] the same from B redrawn datasets

    @property
    def interval(self) -> Floats:
        """[1 + K, 2] percentile interval, widened to hold the estimate itself."""
        low, high = np.quantile(self.resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return np.stack([np.minimum(low, self.value), np.maximum(high, self.value)], axis=1)

    def within(self, limit: Sequence[float]) -> bool | None:
        """Whether all costs are shown to be within their limits (True), one to be over (False), or neither (None).

        Each statement is one-sided at the level: 95 % of the redrawn datasets agree on it, and so does the estimate.
        """
        cost, costs = self.value[1:], self.resampled[:, 1:]
        if bool((costs <= limit).all(axis=1).mean() >= LEVEL and (cost <= limit).all()):
            return True
        over = (costs > limit).mean(axis=0) >= LEVEL
        return False if bool((over & (cost > limit)).any()) else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        interval = self.interval.tolist()
        return {
            "reward": float(self.value[0]),
            "reward_interval": interval[0],
            "cost": self.value[1:].tolist(),
            "cost_interval": interval[1:],
        }


class Told(Protocol):
    """Any method's word on one policy."""

    @property
    def value(self) -> Floats: ...

    @property
    def interval(self) -> Floats: ...


def normalised(task: Task | None, estimate: Told, limit: Sequence[float]) -> dict[str, Any]:
    """The estimate on the scales of the scores that roll-outs get."""
    interval = estimate.interval
    found: dict[str, Any] = dict.fromkeys(
        ("normalized_reward", "normalized_reward_interval", "normalized_cost", "normalized_cost_interval")
    )
    if task is not None:
        found["normalized_reward"] = float(normalised_reward(task, estimate.value[0]))
        found["normalized_reward_interval"] = normalised_reward(task, interval[0]).tolist()
    if len(limit):
        cost = normalised_cost(estimate.value[1:], limit)
        worst = int(cost.argmax())
        found["normalized_cost"] = float(cost[worst])
        found["normalized_cost_interval"] = normalised_cost(interval[1 + worst], limit[worst]).tolist()
    return found


@dataclasses.dataclass(frozen=True)
class OffPolicy:
    """The estimates of every run of a training; its fields are the keys of ope.json."""

    task: str | None
    agent: str
    method: str
    level: float
    horizon: int
    data: dict[str, str]
    step: int
    versions: dict[str, str]
    settings: dict[str, Any]
    calibration: (
        dict[str, Any] | None
    )  # of the ensemble: groups, factor, coverage, and every group's truth and prediction
    runs: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)
