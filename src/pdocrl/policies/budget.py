"""A policy told its budget beyond the least that must be spent, and one that spends least: bcrl."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.limits import LimitedPolicy, discounted_budget
from pdocrl.policies.network import Layers, forward, layer_arrays, layers_from, one_hot


@dataclasses.dataclass(frozen=True)
class BudgetPolicy(LimitedPolicy):
    """π(s, δ) with δ what is left of the limit beyond V_c(s); where next to nothing is, the policy of least cost."""

    kind: ClassVar[str] = "budget"
    LITTLE: ClassVar[float] = 0.1  # a budget below this, in units of the largest cost of a step, is none
    NUMBERS: ClassVar[tuple[str, ...]] = ("horizon", "gamma", "unit")
    networks: dict[str, Layers]  # actor: (s, δ) → A; safe: s → A; cost_value: s → K
    horizon: float  # steps of a full episode
    gamma: float  # of the cost's value
    unit: float  # the largest cost of a step; the networks count in it
    limit: tuple[float, ...]  # [K] where none is given
    chooses: bool = False  # whether both policies give scores of choices

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        obs = np.asarray(obs, np.float32)
        budget = discounted_budget(limit, spent, time, self.horizon, self.gamma) / np.float32(self.unit)
        budget = np.minimum(budget, np.float32(1 / (1 - self.gamma)))
        beyond = np.maximum(budget - forward(self.networks["cost_value"], obs), 0)  # [B, K]
        free = forward(self.networks["actor"], np.concatenate([obs, beyond], -1))
        least = forward(self.networks["safe"], obs)
        little = (beyond < np.float32(self.LITTLE)).any(-1, keepdims=True)
        out = np.where(little, least, free)
        return one_hot(out) if self.chooses else np.asarray(np.tanh(out), np.float32)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return layer_arrays(self.networks)

    def settings(self) -> dict[str, Any]:
        layers = {name: len(network[0]) for name, network in self.networks.items()}
        numbers = {name: getattr(self, name) for name in (*self.NUMBERS, "chooses")}
        return {"layers": layers, "limit": list(self.limit), **numbers}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> BudgetPolicy:
        numbers = {name: value for name, value in settings.items() if name not in {"layers", "limit"}}
        return cls(layers_from(arrays, settings["layers"]), limit=tuple(settings["limit"]), **numbers)
