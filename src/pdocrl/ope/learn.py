"""How the committees learn: all members side by side, each from the groups of episodes of its bag."""

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
from pdocrl.nn.optimise import adam_step
from pdocrl.ope.ensemble import Ensemble, EnsembleConfig, gaussian, in_committees, networks, parts
from pdocrl.ope.groups import Groups
from pdocrl.ope.lessons import Lessons, lessons, regress, rows_of
from pdocrl.ope.scales import Scales

ROWS = 150_000  # most rows to learn from
BLOCK = 25  # steps per compiled call

Networks = tuple[MLP, MLP]  # of the change and of the outcome
State = tuple[Networks, optax.OptState]


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
def _block(state: State, batches: Lessons, rates: Array) -> State:
    def step(carry: State, now: tuple[Lessons, Array]) -> tuple[State, None]:
        (weights, opt), (some, rate) = carry, now
        gradient = jax.grad(lambda w: loss(w[0], w[1], some))(weights)
        return adam_step(gradient, opt, weights, rate), None

    state, _ = jax.lax.scan(step, state, (batches, rates))
    return state
