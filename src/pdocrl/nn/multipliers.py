"""λ, the price of each limit: the rules by which agents move it.

All are for K constraints at once, λ [K] ≥ 0, and take the violation (cost − limit, in the same unit) as their signal.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def project_l1(lam: Float[Array, " K"], bound: ArrayLike) -> Float[Array, " K"]:
    """Scale λ ≥ 0 into B·Δ = {λ ≥ 0, ‖λ‖₁ ≤ B}. For one constraint this is the clip at B."""
    return lam * jnp.minimum(1.0, bound / jnp.maximum(lam.sum(), 1e-12))


def softplus_inverse(value: ArrayLike) -> Array:
    """The parameter whose softplus is `value` > 0."""
    value = jnp.asarray(value, jnp.float32)
    return value + jnp.log(-jnp.expm1(-value))


class SoftplusMultiplier(eqx.Module):
    """λ = softplus(λ_τ), scaled into B·Δ: the paper's parameterisation, moved by any gradient optimiser."""

    raw: Float[Array, " K"]

    @staticmethod
    def create(initial: ArrayLike, n_costs: int) -> SoftplusMultiplier:
        return SoftplusMultiplier(jnp.broadcast_to(softplus_inverse(initial), (n_costs,)))

    def value(self, bound: ArrayLike) -> Float[Array, " K"]:
        return project_l1(jax.nn.softplus(self.raw), bound)


class ProjectedMultiplier(eqx.Module):
    """λ ← clip(λ + η·violation, 0, λ_max): projected gradient ascent."""

    lam: Float[Array, " K"]

    @staticmethod
    def create(initial: ArrayLike, n_costs: int) -> ProjectedMultiplier:
        return ProjectedMultiplier(jnp.broadcast_to(jnp.asarray(initial, jnp.float32), (n_costs,)))

    def step(self, violation: Float[Array, " K"], rate: ArrayLike, largest: ArrayLike) -> ProjectedMultiplier:
        return ProjectedMultiplier(jnp.clip(self.lam + rate * violation, 0.0, largest))


class PIDMultiplier(eqx.Module):
    """λ = [K_P·e + K_I·Σe + K_D·Δe]₊ with an integral that never falls below 0 (Stooke et al., 2020)."""

    integral: Float[Array, " K"]
    previous: Float[Array, " K"]
    lam: Float[Array, " K"]

    @staticmethod
    def create(n_costs: int) -> PIDMultiplier:
        zero = jnp.zeros(n_costs)
        return PIDMultiplier(zero, zero, zero)

    def step(self, violation: Float[Array, " K"], kp: ArrayLike, ki: ArrayLike, kd: ArrayLike) -> PIDMultiplier:
        integral = jnp.maximum(self.integral + violation, 0.0)
        change = jnp.maximum(violation - self.previous, 0.0)  # only a growing violation is pushed against
        lam = jnp.maximum(kp * jnp.maximum(violation, 0.0) + ki * integral + kd * change, 0.0)
        return PIDMultiplier(integral, violation, lam)
