"""Networks on a GPU: factors of products are halves, sums are float32, on the way forward and back.

Moving hidden layers is what a GPU's time goes to, and halves are half as long. A half has the ten bits of mantissa that
TF32 leaves a float32 factor anyway. What it lacks is range: larger numbers are taken for ±65,504, and a network's
gradients are multiplied on their way back so that the largest at its output is about 512, whatever the world's units.
Weights and what Adam sees stay float32; the largest layer's gradient a kernel rounds to bfloat16 on the way there.

Values no gradient is asked of always go this way (`for_values`). Training does with PDOCRL_HALVES=1 in the environment,
and for agents that say they learn the same so (`Agent.in_halves`), unless PDOCRL_HALVES=0.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdocrl.nn import kernel
from pdocrl.nn.kernel import HALF_MAX, HALF_SCALE, Operands, half

Layers = Sequence[Array]  # weights [n_in, n_out], or biases [n_out]


def for_values() -> bool:
    """On a GPU, unless another precision than TF32 is asked for."""
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return jax.default_backend() == "gpu" and precision in (None, "tensorfloat32")


_wanted: ContextVar[bool] = ContextVar("wanted", default=False)


@contextlib.contextmanager
def training(wanted: bool) -> Iterator[None]:
    """Networks called within are for learning, in halves where that is wanted."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def for_training() -> bool:
    asked = os.environ.get("PDOCRL_HALVES")
    return (_wanted.get() if asked is None else asked == "1") and for_values()


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """x y of halves, summed in float32, given as `kind`."""
    return jnp.matmul(half(x), half(y), preferred_element_type=kind)


@jax.custom_vjp
def network(
    weights: Layers, biases: Layers, x: Float[Array, "B n"], middle: Array | None = None
) -> Float[Array, "B m"]:
    """Affine layers with ReLU between. `middle` is the second layer's weights as halves, where somebody has them."""
    if kernel.fits(weights, len(x)):
        own = kernel.operands(weights, biases, middle)
        (y,) = kernel.forward(own, kernel.inputs(x), weights[-1].shape[1], keep=False)
        return y + biases[-1]
    return _forward(weights, biases, half(x))[0]


def _forward(weights: Layers, biases: Layers, x: Array) -> tuple[Array, list[Array]]:
    """The output, and what each layer but the first sees."""
    hidden: list[Array] = []
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = jnp.clip(product(x, weight, jnp.float16) + half(bias), 0, HALF_MAX)  # a sum may be beyond the largest half
        hidden.append(x)
    return product(x, weights[-1]) + biases[-1], hidden


class Saved(NamedTuple):
    """What the way back needs where a network learns."""

    seen: list[Array]  # by each layer, the input with a column of ones; for kernels by the first and the last alone
    weights: Layers
    biases: Layers
    operands: Operands | None  # for kernels; None where XLA does the work
    to_input: tuple[()] | None  # (): the input's gradient is asked for, too; a tree holds arrays alone


Slope = Array  # [B, n], of the only output in the input


def _remember(weights: Any, biases: Any, x: Any, middle: Any) -> tuple[Array, Saved | Slope]:
    """Where only the input's gradient is asked for, as of a critic that an actor climbs, the slope tells it."""
    learns = any(p.perturbed for p in (*weights, *biases))
    to_input = () if x.perturbed else None
    weights, biases, x, middle = jax.tree.map(
        lambda p: p.value, (weights, biases, x, middle), is_leaf=lambda p: hasattr(p, "perturbed")
    )
    if not kernel.fits(weights, len(x)):
        output, hidden = _forward(weights, biases, half(x))
        return output, Saved([kernel.with_ones(x), *hidden], weights, biases, None, to_input)
    own, given, outputs = kernel.operands(weights, biases, middle), kernel.inputs(x), weights[-1].shape[1]
    if not learns and outputs == 1:
        output, slope = kernel.value_and_slope(own, given, x.shape[1])
        return output + biases[-1], slope
    output, second = kernel.forward(own, given, outputs, keep=True)
    return output + biases[-1], Saved([given, second], weights, biases, own, to_input)


Gradients = tuple[tuple[Array, ...] | None, tuple[Array, ...] | None, Array | None, None]


def _back(saved: Saved | Slope, gradient: Array) -> Gradients:
    """In weights, biases and input; None where it is not asked for, and for what is the weights' copy."""
    if not isinstance(saved, Saved):
        return None, None, gradient * saved, None
    seen, weights, biases, operands, to_input = saved
    scale = _scale_of(gradient)
    last = gradient * scale
    found = _by_xla(seen, weights, last) if operands is None else _by_kernels(operands, seen, weights, last)
    return (
        tuple(part / scale for part in found.weights),
        tuple((part / scale).reshape(bias.shape) for part, bias in zip(found.biases, biases, strict=True)),
        None if to_input is None else product(found.first, weights[0].T) / scale,
        None,
    )


class Found(NamedTuple):
    """Gradients on the way back."""

    weights: Layers
    biases: Layers
    first: Array  # [B, H], in what the first layer gives before its ReLU


def _by_kernels(operands: Operands, seen: Layers, weights: Layers, last: Array) -> Found:
    (x, second), n, m = seen, len(weights[0]), last.shape[1]
    given = kernel.outputs(last)
    flow, behind = kernel.backward(operands, x, second, given)
    in_last, in_slopes = (part[:, :m] for part in kernel.at_end(second, given))
    first, middle = kernel.in_first(x, flow), kernel.in_middle(operands, x, behind).astype(jnp.float32)
    # The first bias is a row of its weights. The second's gradient sums over rows the output's gradient times the last
    # weights times the ReLU's slopes: the sum over rows of the last two is known, and the weights are the same in all.
    return Found([first[:n], middle, in_last], [first[n], (in_slopes * weights[-1]).sum(1), last.sum(0)], flow)


def _by_xla(seen: Layers, weights: Layers, last: Array) -> Found:
    flows = [half(last)]
    for weight, x in zip(weights[:0:-1], seen[:0:-1], strict=True):
        before = jnp.clip(product(flows[0], weight.T, jnp.float16), -HALF_MAX, HALF_MAX)
        flows.insert(0, jnp.where(x > 0, before, 0))
    first, *others = (product(x.T, flow) for x, flow in zip(seen, flows, strict=True))
    n = len(weights[0])
    sums = [flow.sum(0, dtype=jnp.float32) for flow in flows[1:]]
    return Found([first[:n], *others], [first[n], *sums], flows[0])


def _scale_of(gradient: Array) -> Array:
    """The power of two by which its largest number comes to lie about HALF_SCALE / 2, within a factor of 1.5.

    Rewards in thousands must not be cut off, nor those in thousandths be lost. Every number's own power is made, by
    rounding off all of its mantissa, and the least one taken: made of the largest number it would be one kernel more.
    """
    rounded = jax.lax.reduce_precision(jnp.abs(gradient), exponent_bits=8, mantissa_bits=0)
    return (HALF_SCALE / 2 / jnp.clip(rounded, 2.0**-100, 2.0**100)).min()


network.defvjp(_remember, _back, symbolic_zeros=True)


@jax.custom_vjp
def affine(x: Float[Array, "B n"], weight: Float[Array, "n m"], bias: Float[Array, " m"]) -> Float[Array, "B m"]:
    """x W + b, kept as halves until it is used: one layer of a network whose other parts are not affine."""
    return _one(x, weight, bias)[0]


def _one(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    x, weight = half(x), half(weight)
    found = jnp.clip(product(x, weight, jnp.float16) + half(bias), -HALF_MAX, HALF_MAX)
    return found.astype(jnp.float32), (x, weight)


def _one_back(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    flow = half(gradient * HALF_SCALE)
    at_input = jnp.clip(product(flow, weight.T, jnp.float16), -HALF_MAX, HALF_MAX).astype(jnp.float32)
    return at_input / HALF_SCALE, product(x.T, flow) / HALF_SCALE, flow.sum(0, dtype=jnp.float32) / HALF_SCALE


affine.defvjp(_one, _one_back)


@jax.custom_vjp
def gelu(x: Array) -> Array:
    """GELU of what `affine` gave. Its tanh is computed again on the way back, not stored."""
    return jax.nn.gelu(x, approximate=True)


def _gelu_back(saved: Array, gradient: Array) -> tuple[Array]:
    stored: Array = jax.lax.optimization_barrier(saved)  # type: ignore[no-untyped-call]
    x = stored.astype(jnp.float32)  # without the barrier XLA would find, and store, the tanh of the way forward
    (found,) = jax.vjp(lambda x: jax.nn.gelu(x, approximate=True), x)[1](gradient)
    return (found,)


gelu.defvjp(lambda x: (gelu(x), half(x)), _gelu_back)
