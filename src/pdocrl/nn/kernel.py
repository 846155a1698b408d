"""A network of two hidden layers as one GPU kernel forward and one back, written in Pallas for Triton.

XLA multiplies, adds the bias and cuts at zero in passes over memory of their own. Here a block of rows goes through all
layers on the chip: slices of the first hidden layer are made, kept for the way back, and multiplied into the second at
once. Back, the gradients in hidden layers are written once, for the products in the weights, which XLA does well.
Sizes are padded with zeros to what tensor cores take.

Pallas is imported by what uses it: every network comes by here, and few ever ask for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

ROWS = 128  # of a block
UNITS = 64  # of a slice of the first hidden layer
HALF_MAX = 65504.0  # the largest float16
LEAST = 16  # columns that tensor cores take
INTERPRET = False  # in JAX instead of on a GPU, for tests
Ref = Any  # an array in the GPU's memory, or a block of it


def half(x: Array) -> Array:
    """As float16, where it is not yet; larger numbers are taken for the largest."""
    return x if x.dtype == jnp.float16 else jnp.clip(x, -HALF_MAX, HALF_MAX).astype(jnp.float16)


def fits(weights: Sequence[Array], rows: int) -> bool:
    """Two hidden layers whose widths are powers of two that slices divide, and whole blocks of rows."""
    widths = [weight.shape[1] for weight in weights[:-1]]
    return len(widths) == 2 and rows % ROWS == 0 and all(n % UNITS == 0 and n == _room(n) <= 256 for n in widths)


def forward(weights: Sequence[Array], biases: Sequence[Array], x: Array, keep: bool) -> tuple[Array, list[Array]]:
    """x [B, n] of halves → output [B, m] in float32 and, to keep, both hidden layers [B, H] as halves."""
    w1, w2, w3 = _padded(weights)
    b1, b2, b3 = (bias.reshape(1, -1) for bias in biases)
    shapes = [_array(len(x), w3.shape[1], jnp.float32)]
    shapes += [_array(len(x), w.shape[1], jnp.float16) for w in (w1, w2) if keep]
    y, *hidden = _call(_forward, [_wide(x, w1.shape[0])], [w1, w2, w3, b1, b2], shapes)
    return y[:, : weights[-1].shape[1]] + b3, hidden


def _forward(x_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, y: Ref, *kept: Ref) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    x = x_ref[...]

    def add_slice(i: Array, total: Array) -> Array:
        units = pl.ds(i * UNITS, UNITS)
        first = half(jnp.maximum(triton.dot(x, w1[:, units]) + b1[:, units], 0))
        if kept:
            kept[0][:, units] = first
        return jnp.add(total, triton.dot(first, w2[units, :]))

    nothing = jnp.zeros((x.shape[0], w2.shape[1]), jnp.float32)
    second = jax.lax.fori_loop(0, w1.shape[1] // UNITS, add_slice, nothing) + b2[...]
    second = half(jnp.maximum(second, 0))
    if kept:
        kept[1][...] = second
    y[...] = triton.dot(second, w3[...])


def backward(
    weights: Sequence[Array], hidden: Sequence[Array], gradient: Array
) -> tuple[list[Array], list[Array], Array]:
    """From the output's gradient [B, m] of halves: the gradient in what each layer gives before its ReLU, as halves,
    their sums over rows, and the gradient in the input [B, n]."""
    w1, w2, w3 = _padded(weights)
    rows, blocks = len(gradient), len(gradient) // ROWS
    shapes = [_array(rows, h.shape[1], jnp.float16) for h in hidden]
    shapes += [_array(blocks, h.shape[1], jnp.float32) for h in hidden]
    shapes += [_array(rows, w1.shape[0], jnp.float32)]
    g1, g2, s1, s2, at_input = _call(_backward, [_wide(gradient, w3.shape[1]), *hidden], [w1, w2, w3], shapes)
    sums = [s1.sum(0), s2.sum(0), gradient.sum(0, dtype=jnp.float32)]
    return [g1, g2, gradient], sums, at_input[:, : weights[0].shape[0]]


def _backward(
    g_ref: Ref, h1: Ref, h2: Ref, w1: Ref, w2: Ref, w3: Ref, g1: Ref, g2: Ref, s1: Ref, s2: Ref, at_input: Ref
) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    flow = jnp.where(h2[...] > 0, triton.dot(g_ref[...], w3[...], trans_b=True), 0.0)
    s2[...] = flow.sum(0, keepdims=True)
    flow = half(flow)
    g2[...] = flow

    def add_slice(i: Array, total: Array) -> Array:
        units = pl.ds(i * UNITS, UNITS)
        first = jnp.where(h1[:, units] > 0, triton.dot(flow, w2[units, :], trans_b=True), 0.0)
        s1[:, units] = first.sum(0, keepdims=True)
        first = half(first)
        g1[:, units] = first
        return jnp.add(total, triton.dot(first, w1[:, units], trans_b=True))

    at_input[...] = jax.lax.fori_loop(0, w1.shape[1] // UNITS, add_slice, jnp.zeros(at_input.shape, jnp.float32))


def _call(
    function: Callable[..., None], by_rows: Sequence[Array], whole: Sequence[Array], shapes: Sequence[Any]
) -> list[Array]:
    """Run a kernel over blocks of rows: of outputs as of `by_rows` each block has its share, of `whole` it sees all."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    blocks = len(by_rows[0]) // ROWS

    def share(array: Any) -> pl.BlockSpec:
        return pl.BlockSpec((array.shape[0] // blocks, array.shape[1]), lambda i: (i, 0))

    everything = [pl.BlockSpec(array.shape, lambda i: (0, 0)) for array in whole]
    found: list[Array] = pl.pallas_call(
        function,
        grid=(blocks,),
        in_specs=[*map(share, by_rows), *everything],
        out_specs=list(map(share, shapes)),
        out_shape=list(shapes),
        interpret=INTERPRET,
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=2),
    )(*by_rows, *whole)
    return found


def _array(rows: int, columns: int, kind: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, columns), kind)  # type: ignore[no-untyped-call]


def _padded(weights: Sequence[Array]) -> tuple[Array, Array, Array]:
    first, second, last = weights
    rows = ((0, _room(len(first)) - len(first)), (0, 0))
    return jnp.pad(first, rows), second, _wide(last, _room(last.shape[1]))


def _wide(array: Array, columns: int) -> Array:
    return jnp.pad(array, ((0, 0), (0, columns - array.shape[1])))


def _room(n: int) -> int:
    """The next power of two, at least what tensor cores take."""
    return max(LEAST, 1 << (n - 1).bit_length())
