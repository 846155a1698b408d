"""Policies that are told their limit when they act: dial, the two of CAPS, bcrl."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.network import Step

P = TypeVar("P", bound="LimitedPolicy")


class LimitedPolicy:
    """One policy for every limit. Its function `act` is told the limit, what was spent of it, and the time.

    Subclasses are frozen dataclasses with these two fields among theirs.
    """

    horizon: float  # steps of a full episode
    limit: tuple[float, ...]  # [K] where none is given

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        raise NotImplementedError

    def at_limit(self: P, cost_limit: Any) -> P:
        """The same policy for another limit, one number or one per constraint."""
        moved: P = dataclasses.replace(self, limit=tuple(self._limits(cost_limit).tolist()))  # type: ignore[type-var]
        return moved

    def begin(self, seed: int, limit: Any = None) -> Step:
        """The steps of one episode at a limit; `step(…, limit=x)` changes it from there on. Nothing is random."""
        allowed, spent, steps = self._limits(limit), np.zeros((1, len(self.limit)), np.float32), 0

        def step(
            obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, limit: Any = None
        ) -> NDArray[np.float32]:
            nonlocal allowed, spent, steps
            if limit is not None:
                allowed = self._limits(limit)
            if steps:
                spent = spent + np.asarray(last_cost, np.float32)
            time = np.full((1, 1), min(steps, self.horizon), np.float32)
            steps += 1
            action: NDArray[np.float32] = self.act(np.asarray(obs)[None], allowed[None], spent, time)[0]
            return action

        return step

    def __call__(self, obs: NDArray[Any], limit: Any = None) -> NDArray[np.float32]:
        """As on an episode's first step."""
        rows = len(obs)
        nothing = np.zeros((rows, len(self.limit)), np.float32)
        return self.act(obs, nothing + self._limits(limit), nothing, np.zeros((rows, 1), np.float32))

    def _limits(self, limit: Any) -> NDArray[np.float32]:
        given = np.atleast_1d(np.asarray(self.limit if limit is None else limit, np.float32))
        if given.shape != (len(self.limit),) or not (given >= 0).all():
            raise ValueError(f"limit {limit} must be {len(self.limit)} number(s) of at least 0, one for each cost")
        return given


def discounted_budget(
    limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any], horizon: float, gamma: float
) -> NDArray[np.float32]:
    """What is left of a limit, spread over the h steps left, as a discounted sum: (1−γʰ)/(1−γ)/h of it, [B, K]."""
    left = np.maximum(np.asarray(limit, np.float32) - np.asarray(spent, np.float32), 0)
    steps = np.maximum(np.float32(horizon) - np.asarray(time, np.float32), 1)
    gamma32 = np.float32(gamma)
    out: NDArray[np.float32] = left * (1 - gamma32**steps) / (1 - gamma32) / steps
    return out
