"""Episodes of a policy in the learned models: H steps from recorded starts, one ensemble for the whole of each.

    step = begin_many(policy, B, seed);   action [B, A] = step(obs [B, S], last_reward [B], last_cost [B, K])

makes any policy the actor of B episodes side by side, whatever it remembers. Policies that need the observation alone
are called with all rows at once; random proposals are drawn anew at every step; decision transformers keep one window
of B episodes, cost-conditioned policies what B episodes have spent. Any other policy with `begin` is stepped episode by
episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.ope.ensemble.models import Ensembles
from pdocrl.policies.cost_conditioned import CostConditionedPolicy
from pdocrl.policies.policy import Policy, ProposingPolicy, TransformerPolicy

Floats = NDArray[np.float64]
Actions = NDArray[np.floating[Any]]
StepMany = Callable[[Actions, Actions, Actions], Actions]
KEPT = 1000  # pairs (s, a) kept of each policy, to be compared with recorded ones


@dataclasses.dataclass(frozen=True, eq=False)
class Rollouts:
    """What n episodes in each of F ensembles came to, and some of the pairs the policy went through."""

    sums: Floats  # [F, n, 1 + K] undiscounted reward and costs
    length: Floats  # [F, n]
    disagreement: Floats  # [F, n] mean over steps of how far the members were apart
    pairs: NDArray[np.float32]  # [≤ KEPT, S + A]


def play(
    ensemble: Ensembles,
    begin: Sequence[Callable[[int], StepMany]],
    starts: NDArray[np.floating],
    horizon: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> list[Rollouts]:
    """Play P policies, each begun for F·n episodes from starts [F, n, S], side by side.

    All policies meet the same starts and the same luck: company changes nothing.
    """
    policies, (folds, episodes, size) = len(begin), starts.shape
    steps = [one(folds * episodes) for one in begin]
    obs = np.tile(np.asarray(starts, np.float32), (policies, 1, 1, 1))
    costs = len(ensemble.normaliser.cost)
    signal = np.zeros((policies, folds, episodes, 1 + costs), np.float32)
    not_done = np.ones((policies, folds, episodes), bool)
    memory = ensemble.blank(not_done.shape)
    sums, length, disagreement = np.zeros(signal.shape), np.zeros(not_done.shape), np.zeros(not_done.shape)
    keep = _kept(horizon, folds * episodes, np.random.default_rng([seed, 5]))
    pairs: list[list[NDArray[np.float32]]] = [[] for _ in begin]
    key = jax.random.key(seed)
    for t in range(horizon):
        flat = obs.reshape(policies, -1, size)
        told = signal.reshape(policies, folds * episodes, -1)
        action = np.stack([step(o, y[:, 0], y[:, 1:]) for step, o, y in zip(steps, flat, told, strict=True)])
        for own, o, a in zip(pairs, flat, action, strict=True):
            own.append(np.concatenate([o[keep[t]], a[keep[t]]], axis=1))
        chosen = jnp.asarray(action.reshape(*not_done.shape, -1))
        memory, *drawn = _step(ensemble, jax.random.fold_in(key, t), memory, jnp.asarray(obs), chosen)
        obs, signal, end, unsure = (np.asarray(x) for x in drawn)
        disagreement += not_done * unsure
        sums += not_done[..., None] * signal
        length += not_done
        not_done = not_done & ~end
        advance()
        if not not_done.any():
            break
    return [
        Rollouts(sums[p], length[p], disagreement[p] / length[p], np.concatenate(pairs[p])) for p in range(policies)
    ]


def _kept(horizon: int, rows: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Which rows are kept at each step."""
    each = max(1, min(rows, KEPT // horizon))
    return [rng.choice(rows, each, replace=False) for _ in range(horizon)]


@eqx.filter_jit
def _step(
    ensemble: Ensembles, key: PRNGKeyArray, memory: Array, obs: Array, action: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The same luck for every policy, [P, F, n, …]."""
    step: Callable[..., tuple[Array, Array, Array, Array, Array]] = jax.vmap(lambda *now: ensemble.step(key, *now))
    return step(memory, obs, action)


def remembers(policy: Policy) -> bool:
    """Whether an action needs more than the observation and chance: then rows of a log say nothing of it."""
    network = getattr(policy, "network", policy)
    return hasattr(network, "begin") and not isinstance(network, ProposingPolicy)


def on_rows(policy: Policy, data: Dataset, where: str, seed: int) -> Callable[[NDArray[np.int64]], Actions] | None:
    """The policy at rows of the data, [N] → [N, A], each in its own episode; None where it needs more of the past.

    A cost-conditioned policy is told the time, and what the logged episode had spent by then.
    """
    network, normaliser = getattr(policy, "network", policy), getattr(policy, "normaliser", None)
    if isinstance(network, CostConditionedPolicy):
        whole = np.repeat(data.cost_return, data.episode_length, axis=0)
        spent, time = np.maximum(whole - data.to_go()[:, 1:], 0).astype(np.float32), data.time_step()

        def conditioned(rows: NDArray[np.int64]) -> Actions:
            obs = data.obs[rows] if normaliser is None else normaliser.normalise_obs(data.obs[rows])
            limit = np.tile(np.asarray(network.limit, np.float32), (len(rows), 1))
            steps = np.minimum(time[rows], network.horizon).astype(np.float32)[:, None]
            return network.act(obs, limit, spent[rows], steps)

        return conditioned
    if remembers(policy):
        return None
    step, nothing = begin_many(policy, 0, seed, where), np.zeros(0)
    return lambda rows: step(data.obs[rows], nothing, nothing)


def slow(policy: Policy) -> bool:
    """Whether a step takes much longer than a network's: a transformer's, or one episode after another."""
    return remembers(policy) and not isinstance(getattr(policy, "network", policy), CostConditionedPolicy)


def begin_many(policy: Policy, count: int, seed: int, where: str = "the policy") -> StepMany:
    """Begin `count` episodes; the same seed draws the same proposals."""
    step = _begin(policy, count, seed)

    def checked(obs: Actions, reward: Actions, cost: Actions) -> Actions:
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

    def step(obs: Actions, reward: Actions, cost: Actions) -> Actions:
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

    def step(obs: Actions, reward: Actions, cost: Actions) -> Actions:
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

    def step(obs: Actions, reward: Actions, cost: Actions) -> Actions:
        nonlocal spent, time
        spent = spent + np.asarray(cost, np.float32) if time else spent
        steps = np.full((count, 1), min(time, policy.horizon), np.float32)
        time += 1
        return policy.act(obs, limit, spent, steps)

    return step
