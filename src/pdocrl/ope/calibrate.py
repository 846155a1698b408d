"""How far the models are off, measured on truth the log has: groups of episodes that some members never saw.

A held-out group stands for a policy. Its episodes are played again in the members that never saw them, from their own
starts, with the actions that were recorded, and with that policy's own reaction to where the model went astray:

    a_t = a_t(recorded) + K_g (s_t − s_t(recorded)),    K_g the regression of the group's actions on its states

Were the model right, it would repeat every episode exactly, so what differs is the model's error and nothing else:
neither a clone's error nor the luck of few episodes. Of each group g and signal

    score_g = (true mean − predicted mean) / √(spread of the members² + floor²)

and an interval is the prediction ± the 95 % quantile of |score| × the spread of what it is an interval for (split
conformal prediction, out of bag: Kim, Xu, Barber 2020, "Predictive inference is free with the jackknife+-after-
bootstrap"). It is exact for a policy that is to the groups what they are to each other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.ope.ensemble import Ensemble, Scales
from pdocrl.ope.groups import Groups

Floats = NDArray[np.float64]
EPISODES = 12  # of a group that are played again
REACTION_RIDGE = 1e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Of G held-out groups: the truth, what the members that never saw the group predicted, and how they spread."""

    truth: Floats  # [G, 1 + K] mean over the group's episodes
    predicted: Floats  # [G, 1 + K]
    spread: Floats  # [G, 1 + K] standard deviation over members

    @property
    def floor(self) -> Floats:
        """[1 + K] the median error: members may agree on what is wrong."""
        return np.asarray(np.median(np.abs(self.truth - self.predicted), axis=0))

    def scale(self, spread: Floats) -> Floats:
        """√(spread² + floor²), what errors are measured in."""
        return np.asarray(np.sqrt(spread**2 + self.floor**2 + 1e-12))

    @property
    def scores(self) -> Floats:
        """[G, 1 + K] true minus predicted, in scales."""
        return np.asarray((self.truth - self.predicted) / self.scale(self.spread))

    def factor(self, level: float) -> Floats:
        """[1 + K] how many scales hold the truth on both sides, at this level."""
        return _quantile(np.abs(self.scores), level)

    def factor_above(self, level: float) -> Floats:
        """[1 + K] how many scales above the prediction the truth is not, at this level; at least 0."""
        return np.maximum(_quantile(self.scores, level), 0)

    def factor_below(self, level: float) -> Floats:
        """[1 + K] the same below."""
        return np.maximum(_quantile(-self.scores, level), 0)


def _quantile(scores: Floats, level: float) -> Floats:
    """The conformal quantile [1 + K]: of n scores the ⌈(n + 1)·level⌉-th, the largest where n is too small for it."""
    rank = min(len(scores), math.ceil((len(scores) + 1) * level))
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def calibrate(
    data: Dataset,
    ensemble: Ensemble,
    groups: Groups,
    bag: NDArray[np.bool_],
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Calibration:
    """Play every group's episodes again in the members that never saw them."""
    rng = np.random.default_rng([seed, 6])
    gain = reactions(data, groups, ensemble.scales)
    chosen = [rng.permutation(np.flatnonzero(groups == g))[:EPISODES] for g in range(int(groups.max()) + 1)]
    episode = np.concatenate(chosen)
    told = _replay(data, ensemble, gain[groups[episode]], episode, seed)  # [M, n, 1 + K]
    actual = np.column_stack([data.reward_return, data.cost_return])
    truth, predicted, spread = [], [], []
    at = 0
    for g, own in enumerate(chosen):
        unseen = ~bag[:, g]
        means = told[unseen, at : at + len(own)].mean(axis=1)  # [members, 1 + K]
        truth.append(actual[own].mean(axis=0))
        predicted.append(means.mean(axis=0))
        spread.append(means.std(axis=0, ddof=1) if len(means) > 1 else np.zeros(means.shape[1]))
        at += len(own)
        advance()
    return Calibration(np.stack(truth), np.stack(predicted), np.stack(spread))


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
    """Sums [M, n, 1 + K] and doubts [M, n] of the given episodes, played again in every member with their reactions, gain [n, S, A]."""
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

    def step(carry: Any, now: Any) -> tuple[tuple[Array, ...], None]:
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
