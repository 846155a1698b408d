"""Policies that are told their limit when they act: what dial, CAPS and bcrl share, and those of CAPS and bcrl."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.mlp import Layers, PolicyInputError, SavedNetworks, Step, forward, one_hot

P = TypeVar("P", bound="CostConditionedPolicy")


class CostConditionedPolicy:
    """One policy for every limit. Its function `act` is told the limit, what was spent of it, and the time.

    Subclasses are frozen dataclasses with these two fields among theirs.
    """

    horizon: float  # steps of a full episode
    limit: tuple[float, ...]  # [K] where none is given

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] so far, in `time` [B, 1] steps."""
        raise NotImplementedError

    def with_limit(self: P, cost_limit: Any) -> P:
        """The same policy for another limit: one number or one per constraint, or in words, "cost<=20"."""
        moved: P = dataclasses.replace(self, limit=tuple(self._limits(cost_limit).tolist()))  # type: ignore[type-var]
        return moved

    def asked(self: P, limit: Any) -> tuple[P, NDArray[np.float32]]:
        """The policy that serves a limit, None for its own, and the limits on means it is told."""
        return self, self._limits(limit)

    def begin(self, seed: int, limit: Any = None) -> Step:
        """The steps of one episode at a limit; `step(…, limit=x)` changes it from there on. Nothing is random."""
        spent, steps = np.zeros((1, len(self.limit)), np.float32), 0
        policy, allowed = self.asked(limit)

        def step(
            obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, limit: Any = None
        ) -> NDArray[np.float32]:
            nonlocal policy, allowed, spent, steps
            if limit is not None:
                policy, allowed = self.asked(limit)
            if steps:
                spent = spent + np.asarray(last_cost, np.float32)
            time = np.full((1, 1), min(steps, self.horizon), np.float32)
            steps += 1
            action: NDArray[np.float32] = policy.act(np.asarray(obs)[None], allowed[None], spent, time)[0]
            return action

        return step

    def __call__(self, obs: NDArray[Any], limit: Any = None) -> NDArray[np.float32]:
        """As on an episode's first step."""
        rows = len(obs)
        nothing = np.zeros((rows, len(self.limit)), np.float32)
        policy, allowed = self.asked(limit)
        return policy.act(obs, nothing + allowed, nothing, np.zeros((rows, 1), np.float32))

    def _limits(self, limit: Any) -> NDArray[np.float32]:
        """[K] limits on means."""
        if in_words(limit):
            limit, tails = self._in_words(limit)
            if tails:
                raise PolicyInputError(
                    f"limit {tails[0].text}: a policy of this kind serves limits on the mean cost alone; one of `dial` "
                    "serves limits on tails."
                )
        given = np.atleast_1d(np.asarray(self.limit if limit is None else limit, np.float32))
        if given.shape != (len(self.limit),) or not (given >= 0).all():
            raise ValueError(f"limit {limit} must be {len(self.limit)} number(s) of at least 0, one for each cost")
        return given

    def _in_words(self, limit: Any) -> tuple[list[float], tuple[Tail, ...]]:
        """Limits on the mean of each cost, ∞ where there is none, and those on tails."""
        try:
            from pdocrl.limits import as_limits
        except ImportError:
            raise PolicyInputError(f"limit {limit!r}: limits in words are read by the package pdocrl.") from None
        names = getattr(self, "cost_names", ())  # without them one cost goes by any name
        if len(self.limit) > 1 and not names:
            raise PolicyInputError(f"limit {limit!r}: this policy does not know its costs by name; give numbers.")
        means, tails = [float("inf")] * len(self.limit), []
        for one in as_limits(limit):
            if one.sense == ">=":
                raise PolicyInputError(f"limit {one}: costs are limited from above; write <=.")
            k = one.index(names) if names else 0
            number = one.threshold if one.threshold is not None else one.level or 0.0
            if one.tail:
                tails.append(Tail(one.measure, k, number, one.value, str(one)))
            else:
                means[k] = one.value
        return means, tuple(tails)


class Tail(NamedTuple):
    """A limit on the tail of an episode's cost; see `pdocrl.limits`."""

    measure: str  # exceedance, cvar or max
    cost: int  # of which of the K costs
    number: float  # the threshold of an exceedance, the level of a CVaR
    value: float  # what the measure is limited to
    text: str


def in_words(limit: Any) -> bool:
    """Whether limits are given as text or as objects, and not as numbers."""
    given = [limit] if isinstance(limit, str) or hasattr(limit, "measure") else limit
    return isinstance(given, list | tuple) and any(isinstance(x, str) or hasattr(x, "measure") for x in given)


def discounted_budget(
    limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any], horizon: float, gamma: float
) -> NDArray[np.float32]:
    """What is left of a limit, spread over the h steps left, as a discounted sum: (1−γʰ)/(1−γ)/h of it, [B, K]."""
    left = np.maximum(np.asarray(limit, np.float32) - np.asarray(spent, np.float32), 0)
    steps = np.maximum(np.float32(horizon) - np.asarray(time, np.float32), 1)
    gamma32 = np.float32(gamma)
    out: NDArray[np.float32] = left * (1 - gamma32**steps) / (1 - gamma32) / steps
    return out


@dataclasses.dataclass(frozen=True)
class BudgetPolicy(SavedNetworks, CostConditionedPolicy):
    """π(s, δ) with δ what is left of the limit beyond V_c(s)₊; where next to nothing is, the policy of least cost."""

    kind: ClassVar[str] = "budget"
    LITTLE: ClassVar[float] = 0.1  # a budget below this, in units of the largest cost of a step, is none
    networks: dict[str, Layers]  # actor: (s, δ) → A; safe: s → A; cost_value: s → K
    horizon: float  # steps of a full episode
    gamma: float  # of the cost's value
    unit: tuple[float, ...]  # [K] the largest cost of a step, in which the networks count; older files have one for all
    limit: tuple[float, ...]  # [K] where none is given
    discrete: bool = False  # whether both policies give scores of discrete actions

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] so far, in `time` [B, 1] steps."""
        obs = np.asarray(obs, np.float32)
        budget = discounted_budget(limit, spent, time, self.horizon, self.gamma) / np.asarray(self.unit, np.float32)
        budget = np.minimum(budget, np.float32(1 / (1 - self.gamma)))
        least_cost = np.maximum(forward(self.networks["cost_value"], obs), 0)
        beyond = np.maximum(budget - least_cost, 0)  # [B, K]
        free = forward(self.networks["actor"], np.concatenate([obs, beyond], -1))
        least = forward(self.networks["safe"], obs)
        little = (beyond < np.float32(self.LITTLE)).any(-1, keepdims=True)
        out = np.where(little, least, free)
        return one_hot(out) if self.discrete else np.asarray(np.tanh(out), np.float32)


@dataclasses.dataclass(frozen=True)
class SwitchingPolicy(SavedNetworks, CostConditionedPolicy):
    """At every step the head of largest Q_r among those whose Q_c is within what is left of the limit.

    Where no head is, the one that exceeds it least.
    """

    kind: ClassVar[str] = "switching"
    networks: dict[str, Layers]  # actor: s → H·A; critic and cost_critic: M networks each, the most pessimistic counts
    horizon: float  # steps of a full episode
    gamma: float  # of the critics
    limit: tuple[float, ...]  # [K] where none is given
    heads: int  # H
    discrete: bool = False  # whether the actor gives scores of discrete actions

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] so far, in `time` [B, 1] steps."""
        obs = np.asarray(obs, np.float32)
        out = forward(self.networks["actor"], obs).reshape(len(obs), self.heads, -1)  # [B, H, A]
        action = one_hot(out) if self.discrete else np.tanh(out)
        pairs = np.concatenate([np.repeat(obs[:, None], self.heads, 1), action], -1).reshape(len(obs) * self.heads, -1)
        value = forward(self.networks["critic"], pairs).min(0).reshape(len(obs), self.heads)
        cost = np.maximum(forward(self.networks["cost_critic"], pairs).max(0), 0)
        allowed = discounted_budget(limit, spent, time, self.horizon, self.gamma)
        excess = (cost.reshape(len(obs), self.heads, -1) - allowed[:, None]).max(-1)  # [B, H]
        kept = excess < 0
        worth = np.where(kept.any(-1, keepdims=True), np.where(kept, value, -np.inf), -excess)
        best = worth.argmax(-1)
        return np.asarray(np.take_along_axis(action, best[:, None, None], 1)[:, 0], np.float32)
