"""A package of somebody else's whose actions are choices, counted from 1: rest, walk or run along a road that gets wet.

Running earns most; on a wet stretch it costs, and may end in a fall.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

REST, WALK, RUN = 1, 2, 3


class Toll(gymnasium.Env):  # type: ignore[misc]
    """Observed: how far, and whether the road is wet here. Earned: 0, 1 or 2 a step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3, start=REST)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._wet = 0.0, bool(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        slips = action == RUN and self._wet
        falls = slips and bool(self.np_random.random() < 0.1)
        self._place += 0.1 * (action - REST)
        self._wet = bool(self.np_random.integers(2))
        return self._seen(), float(action - REST), falls, False, {"cost": float(slips)}

    def _seen(self) -> Any:
        return np.array([self._place, self._wet], np.float64)


gymnasium.register("Toll-v0", entry_point="toll_world:Toll", max_episode_steps=12)
