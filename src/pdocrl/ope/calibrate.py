"""How far the models are off, measured on truth the log has: groups of episodes that some members never saw.

A held-out group stands for a policy. Its episodes are played again in the members that never saw them, from their own
starts, with the actions that were recorded, and with that policy's own reaction to where the model went astray:

    a_t = a_t(recorded) + K_g (s_t − s_t(recorded)),    K_g the regression of the group's actions on its states

Were the model right, it would repeat every episode exactly, so what differs is the model's error and nothing else:
neither a clone's error nor the luck of few episodes. Not all groups are equally hard. Errors are measured in

    scale = √(A · B),   A = a₀ + a₁ x₁ + a₂ x₂,   B = b₀ + b₁ x₁ + b₂ x₂ + b₃ x₃,    a, b ≥ 0 fitted to the |errors|

x₁ the spread of the members, x₂ the spread of episodes within a member (chaos), x₃ how unsure the members say they are.
B alone trusts what the networks say of themselves too much, A alone tells calm flight from tumbling too little. Then

    interval = prediction ± q · scale,   q the 95 % quantile of the groups' |error| / scale

(conformal prediction, out of bag: Kim, Xu, Barber 2020, "Predictive inference is free with the jackknife+-after-
bootstrap"). It holds for a policy that is to the groups what they are to each other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.optimize import nnls

from pdocrl.data.dataset import Dataset
from pdocrl.ope.ensemble import Ensemble, Scales
from pdocrl.ope.groups import Groups

Floats = NDArray[np.float64]
EPISODES = 12  # of a group that are played again
REACTION_RIDGE = 1e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Of G held-out groups: the truth, what the members that never saw a group predicted, and how hard it was."""

    truth: Floats  # [G, 1 + K] mean over the group's episodes
    predicted: Floats  # [G, 1 + K]
    hardness: Floats  # [G, 3, 1 + K] x₁, x₂, x₃

    @property
    def error(self) -> Floats:
        """[G, 1 + K] true minus predicted."""
        return np.asarray(self.truth - self.predicted)

    @functools.cached_property
    def weights(self) -> Floats:
        """[2, 1 + K, 5] of A and B: the least scale, intercept, and the weights of x₁, x₂, x₃."""
        return _weights(self.error, self.hardness)

    def scale(self, hardness: Floats) -> Floats:
        """[..., 1 + K] what errors are measured in, at hardness [..., 3, 1 + K]."""
        return _scale(self.weights, hardness)

    @functools.cached_property
    def scores(self) -> Floats:
        """[G, 1 + K] errors in scales."""
        return np.asarray(self.error / self.scale(self.hardness))

    def factor(self, level: float) -> Floats:
        """[1 + K] how many scales hold the truth on both sides, at this level."""
        return _quantile(np.abs(self.scores), level)

    def factor_above(self, level: float) -> Floats:
        """[1 + K] how many scales above the prediction the truth is not, at this level; at least 0."""
        return np.maximum(_quantile(self.scores, level), 0)

    def coverage(self, level: float) -> Floats:
        """[1 + K] share of the groups whose truth lies in the interval made from all other groups."""
        held = []
        for g in range(len(self.truth)):
            rest = Calibration(*(np.delete(x, g, axis=0) for x in (self.truth, self.predicted, self.hardness)))
            held.append(np.abs(self.error[g]) <= rest.factor(level) * rest.scale(self.hardness[g]))
        return np.asarray(np.mean(held, axis=0))


def hardness_of(sums: Floats, doubt: Floats) -> Floats:
    """x₁, x₂, x₃ [3, 1 + K] of imagined episodes, sums [M, n, 1 + K], doubt [M, n]."""
    members, episodes, signals = sums.shape
    spread = sums.mean(axis=1).std(axis=0, ddof=1) if members > 1 else np.zeros(signals)
    chaos = sums.std(axis=1, ddof=1).mean(axis=0) if episodes > 1 else np.zeros(signals)
    return np.stack([spread, chaos, np.full(signals, doubt.mean())])


def _weights(error: Floats, hardness: Floats) -> Floats:
    found = np.zeros((2, error.shape[1], 5))
    for k in range(error.shape[1]):
        size = np.abs(error[:, k])
        least = 0.1 * max(float(np.median(size)), 1e-6)
        for i, columns in enumerate(([0, 1], [0, 1, 2])):
            x = np.column_stack([np.full(len(size), least), hardness[:, columns, k]])
            found[i, k, [1, *(2 + c for c in columns)]] = nnls(x, size)[0]
            found[i, k, :2] = least, least * found[i, k, 1]
    return found


def _scale(weights: Floats, hardness: Floats) -> Floats:
    both = weights[..., 0] + weights[..., 1] + np.einsum("iks,...sk->...ik", weights[..., 2:], hardness)
    return np.asarray(np.sqrt(both[..., 0, :] * both[..., 1, :]))


def _quantile(scores: Floats, level: float) -> Floats:
    """The conformal quantile [1 + K]: of n scores the ⌈(n + 1)·level⌉-th, the largest where n is too small for it."""
    rank = min(len(scores), math.ceil((len(scores) + 1) * level))
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def calibrate(data: Dataset, ensemble: Ensemble, groups: Groups, bag: NDArray[np.bool_], seed: int) -> Calibration:
    """Play every group's episodes again in the members that never saw them, bag [M, G]."""
    rng = np.random.default_rng([seed, 6])
    gain = reactions(data, groups, ensemble.scales)
    chosen = [rng.permutation(np.flatnonzero(groups == g))[:EPISODES] for g in range(int(groups.max()) + 1)]
    episode = np.concatenate(chosen)
    sums, doubt = _replay(data, ensemble, gain[groups[episode]], episode, seed)
    actual = np.column_stack([data.reward_return, data.cost_return])
    truth, predicted, hardness = [], [], []
    at = 0
    for g, own in enumerate(chosen):
        unseen, part = ~bag[:, g], slice(at, at + len(own))
        truth.append(actual[own].mean(axis=0))
        predicted.append(sums[unseen, part].mean(axis=(0, 1)))
        hardness.append(hardness_of(sums[unseen, part], doubt[unseen, part]))
        at += len(own)
    return Calibration(np.stack(truth), np.stack(predicted), np.stack(hardness))


def reactions(data: Dataset, groups: Groups, scales: Scales) -> NDArray[np.float32]:
    """K [G, S, A] by ridge regression of a group's actions on its standardised states."""
    z = (data.obs - np.asarray(scales.obs_mean)) / np.asarray(scales.obs_scale)
    z = np.concatenate([np.ones((len(z), 1)), z], axis=1, dtype=np.float64)
    group = np.repeat(groups, data.episode_length)
    found = []
    for g in range(int(groups.max()) + 1):
        x, a = z[group == g], data.action[group == g].astype(np.float64)
        found.append(np.linalg.solve(x.T @ x + REACTION_RIDGE * len(x) * np.eye(x.shape[1]), x.T @ a)[1:])
    return np.stack(found).astype(np.float32)


def _replay(
    data: Dataset, ensemble: Ensemble, gain: NDArray[np.float32], episode: NDArray[np.int64], seed: int
) -> tuple[Floats, Floats]:
    """Sums [M, n, 1 + K] and doubts [M, n] of the episodes, played again in every member; gain [n, S, A]."""
    horizon, n = int(data.episode_length[episode].max()), len(episode)
    obs, action = np.zeros((horizon, n, data.obs_dim), np.float32), np.zeros((horizon, n, data.action_dim), np.float32)
    going = np.zeros((horizon, n), bool)
    for i, e in enumerate(episode):
        rows = slice(data.episode_start[e], data.episode_start[e] + data.episode_length[e])
        length = int(data.episode_length[e])
        obs[:length, i], action[:length, i], going[:length, i] = data.obs[rows], data.action[rows], True
    bounds = data.action.min(axis=0), data.action.max(axis=0)
    found = _replay_all(ensemble, *map(jnp.asarray, (gain, obs, action, going, *bounds)), seed)
    return np.asarray(found[0], np.float64), np.asarray(found[1], np.float64)


@jax.jit
def _replay_all(
    ensemble: Ensemble, gain: Array, obs: Array, action: Array, going: Array, low: Array, high: Array, seed: int
) -> tuple[Array, Array]:
    members, n, c = ensemble.members, obs.shape[1], ensemble.scales

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        (memory, state, alive, total, doubt), (key, o, a, on) = carry, now
        chosen = jnp.clip(a + jnp.einsum("mns,nsa->mna", (state - o) / c.obs_scale, gain), low, high)
        memory, state, signal, end, unsure = ensemble.step(key, memory, state, chosen)
        alive = alive & on
        counted = jnp.stack([alive * unsure, alive], -1)
        return (memory, state, alive & ~end, total + alive[..., None] * signal, doubt + counted), None

    state = jnp.broadcast_to(obs[0], (members, *obs.shape[1:]))
    signals = 1 + c.cost_mean.shape[0]
    alive = jnp.ones((members, n), bool)
    carry = ensemble.blank((members, n)), state, alive, jnp.zeros((members, n, signals)), jnp.zeros((members, n, 2))
    keys = jax.random.split(jax.random.key(seed), len(obs))
    found: Any = jax.lax.scan(step, carry, (keys, obs, action, going))[0]
    return found[-2], found[-1][..., 0] / found[-1][..., 1]
