"""A network of two hidden layers as GPU kernels, one forward and four back, written in Pallas for Triton.

XLA multiplies, adds the bias and cuts at zero in passes over memory of their own. Here a block of rows goes through all
layers on the chip, and slices of the first hidden layer are multiplied into the second at once. That layer is never
written: it is a short product away from the input, and the two kernels back that need it make it again. The second
hidden layer is kept. Back, one kernel writes the gradients in what hidden layers give, and one for each layer
multiplies them for the gradient in its weights. A network of one output that nothing is to be learned of, a critic that
an actor climbs, gives its value and its slope in one pass.

Kernels see float16 zero-padded to what tensor cores take, made before (`operands`, `inputs`, `outputs`):
numbers that had to be changed on the way to the tensor cores would go through the chip's memory twice. The first bias
is a row of its weights, seen by a column of ones beside the input.

Pallas is imported by what uses it: every network comes by here, and few ever ask for a kernel.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

FLOAT16_MAX = 65504.0  # the largest float16
LOSS_SCALE = 1024.0  # loss scale: of gradients in float16
LEAST = 16  # columns that tensor cores take
WIDEST = 256  # columns of a layer, of the input with its ones, of the output
INTERPRET = False  # in JAX instead of on a GPU, for tests
Ref = Any  # an array in the GPU's memory, or a block of it


class Tile(NamedTuple):
    """How a kernel goes over its rows."""

    rows: int  # of a block; where a block sees all rows, of a slice
    warps: int  # of 32 threads
    stages: int  # of loads under way
    units: int  # of a slice of the first hidden layer; where a block sees all rows, of the block


TILES = {  # the quickest of those tried on an H200 for 144 networks of 256 × 256 at 512 rows
    "forward": Tile(64, 4, 3, 32),  # nothing is kept
    "keep": Tile(64, 4, 4, 32),
    "backward": Tile(64, 4, 3, 32),
    "first": Tile(64, 4, 3, 64),  # of the end's form, and not tried apart
    "middle": Tile(32, 4, 4, 64),
    "end": Tile(64, 4, 3, 64),
    "slope": Tile(64, 4, 3, 32),
}
COLUMNS = 128  # of a block of the middle layer's gradient


def to_float16(x: Array) -> Array:
    """As float16, where it is not yet; larger numbers are taken for the largest."""
    return x if x.dtype == jnp.float16 else jnp.clip(x, -FLOAT16_MAX, FLOAT16_MAX).astype(jnp.float16)


def available() -> bool:
    """Whether kernels can be made here; elsewhere XLA's own do the work."""
    return (INTERPRET or is_hopper()) and _has_triton()


@functools.cache
def is_hopper() -> bool:
    """The chip the kernels were made and tried for. Others have less memory for a block of rows, or other units."""
    return str(getattr(jax.devices()[0], "compute_capability", "")).startswith("9.")


@functools.cache
def _has_triton() -> bool:
    """Whether this JAX has Pallas for Triton, which it has announced to drop. PDOCRL_PALLAS=0 goes without it."""
    if os.environ.get("PDOCRL_PALLAS") == "0":
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from jax.experimental.pallas import triton

            return all(hasattr(triton, name) for name in ("CompilerParams", "dot", "load", "store"))
    except ImportError:
        return False


def fits(weights: Sequence[Any], rows: int) -> bool:
    """Whether there are kernels for such layers [..., n, m] at so many rows, which are whole blocks."""
    return all(rows % tile.rows == 0 for tile in TILES.values()) and takes(weights)


def takes(weights: Sequence[Any]) -> bool:
    """Two hidden layers whose widths are powers of two that slices divide, and no more columns than the chip has
    memory for."""
    widths = [weight.shape[-1] for weight in weights[:-1]]
    forms = all(n == room(n) <= WIDEST and all(n % tile.units == 0 for tile in TILES.values()) for n in widths)
    ends = max(weights[0].shape[-2] + 1, weights[-1].shape[-1]) <= WIDEST
    return len(widths) == 2 and forms and ends and available()


class Operands(NamedTuple):
    """A network's parameters as kernels take them."""

    first: Array  # [N, H], N = room(n + 1): weights, then the bias, then zeros
    middle: Array  # [H, H]
    last: Array  # [H, M], M = room(m)
    bias: Array  # [1, H] of the middle layer, float32


def operands(weights: Sequence[Array], biases: Sequence[Array]) -> Operands:
    """In float16, zero-padded to what tensor cores take."""
    first, middle, last = weights
    first = _filled(jnp.concatenate([first, biases[0].reshape(1, -1)]), room(len(first) + 1), axis=0)
    last = _filled(last, room(last.shape[1]))
    return Operands(to_float16(first), to_float16(middle), to_float16(last), biases[1].reshape(1, -1))


def inputs(x: Array) -> Array:
    """x [B, n] → [B, room(n + 1)]: x, a column of ones, zeros."""
    return _filled(with_ones(x), room(x.shape[1] + 1))


def outputs(gradient: Array) -> Array:
    """An output's gradient [B, m] → [B, room(m)], in float16: itself, zeros."""
    return _filled(to_float16(gradient), room(gradient.shape[1]))


def with_ones(x: Array) -> Array:
    """x [B, n] → [B, n + 1] in float16: what it is multiplied by has a bias for its last row."""
    return _filled(to_float16(x), x.shape[1] + 1, value=1)


def _filled(x: Array, size: int, axis: int = 1, value: float = 0) -> Array:
    """As long as that along an axis."""
    added = [(0, 0), (0, 0)]
    added[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, added, constant_values=value)


def forward(network: Operands, x: Array, outputs: int, keep: bool) -> list[Array]:
    """x [B, N] → output [B, m] in float32, no bias, and with `keep` the second hidden layer [B, H] in float16."""
    shapes = [_array(len(x), outputs, jnp.float32)]
    shapes += [_array(len(x), network.middle.shape[1], jnp.float16)] * keep
    return _call(TILES["keep" if keep else "forward"], _forward, [x], network, shapes, outputs=outputs)


def _forward(x: Ref, w1: Ref, w2: Ref, w3: Ref, b2: Ref, y: Ref, *kept: Ref, outputs: int, units: int) -> None:
    second = _second_layer(x[...], w1, w2, b2, units)
    for layer in kept:
        layer[...] = second
    _write(y, _dot(second, w3[...]), outputs)


def _second_layer(x: Array, w1: Ref, w2: Ref, b2: Ref, units: int) -> Array:
    """The second hidden layer [rows, H] in float16, of slices of the first."""

    def add_slice(own: Any, total: Array) -> Array:
        return total + _dot(_cut(_dot(x, w1[:, own])), w2[own, :])

    total = _over_slices(w1.shape[1], units, add_slice, jnp.zeros((x.shape[0], w2.shape[1]), jnp.float32))
    return _cut(total + b2[...])


def _cut(x: Array) -> Array:
    """A ReLU, in float16."""
    return jnp.clip(x, 0, FLOAT16_MAX).astype(jnp.float16)


def backward(network: Operands, x: Array, second: Array, gradient: Array) -> list[Array]:
    """From the output's gradient [B, M]: the gradients [B, H] in what the hidden layers give before their ReLU."""
    shapes = [_array(len(x), w.shape[1], jnp.float16) for w in network[:2]]
    return _call(TILES["backward"], _backward, [gradient, x, second], network[:3], shapes)


def _backward(g: Ref, x_ref: Ref, h2: Ref, w1: Ref, w2: Ref, w3: Ref, g1: Ref, g2: Ref, *, units: int) -> None:
    flow = to_float16(jnp.where(h2[...] > 0, _dot(g[...], w3[...], trans_b=True), 0.0))
    g2[...], x = flow, x_ref[...]

    def write_slice(own: Any, _: None) -> None:
        before = _dot(flow, w2[own, :], trans_b=True)
        g1[:, own] = to_float16(jnp.where(_dot(x, w1[:, own]) > 0, before, 0.0))

    _over_slices(w2.shape[0], units, write_slice, None)


def in_middle(network: Operands, x: Array, flow: Array) -> Array:
    """The gradient [H, H] in the middle weights: the first hidden layer, transposed, times the flow [B, H] behind them.

    Rounded to eight bits, by at most .2 % of each number: it is written and read once more, on its way to Adam.
    """
    from jax.experimental import pallas as pl

    tile, (units, width) = TILES["middle"], network.middle.shape
    columns = min(COLUMNS, width)

    def block(w1: Ref, x: Ref, flow: Ref, found: Ref) -> None:
        entry = w1[...]

        def add_rows(own: Any, total: Array) -> Array:
            first = _cut(_dot(entry, x[own, :], trans_a=True, trans_b=True))
            return total + _dot(first, flow[own, :])

        total = _over_slices(len(x), tile.rows, add_rows, jnp.zeros(found.shape, jnp.float32))
        found[...] = total.astype(jnp.bfloat16)

    specs = [
        pl.BlockSpec((x.shape[1], tile.units), lambda i, j: (0, i)),
        pl.BlockSpec(x.shape, lambda i, j: (0, 0)),
        pl.BlockSpec((len(x), columns), lambda i, j: (0, j)),
    ]
    place = pl.BlockSpec((tile.units, columns), lambda i, j: (i, j))
    shape = _array(units, width, jnp.bfloat16)
    (found,) = _launch(tile, block, (units // tile.units, width // columns), specs, [place], [shape])(
        network.first, x, flow
    )
    return found


def in_first(x: Array, flow: Array) -> Array:
    """The gradient [N, H] in the first weights, the first bias's in a row of it: the input [B, N], transposed, times
    the flow [B, H] behind them."""

    def product(flow: Array, seen: Array) -> tuple[Array, ...]:
        return (_dot(seen, flow, trans_a=True),)

    (found,) = _over_rows(TILES["first"], product, flow, x, axis=1, sums=1)
    return found


def at_end(second: Array, gradient: Array) -> list[Array]:
    """Two products [H, M] with the output's gradient [B, M]: of the second hidden layer, which is the gradient in the
    last weights, and of its ReLU's slopes, 0 or 1."""

    def products(seen: Array, flow: Array) -> tuple[Array, ...]:
        slopes = (seen > 0).astype(jnp.float16)
        return _dot(seen, flow, trans_a=True), _dot(slopes, flow, trans_a=True)

    return _over_rows(TILES["end"], products, second, gradient, axis=0, sums=2)


def _over_rows(
    tile: Tile, function: Callable[..., tuple[Array, ...]], own: Array, whole: Array, axis: int, sums: int
) -> list[Array]:
    """What a function finds of slices of rows, summed. A block has so many columns of `own` [B, n] and sees `whole`
    [B, m]; its place in what is found, [n, m] or for the axis 1 [m, n], is along that axis."""
    from jax.experimental import pallas as pl

    (rows, n), m = own.shape, whole.shape[1]

    def block(own: Ref, whole: Ref, *found: Ref) -> None:
        def add_slice(part: Any, totals: tuple[Array, ...]) -> tuple[Array, ...]:
            new = function(own[part, :], whole[part, :])
            return tuple(total + more for total, more in zip(totals, new, strict=True))

        zero = tuple(jnp.zeros(place.shape, jnp.float32) for place in found)
        for place, total in zip(found, _over_slices(rows, tile.rows, add_slice, zero), strict=True):
            place[...] = total

    specs = [pl.BlockSpec((rows, tile.units), lambda i: (0, i)), pl.BlockSpec(whole.shape, lambda i: (0, 0))]
    if axis == 1:
        place, shape = pl.BlockSpec((m, tile.units), lambda i: (0, i)), _array(m, n, jnp.float32)
    else:
        place, shape = pl.BlockSpec((tile.units, m), lambda i: (i, 0)), _array(n, m, jnp.float32)
    return _launch(tile, block, (n // tile.units,), specs, [place] * sums, [shape] * sums)(own, whole)


def value_and_slope(network: Operands, x: Array, n: int) -> tuple[Array, Array]:
    """Of a network with one output: x [B, N] → its value [B, 1], without its bias, and the value's gradient [B, n]."""
    shapes = [_array(len(x), 1, jnp.float32), _array(len(x), n, jnp.float32)]
    y, slope = _call(TILES["slope"], _slope, [x], network, shapes, columns=n)
    return y, slope


def _slope(x_ref: Ref, w1: Ref, w2: Ref, w3: Ref, b2: Ref, y: Ref, slope: Ref, *, columns: int, units: int) -> None:
    x, w = x_ref[...], w3[...]
    second = _second_layer(x, w1, w2, b2, units)
    _write(y, _dot(second, w), 1)
    one = (jax.lax.broadcasted_iota(jnp.int32, (x.shape[0], w.shape[1]), 1) == 0).astype(jnp.float16)
    flow = to_float16(jnp.where(second > 0, _dot(one, w, trans_b=True), 0.0))

    def add_slice(own: Any, total: Array) -> Array:  # the first layer is made again: kept, it would not fit
        entry = w1[:, own]
        before = to_float16(jnp.where(_dot(x, entry) > 0, _dot(flow, w2[own, :], trans_b=True), 0.0))
        return total + _dot(before, entry, trans_b=True)

    _write(slope, _over_slices(w1.shape[1], units, add_slice, jnp.zeros(x.shape, jnp.float32)), columns)


def _over_slices(width: int, units: int, function: Callable[[Any, Any], Any], carry: Any) -> Any:
    """The function of every slice of so many units and what came of those before it."""
    from jax.experimental import pallas as pl

    return jax.lax.fori_loop(0, width // units, lambda i, carry: function(pl.ds(i * units, units), carry), carry)


def _dot(x: Array, y: Array, trans_a: bool = False, trans_b: bool = False) -> Array:
    """x y, or xᵀ y, or x yᵀ, of float16, accumulated in float32."""
    from jax.experimental.pallas import triton

    found: Array = triton.dot(x, y, trans_a=trans_a, trans_b=trans_b)
    return found


def _call(
    tile: Tile,
    function: Callable[..., None],
    by_rows: Sequence[Array],
    whole: Sequence[Array],
    shapes: Sequence[Any],
    **about: int,
) -> list[Array]:
    """Run a kernel over blocks of rows: of outputs as of `by_rows` each block has its share, of `whole` it sees all.

    Blocks are as wide as tensor cores take; what lies beyond an output is masked where it is written.
    """
    from jax.experimental import pallas as pl

    def share(array: Any) -> pl.BlockSpec:
        return pl.BlockSpec((tile.rows, room(array.shape[1])), lambda i: (i, 0))

    specs = [*map(share, by_rows), *(pl.BlockSpec(array.shape, lambda i: (0, 0)) for array in whole)]
    block = functools.partial(function, units=tile.units, **about)
    return _launch(tile, block, (len(by_rows[0]) // tile.rows,), specs, list(map(share, shapes)), shapes)(
        *by_rows, *whole
    )


def _launch(
    tile: Tile, block: Callable[..., None], grid: tuple[int, ...], specs: Any, places: Any, shapes: Sequence[Any]
) -> Callable[..., list[Array]]:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    kernel: Callable[..., list[Array]] = pl.pallas_call(
        block,
        grid=grid,
        in_specs=specs,
        out_specs=places,
        out_shape=list(shapes),
        interpret=INTERPRET,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
    )
    return kernel


def _write(ref: Ref, found: Any, columns: int) -> None:
    from jax.experimental.pallas import triton

    triton.store(ref, found, mask=jax.lax.broadcasted_iota(jnp.int32, found.shape, 1) < columns)


def _array(rows: int, columns: int, kind: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, columns), kind)  # type: ignore[no-untyped-call]


def room(n: int) -> int:
    """The next power of two, at least what tensor cores take."""
    return max(LEAST, 1 << (n - 1).bit_length())
