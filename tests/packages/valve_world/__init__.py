"""A package of somebody else's: an environment as awkward as environments are.

Actions in [0, 5] and [−2, 1], two costs under names of their own, a true end, nothing to render; among the observations
one in thousands, a clock and one that never changes.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

LOW, HIGH = np.array([0.0, -2.0], np.float32), np.array([5.0, 1.0], np.float32)


class Valve(gymnasium.Env):  # type: ignore[misc]
    """A tank with a valve: inflow earns, a high level and haste cost, an overflow ends it."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._level, self._clock = float(self.np_random.uniform(0, 500)), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        inflow, drain = (float(a) for a in action)
        self._level = max(0.0, self._level + 100 * (inflow + drain) - 150 + float(self.np_random.normal(0, 20)))
        self._clock += 1
        costs = {"cost_level": float(self._level > 1000), "cost_haste": float(inflow > 4)}
        return self._seen(), inflow / 5, self._level > 1500, False, costs

    def _seen(self) -> Any:
        return np.array([self._level, self._clock, 7.0])


class VectorValve(Valve):
    """The same with its costs as one vector."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {"cost": np.array([*info.values()])}


def level_cost(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> float:
    """A cost function of one's own."""
    return float(next_obs[0] > 1000)


gymnasium.register("Valve-v0", entry_point="valve_world:Valve", max_episode_steps=30)
gymnasium.register("VectorValve-v0", entry_point="valve_world:VectorValve", max_episode_steps=30)
