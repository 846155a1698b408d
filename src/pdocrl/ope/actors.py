"""Any policy as the actor of B episodes side by side, whatever it remembers.

    step = begin_many(policy, B, seed);   action [B, A] = step(obs [B, S], last_reward [B], last_cost [B, K])

Policies that need the observation alone are called with all rows at once; random proposals are drawn anew at every
step; decision transformers keep one window of B episodes, policies with a dial what B episodes have spent. Any other
policy with `begin` is stepped episode by episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError
from pdocrl.policies.cost_conditioned import CostConditionedPolicy
from pdocrl.policies.policy import Policy, ProposingPolicy, TransformerPolicy

Floats = NDArray[np.floating[Any]]
StepMany = Callable[[Floats, Floats, Floats], Floats]


def remembers(policy: Policy) -> bool:
    """Whether an action needs more than the observation and chance: then rows of a log say nothing of it."""
    network = getattr(policy, "network", policy)
    return hasattr(network, "begin") and not isinstance(network, ProposingPolicy)


def slow(policy: Policy) -> bool:
    """Whether a step takes much longer than a network's: a transformer's, or one episode after another."""
    return remembers(policy) and not isinstance(getattr(policy, "network", policy), CostConditionedPolicy)


def begin_many(policy: Policy, count: int, seed: int, where: str = "the policy") -> StepMany:
    """Begin `count` episodes; the same seed draws the same proposals."""
    step = _begin(policy, count, seed)

    def checked(obs: Floats, reward: Floats, cost: Floats) -> Floats:
        action = np.asarray(step(obs, reward, cost), np.float32)
        if not np.isfinite(action).all():
            raise PdocrlError(f"{where}: the policy's action is not finite at an observation of the data.")
        return action

    return checked


def _begin(policy: Policy, count: int, seed: int) -> StepMany:
    network, normaliser = getattr(policy, "network", None), getattr(policy, "normaliser", None)
    if (
        network is not None and normaliser is not None
    ):  # raw observations in; actions in [−1, 1], as the data holds them
        inner = _begin(network, count, seed)
        return lambda obs, reward, cost: inner(normaliser.normalise_obs(obs), reward, cost)
    if isinstance(policy, ProposingPolicy):
        return _proposals(policy, seed)
    if isinstance(policy, TransformerPolicy):
        return _window(policy, count)
    if isinstance(policy, CostConditionedPolicy):
        return _budgets(policy, count)
    if hasattr(policy, "begin"):
        steps = [policy.begin(seed + i) for i in range(count)]
        return lambda obs, reward, cost: np.stack(
            [step(*own) for step, own in zip(steps, zip(obs, reward.tolist(), cost, strict=True), strict=True)]
        )
    return lambda obs, reward, cost: policy(obs)


def _proposals(policy: ProposingPolicy, seed: int) -> StepMany:
    rng = np.random.default_rng(seed)

    def step(obs: Floats, reward: Floats, cost: Floats) -> Floats:
        return policy.act(obs, rng.standard_normal((len(obs), policy.candidates, policy.latent_dim), np.float32))

    return step


def _window(policy: TransformerPolicy, count: int) -> StepMany:
    """What `TransformerPolicy.begin` does, for B episodes in one window."""
    length, time = policy.context, 0
    sizes = policy.weights["obs/weight"].shape[0], policy.weights["action/weight"].shape[0]
    window: dict[str, NDArray[Any]] = {
        "returns": np.full((count, length), policy.target_return, np.float32),
        "costs": np.tile(np.asarray(policy.target_cost, np.float32), (count, length, 1)),
        "obs": np.zeros((count, length, sizes[0]), np.float32),
        "actions": np.zeros((count, length, sizes[1]), np.float32),
        "time": np.zeros((count, length), np.int64),
        "mask": np.zeros((count, length), np.float32),
    }

    def step(obs: Floats, reward: Floats, cost: Floats) -> Floats:
        nonlocal time
        wanted, budget = window["returns"][:, -1].copy(), window["costs"][:, -1].copy()
        for array in window.values():
            array[:, :-1] = array[:, 1:]
        window["returns"][:, -1] = wanted - (reward if time else 0)
        window["costs"][:, -1] = policy.left(budget - (cost if time else 0))
        window["obs"][:, -1], window["actions"][:, -1] = obs, 0
        window["time"][:, -1], window["mask"][:, -1] = time, 1
        action = policy.act(**window)
        window["actions"][:, -1] = action
        time += 1
        return action

    return step


def _budgets(policy: CostConditionedPolicy, count: int) -> StepMany:
    """What `LimitedPolicy.begin` does, for B episodes at the policy's own limit."""
    limit = np.tile(np.asarray(policy.limit, np.float32), (count, 1))
    spent, time = np.zeros_like(limit), 0

    def step(obs: Floats, reward: Floats, cost: Floats) -> Floats:
        nonlocal spent, time
        spent = spent + np.asarray(cost, np.float32) if time else spent
        steps = np.full((count, 1), min(time, policy.horizon), np.float32)
        time += 1
        return policy.act(obs, limit, spent, steps)

    return step
