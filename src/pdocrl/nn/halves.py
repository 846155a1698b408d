"""Networks on a GPU: factors of products are halves, sums are float32, on the way forward and back.

Moving hidden layers is what a GPU's time goes to, and halves are half as long. A half has the ten bits of mantissa that
TF32 leaves a float32 factor anyway. What it lacks is range: larger numbers are taken for ±65,504, and gradients, which
are small, are multiplied by 1,024 on their way back, so that nothing above 6e-11 is lost. Weights and what Adam sees
stay float32.

Values no gradient is asked of always go this way (`for_values`); training does where `PDOCRL_HALVES=1` is set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdocrl.nn import kernel
from pdocrl.nn.kernel import HALF_MAX, half

SCALE = 1024.0  # of gradients on their way back
Layers = Sequence[Array]  # weights [n_in, n_out], or biases [n_out]


def for_values() -> bool:
    """On a GPU, unless another precision than TF32 is asked for."""
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return jax.default_backend() == "gpu" and precision in (None, "tensorfloat32")


def for_training() -> bool:
    return os.environ.get("PDOCRL_HALVES") == "1" and for_values()


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """x y of halves, summed in float32, given as `kind`."""
    return jnp.matmul(half(x), half(y), preferred_element_type=kind)


@jax.custom_vjp
def network(weights: Layers, biases: Layers, x: Float[Array, "B n"]) -> Float[Array, "B m"]:
    """Affine layers with ReLU between."""
    if kernel.fits(weights, len(x)):
        return kernel.forward([half(w) for w in weights], biases, half(x), keep=False)[0]
    return _forward(weights, biases, half(x))[0]


def _forward(weights: Layers, biases: Layers, x: Array) -> tuple[Array, list[Array]]:
    """The output, and what each layer but the first sees."""
    hidden: list[Array] = []
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = jnp.clip(product(x, weight, jnp.float16) + half(bias), 0, HALF_MAX)  # a sum may be beyond the largest half
        hidden.append(x)
    return product(x, weights[-1]) + biases[-1], hidden


def _remember(weights: Layers, biases: Layers, x: Array) -> tuple[Array, tuple[list[Array], Layers, Layers]]:
    x = half(x)
    if kernel.fits(weights, len(x)):
        output, hidden = kernel.forward([half(w) for w in weights], biases, x, keep=True)
    else:
        output, hidden = _forward(weights, biases, x)
    return output, ([x, *hidden], weights, biases)


def _back(
    saved: tuple[list[Array], Layers, Layers], gradient: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...], Array]:
    """Gradients in weights, biases and input."""
    seen, weights, biases = saved
    last = half(gradient * SCALE)
    if kernel.fits(weights, len(last)):
        flows, sums, at_input = kernel.backward([half(w) for w in weights], seen[1:], last)
    else:
        flows = [last]
        for weight, x in zip(weights[:0:-1], seen[:0:-1], strict=True):
            before = jnp.clip(product(flows[0], weight.T, jnp.float16), -HALF_MAX, HALF_MAX)
            flows.insert(0, jnp.where(x > 0, before, 0))
        sums = [flow.sum(0, dtype=jnp.float32) for flow in flows]
        at_input = product(flows[0], weights[0].T)
    in_weights = tuple(product(x.T, flow) / SCALE for x, flow in zip(seen, flows, strict=True))
    in_biases = tuple((total / SCALE).reshape(bias.shape) for total, bias in zip(sums, biases, strict=True))
    return in_weights, in_biases, at_input / SCALE


network.defvjp(_remember, _back)
