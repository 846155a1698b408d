"""Several heads and the critics that choose among them: CAPS."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.limits import LimitedPolicy, discounted_budget
from pdocrl.policies.network import Layers, forward, layer_arrays, layers_from, one_hot


@dataclasses.dataclass(frozen=True)
class SwitchingPolicy(LimitedPolicy):
    """At every step the head of largest Q_r among those whose Q_c keeps what is left of the limit.

    Where no head keeps it, the one that exceeds it least.
    """

    kind: ClassVar[str] = "switching"
    networks: dict[str, Layers]  # actor: s → H·A; critic and cost_critic: M networks each, the most pessimistic counts
    horizon: float  # steps of a full episode
    gamma: float  # of the critics
    limit: tuple[float, ...]  # [K] where none is given
    heads: int  # H
    chooses: bool = False  # whether the actor gives scores of choices

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        obs = np.asarray(obs, np.float32)
        out = forward(self.networks["actor"], obs).reshape(len(obs), self.heads, -1)  # [B, H, A]
        action = one_hot(out) if self.chooses else np.tanh(out)
        pairs = np.concatenate([np.repeat(obs[:, None], self.heads, 1), action], -1).reshape(len(obs) * self.heads, -1)
        value = forward(self.networks["critic"], pairs).min(0).reshape(len(obs), self.heads)
        cost = np.maximum(forward(self.networks["cost_critic"], pairs).max(0), 0)
        allowed = discounted_budget(limit, spent, time, self.horizon, self.gamma)
        excess = (cost.reshape(len(obs), self.heads, -1) - allowed[:, None]).max(-1)  # [B, H]
        kept = excess < 0
        worth = np.where(kept.any(-1, keepdims=True), np.where(kept, value, -np.inf), -excess)
        best = worth.argmax(-1)
        return np.asarray(np.take_along_axis(action, best[:, None, None], 1)[:, 0], np.float32)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return layer_arrays(self.networks)

    def settings(self) -> dict[str, Any]:
        layers = {name: len(network[0]) for name, network in self.networks.items()}
        numbers = {name: getattr(self, name) for name in ("horizon", "gamma", "heads", "chooses")}
        return {"layers": layers, "limit": list(self.limit), **numbers}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> SwitchingPolicy:
        numbers = {name: value for name, value in settings.items() if name not in {"layers", "limit"}}
        return cls(layers_from(arrays, settings["layers"]), limit=tuple(settings["limit"]), **numbers)
