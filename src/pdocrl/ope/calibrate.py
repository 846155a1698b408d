"""How far the models are off, measured on truth the log has: groups of episodes that some members never saw.

A held-out group stands for a policy. Its episodes are played again in the members that never saw them, from their own
starts, with the actions that were recorded, and with that policy's own reaction to where the model went astray:

    a_t = a_t(recorded) + π_g(s_t) − π_g(s_t(recorded)),    π_g a clone of the group's behaviour

Were the model right, it would repeat every episode exactly, so what differs is the model's error and nothing else:
neither the clone's nor the luck of few episodes. Of each group g and signal

    score_g = (true mean − predicted mean) / √(spread of the members² + floor²)

and an interval is the prediction ± the 95 % quantile of |score| × the spread of what it is an interval for (split
conformal prediction, out of bag: Kim, Xu, Barber 2020, "Predictive inference is free with the jackknife+-after-
bootstrap"). It is exact for a policy that is to the groups what they are to each other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.parts import adam_step
from pdocrl.data.dataset import Dataset
from pdocrl.nn.mlp import MLP
from pdocrl.ope.ensemble import Ensemble, Scales
from pdocrl.ope.groups import Groups

Floats = NDArray[np.float64]
EPISODES = 12  # of a group that are played again
CLONE_HIDDEN = (96, 96)
CLONE_STEPS = 1500
CLONE_BATCH = 256
CLONE_RATE = 2e-3


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
    bags: NDArray[np.bool_],
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Calibration:
    """Play every group's episodes again in the members that never saw them."""
    rng = np.random.default_rng([seed, 6])
    clones = _clone(data, groups, ensemble.scales, seed)
    chosen = [rng.permutation(np.flatnonzero(groups == g))[:EPISODES] for g in range(int(groups.max()) + 1)]
    episode = np.concatenate(chosen)
    told = _replay(data, ensemble, clones, groups, episode, seed)  # [M, n, 1 + K]
    actual = np.column_stack([data.reward_return, data.cost_return])
    truth, predicted, spread = [], [], []
    at = 0
    for own in chosen:
        unseen = ~bags[:, own[0]]
        means = told[unseen, at : at + len(own)].mean(axis=1)  # [members, 1 + K]
        truth.append(actual[own].mean(axis=0))
        predicted.append(means.mean(axis=0))
        spread.append(means.std(axis=0, ddof=1) if len(means) > 1 else np.zeros(means.shape[1]))
        at += len(own)
        advance()
    return Calibration(np.stack(truth), np.stack(predicted), np.stack(spread))


def _clone(data: Dataset, groups: Groups, scales: Scales, seed: int) -> MLP:
    """One network for all groups: (standardised s, which group) → action, by least squares."""
    group = np.repeat(groups, data.episode_length)
    count = int(groups.max()) + 1
    sizes = (data.obs_dim + count, *CLONE_HIDDEN, data.action_dim)
    network = MLP.create(jax.random.key(seed), sizes)
    arrays = jnp.asarray(data.obs), jnp.asarray(data.action), jnp.asarray(group)

    @jax.jit
    def learn(network: MLP, obs: Array, action: Array, group: Array, key: PRNGKeyArray) -> MLP:
        def step(carry: tuple[MLP, optax.OptState], own: PRNGKeyArray) -> tuple[tuple[MLP, optax.OptState], None]:
            rows = jax.random.randint(own, (CLONE_BATCH,), 0, len(obs))

            def loss(network: MLP) -> Array:
                return jnp.square(react(network, scales, count, obs[rows], group[rows]) - action[rows]).mean()

            network, opt = carry
            return adam_step(jax.grad(loss)(network), opt, network, CLONE_RATE), None

        carry = network, optax.scale_by_adam().init(network)
        (learned, _), _ = jax.lax.scan(step, carry, jax.random.split(key, CLONE_STEPS))
        return learned

    learned: MLP = learn(network, *arrays, jax.random.key(seed + 1))
    return learned


def react(network: MLP, scales: Scales, count: int, obs: Array, group: Array) -> Array:
    """The clones' actions [..., A]."""
    which = jnp.broadcast_to(jax.nn.one_hot(group, count), (*obs.shape[:-1], count))
    return network(jnp.concatenate([(obs - scales.obs_mean) / scales.obs_scale, which], -1))


def _replay(data: Dataset, ensemble: Ensemble, clones: MLP, groups: Groups, episode: Groups, seed: int) -> Floats:
    """Sums [M, n, 1 + K] of the given episodes, played again in every member with the clones' reactions."""
    horizon, n = int(data.episode_length[episode].max()), len(episode)
    obs, action = np.zeros((horizon, n, data.obs_dim), np.float32), np.zeros((horizon, n, data.action_dim), np.float32)
    going = np.zeros((horizon, n), bool)
    for i, e in enumerate(episode):
        rows = slice(data.episode_start[e], data.episode_start[e] + data.episode_length[e])
        length = int(data.episode_length[e])
        obs[:length, i], action[:length, i], going[:length, i] = data.obs[rows], data.action[rows], True
    bounds = data.action.min(axis=0), data.action.max(axis=0)
    count = int(groups.max()) + 1
    found = _replay_all(ensemble, clones, count, jnp.asarray(groups[episode]), obs, action, going, bounds, seed)
    return np.asarray(found, np.float64)


@functools.partial(jax.jit, static_argnames=("count",))
def _replay_all(
    ensemble: Ensemble,
    clones: MLP,
    count: int,
    group: Array,
    obs: Array,
    action: Array,
    going: Array,
    bounds: tuple[Array, Array],
    seed: int,
) -> Array:
    members, n = ensemble.change.weights[0].shape[0], obs.shape[1]
    react_here = functools.partial(react, clones, ensemble.scales, count)

    def step(carry: tuple[Array, Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array, Array], None]:
        (state, alive, total), (key, o, a, on) = carry, now
        chosen = jnp.clip(a + react_here(state, group) - react_here(o, group), *bounds)
        state, signal, end = ensemble.step(key, state, chosen)
        alive = alive & on
        return (state, alive & ~end, total + alive[..., None] * signal), None

    state = jnp.broadcast_to(obs[0], (members, *obs.shape[1:]))
    signals = 1 + ensemble.scales.cost_mean.shape[0]
    carry = state, jnp.ones((members, n), bool), jnp.zeros((members, n, signals))
    keys = jax.random.split(jax.random.key(seed), len(obs))
    (_, _, total), _ = jax.lax.scan(step, carry, (keys, obs, action, going))
    return total
