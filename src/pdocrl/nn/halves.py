"""Networks on a GPU: factors of products are halves, sums are float32, on the way forward and back.

Moving hidden layers is what a GPU's time goes to, and halves are half as long. A half has the ten bits of mantissa that
TF32 leaves a float32 factor anyway. What it lacks is range: larger numbers are taken for ±65,504, and a network's
gradients are multiplied on their way back so that the largest at its output is about 1,024, whatever the world's units.
Weights and what Adam sees stay float32.

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
from pdocrl.nn.kernel import HALF_MAX, HALF_SCALE, half

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
def network(weights: Layers, biases: Layers, x: Float[Array, "B n"]) -> Float[Array, "B m"]:
    """Affine layers with ReLU between."""
    if kernel.fits(weights, len(x)):
        y, _ = kernel.forward(kernel.operands(weights, biases), kernel.inputs(x), weights[-1].shape[1], keep=False)
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

    seen: list[Array]  # by each layer, the input with a column of ones beside it
    weights: Layers
    biases: Layers
    to_input: tuple[()] | None  # (): the input's gradient is asked for, too; a tree holds arrays alone


Slope = Array  # [B, n], of the only output in the input


def _remember(weights: Any, biases: Any, x: Any) -> tuple[Array, Saved | Slope]:
    """Where only the input's gradient is asked for, as of a critic that an actor climbs, the slope tells it."""
    learns = any(p.perturbed for p in (*weights, *biases))
    to_input = () if x.perturbed else None
    weights, biases, x = jax.tree.map(
        lambda p: p.value, (weights, biases, x), is_leaf=lambda p: hasattr(p, "perturbed")
    )
    if not kernel.fits(weights, len(x)):
        output, hidden = _forward(weights, biases, half(x))
        return output, Saved([kernel.with_ones(x), *hidden], weights, biases, to_input)
    own, given, outputs = kernel.operands(weights, biases), kernel.inputs(x), weights[-1].shape[1]
    if not learns and outputs == 1:
        output, slope = kernel.value_and_slope(own, given, x.shape[1])
        return output + biases[-1], slope
    output, hidden = kernel.forward(own, given, outputs, keep=True)
    return output + biases[-1], Saved([given, *hidden], weights, biases, to_input)


Gradients = tuple[tuple[Array, ...] | None, tuple[Array, ...] | None, Array | None]


def _back(saved: Saved | Slope, gradient: Array) -> Gradients:
    """In weights, biases and input; None where it is not asked for."""
    if not isinstance(saved, Saved):
        return None, None, gradient * saved
    seen, weights, biases, to_input = saved
    scale = _scale_of(gradient)
    last = gradient * scale
    if kernel.fits(weights, len(last)):
        flows = [*kernel.backward(kernel.operands(weights, biases), seen[1:], last), half(last)]
    else:
        flows = [half(last)]
        for weight, x in zip(weights[:0:-1], seen[:0:-1], strict=True):
            before = jnp.clip(product(flows[0], weight.T, jnp.float16), -HALF_MAX, HALF_MAX)
            flows.insert(0, jnp.where(x > 0, before, 0))
    # A column of ones beside the input has the first bias's gradient from the same product; of one output the sum over
    # rows of the last hidden layer's is that of its ReLU's slopes, which the product before it reads anyway.
    first, *others = (product(x.T, flow) for x, flow in zip(seen, flows, strict=True))
    n = len(weights[0])
    in_weights = [first[:n], *others]
    sums = [first[n], *(flow.sum(0, dtype=jnp.float32) for flow in flows[1:])]
    if len(weights) > 1 and weights[-1].shape[1] == 1:
        sums[-2] = jnp.where(seen[-1] > 0, last, 0).sum(0) * weights[-1][:, 0]
    at_input = None if to_input is None else product(flows[0], weights[0].T) / scale
    return (
        tuple(found / scale for found in in_weights),
        tuple((total / scale).reshape(bias.shape) for total, bias in zip(sums, biases, strict=True)),
        at_input,
    )


def _scale_of(gradient: Array) -> Array:
    """A power of two by which its largest number becomes HALF_SCALE, or up to half of it.

    Rewards in thousands must not be cut off, nor those in thousandths be lost.
    """
    largest = jnp.abs(gradient).max()
    power = jnp.clip(-jnp.ceil(jnp.log2(largest)), -100, 100)
    return jnp.where(largest > 0, HALF_SCALE * jnp.exp2(power), HALF_SCALE)


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
