"""Committees of networks that learned one step of the world: F of them, of m members each.

    Δ ~ N(mean over the committee of θ·φ + network, κ² · σ²)    how the state changes
    (r, c, end) = mean over the committee of outcome(a, Δ, s′)   what the step earns, costs, and whether it is the last

A committee steps by its mean: what one member gets wrong the others seldom do, and small errors of one sign would add
up over an episode. σ is what the members call noise. Some of it is the world's and some is what they did not learn, and
a world that is shaken by the second falls over; κ, how much of it is drawn, is what repeats held-out episodes best, see
`calibrate`. How far the members are apart is the committee's doubt.

φ holds 1, s, a, their products, and the step before (its change and action), since worlds have motors that observations
hide. The regression is exact for much of mechanics and comes in closed form; what it leaves is standardised, so that
the network sees errors of every coordinate at the same size. A cost is zero or not, a border that least squares would
smear, so it has a probability, and a size where it is not zero; it is drawn: a disaster that happens once in a hundred
steps happens once in a hundred imagined steps. Committee f never sees the episodes of fold f, so that what it predicts
of them is a test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optimise import adam_step
from pdocrl.ope.groups import Groups

LOG_STD = (-5.0, 2.0)  # of what the regression leaves
FARTHEST = 6.0  # standard deviations beyond which inputs are clipped
JUMP = 20.0  # … and changes and targets: heavy tails are the world's, an angle that wraps round is not a change
MOST_PRODUCTS = 1000  # of two inputs; with more inputs only their squares are features
ROWS = 150_000  # most rows to learn from
CHUNK = 10_000  # of them at a time
LOOKED_AT = 3  # chunks that tell how much the regression leaves
BASE_RIDGE = 1e-5
BLOCK = 25  # steps per compiled call
EPOCHS, FEWEST_STEPS = 100, 1000  # how often a row is seen at most, unless that were fewer steps than these


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """The size of the ensemble and of its training; what a stored fit is named by."""

    folds: int = 3  # committees; each misses one fold of the groups of episodes
    each: int = 3  # members of a committee
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

        # One step in a thousand may be a jump (an angle that wraps round), and must not set the scale of all others.
        change = data.next_obs - data.obs
        change = np.clip(change, *np.quantile(change, [0.0005, 0.9995], axis=0))
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

    def change_of(self, obs: Array, next_obs: Array) -> Array:
        """s′ − s, standardised and without jumps."""
        return jnp.clip((next_obs - obs - self.change_mean) / self.change_scale, -JUMP, JUMP)

    def memory(self, obs: Array, action: Array, next_obs: Array) -> Array:
        """[..., S + A + 1] what the next step remembers of this one; zeros at the start of an episode."""
        past = [
            jnp.clip(self.change_of(obs, next_obs), -FARTHEST, FARTHEST),
            (action - self.action_mean) / self.action_scale,
        ]
        return jnp.concatenate([*past, jnp.ones((*obs.shape[:-1], 1))], -1)

    def inputs(self, memory: Array, obs: Array, action: Array) -> Array:
        """[..., 2(S + A) + 1] s and a, standardised, and the memory."""
        x = [(obs - self.obs_mean) / self.obs_scale, (action - self.action_mean) / self.action_scale]
        return jnp.concatenate([*(jnp.clip(part, -FARTHEST, FARTHEST) for part in x), memory], -1)

    def features(self, memory: Array, obs: Array, action: Array) -> tuple[Array, Array]:
        """φ [..., d] of the regression: 1, s, a, memory, products of s and a. And the network's inputs."""
        inputs = self.inputs(memory, obs, action)
        n = obs.shape[-1] + action.shape[-1]
        i, j = np.triu_indices(n) if n * (n + 1) // 2 <= MOST_PRODUCTS else (np.arange(n),) * 2
        x = inputs[..., :n]
        return jnp.concatenate([with_one(inputs), x[..., i] * x[..., j]], -1), inputs

    def outcome_inputs(self, obs: Array, action: Array, next_obs: Array) -> Array:
        """[..., 3S + A] a, Δ, s′ and s′²: limits on a speed or a distance are balls, whose curvature squares spare."""
        a = (action - self.action_mean) / self.action_scale
        after = jnp.clip((next_obs - self.obs_mean) / self.obs_scale, -FARTHEST, FARTHEST)
        return jnp.concatenate([a, self.change_of(obs, next_obs), after, after * after], -1)


class Rows(eqx.Module):
    """All rows of a dataset [N, …], as the networks see them."""

    obs: Array
    action: Array
    reward: Array
    cost: Array
    next_obs: Array
    terminal: Array
    memory: Array


class Lessons(eqx.Module):
    """What the networks learn from: inputs and targets, computed once; [M, B, …] in a batch."""

    inputs: Array  # [N, 2(S + A) + 1]
    change: Array  # [M, N, S] what the regression leaves, in its standard deviations
    outcome_inputs: Array  # [N, 3S + A]
    reward: Array  # [M, N] likewise
    cost: Array  # [N, K] sizes, standardised
    paid: Array  # [N, K] 1 where a cost is not 0
    terminal: Array  # [N]


class Base(eqx.Module):
    """Ridge regressions in closed form, one per member."""

    change: Float[Array, "*M d S"]
    change_left: Float[Array, " S"]  # standard deviation of what it leaves
    reward: Float[Array, "*M e 1"]
    reward_left: Float[Array, ""]


class Ensemble(eqx.Module):
    """F committees of m models of one step; states are [F, B, S], each committee its own."""

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

        Last, the doubt [F, B]: how far the members are apart, in standard deviations of changes, mean over coordinates.
        """
        c, keys = self.scales, jax.random.split(key, 3)
        means, stds = self.changes(memory, obs, action)
        mean, std = means.mean(1), jnp.sqrt(jnp.square(stds).mean(1))
        doubt = jnp.sqrt(jnp.square(means - mean[:, None]).mean(1)).mean(-1)
        change = c.change_mean + c.change_scale * (mean + self.noise * std * jax.random.normal(keys[0], mean.shape))
        after = jnp.clip(obs + change, c.low, c.high)
        reward, chance, size, end = self.outcomes(obs, action, after)
        happens = jax.random.uniform(keys[1], chance.shape) < chance
        cost = jnp.where(happens, jnp.clip(c.cost_mean + c.cost_scale * size, c.cost_low, c.cost_high), 0.0)
        signal = jnp.concatenate([(c.reward_mean + c.reward_scale * reward)[..., None], cost], -1)
        ends = jax.random.uniform(keys[2], end.shape) < end
        return c.memory(obs, action, after), after, signal, ends, doubt

    @property
    def folds(self) -> int:
        return int(self.base.change.shape[0])

    def blank(self, shape: tuple[int, ...]) -> Array:
        """The memory of an episode's first step."""
        return jnp.zeros((*shape, self.scales.obs_mean.shape[0] + self.scales.action_mean.shape[0] + 1))


def in_committees(change: MLP, outcome: MLP, base: Base, scales: Scales, folds: int) -> Ensemble:
    """Members [M, …], those of a committee one after another, as committees [F, M/F, …]; all noise is drawn."""

    def split(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(folds, x.shape[0] // folds, *x.shape[1:]), tree)

    regressions = Base(split(base.change), base.change_left, split(base.reward), base.reward_left)
    return Ensemble(split(change), split(outcome), regressions, scales, jnp.ones(()))


def networks(key: PRNGKeyArray, scales: Scales, config: EnsembleConfig) -> tuple[MLP, MLP]:
    """Untrained networks of the change and of the outcome."""
    s, a, k = (x.shape[0] for x in (scales.obs_mean, scales.action_mean, scales.cost_mean))
    keys = jax.random.split(key)
    return (
        MLP.create(keys[0], (2 * (s + a) + 1, *config.hidden, 2 * s), config.members),
        MLP.create(keys[1], (3 * s + a, *config.outcome_hidden, 2 * k + 2), config.members),
    )


def with_one(x: Array) -> Array:
    return jnp.concatenate([jnp.ones((*x.shape[:-1], 1)), x], -1)


def rows_of(data: Dataset, scales: Scales) -> Rows:
    """All rows of a dataset, [N, …]."""
    memory = np.zeros((len(data), data.obs_dim + data.action_dim + 1), np.float32)
    memory[1:] = scales.memory(*(jnp.asarray(x[:-1]) for x in (data.obs, data.action, data.next_obs)))
    memory[data.episode_start] = 0
    return Rows(
        obs=jnp.asarray(data.obs), action=jnp.asarray(data.action), reward=jnp.asarray(data.reward),
        cost=jnp.asarray(data.cost), next_obs=jnp.asarray(data.next_obs),
        terminal=jnp.asarray(data.terminal, jnp.float32), memory=jnp.asarray(memory),
    )  # fmt: skip


def regress(rows: Rows, scales: Scales, bag: NDArray[np.bool_], group: Groups) -> Base:
    """The regressions of every member, bag [M, G], group [N] of each row: sums over groups, each computed once."""
    sums: list[Any] = [0.0, 0.0]
    pieces: list[list[NDArray[np.float64]]] = []
    for own, some in _chunks(rows):
        piece = [np.asarray(x, np.float64)[: len(own)] for x in _regressed(some, scales)]
        if len(pieces) < LOOKED_AT:
            pieces.append(piece)
        for g in np.unique(group[own]):
            for i in range(2):
                inputs, target = (x[group[own] == g] for x in piece[2 * i : 2 * i + 2])
                both = np.concatenate([inputs.T @ inputs, inputs.T @ target], axis=1)
                sums[i] = sums[i] + bag[:, g, None, None] * both
    thetas, left = [], []
    for i, total in enumerate(sums):
        d = total.shape[1]
        gram, cross = total[:, :, :d], total[:, :, d:]
        ridge = BASE_RIDGE * np.trace(gram, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
        theta = np.linalg.solve(gram + ridge, cross)
        middle = theta.mean(axis=0)
        errors = np.concatenate([piece[2 * i + 1] - piece[2 * i] @ middle for piece in pieces])
        errors = np.clip(errors, *np.quantile(errors, [0.0005, 0.9995], axis=0))
        left.append(np.maximum(errors.std(axis=0), 1e-4))
        thetas.append(theta)
    return Base(
        change=jnp.asarray(thetas[0], jnp.float32), change_left=jnp.asarray(left[0], jnp.float32),
        reward=jnp.asarray(thetas[1], jnp.float32), reward_left=jnp.asarray(left[1][0], jnp.float32),
    )  # fmt: skip


def _chunks(rows: Rows) -> Iterator[tuple[NDArray[np.int64], Rows]]:
    """Rows a piece at a time, all pieces equally long (the last one repeats a row), so that they compile once."""
    count = len(rows.obs)
    size = min(CHUNK, count)
    for start in range(0, count, size):
        own = np.arange(start, min(start + size, count))
        at = np.concatenate([own, np.zeros(size - len(own), np.int64)])
        yield own, jax.tree.map(lambda x, at=at: x[at], rows)


@jax.jit
def _regressed(rows: Rows, scales: Scales) -> tuple[Array, Array, Array, Array]:
    """Inputs and targets of the two regressions: φ, Δ; (1, a, Δ, s′, s′²), r."""
    phi = scales.features(rows.memory, rows.obs, rows.action)[0]
    x = with_one(scales.outcome_inputs(rows.obs, rows.action, rows.next_obs))
    reward = (rows.reward - scales.reward_mean) / scales.reward_scale
    return phi, scales.change_of(rows.obs, rows.next_obs), x, reward[:, None]


def lessons(rows: Rows, scales: Scales, base: Base) -> Lessons:
    """Inputs and targets of the networks."""

    @jax.jit
    def left(phi: Array, change: Array, x: Array, reward: Array) -> tuple[Array, Array]:
        found = (change - phi @ base.change) / base.change_left, (reward - x @ base.reward)[..., 0] / base.reward_left
        return jnp.clip(found[0], -JUMP, JUMP), jnp.clip(found[1], -JUMP, JUMP)

    pieces = [[x[:, : len(own)] for x in left(*_regressed(some, scales))] for own, some in _chunks(rows)]
    change, reward = (jnp.concatenate(found, axis=1) for found in zip(*pieces, strict=True))
    return Lessons(
        inputs=scales.inputs(rows.memory, rows.obs, rows.action),
        change=change,
        outcome_inputs=scales.outcome_inputs(rows.obs, rows.action, rows.next_obs),
        reward=reward,
        cost=(rows.cost - scales.cost_mean) / scales.cost_scale,
        paid=(rows.cost != 0).astype(jnp.float32),
        terminal=rows.terminal,
    )


def loss(change: MLP, outcome: MLP, batch: Lessons) -> Array:
    """Negative log-likelihood of the change, squared errors and cross-entropies of the outcome, all members'."""
    mean, log_std = gaussian(change(batch.inputs))
    reward, logit, size, end = parts(outcome(batch.outcome_inputs))
    surprise = 0.5 * jnp.square((batch.change - mean) * jnp.exp(-log_std)) + log_std
    errors = [
        # Weighted by σ (β-NLL, Seitzer et al. 2022): else what is hard, a bounce, is called noise and not learned.
        (surprise * jax.lax.stop_gradient(jnp.exp(log_std))).mean(-1),
        jnp.square(reward - batch.reward),
        optax.sigmoid_binary_cross_entropy(logit, batch.paid).sum(-1),
        (batch.paid * jnp.square(size - batch.cost)).sum(-1),
        optax.sigmoid_binary_cross_entropy(end, batch.terminal),
    ]
    total: Array = jnp.stack([error.mean(-1).sum() for error in errors]).sum()
    return total


def gaussian(out: Array) -> tuple[Array, Array]:
    """Mean and log σ, which stays within its range."""
    mean, raw = jnp.split(out, 2, -1)
    low, high = LOG_STD
    return mean, high - jax.nn.softplus(high - low - jax.nn.softplus(raw - low))


def parts(out: Array) -> tuple[Array, Array, Array, Array]:
    """Reward [...], logits and sizes of costs [..., K], logit of the end [...]."""
    k = (out.shape[-1] - 2) // 2
    return out[..., 0], out[..., 1 : 1 + k], out[..., 1 + k : 1 + 2 * k], out[..., -1]


def fit(
    data: Dataset,
    groups: Groups,
    bag: NDArray[np.bool_],
    config: EnsembleConfig,
    advance: Callable[[int], None] = lambda steps: None,
) -> Ensemble:
    """Train the members, each on the groups of its bag [M, G]. `advance` is told of every block of steps."""
    scales = Scales.of(data)
    chosen = np.random.default_rng([config.seed, 7]).permutation(len(data))[:ROWS]  # shuffled: any chunk is a sample
    rows = jax.tree.map(lambda x: x[chosen], rows_of(data, scales))
    group = np.repeat(groups, data.episode_length)[chosen]
    base = regress(rows, scales, bag, group)
    change, outcome = networks(jax.random.key(config.seed), scales, config)
    known = [np.flatnonzero(own[group]) for own in bag]
    told = jax.tree.map(np.asarray, lessons(rows, scales, base))
    state = (change, outcome), optax.scale_by_adam().init((change, outcome))
    rng = np.random.default_rng([config.seed, 11])
    steps = config.steps_for(len(data))
    for start in range(0, steps, BLOCK):
        size = min(BLOCK, steps - start)
        # Rows are drawn here, because gathering them is what XLA is slow at on a CPU.
        at = np.stack([found[rng.integers(len(found), size=(size, config.batch_size))] for found in known], axis=1)
        done = np.arange(start, start + size) / steps
        rate = config.learning_rate * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * done)))
        state = _block(state, _batches(told, at), jnp.asarray(rate, jnp.float32))
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        advance(size)
    (change, outcome), _ = state
    return in_committees(change, outcome, base, scales, config.folds)


def _batches(told: Lessons, at: NDArray[np.int64]) -> Lessons:
    """The rows `at` [steps, M, B] of the lessons."""
    member = np.arange(at.shape[1])[:, None]
    return Lessons(
        inputs=told.inputs[at], change=told.change[member, at], outcome_inputs=told.outcome_inputs[at],
        reward=told.reward[member, at], cost=told.cost[at], paid=told.paid[at], terminal=told.terminal[at],
    )  # fmt: skip


@jax.jit
def _block(
    state: tuple[tuple[MLP, MLP], optax.OptState], batches: Lessons, rates: Array
) -> tuple[tuple[MLP, MLP], optax.OptState]:
    def step(
        carry: tuple[tuple[MLP, MLP], optax.OptState], now: tuple[Lessons, Array]
    ) -> tuple[tuple[tuple[MLP, MLP], optax.OptState], None]:
        (weights, opt), (some, rate) = carry, now
        gradient = jax.grad(lambda w: loss(w[0], w[1], some))(weights)
        return adam_step(gradient, opt, weights, rate), None

    state, _ = jax.lax.scan(step, state, (batches, rates))
    return state
