"""One policy for every limit: dial."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.cost_conditioned import CostConditionedPolicy
from pdocrl.policies.mlp import forward, one_hot


@dataclasses.dataclass(frozen=True)
class DialPolicy(CostConditionedPolicy):
    """A policy with a dial: the limit is set when it acts, and may change while it does.

    Of M settings of the dial it is known what they earn and cost. For a limit it takes the one that earns most among
    those within it; where none is, the one that exceeds it least. A setting asks for a quality and an amount of cost,
    of which less is left with every cost paid, and for none at all once `stop` is spent. An episode that has cost more
    than was asked for is, as a whole, one that costs so much: the data has such episodes.
    """

    kind: ClassVar[str] = "dial"
    SCALES: ClassVar[tuple[float, ...]] = (0.025, 0.125, 0.5)  # shares of the largest cost that are told apart well
    TABLES: ClassVar[tuple[str, ...]] = ("largest", "quality", "ask", "stop", "reward", "cost")
    MISSED: ClassVar[float] = 1e6  # what exceeding a limit by the largest cost is held to be worth
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    horizon: float  # steps of a full episode
    largest: NDArray[np.float32]  # [K] cost of the dearest logged episode
    limit: tuple[float, ...]  # [K] where none is given
    quality: NDArray[np.float32]  # [M] the settings: quality asked for; 1 is the best return logged at that cost
    ask: NDArray[np.float32]  # [M, K] cost asked for
    stop: NDArray[np.float32]  # [M, K] and spent before nothing is asked for any more
    reward: NDArray[np.float32]  # [M] what each earns, as rehearsed
    cost: NDArray[np.float32]  # [M, K] what each costs, as rehearsed, with its margin
    discrete: bool = False  # whether outputs are scores of discrete actions

    @classmethod
    def features(cls, budget: NDArray[Any], largest: NDArray[Any]) -> NDArray[np.float32]:
        """Amounts of cost [N, K] as the network is told them, [N, 4K], whatever their unit."""
        share = np.maximum(np.asarray(budget, np.float32), 0) / np.asarray(largest, np.float32)
        curves = [2 * np.sqrt(share), *(2 * share / (share + np.float32(scale)) for scale in cls.SCALES)]
        return np.concatenate(curves, -1).astype(np.float32)

    def setting(self, limit: NDArray[Any]) -> NDArray[np.intp]:
        """Which of the M settings is taken, [N], for each row of limits [N, K]."""
        limit = np.asarray(limit, np.float32)
        excess = ((self.cost - limit[:, None]) / self.largest).max(-1)  # [N, M]
        worth = np.where(excess <= 0, self.reward, self.reward.min() - np.float32(self.MISSED) * (1 + excess))
        chosen: NDArray[np.intp] = worth.argmax(-1)
        return chosen

    def expects(self, limit: Any = None) -> tuple[float, NDArray[np.float32]]:
        """What an episode at a limit was rehearsed to earn, and its costs [K] with their margin."""
        (chosen,) = self.setting(self._limits(limit)[None])
        return float(self.reward[chosen]), self.cost[chosen]

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        obs, spent = np.asarray(obs, np.float32), np.asarray(spent, np.float32)
        chosen = self.setting(limit)
        stopped = (spent >= self.stop[chosen]).any(-1, keepdims=True)
        ask = np.where(stopped, np.float32(0), self.ask[chosen])
        time_left = 1 - np.asarray(time, np.float32) / np.float32(self.horizon)
        given = [self.quality[chosen][:, None], time_left]
        budgets = [self.features(ask - spent, self.largest), self.features(np.maximum(ask, spent), self.largest)]
        inputs = np.concatenate([obs, *given, *budgets], -1)
        out = forward((self.weights, self.biases), inputs)
        return one_hot(out) if self.discrete else np.tanh(out)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = {f"{name}_{i}": array for name in ("weights", "biases") for i, array in enumerate(getattr(self, name))}
        return layers | {name: getattr(self, name) for name in self.TABLES}

    def settings(self) -> dict[str, Any]:
        numbers = {"horizon": self.horizon, "limit": list(self.limit)}
        return {"layers": len(self.weights), **numbers, "discrete": self.discrete}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> DialPolicy:
        layers: dict[str, Any] = {
            part: tuple(arrays[f"{part}_{i}"] for i in range(settings["layers"])) for part in ("weights", "biases")
        }
        tables: dict[str, Any] = {name: arrays[name] for name in cls.TABLES}
        limit, discrete = tuple(settings["limit"]), settings.get("discrete", False)
        return cls(**layers, horizon=settings["horizon"], limit=limit, **tables, discrete=discrete)
