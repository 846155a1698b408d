"""From rows of a dataset to what the networks of a step learn: regressions first, then what those leave.

dataset ─▶ rows, each with the step before ─▶ ridge regressions in closed form, a member's of the groups it may see
        ─▶ regression targets: inputs, and targets less what the regressions explain, all of the same size
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.ope.groups import Groups
from pdocrl.ope.scales import FARTHEST, JUMP, Scales, with_one

CHUNK = 10_000  # rows at a time
LOOKED_AT = 3  # chunks that tell how much the regression leaves
BASE_RIDGE = 1e-5


class Rows(eqx.Module):
    """All rows of a dataset [N, …], as the networks see them."""

    obs: Array
    action: Array
    reward: Array
    cost: Array
    next_obs: Array
    terminal: Array
    memory: Array


class Base(eqx.Module):
    """Ridge regressions in closed form, one per member."""

    change: Float[Array, "*M d S"]
    change_left: Float[Array, " S"]  # standard deviation of what it leaves
    reward: Float[Array, "*M e 1"]
    reward_left: Float[Array, ""]


class Targets(eqx.Module):
    """What the networks learn from: inputs and targets, computed once; [M, B, …] in a batch."""

    inputs: Array  # [N, 2(S + A) + 1]
    change: Array  # [M, N, S] what the regression leaves, in its standard deviations
    outcome_inputs: Array  # [N, 3S + A]
    reward: Array  # [M, N] likewise
    cost: Array  # [N, K] sizes, standardised
    paid: Array  # [N, K] 1 where a cost is not 0
    terminal: Array  # [N]


def rows_of(data: Dataset, scales: Scales) -> Rows:
    """All rows of a dataset, [N, …]."""
    memory = np.zeros((len(data), data.obs_dim + data.action_dim + 1), np.float32)
    memory[1:] = scales.memory(*(jnp.asarray(x[:-1]) for x in (data.obs, data.action, data.next_obs)))
    memory[data.episode_start] = 0
    return Rows(
        obs=jnp.asarray(data.obs),
        action=jnp.asarray(data.action),
        reward=jnp.asarray(data.reward),
        cost=jnp.asarray(data.cost),
        next_obs=jnp.asarray(data.next_obs),
        terminal=jnp.asarray(data.terminal, jnp.float32),
        memory=jnp.asarray(memory),
    )


def with_noise(rows: Rows, scales: Scales, size: Array, rng: np.random.Generator) -> Rows:
    """Rows that begin beside where they were, by `size` [S] standard deviations of changes, and end where they did."""
    off = jnp.asarray(rng.standard_normal(rows.obs.shape, np.float32)) * size
    s = rows.obs.shape[1]
    came = rows.memory[:, :s] + off * rows.memory[:, -1:]  # the first step of an episode came from nowhere
    memory = jnp.concatenate([jnp.clip(came, -FARTHEST, FARTHEST), rows.memory[:, s:]], 1)
    return dataclasses.replace(rows, obs=rows.obs + off * scales.change_scale, memory=memory)


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
        change=jnp.asarray(thetas[0], jnp.float32),
        change_left=jnp.asarray(left[0], jnp.float32),
        reward=jnp.asarray(thetas[1], jnp.float32),
        reward_left=jnp.asarray(left[1][0], jnp.float32),
    )


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


def regression_targets(rows: Rows, moved: Rows, scales: Scales, base: Base) -> Targets:
    """Inputs and targets of the networks: of the change from `moved` rows, of what a step earns from the log's own."""

    @jax.jit
    def left(rows: Rows, moved: Rows) -> tuple[Array, Array]:
        (phi, change, _, _), (_, _, x, reward) = _regressed(moved, scales), _regressed(rows, scales)
        found = (change - phi @ base.change) / base.change_left, (reward - x @ base.reward)[..., 0] / base.reward_left
        return jnp.clip(found[0], -JUMP, JUMP), jnp.clip(found[1], -JUMP, JUMP)

    both = zip(_chunks(rows), _chunks(moved), strict=True)
    pieces = [[x[:, : len(own)] for x in left(some, beside)] for (own, some), (_, beside) in both]
    change, reward = (jnp.concatenate(found, axis=1) for found in zip(*pieces, strict=True))
    return Targets(
        inputs=scales.inputs(moved.memory, moved.obs, moved.action),
        change=change,
        outcome_inputs=scales.outcome_inputs(rows.obs, rows.action, rows.next_obs),
        reward=reward,
        cost=(rows.cost - scales.cost_mean) / scales.cost_scale,
        paid=(rows.cost != 0).astype(jnp.float32),
        terminal=rows.terminal,
    )
