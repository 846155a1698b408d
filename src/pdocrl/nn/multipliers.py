"""λ, the price of each limit: the rules by which agents move it.

All are for K constraints at once, λ [K] ≥ 0, and take the violation (cost − limit, in the same unit) as their signal.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

AT_FACE = 1e-5  # λ this near its bound, relative to it, is at its bound
SMALLEST = 1e-12  # no λ is scaled to 0, which has no softplus pre-image


def project_l1(lam: Float[Array, " K"], bound: ArrayLike) -> Float[Array, " K"]:
    """Scale λ ≥ 0 into B·Δ = {λ ≥ 0, ‖λ‖₁ ≤ B}. For one constraint this is the clip at B."""
    return lam * jnp.minimum(1.0, bound / jnp.maximum(lam.sum(), 1e-12))


def softplus_inverse(value: ArrayLike) -> Array:
    """The parameter whose softplus is `value` > 0."""
    value = jnp.asarray(value, jnp.float32)
    return value + jnp.log(-jnp.expm1(-value))


class SoftplusMultiplier(eqx.Module):
    """λ = softplus(λ_τ) in B·Δ: the paper's parameterisation, moved by projected gradient ascent.

    A gradient optimiser moves λ_τ along `slope`, and `within` brings it back into B·Δ. What would lead out of B·Δ is
    taken from the slope and what leads back is not, so λ leaves its bound as soon as the limits are satisfied.
    """

    raw: Float[Array, " K"]

    @staticmethod
    def create(initial: ArrayLike, n_costs: int, bound: ArrayLike) -> SoftplusMultiplier:
        return SoftplusMultiplier(jnp.broadcast_to(softplus_inverse(initial), (n_costs,))).within(bound)

    @property
    def lam(self) -> Float[Array, " K"]:
        return jax.nn.softplus(self.raw)

    def slope(self, violation: Float[Array, " K"], bound: ArrayLike) -> SoftplusMultiplier:
        """Where λ_τ descends −λ·violation; on the face ‖λ‖₁ = B without what presses against it.

        For one constraint pressed against B nothing is left; of several, the most violated limit takes from the others.
        """
        lam = self.lam
        share = lam / jnp.maximum(lam.sum(), 1e-12)
        pressed = (lam.sum() >= bound * (1 - AT_FACE)) & (share @ violation > 0)
        along = violation - jnp.where(pressed, share @ violation, 0.0)
        return SoftplusMultiplier(-along * jax.nn.sigmoid(self.raw))

    def within(self, bound: ArrayLike) -> SoftplusMultiplier:
        """The same, or scaled back into B·Δ."""
        lam = self.lam
        scaled = softplus_inverse(jnp.maximum(project_l1(lam, bound), SMALLEST))
        return SoftplusMultiplier(jnp.where(lam.sum() > bound, scaled, self.raw))


class LogMultiplier(eqx.Module):
    """log λ ← clip(log λ + η·violation, −10, log B): the rule of the published code, each λ with the bound B."""

    log: Float[Array, " K"]

    @staticmethod
    def create(initial: ArrayLike, n_costs: int) -> LogMultiplier:
        return LogMultiplier(jnp.broadcast_to(jnp.log(jnp.asarray(initial, jnp.float32)), (n_costs,)))

    @property
    def lam(self) -> Float[Array, " K"]:
        return jnp.exp(self.log)

    def step(self, violation: Float[Array, " K"], rate: ArrayLike, largest: ArrayLike) -> LogMultiplier:
        return LogMultiplier(jnp.clip(self.log + rate * violation, -10.0, jnp.log(largest)))


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
