"""The dynamics models that policies are judged in: F ensembles of `MixtureModel`, one for each fold of the data.

Ensemble f never sees the episodes of fold f, so that what it predicts of them is a test. Its members share their mean,
and every rollout draws costs, ends and modes from one of them, see `pdocrl.dynamics.rollouts`. Of the spread of a
component the share κ is drawn: some of it is the world's and some is what was not learned, and rollouts that are
perturbed by the second diverge. κ is what repeats held-out episodes best, see `calibrate`. What is drawn of costs, ends
and modes is drawn in full: a disaster that happens once in a hundred steps happens once in a hundred simulated steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.dynamics.mixture import MixtureModel
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.regression import Regression, memory_of
from pdocrl.dynamics.rollouts import one_step_apart

# How a member learns a step: how many it goes on by itself, and how much noise its rows have; see `learn`.
WAYS = {"recorded": (1, 0.0), "own": (4, 0.0), "noise": (1, 0.3)}
SELECTION = ("own", "noise")  # the two that were best on one task or another, at twice the time
EPOCHS, FEWEST_STEPS = 100, 1000  # how often a row is seen at most, unless that were fewer steps than these


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """The size of the ensemble and of its training; what a stored fit is named by."""

    folds: int = 6  # ensembles; each misses one fold of the groups of episodes
    each: int = 2  # members of an ensemble
    ways: tuple[str, ...] = ("recorded",)  # of WAYS; of several, each ensemble keeps one, see `calibrate`
    hidden: tuple[int, ...] = (128, 128)  # of a model's mean
    outcome_hidden: tuple[int, ...] = (96, 96)  # of what it draws: costs, ends, components
    steps: int = 8000  # at most
    batch_size: int = 256
    learning_rate: float = 2e-3  # falls to a hundredth, along a cosine
    seed: int = 0

    @property
    def members(self) -> int:
        return self.folds * self.each

    def steps_for(self, rows: int) -> int:
        """Few rows are learned in fewer steps; more would learn them by heart."""
        return min(self.steps, max(FEWEST_STEPS, EPOCHS * rows // self.batch_size))


class Ensembles(eqx.Module):
    """F ensembles of m models of one step; states are [F, B, S], each ensemble its own."""

    models: MixtureModel  # every array [F, m, …]
    normaliser: Normaliser
    noise: Float[Array, ""]  # κ

    @property
    def folds(self) -> int:
        return int(self.models.mean.weights[0].shape[0])

    @property
    def each(self) -> int:
        return int(self.models.mean.weights[0].shape[1])

    def step(
        self, key: PRNGKeyArray, memory: Array, obs: Array, action: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Draw what follows: memory, next state [F, B, S], reward and costs [F, B, 1 + K], whether it ends [F, B].

        Last, the disagreement [F, B]: how far the members' means are apart, in units of changes.
        """
        rows = obs.shape[1]
        more = -rows % self.each  # members take rows in turn, the same number each

        def dealt(x: Array) -> Array:
            full = jnp.concatenate([x, x[:, :more]], 1) if more else x
            return full.reshape(len(x), -1, self.each, x.shape[-1]).swapaxes(1, 2)

        def collected(x: Array) -> Array:
            return x.swapaxes(1, 2).reshape(len(x), -1, *x.shape[3:])[:, :rows]

        def of_fold(models: MixtureModel, key: PRNGKeyArray, *now: Array) -> tuple[Array, ...]:
            drawn, apart = one_step_apart(models, self.normaliser, now[0], now[1], key, memory=now[2], noise=self.noise)
            return drawn.next_obs, drawn.reward, drawn.cost, drawn.end, apart

        keys = jax.random.split(key, self.folds)
        found = jax.vmap(of_fold)(self.models, keys, *(dealt(x) for x in (obs, action, memory)))
        after, reward, cost, end, apart = (collected(x) for x in found)
        signal = jnp.concatenate([reward[..., None], cost], -1)
        return memory_of(self.normaliser, obs, action, after), after, signal, end > 0, apart

    def blank(self, shape: tuple[int, ...]) -> Array:
        """The memory of an episode's first step."""
        return jnp.zeros((*shape, (self.models.mean.weights[0].shape[-2] + 1) // 2))


def by_fold(models: MixtureModel, normaliser: Normaliser, folds: int) -> Ensembles:
    """Members [M, …], those of an ensemble one after another, as ensembles [F, M/F, …]; all noise is drawn."""
    split = jax.tree.map(lambda x: x.reshape(folds, x.shape[0] // folds, *x.shape[1:]), models)
    return Ensembles(split, normaliser, jnp.ones(()))


def mixed(ensembles: Sequence[Ensembles], kept: Sequence[int]) -> Ensembles:
    """Ensemble f of ensembles kept[f], for every f; all noise is drawn."""
    every = [e.models for e in ensembles]
    models = jax.tree.map(lambda *x: jnp.stack([x[w][f] for f, w in enumerate(kept)]), *every)
    return Ensembles(models, ensembles[0].normaliser, jnp.ones(()))


def untrained(
    key: PRNGKeyArray, normaliser: Normaliser, action_dim: int, config: EnsembleConfig, base: Regression
) -> MixtureModel:
    """Members [M, …] around their regressions [M, …]."""
    s, (costs, levels) = len(normaliser.mean), normaliser.levels.shape

    def one(key: PRNGKeyArray, base: Regression) -> MixtureModel:
        return MixtureModel.create(
            key, s, action_dim, costs, levels, config.hidden, base=base, drawn_hidden=config.outcome_hidden
        )

    return jax.vmap(one)(jax.random.split(key, config.members), base)
