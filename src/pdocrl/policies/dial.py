"""One policy for every limit: dial."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.cost_conditioned import CostConditionedPolicy
from pdocrl.policies.mlp import Step, forward, one_hot


class Predicted(NamedTuple):
    """What was predicted of an episode at a limit, before any was played."""

    reward: float
    cost: NDArray[np.float32]  # [K] mean cost
    bound: NDArray[np.float32]  # [K] with its error and margin, which is what is compared with the limit
    within: bool  # whether every bound is within its limit


def prediction(policy: Any) -> Predicted | None:
    """What a policy, also one with its normalisers, predicts of its own limit; None where it makes no statement."""
    network = getattr(policy, "network", policy)
    said: Predicted | None = network.predicted() if hasattr(network, "predicted") else None
    return said


@dataclasses.dataclass(frozen=True)
class DialPolicy(CostConditionedPolicy):
    """A conditional policy and M settings of its conditioning targets; the limit is set when it acts, and may change.

    Return and cost of every setting are predicted. For a limit it takes the setting of largest predicted return among
    those whose bound is within; where none is, the one that exceeds it least. A setting is a relative
    return, a target cost, of which less is left with every cost paid, and a cost cap: once so much is spent the target
    is none at all. An episode that has cost more than its target is, as a whole, one that costs so much: the data has
    such episodes.
    """

    kind: ClassVar[str] = "dial"
    SCALES: ClassVar[tuple[float, ...]] = (0.025, 0.125, 0.5)  # shares of the largest cost that are told apart well
    TABLES: ClassVar[tuple[str, ...]] = (
        "max_episode_cost",
        "relative_return",
        "target_cost",
        "cost_cap",
        "reward",
        "bound",
        "mean_cost",
    )
    RENAMED: ClassVar[dict[str, str]] = {  # the names of version 0.2's files
        "largest": "max_episode_cost",
        "quality": "relative_return",
        "ask": "target_cost",
        "stop": "cost_cap",
        "cost": "bound",
    }
    EXCEEDED: ClassVar[float] = 1e6  # what exceeding a limit by the largest cost is held to be worth
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    horizon: float  # steps of a full episode
    max_episode_cost: NDArray[np.float32]  # [K] cost of the costliest logged episode
    limit: tuple[float, ...]  # [K] where none is given
    relative_return: NDArray[np.float32]  # [M] 1 is the best return logged at that cost
    target_cost: NDArray[np.float32]  # [M, K]
    cost_cap: NDArray[np.float32]  # [M, K]
    reward: NDArray[np.float32]  # [M] predicted return
    bound: NDArray[np.float32]  # [M, K] predicted cost with its error and margin
    mean_cost: NDArray[np.float32]  # [M, K] predicted cost
    discrete: bool = False  # whether outputs are scores of discrete actions

    @classmethod
    def features(cls, budget: Any, max_episode_cost: Any, xp: Any = np) -> Any:
        """Amounts of cost [..., K] as the network sees them, [..., 4K], whatever their unit."""
        share = xp.maximum(budget, 0) / max_episode_cost
        return xp.concatenate([2 * xp.sqrt(share), *(2 * share / (share + scale) for scale in cls.SCALES)], -1)

    @classmethod
    def inputs(
        cls,
        obs: Any,
        relative_return: Any,
        target_cost: Any,
        cost_cap: Any,
        spent: Any,
        time_left: Any,
        max_episode_cost: Any,
        xp: Any = np,
    ) -> Any:
        """What the network sees, [..., S + 2 + 8K]: relative return and time left are [..., 1], amounts [..., K].

        `time_left` is a share of the horizon; `xp` is NumPy or jax.numpy.
        """
        capped = (spent >= cost_cap).any(-1, keepdims=True)
        target = xp.where(capped, 0.0, target_cost)
        budgets = [cls.features(x, max_episode_cost, xp) for x in (target - spent, xp.maximum(target, spent))]
        return xp.concatenate([obs, relative_return, time_left, *budgets], -1)

    def setting(self, limit: NDArray[Any]) -> NDArray[np.intp]:
        """Which of the M settings is taken, [N], for each row of limits [N, K]."""
        limit = np.asarray(limit, np.float32)
        excess = ((self.bound - limit[:, None]) / self.max_episode_cost).max(-1)  # [N, M]
        worth = np.where(excess <= 0, self.reward, self.reward.min() - np.float32(self.EXCEEDED) * (1 + excess))
        chosen: NDArray[np.intp] = worth.argmax(-1)
        return chosen

    def predicted(self, limit: Any = None) -> Predicted:
        """What was predicted of an episode at a limit."""
        allowed = self._limits(limit)
        (chosen,) = self.setting(allowed[None])
        bound = self.bound[chosen]
        return Predicted(float(self.reward[chosen]), self.mean_cost[chosen], bound, bool((bound <= allowed).all()))

    def begin(self, seed: int, limit: Any = None) -> Step:
        """As of every policy that is told its limit; warns where no setting is predicted within the one given here."""
        said = self.predicted(limit)
        if limit is not None and not said.within:
            shown, bound = (", ".join(f"{x:g}" for x in np.round(y, 3)) for y in (self._limits(limit), said.bound))
            warnings.warn(
                f"cost limit {shown} is not predicted to be satisfied; the setting that exceeds it least acts, whose "
                f"predicted bound is {bound}.",
                stacklevel=2,
            )
        return super().begin(seed, limit)

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        obs, spent = np.asarray(obs, np.float32), np.asarray(spent, np.float32)
        chosen = self.setting(limit)
        time_left = 1 - np.asarray(time, np.float32) / np.float32(self.horizon)
        targets = self.relative_return[chosen][:, None], self.target_cost[chosen], self.cost_cap[chosen]
        inputs = np.asarray(self.inputs(obs, *targets, spent, time_left, self.max_episode_cost), np.float32)
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
        found = {cls.RENAMED.get(name, name): array for name, array in arrays.items()}
        found.setdefault("mean_cost", found["bound"])  # version 0.2 kept the bound alone
        tables: dict[str, Any] = {name: found[name] for name in cls.TABLES}
        limit, discrete = tuple(settings["limit"]), settings.get("discrete", False)
        return cls(**layers, horizon=settings["horizon"], limit=limit, **tables, discrete=discrete)
