"""Optimisation: Adam with a traced learning rate, gradient clipping by norm, a gradient summed over pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

M = TypeVar("M", bound=eqx.Module)
T = TypeVar("T")


def adam_step(gradient: M, opt: optax.OptState, module: M, rate: float | Array) -> tuple[M, optax.OptState]:
    """One Adam step whose rate is a traced number, so that runs may differ in it."""
    direction, opt = optax.scale_by_adam().update(gradient, opt)
    moved: M = jax.tree.map(lambda p, d: p - rate * d, module, direction)
    return moved, opt


def descend(
    loss: Callable[[M], Any],
    module: M,
    opt: optax.OptState,
    rate: float | Array,
    has_aux: bool = False,
    largest: float | Array | None = None,
) -> tuple[M, optax.OptState, Any]:
    """One Adam step down `loss`, its gradient cut at the norm `largest`: module, optimiser, and the loss before.

    With `has_aux` the last is what `loss` returns, the loss and whatever else.
    """
    found, gradient = jax.value_and_grad(loss, has_aux=has_aux)(module)
    gradient = gradient if largest is None else clip_norm(gradient, largest)
    return *adam_step(gradient, opt, module, rate), found


def clip_norm(gradient: M, largest: float | Array) -> M:
    """The gradient, shortened to the largest norm where it is longer; the norm is that of all its arrays together."""
    scale = jnp.minimum(1.0, largest / (optax.global_norm(gradient) + 1e-6))
    clipped: M = jax.tree.map(lambda g: g * scale, gradient)
    return clipped


def sum_over(function: Callable[[Any], T], pieces: Any) -> T:
    """Σ_p function(piece p); every array of `pieces` is [P, …].

    One piece after another, but two in a turn: where one of them keeps a single core busy the other has the second.
    """
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], pieces))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(total: T, piece: Any) -> tuple[T, None]:
        return jax.tree.map(jnp.add, total, function(piece)), None

    total: T = jax.lax.scan(add, zero, pieces, unroll=2)[0]
    return total
