"""Episodes alike: groups that stand for the policies that made them, and a clone of each.

    episode ─▶ means and spreads of its actions and observations, return, costs ─▶ k-means ─▶ group of each episode
            ─▶ groups of very few episodes join the nearest others

Held out as a whole, a group is to a model what a new policy is: behaviour that it has to predict and never saw. A
policy is judged by its mean over many episodes, so a single odd episode is no group.

Played again in a model that errs, recorded actions alone would let every error grow: a ball rolls away from a player
who does not look. With  a_t + π_g(s) − π_g(s_t),  a_t and s_t recorded and π_g cloned from the group's rows, the group
looks: its clone's error cancels where the model is right, and where it is not, the clone says how it would have
answered.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.data.dataset import CONSTANT, Dataset
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optim import adam_step

Groups = NDArray[np.int64]  # [E] the group of each episode

MOST = 48  # groups: 95 % of fewer than 20 could not be told from all of them
FEWEST_EPISODES = 4  # of a group, on average
SMALL = 0.25  # of the average size: smaller groups are dissolved
ROUNDS = 30

HIDDEN = (64, 64)
BATCH = 128
RATE = 1e-3
BLOCK = 25  # steps per compiled call

State = tuple[MLP, optax.OptState]


def summaries(data: Dataset) -> NDArray[np.float64]:
    """[E, d] what an episode looks like; every column standardised, and each kind of column of the same weight."""
    start, length = data.episode_start, data.episode_length[:, None]

    def of(x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        mean = np.add.reduceat(x, start, axis=0, dtype=np.float64) / length
        square = np.add.reduceat(np.square(x, dtype=np.float64), start, axis=0) / length
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    moving = data.obs[:, data.obs_varies]
    kinds = [*of(data.action), *of(moving), np.column_stack([data.reward_return, data.cost_return])]
    weighted = []
    for kind in kinds:
        mean, spread = kind.mean(axis=0), kind.std(axis=0)
        varying = kind[:, spread > CONSTANT * np.hypot(mean, spread)]
        weighted.append((varying - varying.mean(axis=0)) / varying.std(axis=0) / max(1, varying.shape[1]) ** 0.5)
    return np.concatenate(weighted, axis=1)


def group_episodes(data: Dataset, rng: np.random.Generator, most: int = MOST) -> Groups:
    """k-means of the summaries, started from centres far apart (k-means++)."""
    x = summaries(data)
    count = int(np.clip(len(x) // FEWEST_EPISODES, 1, most))
    centres = x[rng.integers(len(x))][None]
    for _ in range(count - 1):
        distance = _squared(x, centres).min(axis=1)
        total = distance.sum()
        chance = distance / total if total > 0 else np.full(len(x), 1 / len(x))
        centres = np.concatenate([centres, x[rng.choice(len(x), p=chance)][None]])
    for _ in range(ROUNDS):
        group = _squared(x, centres).argmin(axis=1)
        used = [x[group == g].mean(axis=0) for g in range(len(centres)) if (group == g).any()]
        moved = np.stack(used)
        if moved.shape == centres.shape and np.allclose(moved, centres):
            break
        centres = moved
    group = _squared(x, centres).argmin(axis=1)
    large = np.bincount(group, minlength=len(centres)) >= max(2, SMALL * len(x) / len(centres))
    centres = centres[large] if large.any() else centres
    return np.unique(_squared(x, centres).argmin(axis=1), return_inverse=True)[1].astype(np.int64)


def deal(count: int, folds: int, rng: np.random.Generator) -> Groups:
    """The fold [G] of each of G groups, folds about equally large."""
    return rng.permutation(np.arange(count) % folds)


def _squared(x: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """[E, G] squared distances."""
    found = (x**2).sum(axis=1)[:, None] - 2 * x @ centres.T + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(found, 0))


def feedback(data: Dataset, groups: Groups, normaliser: Normaliser, steps: int, seed: int) -> MLP:
    """Clones of G groups, batched over groups: standardised states [G, B, S] → actions before tanh [G, B, A]."""
    count = int(groups.max()) + 1
    rows = np.repeat(groups, data.episode_length)
    own = [np.flatnonzero(rows == g) for g in range(count)]
    z = np.asarray(normaliser.standardised(jnp.asarray(data.obs)))
    clones = MLP.create(jax.random.key(seed), (data.obs_dim, *HIDDEN, data.action_dim), count)
    state: State = clones, optax.scale_by_adam().init(clones)
    rng = np.random.default_rng([seed, 12])
    for start in range(0, steps, BLOCK):
        size = min(BLOCK, steps - start)
        at = np.stack([found[rng.integers(len(found), size=(size, BATCH))] for found in own], axis=1)
        state = _block(state, jnp.asarray(z[at]), jnp.asarray(data.action[at]))
    return state[0]


@jax.jit
def _block(state: State, obs: Array, action: Array) -> State:
    def step(carry: State, now: tuple[Array, Array]) -> tuple[State, None]:
        (clones, opt), (x, a) = carry, now
        gradient = jax.grad(lambda c: jnp.square(jnp.tanh(c(x)) - a).mean((1, 2)).sum())(clones)
        return adam_step(gradient, opt, clones, RATE), None

    return jax.lax.scan(step, state, (obs, action))[0]
