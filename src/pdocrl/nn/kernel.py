"""A network of two hidden layers as one GPU kernel forward and one back, written in Pallas for Triton.

XLA multiplies, adds the bias and cuts at zero in passes over memory of their own. Here a block of rows goes through all
layers on the chip: slices of the first hidden layer are made, kept for the way back, and multiplied into the second at
once. Back, the gradients in hidden layers are written once; products and sums over rows, for the gradients in weights
and biases, are XLA's. A network of one output that nothing is to be learned of, a critic that an actor climbs, gives
its value and its slope in one pass, and nothing is kept. Blocks are filled up with zeros to what tensor cores take.

Pallas is imported by what uses it: every network comes by here, and few ever ask for a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

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
    units: int = 64  # of a slice of the first hidden layer


TILES = {  # the quickest of those tried on an H200 for 144 networks of 256 × 256 at 512 rows
    "forward": Tile(128, 8, 3),  # nothing is kept
    "keep": Tile(128, 8, 3),
    "backward": Tile(128, 8, 2),
    "slope": Tile(64, 4, 2),
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
    tiles = TILES.values()
    forms = all(n == room(n) <= 256 and all(n % tile.units == 0 for tile in tiles) for n in widths)
    return len(widths) == 2 and forms and all(rows % tile.rows == 0 for tile in tiles) and available()


def forward(weights: Sequence[Array], biases: Sequence[Array], x: Array, keep: bool) -> tuple[Array, list[Array]]:
    """x [B, n] → output [B, m] in float32 and, to keep, both hidden layers [B, H] as halves."""
    shapes = [_array(len(x), weights[-1].shape[1], jnp.float32)]
    shapes += [_array(len(x), w.shape[1], jnp.float16) for w in weights[:2] if keep]
    tile = TILES["keep" if keep else "forward"]
    y, *hidden = _call(tile, _forward, [x], [*weights, *map(_row, biases[:2])], shapes, weights)
    return y + _row(biases[2]), hidden


def _forward(
    x_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, y: Ref, *kept: Ref, inputs: int, outputs: int, units: int
) -> None:
    second = _second_layer(half(_read(x_ref, columns=inputs)), w1, w2, b1, b2, kept[:1], inputs, units)
    if kept:
        kept[1][...] = second
    _write(y, _dot(second, half(_read(w3, columns=outputs))), outputs)


def _second_layer(
    x: Array, w1: Ref, w2: Ref, b1: Ref, b2: Ref, kept: Sequence[Ref], inputs: int, units: int
) -> Array:  # fmt: skip
    """The second hidden layer [rows, H] as halves; the first is made in slices, and written where it is kept."""

    def add_slice(own: Any, total: Array) -> Array:
        first = half(jnp.maximum(_first_layer(x, w1, b1, own, inputs), 0))
        for layer in kept:
            layer[:, own] = first
        return total + _dot(first, w2[own, :])

    total = _over_slices(w1.shape[1], units, add_slice, jnp.zeros((x.shape[0], w2.shape[1]), jnp.float32))
    return half(jnp.maximum(total + b2[...], 0))


def _first_layer(x: Array, w1: Ref, b1: Ref, own: Any, inputs: int) -> Array:
    """A slice of the first layer before its ReLU."""
    return jnp.add(_dot(x, half(_read(w1.at[:, own], rows=inputs))), b1[:, own])


def backward(weights: Sequence[Array], hidden: Sequence[Array], gradient: Array) -> list[Array]:
    """From the output's gradient [B, m]: the gradients [B, H] in what the hidden layers give before their ReLU."""
    shapes = [_array(len(gradient), h.shape[1], jnp.float16) for h in hidden]
    return _call(TILES["backward"], _backward, [gradient, *hidden], weights[1:], shapes, weights)


def _backward(
    g_ref: Ref, h1: Ref, h2: Ref, w2: Ref, w3: Ref, g1: Ref, g2: Ref, *, inputs: int, outputs: int, units: int
) -> None:
    del inputs
    last, w = half(_read(g_ref, columns=outputs)), half(_read(w3, columns=outputs))
    flow = half(jnp.where(h2[...] > 0, _dot(last, w, trans_b=True), 0.0))
    g2[...] = flow

    def write_slice(own: Any, _: None) -> None:
        g1[:, own] = half(jnp.where(h1[:, own] > 0, _dot(flow, w2[own, :], trans_b=True), 0.0))

    _over_slices(w2.shape[0], units, write_slice, None)


def value_and_slope(weights: Sequence[Array], biases: Sequence[Array], x: Array) -> tuple[Array, Array]:
    """Of a network with one output: x [B, n] → its value [B, 1] and the value's gradient in x [B, n]."""
    shapes = [_array(len(x), 1, jnp.float32), _array(len(x), x.shape[1], jnp.float32)]
    y, slope = _call(TILES["slope"], _slope, [x], [*weights, *map(_row, biases[:2])], shapes, weights)
    return y + _row(biases[2]), slope


def _slope(
    x_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, y: Ref, slope: Ref, *, inputs: int, outputs: int,
    units: int,
) -> None:  # fmt: skip
    x, w = half(_read(x_ref, columns=inputs)), half(_read(w3, columns=outputs))
    second = _second_layer(x, w1, w2, b1, b2, (), inputs, units)
    _write(y, _dot(second, w), outputs)
    one = (jax.lax.broadcasted_iota(jnp.int32, (x.shape[0], w.shape[1]), 1) == 0).astype(jnp.float16)
    flow = half(jnp.where(second > 0, _dot(one, w, trans_b=True), 0.0))

    def add_slice(own: Any, total: Array) -> Array:  # the first layer is made again: kept, it would not fit
        before = jnp.where(_first_layer(x, w1, b1, own, inputs) > 0, _dot(flow, w2[own, :], trans_b=True), 0.0)
        return total + _dot(half(before), half(_read(w1.at[:, own], rows=inputs)), trans_b=True)

    _write(slope, _over_slices(w1.shape[1], units, add_slice, jnp.zeros(slope.shape, jnp.float32)), inputs)


def _over_slices(width: int, units: int, function: Callable[[Any, Any], Any], carry: Any) -> Any:
    """The function of every slice of so many units and what came of those before it."""
    from jax.experimental import pallas as pl

    return jax.lax.fori_loop(0, width // units, lambda i, carry: function(pl.ds(i * units, units), carry), carry)


def _dot(x: Array, y: Array, trans_b: bool = False) -> Array:
    """x y, or x yᵀ, of halves, summed in float32."""
    from jax.experimental.pallas import triton

    found: Array = triton.dot(x, y, trans_b=trans_b)
    return found


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
        functools.partial(function, inputs=weights[0].shape[0], outputs=weights[-1].shape[1], units=tile.units),
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
