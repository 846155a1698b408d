"""The class W: density ratios in the box [0, w_max]."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdocrl.nn.mlp import MLP


def density_ratio(weight: MLP, inputs: Float[Array, "B X"], largest: float | Array) -> Float[Array, " B"]:
    """w = clip(softplus(network(s, a)), 0, w_max), [B]."""
    raw = jax.nn.softplus(weight(inputs)[..., 0])
    return clip_inward(raw, jnp.asarray(largest, raw.dtype))


@jax.custom_vjp
def clip_inward(raw: Array, largest: Array) -> Array:
    """Clip to [0, largest]; outside, the gradient passes only where it leads back in: projected gradient ascent.

    A plain clip has no gradient outside, so a ratio that once left the box could never return.
    """
    return jnp.clip(raw, 0, largest)


def _clip_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    raw, largest = saved
    outward = ((raw >= largest) & (gradient < 0)) | ((raw <= 0) & (gradient > 0))  # a descent step goes against it
    return jnp.where(outward, 0.0, gradient), None


clip_inward.defvjp(lambda raw, largest: (jnp.clip(raw, 0, largest), (raw, largest)), _clip_backward)
