"""DSRL's normalisation: reward (R − R_min)/(R_max − R_min) with the task's reference scores, cost over its limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import PdocrlError

Limit = float | tuple[float, ...]  # allowed cost per episode, one number or one per constraint


def normalised_reward(task: str | Task, reward: ArrayLike) -> NDArray[np.float64]:
    """Episode rewards on the task's scale: 0 and 1 are the lowest and highest of its reference data."""
    task = find_task(task) if isinstance(task, str) else task
    return (np.asarray(reward, dtype=np.float64) - task.reward_min) / (task.reward_max - task.reward_min)


def normalised_cost(cost: ArrayLike, limit: ArrayLike) -> NDArray[np.float64]:
    """Episode costs over their limits, [..., K] and [K] or plain numbers; at the limit it is 1, also at limit 0."""
    allowed = np.asarray(limit, dtype=np.float64)
    if not (allowed >= 0).all():
        raise PdocrlError(f"cost limit {allowed} must be a number of at least 0.")
    shift = np.where(allowed == 0, 1.0, 0.0)
    return (np.asarray(cost, dtype=np.float64) + shift) / (allowed + shift)
