"""Attention over short windows: as products of many small matrices, or as one GPU kernel forward and one back.

    weights = softmax(q kᵀ / √D),   mixed = weights v,   by head

A window of 40 tokens and a head of 16 numbers make products of 40 × 16 × 40: too small for a kernel each, and as a
batch of thousands they spend their time on scores written to memory and read again. In the kernel, written in Pallas
for Triton, a program has one window and one head: queries, keys and values come in, what is attended to goes out, and
scores never leave the chip. Going back they are made again. Factors are float16, sums float32, as in
`pdocrl.nn.precision`. Elsewhere XLA does the products (`mix`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pdocrl.nn import pallas_mlp
from pdocrl.nn.pallas_mlp import LOSS_SCALE, Ref, room, to_float16

LONGEST = 128  # tokens of a window that one program holds
NEVER = -1e9  # the score of what is not attended to


def rows_first(x: Array) -> Array:
    """x, of which a CPU has row after row in memory.

    XLA folds a transpose into the product it is for. Its products for a CPU take half as long if both factors, and what
    comes out, lie as they are written; a copy costs little beside that. A GPU's do not care.
    """
    return jax.lax.optimization_barrier(x) if jax.default_backend() == "cpu" else x  # type: ignore[no-untyped-call]


def fits(tokens: int, head: int) -> bool:
    return tokens <= LONGEST and head == room(head) and pallas_mlp.available()


@jax.custom_vjp
def mix(
    query: Float[Array, "B H U D"],
    key: Float[Array, "B H T D"],
    value: Float[Array, "B H T D"],
    attends: Bool[Array, "B 1 U T"],
    kept: Float[Array, "B H U T"] | None = None,
) -> Float[Array, "B H U D"]:
    """(softmax(q kᵀ / √D) · kept) v, where `attends`; `kept` is 0, or 1 over the share kept, of each weight."""
    return _mix(query, key, value, attends, kept)[0]


def _mix(query: Array, key: Array, value: Array, attends: Array, kept: Array | None) -> tuple[Array, tuple[Any, ...]]:
    scores = query @ key.mT / jnp.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(attends, scores, NEVER), axis=-1)
    return (weights if kept is None else weights * kept) @ value, (query, key, value, weights, kept)


def _unmix(saved: tuple[Any, ...], gradient: Array) -> tuple[Array | None, ...]:
    """By hand, for the layout of its products: sums over queries are of rows by columns, as all others are."""
    query, key, value, weights, kept = saved
    at_weights = gradient @ value.mT
    mixed = weights
    if kept is not None:
        at_weights, mixed = at_weights * kept, weights * kept
    centred = at_weights - (at_weights * weights).sum(-1, keepdims=True)
    at_scores = weights * centred / jnp.sqrt(query.shape[-1])
    at_key, at_value = rows_first(query.mT) @ at_scores, rows_first(gradient.mT) @ mixed
    return at_scores @ key, at_key.mT, at_value.mT, None, None


mix.defvjp(_mix, _unmix)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def attend(
    query: Float[Array, "B U D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    places: Int[Array, " U"],
    valid: Bool[Array, "B T"],
    heads: int,
) -> Float[Array, "B U D"]:
    """softmax(q kᵀ / √(D/H)) v by head, where a query at place p sees valid keys at places up to p."""
    return _remember(query, key, value, places, valid, heads)[0]


def _remember(
    query: Array, key: Array, value: Array, places: Array, valid: Array, heads: int
) -> tuple[Array, tuple[list[Array], Array, Array]]:
    factors = [to_float16(query), to_float16(key), to_float16(value)]
    (mixed,) = _call(_forward, factors, places, valid, heads, factors[:1])
    return mixed.astype(jnp.float32), (factors, places, valid)


def _back(heads: int, saved: tuple[list[Array], Array, Array], gradient: Array) -> tuple[Array | None, ...]:
    factors, places, valid = saved
    found = _call(_backward, [*factors, to_float16(gradient * LOSS_SCALE)], places, valid, heads, factors)
    return *(one.astype(jnp.float32) / LOSS_SCALE for one in found), None, None


attend.defvjp(_remember, _back)


def _call(
    function: Callable[..., None],
    given: Sequence[Array],
    places: Array,
    valid: Array,
    heads: int,
    like: Sequence[Array],
) -> list[Array]:
    """Run a kernel for every window and head; outputs are `like` the given ones."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    size, queries, width = given[0].shape
    tokens = given[1].shape[1]
    rows = room(tokens)
    by_head = pl.BlockSpec((None, rows, width // heads), lambda b, h: (b, 0, h))  # rows beyond are masked
    found: list[Array] = pl.pallas_call(
        functools.partial(function, queries=queries, tokens=tokens, scale=(heads / width) ** 0.5),
        grid=(size, heads),
        in_specs=[
            *[by_head] * len(given),
            pl.BlockSpec((rows,), lambda b, h: (0,)),
            pl.BlockSpec((None, rows), lambda b, h: (b, 0)),
        ],
        out_specs=[by_head] * len(like),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in like],  # type: ignore[no-untyped-call]
        interpret=pallas_mlp.INTERPRET,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
    )(*given, jnp.pad(places.astype(jnp.int32), (0, rows - queries)), valid.astype(jnp.int32))
    return found


def _forward(
    q_ref: Ref, k_ref: Ref, v_ref: Ref, places: Ref, valid: Ref, out: Ref, *, queries: int, tokens: int, scale: float
) -> None:
    from jax.experimental.pallas import triton

    query, key, value = _rows(q_ref, queries), _rows(k_ref, tokens), _rows(v_ref, tokens)
    weights = _weights(query, key, places, valid, tokens, scale)
    _write(out, triton.dot(to_float16(weights), value), queries)


def _backward(
    q_ref: Ref,
    k_ref: Ref,
    v_ref: Ref,
    g_ref: Ref,
    places: Ref,
    valid: Ref,
    at_q: Ref,
    at_k: Ref,
    at_v: Ref,
    *,
    queries: int,
    tokens: int,
    scale: float,
) -> None:
    from jax.experimental.pallas import triton

    query, key, value = _rows(q_ref, queries), _rows(k_ref, tokens), _rows(v_ref, tokens)
    gradient = _rows(g_ref, queries)
    weights = _weights(query, key, places, valid, tokens, scale)
    at_weights = triton.dot(gradient, value, trans_b=True)
    centred = at_weights - (at_weights * weights).sum(-1, keepdims=True)
    at_scores = to_float16(weights * centred * scale)
    _write(at_v, triton.dot(to_float16(weights), gradient, trans_a=True), tokens)
    _write(at_q, triton.dot(at_scores, key), queries)
    _write(at_k, triton.dot(at_scores, query, trans_a=True), tokens)


def _weights(query: Array, key: Array, places: Ref, valid: Ref, tokens: int, scale: float) -> Array:
    """What each query takes of each value, [rows, rows] in float32."""
    from jax.experimental.pallas import triton

    rows = len(key)
    there = jax.lax.broadcasted_iota(jnp.int32, (rows, rows), 1)
    known = triton.load(valid, mask=jax.lax.iota(jnp.int32, rows) < tokens, other=0)
    seen = (places[...][:, None] >= there) & (known[None, :] > 0)
    scores = jnp.where(seen, triton.dot(query, key, trans_b=True) * scale, NEVER)
    grown = jnp.exp(scores - scores.max(-1, keepdims=True))
    return jnp.divide(grown, grown.sum(-1, keepdims=True))


def _rows(ref: Ref, count: int) -> Array:
    """The first rows of a block, and zeros."""
    from jax.experimental.pallas import triton

    inside = jax.lax.broadcasted_iota(jnp.int32, ref.shape, 0) < count
    found: Array = triton.load(ref, mask=inside, other=0.0)
    return found


def _write(ref: Ref, found: Any, count: int) -> None:
    from jax.experimental.pallas import triton

    triton.store(ref, to_float16(found), mask=jax.lax.broadcasted_iota(jnp.int32, found.shape, 0) < count)
