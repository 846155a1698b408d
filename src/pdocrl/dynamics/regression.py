"""The part of a step that is a quadratic polynomial, by ridge regression in closed form; networks learn what it leaves.

    y ≈ θᵀφ(s, a, m),   φ = (1, z, z_i z_j),   z = (s, a) standardised, and the step before, m

Exact for much of mechanics, where small errors of one sign would add up over an episode. What it leaves is small and of
another size in every coordinate, and is given to the networks in units of its own.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.dynamics.normaliser import Normaliser

CHUNK = 10_000  # rows at a time
RIDGE = 1e-5
FARTHEST = 6.0  # standard deviations beyond which inputs are clipped
TAIL = 0.0005  # of what is left, clipped at both ends before its size is measured: a jump sets no unit
MOST_PRODUCTS = 1000  # of two inputs; with more inputs only their squares are features


class Regression(eqx.Module):
    """θ, and the size of what it leaves."""

    theta: Float[Array, "d Y"]
    left: Float[Array, " Y"]

    def __call__(self, normaliser: Normaliser, obs: Array, action: Array, memory: Array) -> Float[Array, "... Y"]:
        return features(normaliser, obs, action, memory) @ self.theta


def features(normaliser: Normaliser, obs: Array, action: Array, memory: Array) -> Float[Array, "... d"]:
    """φ, with products of states and actions alone."""
    z = jnp.concatenate([jnp.clip(normaliser.standardised(obs), -FARTHEST, FARTHEST), action], -1)
    n = z.shape[-1]
    i, j = np.triu_indices(n) if n * (n + 1) // 2 <= MOST_PRODUCTS else (np.arange(n),) * 2
    return jnp.concatenate([jnp.ones((*z.shape[:-1], 1)), z, memory, z[..., i] * z[..., j]], -1)


def memory_of(normaliser: Normaliser, obs: Array, action: Array, next_obs: Array) -> Float[Array, "... S+A+1"]:
    """What the next step remembers of this one, since worlds have motors that observations hide; zeros at a start."""
    change = jnp.clip((next_obs - obs) / normaliser.change, -FARTHEST, FARTHEST)
    return jnp.concatenate([change, action, jnp.ones((*obs.shape[:-1], 1))], -1)


def regress(
    normaliser: Normaliser,
    rows: tuple[Any, Any, Any],
    target: NDArray[np.floating],
    bag: NDArray[np.bool_],
    group: NDArray[np.int64],
) -> Regression:
    """A regression [M, …] of targets [N, Y] for each member, of the groups of rows (obs, action, memory) it may see.

    bag [M, G] says which, group [N] is each row's. Sums over a group are computed once. `left` [M, Y] is that of the
    members' mean, the same for all.
    """
    phi_of = jax.jit(lambda some: features(normaliser, *some))
    y = np.asarray(target, np.float64)
    total: Any = 0.0
    pieces: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for own, some in chunks(rows):
        phi = np.asarray(phi_of(some), np.float64)[: len(own)]
        pieces = pieces or [(own, phi)]
        for g in np.unique(group[own]):
            seen = group[own] == g
            both = np.concatenate([phi[seen].T @ phi[seen], phi[seen].T @ y[own[seen]]], axis=1)
            total = total + bag[:, g, None, None] * both
    d = phi.shape[1]
    gram, cross = total[:, :, :d], total[:, :, d:]
    ridge = RIDGE * np.trace(gram, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    theta = np.linalg.solve(gram + ridge, cross)
    own, phi = pieces[0]
    errors = y[own] - phi @ theta.mean(axis=0)
    errors = np.clip(errors, *np.quantile(errors, [TAIL, 1 - TAIL], axis=0))
    left = np.tile(np.maximum(errors.std(axis=0), 1e-4), (len(bag), 1))
    return Regression(jnp.asarray(theta, jnp.float32), jnp.asarray(left, jnp.float32))


def explained(regression: Regression, normaliser: Normaliser, rows: tuple[Any, Any, Any]) -> NDArray[np.float32]:
    """[M, N, Y] of every row."""
    told = jax.jit(lambda some: features(normaliser, *some) @ regression.theta)
    return np.concatenate([np.asarray(told(some))[:, : len(own)] for own, some in chunks(rows)], axis=1)


def chunks(rows: tuple[Any, Any, Any]) -> list[tuple[NDArray[np.int64], tuple[Array, ...]]]:
    """Rows a piece at a time, all pieces equally long (the last one repeats a row), so that they compile once."""
    count = len(rows[0])
    size = min(CHUNK, count)
    found = []
    for start in range(0, count, size):
        own = np.arange(start, min(start + size, count))
        at = np.concatenate([own, np.zeros(size - len(own), np.int64)])
        found.append((own, tuple(jnp.asarray(np.asarray(x)[at]) for x in rows)))
    return found
