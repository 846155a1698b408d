"""Ensembles of networks that learned one step of the world: F of them, of m members each.

    Δ ~ N(mean over the ensemble of θ·φ + network, κ² · σ²)    how the state changes
    (r, c, end) = mean over the ensemble of outcome(a, Δ, s′)   what the step earns, costs, and whether it is the last

An ensemble steps by its mean: what one member gets wrong the others seldom do, and small errors of one sign would add
up over an episode. σ is what the members call noise. Some of it is the world's and some is what they did not learn, and
a rollout that is perturbed by the second diverges; κ, how much of it is drawn, is what repeats held-out episodes best,
see `calibrate`. How far the members are apart is the ensemble's disagreement.

φ holds 1, s, a, their products, and the step before (its change and action), since worlds have motors that observations
hide. The regression is exact for much of mechanics and comes in closed form; what it leaves is standardised, so that
the network sees errors of every coordinate at the same size. A cost is zero or not, a border that least squares would
smear, so it has a probability, and a size where it is not zero; it is drawn: a disaster that happens once in a hundred
steps happens once in a hundred simulated steps. Ensemble f never sees the episodes of fold f, so that what it predicts
of them is a test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.nn.mlp import MLP
from pdocrl.ope.ensemble.targets import Base, Scales, with_one

LOG_STD = (-5.0, 2.0)  # of what the regression leaves
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
    hidden: tuple[int, ...] = (128, 128)
    outcome_hidden: tuple[int, ...] = (96, 96)
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


class Ensemble(eqx.Module):
    """F ensembles of m models of one step; states are [F, B, S], each ensemble its own."""

    change: MLP  # → mean and log σ of what the regression leaves, [F, m, B, 2S]
    outcome: MLP  # → reward left, logits of cost ≠ 0 [K], sizes [K], logit of the end, [F, m, B, 2K + 2]
    base: Base  # regressions [F, m, …]
    scales: Scales
    noise: Float[Array, ""]  # κ

    def changes(self, memory: Array, obs: Array, action: Array) -> tuple[Array, Array]:
        """Mean and σ of the standardised change, [F, m, B, S] each, at obs [F, B, S], action [F, B, A]."""
        phi, inputs = (x[:, None] for x in self.scales.features(memory, obs, action))
        mean, log_std = gaussian(self.change(inputs))
        return phi @ self.base.change + self.base.change_left * mean, self.base.change_left * jnp.exp(log_std)

    def outcomes(self, obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array, Array]:
        """Standardised reward [F, B], chances and standardised sizes of costs [F, B, K], chance of the end [F, B]."""
        x = self.scales.outcome_inputs(obs, action, next_obs)[:, None]
        left, logit, size, end = parts(self.outcome(x))
        reward = (with_one(x) @ self.base.reward)[..., 0] + self.base.reward_left * left
        return reward.mean(1), jax.nn.sigmoid(logit).mean(1), size.mean(1), jax.nn.sigmoid(end).mean(1)

    def step(
        self, key: PRNGKeyArray, memory: Array, obs: Array, action: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Draw what follows: memory, next state [F, B, S], reward and costs [F, B, 1 + K], whether it ends [F, B].

        Last, the disagreement [F, B]: how far the members are apart, in standard deviations of changes (mean over
        coordinates).
        """
        c, keys = self.scales, jax.random.split(key, 3)
        means, stds = self.changes(memory, obs, action)
        mean, std = means.mean(1), jnp.sqrt(jnp.square(stds).mean(1))
        disagreement = jnp.sqrt(jnp.square(means - mean[:, None]).mean(1)).mean(-1)
        change = c.change_mean + c.change_scale * (mean + self.noise * std * jax.random.normal(keys[0], mean.shape))
        after = jnp.clip(obs + change, c.low, c.high)
        reward, chance, size, end = self.outcomes(obs, action, after)
        happens = jax.random.uniform(keys[1], chance.shape) < chance
        cost = jnp.where(happens, jnp.clip(c.cost_mean + c.cost_scale * size, c.cost_low, c.cost_high), 0.0)
        signal = jnp.concatenate([(c.reward_mean + c.reward_scale * reward)[..., None], cost], -1)
        ends = jax.random.uniform(keys[2], end.shape) < end
        return c.memory(obs, action, after), after, signal, ends, disagreement

    @property
    def folds(self) -> int:
        return int(self.base.change.shape[0])

    def blank(self, shape: tuple[int, ...]) -> Array:
        """The memory of an episode's first step."""
        return jnp.zeros((*shape, self.scales.obs_mean.shape[0] + self.scales.action_mean.shape[0] + 1))


def gaussian(out: Array) -> tuple[Array, Array]:
    """Mean and log σ, which stays within its range."""
    mean, raw = jnp.split(out, 2, -1)
    low, high = LOG_STD
    return mean, high - jax.nn.softplus(high - low - jax.nn.softplus(raw - low))


def parts(out: Array) -> tuple[Array, Array, Array, Array]:
    """Reward [...], logits and sizes of costs [..., K], logit of the end [...]."""
    k = (out.shape[-1] - 2) // 2
    return out[..., 0], out[..., 1 : 1 + k], out[..., 1 + k : 1 + 2 * k], out[..., -1]


def by_fold(change: MLP, outcome: MLP, base: Base, scales: Scales, folds: int) -> Ensemble:
    """Members [M, …], those of an ensemble one after another, as ensembles [F, M/F, …]; all noise is drawn."""

    def split(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(folds, x.shape[0] // folds, *x.shape[1:]), tree)

    regressions = Base(split(base.change), base.change_left, split(base.reward), base.reward_left)
    return Ensemble(split(change), split(outcome), regressions, scales, jnp.ones(()))


def mixed(ensembles: Sequence[Ensemble], kept: Sequence[int]) -> Ensemble:
    """Ensemble f of ensemble kept[f], for every f; all noise is drawn."""

    def pick(*trees: Any) -> Any:
        return jax.tree.map(lambda *x: jnp.stack([x[w][f] for f, w in enumerate(kept)]), *trees)

    first = ensembles[0]
    theta, reward = (pick(*(getattr(e.base, name) for e in ensembles)) for name in ("change", "reward"))
    base = Base(theta, first.base.change_left, reward, first.base.reward_left)  # the same units in every way
    change, outcome = (pick(*(getattr(e, name) for e in ensembles)) for name in ("change", "outcome"))
    return Ensemble(change, outcome, base, first.scales, jnp.ones(()))


def networks(key: PRNGKeyArray, scales: Scales, config: EnsembleConfig) -> tuple[MLP, MLP]:
    """Untrained networks of the change and of the outcome."""
    s, a, k = (x.shape[0] for x in (scales.obs_mean, scales.action_mean, scales.cost_mean))
    keys = jax.random.split(key)
    return (
        MLP.create(keys[0], (2 * (s + a) + 1, *config.hidden, 2 * s), config.members),
        MLP.create(keys[1], (3 * s + a, *config.outcome_hidden, 2 * k + 2), config.members),
    )
