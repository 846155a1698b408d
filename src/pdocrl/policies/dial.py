"""One policy for every limit: dial."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.cost_conditioned import CostConditionedPolicy, Tail, in_words
from pdocrl.policies.mlp import PolicyInputError, Step, forward, one_hot


class PredictedTail(NamedTuple):
    """What was predicted of one limit on a tail."""

    limit: str  # as it was asked
    value: float  # the measure
    bound: float  # with its error and margin, which is what is compared with the limit
    within: bool


class Predicted(NamedTuple):
    """What was predicted of an episode at a limit, before any was played."""

    reward: float
    cost: NDArray[np.float32]  # [K] mean cost
    bound: NDArray[np.float32]  # [K] with its error and margin, which is what is compared with a limit on the mean
    within: bool  # whether every bound, also those of tails, is within its limit
    tails: tuple[PredictedTail, ...] = ()  # of each limit on a tail


def _none() -> NDArray[np.float32]:
    """A table without rows, of files of before version 0.3."""
    return np.zeros(0, np.float32)


def prediction(policy: Any) -> Predicted | None:
    """What a policy, also one with its normalisers, predicts of its own limit; None where it makes no statement."""
    network = getattr(policy, "network", policy)
    said: Predicted | None = network.predicted() if hasattr(network, "predicted") else None
    return said


def serves_tails(policy: Any) -> bool:
    """Whether a policy, also one with its normalisers, can be told a limit on the tail of an episode's cost."""
    network = getattr(policy, "network", policy)
    return len(getattr(network, "episode_costs", ())) > 0


@dataclasses.dataclass(frozen=True)
class DialPolicy(CostConditionedPolicy):
    """A conditional policy and M settings of its conditioning targets; the limit is set when it acts, and may change.

    Return and the distribution of the cost of every setting are predicted. For a limit it takes the setting of largest
    predicted return among those whose bound is within; where none is, the one that exceeds it least. Limits on tails
    say which settings may be taken at all, limits on means are told when it acts. A setting is a relative return, a
    target cost, of which less is left with every cost, and a cost cap: once an episode has cost so much the target is
    none at all. An episode that has cost more than its target is, as a whole, one that costs so much: the data has
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
        "episode_costs",
        "worst_start_costs",
        "start_excess",
        "max_step_cost",
        "share_bound",
    )
    LATER: ClassVar[tuple[str, ...]] = TABLES[-5:]  # not in files of before version 0.3: they serve no tails
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
    # [M, n, K] sorted sample of the predicted cost of an episode
    episode_costs: NDArray[np.float32] = dataclasses.field(default_factory=_none)
    # [M, n, K] the same from the costliest first states
    worst_start_costs: NDArray[np.float32] = dataclasses.field(default_factory=_none)
    # [M, K] by how much its mean is above that of all first states
    start_excess: NDArray[np.float32] = dataclasses.field(default_factory=_none)
    # [M, K] the costliest step of all rollouts
    max_step_cost: NDArray[np.float32] = dataclasses.field(default_factory=_none)
    # [n + 1] bound of a probability that was exceeded in 0 … n of n
    share_bound: NDArray[np.float32] = dataclasses.field(default_factory=_none)
    error_factor: float = 0.0  # times the standard deviation of a sample: the error of its mean
    margin: float = 1.0  # share of a limit that bounds may reach
    tails: tuple[Tail, ...] = ()  # limits on tails, beside those on means
    from_every_start: bool = False  # whether limits are to hold from every first state, not on average over them
    cost_names: tuple[str, ...] = ()  # [K]

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

    def with_limit(self, cost_limit: Any, from_every_start: bool | None = None) -> DialPolicy:
        """The same policy for other limits: numbers for the means, or words, also for tails.

        Args:
            cost_limit: 20, (20, 5), "P(cost>20)<=0.1", ["cost<=10", "CVaR90(cost)<=40"] or such limits as objects.
            from_every_start: whether they are to hold from every first state; default: as before.
        """
        means, tails = self._in_words(cost_limit) if in_words(cost_limit) else (self._limits(cost_limit).tolist(), ())
        if (tails or from_every_start) and not len(self.episode_costs):
            raise PolicyInputError("this policy is of before version 0.3 and serves limits on means; train it again.")
        every = self.from_every_start if from_every_start is None else from_every_start
        return dataclasses.replace(self, limit=tuple(means), tails=tails, from_every_start=every)

    def asked(self, limit: Any) -> tuple[DialPolicy, NDArray[np.float32]]:
        policy = self if limit is None else self.with_limit(limit)
        return policy, np.asarray(policy.limit, np.float32)

    def measured(self, tail: Tail) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """A measure of every setting, and its bound, [M] each."""
        if tail.measure == "max":
            found = self.max_step_cost[:, tail.cost]
            return found, found
        costs = (self.worst_start_costs if self.from_every_start else self.episode_costs)[:, :, tail.cost]
        n = costs.shape[1]
        if tail.measure == "exceedance":
            over = (costs > tail.number + 1e-6 * self.max_episode_cost[tail.cost]).sum(1)
            return np.asarray(over / np.float32(n), np.float32), self.share_bound[over]
        # CVaR = E[y], y = t + (C − t)₊ / (1 − level), at the sample's quantile t
        t = costs[:, min(int(np.ceil(tail.number * n)), n - 1)][:, None]
        y = t + np.maximum(costs - t, 0) / np.float32(1 - tail.number)
        bound = (y.mean(1) + np.float32(self.error_factor) * y.std(1, ddof=1)) / np.float32(self.margin)
        return np.asarray(y.mean(1)), np.asarray(bound)

    @functools.cached_property
    def allowed(self) -> NDArray[np.intp]:
        """[m] the settings whose bounds are within the limits on tails; where there is none, the one of least excess.

        Of several that exceed them equally, the one of least mean cost.
        """
        excess = np.zeros(len(self.reward), np.float32)
        for tail in self.tails:
            unit = 1.0 if tail.measure == "exceedance" else self.max_episode_cost[tail.cost]
            excess = np.maximum(excess, (self.measured(tail)[1] - np.float32(tail.value)) / np.float32(unit))
        within = np.flatnonzero(excess <= 1e-6)
        least = np.lexsort(((self.mean_cost / self.max_episode_cost).max(-1), excess))[:1]
        return within if len(within) else least

    @functools.cached_property
    def mean_bound(self) -> NDArray[np.float32]:
        """[M, K] the bound that is compared with limits on means."""
        if not self.from_every_start:
            return self.bound
        return np.asarray(self.bound + self.start_excess / np.float32(self.margin), np.float32)

    def setting(self, limit: NDArray[Any]) -> NDArray[np.intp]:
        """Which of the M settings is taken, [N], for each row of limits on means [N, K]."""
        limit, rows = np.asarray(limit, np.float32), self.allowed
        bound, reward = self.mean_bound[rows], self.reward[rows]
        excess = ((bound - limit[:, None]) / self.max_episode_cost).max(-1)  # [N, m]
        worth = np.where(excess <= 0, reward, reward.min() - np.float32(self.EXCEEDED) * (1 + excess))
        chosen: NDArray[np.intp] = rows[worth.argmax(-1)]
        return chosen

    def predicted(self, limit: Any = None) -> Predicted:
        """What was predicted of an episode at a limit."""
        policy, allowed = self.asked(limit)
        (chosen,) = policy.setting(allowed[None])
        bound, tails = policy.mean_bound[chosen], []
        for tail in policy.tails:
            value, most = (float(x[chosen]) for x in policy.measured(tail))
            tails.append(PredictedTail(tail.text, value, most, most <= tail.value + 1e-6))
        within = bool((bound <= allowed).all()) and all(tail.within for tail in tails)
        return Predicted(float(self.reward[chosen]), self.mean_cost[chosen], bound, within, tuple(tails))

    def begin(self, seed: int, limit: Any = None) -> Step:
        """As of every policy that is told its limit; warns where no setting is predicted within the one given here."""
        said = self.predicted(limit)
        if limit is not None and not said.within:
            policy, means = self.asked(limit)
            limited = np.isfinite(means)
            shown = [", ".join(f"{x:g}" for x in np.round(y[limited], 3)) for y in (means, said.bound) if limited.any()]
            text = [*shown[:1], *(tail.text for tail in policy.tails)]
            bounds = [*shown[1:], *(f"{tail.bound:.3g}" for tail in said.tails)]
            warnings.warn(
                f"cost limit {', '.join(text)} is not predicted to be satisfied; the setting that exceeds it least "
                f"acts, whose predicted bound is {', '.join(bounds)}.",
                stacklevel=2,
            )
        return super().begin(seed, limit)

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] so far, in `time` [B, 1] steps."""
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
        own = {name: getattr(self, name) for name in ("error_factor", "margin", "from_every_start")}
        words = {"tails": [list(tail) for tail in self.tails], "cost_names": list(self.cost_names)}
        return {"layers": len(self.weights), **numbers, "discrete": self.discrete, **own, **words}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> DialPolicy:
        layers: dict[str, Any] = {
            part: tuple(arrays[f"{part}_{i}"] for i in range(settings["layers"])) for part in ("weights", "biases")
        }
        found = {cls.RENAMED.get(name, name): array for name, array in arrays.items()}
        found.setdefault("mean_cost", found["bound"])  # version 0.2 kept the bound alone
        tables: dict[str, Any] = {name: found[name] for name in cls.TABLES if name in found or name not in cls.LATER}
        own = {name: value for name, value in settings.items() if name != "layers"}
        own["tails"] = tuple(Tail(*tail) for tail in own.get("tails", ()))
        own |= {name: tuple(own[name]) for name in ("limit", "cost_names") if name in own}
        return cls(**layers, **tables, **own)
