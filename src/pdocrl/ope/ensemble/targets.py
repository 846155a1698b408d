"""From rows of a dataset to what the networks of a step learn: regressions first, then what those leave.

dataset ─▶ rows, each with the step before ─▶ ridge regressions in closed form, a member's of the groups it may see
        ─▶ regression targets: inputs, and targets less what the regressions explain, all of the same size

What networks see is standardised by the data's `Scales`:

memory(s, a, s′)          what the next step remembers of this one
inputs(memory, s, a)      of the change;  features(…) adds products, for the regression
outcome_inputs(s, a, s′)  of what a step earns and costs
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

from pdocrl.data.dataset import Dataset, varies

CHUNK = 10_000  # rows at a time
LOOKED_AT = 3  # chunks that tell how much the regression leaves
BASE_RIDGE = 1e-5
FARTHEST = 6.0  # standard deviations beyond which inputs are clipped
JUMP = 20.0  # … and changes and targets: heavy tails are the world's, an angle that wraps round is not a change
MOST_PRODUCTS = 1000  # of two inputs; with more inputs only their squares are features


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
    low: Float[Array, " S"]  # no simulated state leaves the box the data lies in; what is rounding stays where it is
    high: Float[Array, " S"]
    cost_low: Float[Array, " K"]  # of the costs that are not 0
    cost_high: Float[Array, " K"]

    @staticmethod
    def of(data: Dataset) -> Scales:
        # One step in a thousand may be a jump (an angle that wraps round), and must not set the scale of all others.
        change = data.next_obs - data.obs
        change = np.clip(change, *np.quantile(change, [0.0005, 0.9995], axis=0))
        paid = [column[column != 0] for column in data.cost.T]
        paid = [column if len(column) else np.zeros(1, np.float32) for column in paid]
        mean, moves = data.obs.mean(axis=0, dtype=np.float64), data.obs_varies
        low = np.minimum(data.obs.min(axis=0), data.next_obs.min(axis=0))
        high = np.maximum(data.obs.max(axis=0), data.next_obs.max(axis=0))
        numbers = {
            "obs_mean": mean,
            "obs_scale": spread(data.obs),
            "action_mean": data.action.mean(axis=0, dtype=np.float64),
            "action_scale": spread(data.action),
            "change_mean": change.mean(axis=0, dtype=np.float64),
            "change_scale": np.where(moves, spread(change), 1.0),
            "reward_mean": data.reward.mean(dtype=np.float64),
            "reward_scale": spread(data.reward[:, None])[0],
            "cost_mean": [column.mean(dtype=np.float64) for column in paid],
            "cost_scale": [spread(column[:, None])[0] for column in paid],
            # A policy may standardise even a column of rounding, of 1e-14, say; no model learns what that does next.
            "low": np.where(moves, low, mean),
            "high": np.where(moves, high, mean),
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


def spread(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """[D] standard deviations of columns [N, D] in whatever unit; of one that is rounding its size, 1 at least."""
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    return np.asarray(np.where(varies(mean, deviation), deviation, np.maximum(np.abs(mean), 1.0)))


def with_one(x: Array) -> Array:
    return jnp.concatenate([jnp.ones((*x.shape[:-1], 1)), x], -1)


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


def regress(rows: Rows, scales: Scales, bag: NDArray[np.bool_], group: NDArray[np.int64]) -> Base:
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
