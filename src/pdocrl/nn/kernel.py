"""A network of two hidden layers as one GPU kernel forward and one back, written in Pallas for Triton.

XLA multiplies, adds the bias and cuts at zero in passes over memory of their own. Here a block of rows goes through all
layers on the chip: slices of the first hidden layer are made, kept for the way back, and multiplied into the second at
once. Back, the gradients in hidden layers are written once, for the products in the weights, which XLA does well.
Blocks are filled up with zeros to what tensor cores take.

Pallas is imported by what uses it: every network comes by here, and few ever ask for a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

UNITS = 64  # of a slice of the first hidden layer
HALF_MAX = 65504.0  # the largest float16
HALF_SCALE = 1024.0  # of gradients on their way back as halves
LEAST = 16  # columns that tensor cores take
INTERPRET = False  # in JAX instead of on a GPU, for tests
Ref = Any  # an array in the GPU's memory, or a block of it


class Tile(NamedTuple):
    """How a kernel goes over its rows."""

    rows: int  # of a block
    warps: int  # of 32 threads
    stages: int  # of loads under way


TILES = {  # the quickest of nine tried on an H200 for 144 networks of 256 × 256 at 512 rows
    "forward": Tile(128, 8, 3),  # nothing is kept
    "keep": Tile(128, 8, 3),
    "backward": Tile(32, 4, 2),
    "to_input": Tile(64, 4, 2),
}


def half(x: Array) -> Array:
    """As float16, where it is not yet; larger numbers are taken for the largest."""
    return x if x.dtype == jnp.float16 else jnp.clip(x, -HALF_MAX, HALF_MAX).astype(jnp.float16)


@functools.cache
def available() -> bool:
    """Whether JAX still has Pallas for Triton; without it XLA's own kernels do the work."""
    try:
        from jax.experimental.pallas import triton  # noqa: F401
    except ImportError:
        return False
    return True


def fits(weights: Sequence[Any], rows: int) -> bool:
    """Two hidden layers whose widths are powers of two that slices divide, and whole blocks of rows."""
    widths = [weight.shape[1] for weight in weights[:-1]]
    forms = all(n % UNITS == 0 and n == room(n) <= 256 for n in widths)
    return len(widths) == 2 and all(rows % tile.rows == 0 for tile in TILES.values()) and forms and available()


def forward(weights: Sequence[Array], biases: Sequence[Array], x: Array, keep: bool) -> tuple[Array, list[Array]]:
    """x [B, n] → output [B, m] in float32 and, to keep, both hidden layers [B, H] as halves."""
    shapes = [_array(len(x), weights[-1].shape[1], jnp.float32)]
    shapes += [_array(len(x), w.shape[1], jnp.float16) for w in weights[:2] if keep]
    tile = TILES["keep" if keep else "forward"]
    y, *hidden = _call(tile, _forward, [x], [*weights, *map(_row, biases[:2])], shapes, weights)
    return y + _row(biases[2]), hidden


def _forward(
    x_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, y: Ref, *kept: Ref, inputs: int, outputs: int
) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    x = half(_read(x_ref, columns=inputs))

    def add_slice(i: Array, total: Array) -> Array:
        units = pl.ds(i * UNITS, UNITS)
        first = triton.dot(x, half(_read(w1.at[:, units], rows=inputs))) + b1[:, units]
        first = half(jnp.maximum(first, 0))
        if kept:
            kept[0][:, units] = first
        return jnp.add(total, triton.dot(first, w2[units, :]))

    nothing = jnp.zeros((x.shape[0], w2.shape[1]), jnp.float32)
    second = jax.lax.fori_loop(0, w1.shape[1] // UNITS, add_slice, nothing) + b2[...]
    second = half(jnp.maximum(second, 0))
    if kept:
        kept[1][...] = second
    _write(y, triton.dot(second, half(_read(w3, columns=outputs))), outputs)


def backward(
    weights: Sequence[Array], hidden: Sequence[Array], gradient: Array, to_input: bool
) -> tuple[list[Array], list[Array], Array | None]:
    """From the output's gradient [B, m]: the gradient in what each layer gives before its ReLU, as halves, their sums
    over rows, and, where it is asked for, the gradient in the input [B, n]."""
    tile, rows = TILES["backward"], len(gradient)
    shapes = [_array(rows, h.shape[1], jnp.float16) for h in hidden]
    shapes += [_array(rows // tile.rows, h.shape[1], jnp.float32) for h in hidden]
    shapes += [_array(rows, weights[0].shape[0], jnp.float32)] * to_input
    g1, g2, s1, s2, *rest = _call(tile, _backward, [gradient, *hidden], weights, shapes, weights)
    sums = [s1.sum(0), s2.sum(0), gradient.sum(0)]
    return [g1, g2, half(gradient)], sums, rest[0] if to_input else None


def _backward(
    g_ref: Ref, h1: Ref, h2: Ref, w1: Ref, w2: Ref, w3: Ref, g1: Ref, g2: Ref, s1: Ref, s2: Ref, *at_input: Ref,
    inputs: int, outputs: int,
) -> None:  # fmt: skip
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    last, w = half(_read(g_ref, columns=outputs)), half(_read(w3, columns=outputs))
    flow = jnp.where(h2[...] > 0, triton.dot(last, w, trans_b=True), 0.0)
    s2[...] = flow.sum(0, keepdims=True)
    flow = half(flow)
    g2[...] = flow

    def add_slice(i: Array, total: Array | None) -> Array | None:
        units = pl.ds(i * UNITS, UNITS)
        first = jnp.where(h1[:, units] > 0, triton.dot(flow, w2[units, :], trans_b=True), 0.0)
        s1[:, units] = first.sum(0, keepdims=True)
        first = half(first)
        g1[:, units] = first
        if total is None:
            return None
        return jnp.add(total, triton.dot(first, half(_read(w1.at[:, units], rows=inputs)), trans_b=True))

    nothing = jnp.zeros(at_input[0].shape, jnp.float32) if at_input else None
    total = jax.lax.fori_loop(0, w1.shape[1] // UNITS, add_slice, nothing)
    if at_input:
        _write(at_input[0], total, inputs)


def backward_to_input(weights: Sequence[Array], biases: Sequence[Array], x: Array, gradient: Array) -> Array:
    """The gradient in the input [B, n] alone; both hidden layers are made again, so nothing of them is ever stored."""
    shapes = [_array(len(x), x.shape[1], jnp.float32)]
    whole = [*weights, *map(_row, biases[:2])]
    (found,) = _call(TILES["to_input"], _to_input, [x, gradient], whole, shapes, weights)
    return found


def _to_input(
    x_ref: Ref, g_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, at_input: Ref, *, inputs: int, outputs: int
) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    x, slices = half(_read(x_ref, columns=inputs)), w1.shape[1] // UNITS

    def entry(units: Any) -> Array:
        return half(_read(w1.at[:, units], rows=inputs))

    def forward(i: Array, total: Array) -> Array:
        units = pl.ds(i * UNITS, UNITS)
        first = triton.dot(x, entry(units)) + b1[:, units]
        return jnp.add(total, triton.dot(half(jnp.maximum(first, 0)), w2[units, :]))

    nothing = jnp.zeros((x.shape[0], w2.shape[1]), jnp.float32)
    second = jax.lax.fori_loop(0, slices, forward, nothing) + b2[...]
    last, w = half(_read(g_ref, columns=outputs)), half(_read(w3, columns=outputs))
    flow = half(jnp.where(second > 0, triton.dot(last, w, trans_b=True), 0.0))

    def back(i: Array, total: Array) -> Array:
        units = pl.ds(i * UNITS, UNITS)
        first = triton.dot(x, entry(units)) + b1[:, units]
        before = jnp.where(first > 0, triton.dot(flow, w2[units, :], trans_b=True), 0.0)
        return jnp.add(total, triton.dot(half(before), entry(units), trans_b=True))

    total = jax.lax.fori_loop(0, slices, back, jnp.zeros(at_input.shape, jnp.float32))
    _write(at_input, total, inputs)


def _call(
    tile: Tile, function: Callable[..., None], by_rows: Sequence[Array], whole: Sequence[Array], shapes: Sequence[Any],
    weights: Sequence[Array],
) -> list[Array]:  # fmt: skip
    """Run a kernel over blocks of rows: of outputs as of `by_rows` each block has its share, of `whole` it sees all.

    Blocks are as wide as tensor cores take; what lies beyond an array is masked where it is read and written.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    blocks = len(by_rows[0]) // tile.rows

    def share(array: Any) -> pl.BlockSpec:
        return pl.BlockSpec((array.shape[0] // blocks, room(array.shape[1])), lambda i: (i, 0))

    def everything(array: Array) -> pl.BlockSpec:
        rows = 1 if len(array) == 1 else room(len(array))
        return pl.BlockSpec((rows, room(array.shape[1])), lambda i: (0, 0))

    found: list[Array] = pl.pallas_call(
        functools.partial(function, inputs=weights[0].shape[0], outputs=weights[-1].shape[1]),
        grid=(blocks,),
        in_specs=[*map(share, by_rows), *map(everything, whole)],
        out_specs=list(map(share, shapes)),
        out_shape=list(shapes),
        interpret=INTERPRET,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
    )(*by_rows, *whole)
    return found


def _read(ref: Ref, rows: int | None = None, columns: int | None = None) -> Array:
    """A block of which so many rows, or columns, are the array's; the others are 0."""
    from jax.experimental.pallas import triton

    axis, count = (0, rows) if columns is None else (1, columns)
    assert count is not None
    found: Array
    if count == ref.shape[axis]:
        found = ref[...]
    else:
        found = triton.load(ref, mask=jax.lax.broadcasted_iota(jnp.int32, ref.shape, axis) < count, other=0.0)
    return found


def _write(ref: Ref, found: Any, columns: int) -> None:
    from jax.experimental.pallas import triton

    triton.store(ref, found, mask=jax.lax.broadcasted_iota(jnp.int32, found.shape, 1) < columns)


def _row(bias: Array) -> Array:
    return bias.reshape(1, -1)


def _array(rows: int, columns: int, kind: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, columns), kind)  # type: ignore[no-untyped-call]


def room(n: int) -> int:
    """The next power of two, at least what tensor cores take."""
    return max(LEAST, 1 << (n - 1).bit_length())
