"""Episodes of a policy in the learned models: H steps from recorded starts, one ensemble for the whole of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.ope.actors import StepMany
from pdocrl.ope.ensemble import Ensemble

Floats = NDArray[np.float64]
KEPT = 1000  # pairs (s, a) kept of each policy, to be compared with recorded ones


@dataclasses.dataclass(frozen=True, eq=False)
class Rollouts:
    """What n episodes in each of F ensembles came to, and some of the pairs the policy went through."""

    sums: Floats  # [F, n, 1 + K] undiscounted reward and costs
    length: Floats  # [F, n]
    disagreement: Floats  # [F, n] mean over steps of how far the members were apart
    pairs: NDArray[np.float32]  # [≤ KEPT, S + A]


def play(
    ensemble: Ensemble,
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
    costs = ensemble.scales.cost_mean.shape[0]
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
    ensemble: Ensemble, key: PRNGKeyArray, memory: Array, obs: Array, action: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The same luck for every policy, [P, F, n, …]."""
    step: Callable[..., tuple[Array, Array, Array, Array, Array]] = jax.vmap(lambda *now: ensemble.step(key, *now))
    return step(memory, obs, action)
