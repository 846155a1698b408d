"""Mixed precision on a GPU: float16 matmuls with float32 accumulation, forward and backward.

Memory traffic of hidden layers dominates on a GPU; float16 needs half of it. It has the ten bits of mantissa
that TF32 leaves a float32 factor anyway, but less range: values saturate at ±65,504, and gradients are multiplied by a
loss scale that puts the largest at the network's output near 512, whatever the units of reward and cost. Weights and
optimiser states stay float32; the gradient of the largest layer is rounded to bfloat16 by its kernel.

Values without gradients always use it (`for_values`). Training uses it for agents that are known to learn the same
(`Agent.mixed_precision`); PDOCRL_PRECISION=mixed or float32 in the environment decides for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdocrl import deprecations
from pdocrl.errors import UnknownNameError
from pdocrl.nn import pallas_mlp
from pdocrl.nn.pallas_mlp import FLOAT16_MAX, LOSS_SCALE, Operands, to_float16

Layers = Sequence[Array]  # weights [n_in, n_out], or biases [n_out]


def for_values() -> bool:
    """On a GPU, unless another precision than TF32 is asked for."""
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return jax.default_backend() == "gpu" and precision in (None, "tensorfloat32")


_wanted: ContextVar[bool] = ContextVar("wanted", default=False)


@contextlib.contextmanager
def training(wanted: bool) -> Iterator[None]:
    """Networks called within are trained, in mixed precision where that is wanted."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def for_training() -> bool:
    """Whether training uses mixed precision here and now."""
    chosen = deprecations.environment("PDOCRL_PRECISION")
    if chosen not in (None, "mixed", "float32"):
        raise UnknownNameError("PDOCRL_PRECISION", chosen, ["mixed", "float32"])
    return (_wanted.get() if chosen is None else chosen == "mixed") and for_values()


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """x y in float16 with float32 accumulation, returned as `kind`."""
    return jnp.matmul(to_float16(x), to_float16(y), preferred_element_type=kind)


@jax.custom_vjp
def network(weights: Layers, biases: Layers, x: Float[Array, "B n"]) -> Float[Array, "B m"]:
    """Affine layers with ReLU between."""
    if pallas_mlp.fits(weights, len(x)):
        own = pallas_mlp.operands(weights, biases)
        (y,) = pallas_mlp.forward(own, pallas_mlp.inputs(x), weights[-1].shape[1], keep=False)
        return y + biases[-1]
    return _forward(weights, biases, to_float16(x))[0]


def _forward(weights: Layers, biases: Layers, x: Array) -> tuple[Array, list[Array]]:
    """The output, and what each layer but the first sees."""
    hidden: list[Array] = []
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = jnp.clip(
            product(x, weight, jnp.float16) + to_float16(bias), 0, FLOAT16_MAX
        )  # a sum may exceed the largest float16
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


def _remember(weights: Any, biases: Any, x: Any) -> tuple[Array, Saved | Slope]:
    """Where only the input's gradient is asked for, as of a critic that an actor climbs, the slope tells it."""
    learns = any(p.perturbed for p in (*weights, *biases))
    to_input = () if x.perturbed else None
    weights, biases, x = jax.tree.map(
        lambda p: p.value, (weights, biases, x), is_leaf=lambda p: hasattr(p, "perturbed")
    )
    if not pallas_mlp.fits(weights, len(x)):
        output, hidden = _forward(weights, biases, to_float16(x))
        return output, Saved([pallas_mlp.with_ones(x), *hidden], weights, biases, None, to_input)
    own, given, outputs = pallas_mlp.operands(weights, biases), pallas_mlp.inputs(x), weights[-1].shape[1]
    if not learns and outputs == 1:
        output, slope = pallas_mlp.value_and_slope(own, given, x.shape[1])
        return output + biases[-1], slope
    output, second = pallas_mlp.forward(own, given, outputs, keep=True)
    return output + biases[-1], Saved([given, second], weights, biases, own, to_input)


Gradients = tuple[tuple[Array, ...] | None, tuple[Array, ...] | None, Array | None]


def _back(saved: Saved | Slope, gradient: Array) -> Gradients:
    """In weights, biases and input; None where it is not asked for."""
    if not isinstance(saved, Saved):
        return None, None, gradient * saved
    seen, weights, biases, operands, to_input = saved
    scale = _scale_of(gradient)
    last = gradient * scale
    found = _by_xla(seen, weights, last) if operands is None else _by_kernels(operands, seen, weights, last)
    return (
        tuple(part / scale for part in found.weights),
        tuple((part / scale).reshape(bias.shape) for part, bias in zip(found.biases, biases, strict=True)),
        None if to_input is None else product(found.first, weights[0].T) / scale,
    )


class Found(NamedTuple):
    """Gradients on the way back."""

    weights: Layers
    biases: Layers
    first: Array  # [B, H], in what the first layer gives before its ReLU


def _by_kernels(operands: Operands, seen: Layers, weights: Layers, last: Array) -> Found:
    (x, second), n, m = seen, len(weights[0]), last.shape[1]
    given = pallas_mlp.outputs(last)
    flow, behind = pallas_mlp.backward(operands, x, second, given)
    in_last, in_slopes = (part[:, :m] for part in pallas_mlp.at_end(second, given))
    first, middle = pallas_mlp.in_first(x, flow), pallas_mlp.in_middle(operands, x, behind).astype(jnp.float32)
    # The first bias is a row of its weights. The second's gradient sums over rows the output's gradient times the last
    # weights times the ReLU's slopes: the sum over rows of the last two is known, and the weights are the same in all.
    return Found([first[:n], middle, in_last], [first[n], (in_slopes * weights[-1]).sum(1), last.sum(0)], flow)


def _by_xla(seen: Layers, weights: Layers, last: Array) -> Found:
    flows = [to_float16(last)]
    for weight, x in zip(weights[:0:-1], seen[:0:-1], strict=True):
        before = jnp.clip(product(flows[0], weight.T, jnp.float16), -FLOAT16_MAX, FLOAT16_MAX)
        flows.insert(0, jnp.where(x > 0, before, 0))
    first, *others = (product(x.T, flow) for x, flow in zip(seen, flows, strict=True))
    n = len(weights[0])
    sums = [flow.sum(0, dtype=jnp.float32) for flow in flows[1:]]
    return Found([first[:n], *others], [first[n], *sums], flows[0])


def _scale_of(gradient: Array) -> Array:
    """The power of two by which its largest number comes to lie about LOSS_SCALE / 2, within a factor of 1.5.

    Rewards in thousands must not be cut off, nor those in thousandths be lost. Every number's own power is made, by
    rounding off all of its mantissa, and the least one taken: made of the largest number it would be one kernel more.
    """
    rounded = jax.lax.reduce_precision(jnp.abs(gradient), exponent_bits=8, mantissa_bits=0)
    return (LOSS_SCALE / 2 / jnp.clip(rounded, 2.0**-100, 2.0**100)).min()


network.defvjp(_remember, _back, symbolic_zeros=True)


@jax.custom_vjp
def affine(x: Float[Array, "B n"], weight: Float[Array, "n m"], bias: Float[Array, " m"]) -> Float[Array, "B m"]:
    """x W + b, stored as float16 until it is used: one layer of a network whose other parts are not affine."""
    return _one(x, weight, bias)[0]


def _one(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    x, weight = to_float16(x), to_float16(weight)
    found = jnp.clip(product(x, weight, jnp.float16) + to_float16(bias), -FLOAT16_MAX, FLOAT16_MAX)
    return found.astype(jnp.float32), (x, weight)


def _one_back(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    flow = to_float16(gradient * LOSS_SCALE)
    at_input = jnp.clip(product(flow, weight.T, jnp.float16), -FLOAT16_MAX, FLOAT16_MAX).astype(jnp.float32)
    return at_input / LOSS_SCALE, product(x.T, flow) / LOSS_SCALE, flow.sum(0, dtype=jnp.float32) / LOSS_SCALE


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


gelu.defvjp(lambda x: (gelu(x), to_float16(x)), _gelu_back)
