"""How the ensembles learn: all members side by side, each from the groups of episodes of its bag.

How the state changes is asked hundreds of times in a row, each time from where the last answer led. A model that has
seen nothing but the world's own states may let small errors grow there. Three ways, and no one is best everywhere:

    recorded  the log's rows as they are
    own       a member takes a few recorded actions in a row and learns, from each state it came to itself, what leads
              to where the world was (Venkatraman et al. 2015, "Improving multi-step prediction of learned time series
              models"); how noisy a step is, is learned at recorded states alone: elsewhere the way back is not noise
    noisy    rows begin a little beside where they were (Sanchez-Gonzalez et al. 2020, "Learning to simulate …"), for
              the regression too, whose products of states that go together throw what is a little off far away
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optim import adam_step
from pdocrl.ope.ensemble.groups import Groups
from pdocrl.ope.ensemble.networks import WAYS, Ensemble, EnsembleConfig, by_fold, gaussian, networks, parts
from pdocrl.ope.ensemble.targets import (
    JUMP,
    Base,
    Rows,
    Scales,
    Targets,
    regress,
    regression_targets,
    rows_of,
    with_noise,
)

ROWS = 150_000  # most rows to learn from
BLOCK = 25  # steps per compiled call

Networks = tuple[MLP, MLP]  # of the change and of the outcome
State = tuple[Networks, optax.OptState]
# Inputs of the change, what the regression leaves of it in standard deviations, and whether noise is learned there.
Met = tuple[Array, Array, Array]


def loss(change: MLP, outcome: MLP, met: Met, batch: Targets) -> Array:
    """Negative log-likelihood of the change, squared errors and cross-entropies of the outcome, all members'."""
    mean, log_std = gaussian(change(met[0]))
    log_std = jnp.where(met[2], log_std, jax.lax.stop_gradient(log_std))
    reward, logit, size, end = parts(outcome(batch.outcome_inputs))
    surprise = 0.5 * jnp.square((met[1] - mean) * jnp.exp(-log_std)) + log_std
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


def fit(
    data: Dataset,
    groups: Groups,
    bag: NDArray[np.bool_],
    config: EnsembleConfig,
    way: str = "recorded",
    advance: Callable[[int], None] = lambda steps: None,
) -> Ensemble:
    """Train the members in one way, each on the groups of its bag [M, G]. `advance` is told of every block of steps."""
    ahead, noise = WAYS[way]
    scales = Scales.of(data)
    chosen = np.random.default_rng([config.seed, 7]).permutation(len(data))[:ROWS]  # shuffled: any chunk is a sample
    everything = rows_of(data, scales)
    rows = moved = jax.tree.map(lambda x: x[chosen], everything)
    group = np.repeat(groups, data.episode_length)[chosen]
    base = regress(rows, scales, bag, group)
    if noise:
        moved = with_noise(rows, scales, noise * base.change_left, np.random.default_rng([config.seed, 13]))
        base = Base(regress(moved, scales, bag, group).change, base.change_left, base.reward, base.reward_left)
    change, outcome = networks(jax.random.key(config.seed), scales, config)
    known = [np.flatnonzero(own[group]) for own in bag]
    told = jax.tree.map(np.asarray, regression_targets(rows, moved, scales, base))
    begun = _beginnings(data, groups, bag, ahead)
    world = jax.tree.map(np.asarray, everything)
    state = (change, outcome), optax.scale_by_adam().init((change, outcome))
    rng = np.random.default_rng([config.seed, 11])
    steps = config.steps_for(len(data))
    for start in range(0, steps, BLOCK):
        size = min(BLOCK, steps - start)
        # Rows are drawn here, because gathering them is what XLA is slow at on a CPU.
        at = np.stack([found[rng.integers(len(found), size=(size, config.batch_size))] for found in known], axis=1)
        done = np.arange(start, start + size) / steps
        rate = config.learning_rate * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * done)))
        batches = _batches(told, at)
        met: Met = batches.inputs, batches.change, jnp.ones((size, 1, 1, 1), bool)
        if begun is not None:
            each = (size, max(1, config.batch_size // ahead))
            first = np.stack([found[rng.integers(len(found), size=each)] for found in begun])  # [M, steps, B/k]
            went = _went(state[0][0], base, scales, *_sequences(world, first.reshape(len(bag), -1), ahead))
            met = _in_batches(went[0], each), _in_batches(went[1], each), _in_batches(went[2], each)
        state = _block(state, met, batches, jnp.asarray(rate, jnp.float32))
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        advance(size)
    (change, outcome), _ = state
    return by_fold(change, outcome, base, scales, config.folds)


def _beginnings(data: Dataset, groups: Groups, bag: NDArray[np.bool_], ahead: int) -> list[NDArray[np.int64]] | None:
    """Of each member the rows from which it can go `ahead` steps; None where it is to go none by itself, or cannot."""
    left = np.concatenate([np.arange(length, 0, -1) for length in data.episode_length])  # steps, this one included
    row = np.repeat(groups, data.episode_length)
    begun = [np.flatnonzero(seen[row] & (left >= ahead)) for seen in bag]
    return begun if ahead > 1 and all(map(len, begun)) else None


def _sequences(world: Rows, first: NDArray[np.int64], ahead: int) -> tuple[NDArray[np.float32], ...]:
    """Memory and state at rows `first` [M, n], actions and next states [k, M, n, …] of the k steps from there on."""
    at = first + np.arange(ahead)[:, None, None]
    return tuple(np.asarray(x) for x in (world.memory[first], world.obs[first], world.action[at], world.next_obs[at]))


@jax.jit
def _went(change: MLP, base: Base, scales: Scales, memory: Array, obs: Array, action: Array, after: Array) -> Met:
    """What members meet along k recorded actions [k, M, n, A] when they go on from obs [M, n, S] by their own means.

    Inputs of the change [k, M, n, …], and what the regression leaves of the way to where the world was, after.
    """

    def step(now: tuple[Array, Array], told: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (memory, state), (act, next_obs) = now, told
        phi, inputs = scales.features(memory, state, act)
        explained = phi @ base.change
        target = (scales.change_of(state, next_obs) - explained) / base.change_left
        mean, _ = gaussian(change(inputs))
        moved = scales.change_mean + scales.change_scale * (explained + base.change_left * mean)
        came = jnp.clip(state + moved, scales.low, scales.high)
        return (scales.memory(state, act, came), came), (inputs, jnp.clip(target, -JUMP, JUMP))

    inputs, target = jax.lax.scan(step, (memory, obs), (action, after))[1]
    return inputs, target, jnp.zeros((*target.shape[:-1], 1), bool).at[0].set(True)


def _in_batches(x: Array, each: tuple[int, int]) -> Array:
    """[k, M, steps · n, …] → [steps, M, k · n, …]: every batch has all of the k steps."""
    k, m = x.shape[:2]
    return x.reshape(k, m, *each, -1).transpose(2, 1, 0, 3, 4).reshape(each[0], m, k * each[1], -1)


def _batches(told: Targets, at: NDArray[np.int64]) -> Targets:
    """The rows `at` [steps, M, B] of the regression targets."""
    member = np.arange(at.shape[1])[:, None]
    return Targets(
        inputs=told.inputs[at],
        change=told.change[member, at],
        outcome_inputs=told.outcome_inputs[at],
        reward=told.reward[member, at],
        cost=told.cost[at],
        paid=told.paid[at],
        terminal=told.terminal[at],
    )


@jax.jit
def _block(state: State, met: Met, batches: Targets, rates: Array) -> State:
    def step(carry: State, now: tuple[Met, Targets, Array]) -> tuple[State, None]:
        (weights, opt), (way, some, rate) = carry, now
        gradient = jax.grad(lambda w: loss(w[0], w[1], way, some))(weights)
        return adam_step(gradient, opt, weights, rate), None

    state, _ = jax.lax.scan(step, state, (met, batches, rates))
    return state
