"""A probabilistic ensemble: M networks that learned one step of the world, each from episodes of its own.

    s′ = s + Δ,   Δ ~ N(mean_m(s, a), diag var_m(s, a))      how the state changes
    (r, c, end) = outcome_m(s, a, s′)                        what the step earns, costs, and whether it is the last

A cost is zero or not, a border that least squares would smear, so it has a probability, and a size where it is not
zero. Everything is drawn, nothing is averaged away: a disaster that happens once in a hundred steps happens once in a
hundred imagined steps. Inputs and outputs are standardised. Member m never sees the episodes outside its bag, so that
what it predicts of them is a test; see `calibrate`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.parts import adam_step
from pdocrl.data.dataset import Dataset
from pdocrl.nn.mlp import MLP

LOG_STD = (-6.0, 1.0)  # of the standardised change
BLOCK = 100  # steps per compiled call


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """The size of the ensemble and of its training; what a stored fit is named by."""

    members: int = 9
    held_out: int = 3  # members that never see a given group of episodes
    hidden: tuple[int, ...] = (128, 128)
    outcome_hidden: tuple[int, ...] = (96, 96)
    steps: int = 5000
    batch_size: int = 256
    learning_rate: float = 2e-3  # falls to a hundredth, along a cosine
    seed: int = 0


class Scales(eqx.Module):
    """The data's magnitudes, constants of the networks."""

    obs_mean: Float[Array, " S"]
    obs_scale: Float[Array, " S"]
    action_mean: Float[Array, " A"]
    action_scale: Float[Array, " A"]
    change_mean: Float[Array, " S"]
    change_scale: Float[Array, " S"]
    reward_mean: Float[Array, ""]
    reward_scale: Float[Array, ""]
    cost_mean: Float[Array, " K"]  # of the costs that are not 0
    cost_scale: Float[Array, " K"]
    low: Float[Array, " S"]  # no imagined state leaves the box the data lies in
    high: Float[Array, " S"]
    cost_low: Float[Array, " K"]  # of the costs that are not 0
    cost_high: Float[Array, " K"]

    @staticmethod
    def of(data: Dataset) -> Scales:
        def spread(x: NDArray[np.floating]) -> NDArray[np.float64]:
            deviation = x.std(axis=0, dtype=np.float64)
            return np.where(deviation > 1e-6, deviation, 1.0)

        change = data.next_obs - data.obs
        paid = [column[column != 0] for column in data.cost.T]
        paid = [column if len(column) else np.zeros(1, np.float32) for column in paid]
        numbers = {
            "obs_mean": data.obs.mean(axis=0, dtype=np.float64),
            "obs_scale": spread(data.obs),
            "action_mean": data.action.mean(axis=0, dtype=np.float64),
            "action_scale": spread(data.action),
            "change_mean": change.mean(axis=0, dtype=np.float64),
            "change_scale": spread(change),
            "reward_mean": data.reward.mean(dtype=np.float64),
            "reward_scale": spread(data.reward),
            "cost_mean": [column.mean(dtype=np.float64) for column in paid],
            "cost_scale": [float(spread(column)) for column in paid],
            "low": np.minimum(data.obs.min(axis=0), data.next_obs.min(axis=0)),
            "high": np.maximum(data.obs.max(axis=0), data.next_obs.max(axis=0)),
            "cost_low": [column.min() for column in paid],
            "cost_high": [column.max() for column in paid],
        }
        return Scales(**{name: jnp.asarray(value, jnp.float32) for name, value in numbers.items()})


class Rows(eqx.Module):
    """A batch of transitions for each member, [M, B, …]; cost [M, B, K]."""

    obs: Array
    action: Array
    reward: Array
    cost: Array
    next_obs: Array
    terminal: Array


class Ensemble(eqx.Module):
    """M models of one step, batched over members."""

    change: MLP  # (s, a) → mean and log σ of the standardised change, [M, B, 2S]
    outcome: MLP  # (s, a, s′) → reward, logits of cost ≠ 0 [K], sizes [K], logit of the end, [M, B, 2K + 2]
    scales: Scales

    @staticmethod
    def create(key: PRNGKeyArray, scales: Scales, config: EnsembleConfig) -> Ensemble:
        s, a, k = (x.shape[0] for x in (scales.obs_mean, scales.action_mean, scales.cost_mean))
        keys = jax.random.split(key)
        return Ensemble(
            MLP.create(keys[0], (s + a, *config.hidden, 2 * s), config.members),
            MLP.create(keys[1], (3 * s + a, *config.outcome_hidden, 2 * k + 2), config.members),
            scales,
        )

    def _standard(self, obs: Array, action: Array) -> tuple[Array, Array]:
        c = self.scales
        return (obs - c.obs_mean) / c.obs_scale, (action - c.action_mean) / c.action_scale

    def changes(self, obs: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log σ of the standardised change, [M, B, S] each, at obs [M, B, S], action [M, B, A]."""
        mean, raw = jnp.split(self.change(jnp.concatenate(self._standard(obs, action), -1)), 2, -1)
        low, high = LOG_STD
        return mean, high - jax.nn.softplus(high - low - jax.nn.softplus(raw - low))

    def outcomes(self, obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array, Array]:
        """Standardised reward [M, B], logits and standardised sizes of costs [M, B, K], logit of the end [M, B]."""
        z, a = self._standard(obs, action)
        after = (next_obs - self.scales.obs_mean) / self.scales.obs_scale
        # Limits on a speed or a distance are balls: squares spare the network their curvature.
        out = self.outcome(jnp.concatenate([z, a, after, jnp.square(jnp.clip(after, -4, 4))], -1))
        k = (out.shape[-1] - 2) // 2
        return out[..., 0], out[..., 1 : 1 + k], out[..., 1 + k : 1 + 2 * k], out[..., -1]

    def loss(self, rows: Rows) -> Array:
        """Negative log-likelihood of the change, squared errors and cross-entropies of the outcome, all members'."""
        c = self.scales
        mean, log_std = self.changes(rows.obs, rows.action)
        target = (rows.next_obs - rows.obs - c.change_mean) / c.change_scale
        surprise = 0.5 * jnp.square((target - mean) * jnp.exp(-log_std)) + log_std
        reward, logit, size, end = self.outcomes(rows.obs, rows.action, rows.next_obs)
        paid = rows.cost != 0
        errors = [
            surprise.mean(-1),
            jnp.square(reward - (rows.reward - c.reward_mean) / c.reward_scale),
            optax.sigmoid_binary_cross_entropy(logit, paid.astype(logit.dtype)).sum(-1),
            (paid * jnp.square(size - (rows.cost - c.cost_mean) / c.cost_scale)).sum(-1),
            optax.sigmoid_binary_cross_entropy(end, rows.terminal),
        ]
        total: Array = jnp.stack([error.mean(-1).sum() for error in errors]).sum()
        return total

    def step(self, key: PRNGKeyArray, obs: Array, action: Array) -> tuple[Array, Array, Array]:
        """Draw what follows: next state [M, B, S], reward and costs [M, B, 1 + K], whether it ends [M, B]."""
        c, keys = self.scales, jax.random.split(key, 3)
        mean, log_std = self.changes(obs, action)
        noise = jax.random.normal(keys[0], mean.shape)
        change = c.change_mean + c.change_scale * (mean + jnp.exp(log_std) * noise)
        after = jnp.clip(obs + change, c.low, c.high)
        reward, logit, size, end = self.outcomes(obs, action, after)
        happens = jax.random.uniform(keys[1], logit.shape) < jax.nn.sigmoid(logit)
        cost = jnp.where(happens, jnp.clip(c.cost_mean + c.cost_scale * size, c.cost_low, c.cost_high), 0.0)
        signal = jnp.concatenate([(c.reward_mean + c.reward_scale * reward)[..., None], cost], -1)
        return after, signal, jax.random.uniform(keys[2], end.shape) < jax.nn.sigmoid(end)


def fit(
    data: Dataset,
    bags: NDArray[np.bool_],
    config: EnsembleConfig,
    advance: Callable[[int], None] = lambda steps: None,
) -> Ensemble:
    """Train the members, each on the episodes of its bag, bags [M, E]. `advance` is told of every block of steps."""
    scales = Scales.of(data)
    key = jax.random.key(config.seed)
    model = Ensemble.create(key, scales, config)
    episode = np.repeat(np.arange(data.n_episodes), data.episode_length)
    known = [np.flatnonzero(bag[episode]) for bag in bags]
    count = np.array([len(rows) for rows in known])
    rows = np.zeros((len(bags), count.max()), np.int32)
    for own, found in zip(rows, known, strict=True):
        own[: len(found)] = found
    arrays = Rows(
        obs=jnp.asarray(data.obs), action=jnp.asarray(data.action), reward=jnp.asarray(data.reward),
        cost=jnp.asarray(data.cost), next_obs=jnp.asarray(data.next_obs),
        terminal=jnp.asarray(data.terminal, jnp.float32),
    )  # fmt: skip
    weights = (model.change, model.outcome)
    state = (weights, optax.scale_by_adam().init(weights))
    for start in range(0, config.steps, BLOCK):
        size = min(BLOCK, config.steps - start)
        block = functools.partial(_block, size=size, batch=config.batch_size, total=config.steps)
        own = jax.random.fold_in(key, start)
        state = block(state, scales, arrays, jnp.asarray(rows), jnp.asarray(count), own, start, config.learning_rate)
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        advance(size)
    (change, outcome), _ = state
    return Ensemble(change, outcome, scales)


@functools.partial(jax.jit, static_argnames=("size", "batch", "total"))
def _block(
    state: tuple[tuple[MLP, MLP], optax.OptState],
    scales: Scales,
    arrays: Rows,
    rows: Array,
    count: Array,
    key: PRNGKeyArray,
    start: int,
    rate: float,
    *,
    size: int,
    batch: int,
    total: int,
) -> tuple[tuple[MLP, MLP], optax.OptState]:
    def step(
        carry: tuple[tuple[MLP, MLP], optax.OptState], now: tuple[Array, Array]
    ) -> tuple[tuple[tuple[MLP, MLP], optax.OptState], None]:
        (weights, opt), (i, own) = carry, now
        drawn = (jax.random.uniform(own, (len(rows), batch)) * count[:, None]).astype(jnp.int32)
        drawn = jnp.take_along_axis(rows, jnp.minimum(drawn, count[:, None] - 1), 1)
        some = jax.tree.map(lambda x: x[drawn], arrays)
        gradient = jax.grad(lambda w: Ensemble(change=w[0], outcome=w[1], scales=scales).loss(some))(weights)
        done = (start + i) / total
        faded = rate * (0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * done)))
        return adam_step(gradient, opt, weights, faded), None

    state, _ = jax.lax.scan(step, state, (jnp.arange(size), jax.random.split(key, size)))
    return state
