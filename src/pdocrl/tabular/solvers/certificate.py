"""How far a pair of primal and dual points is from a saddle point, in closed form.

With μ = w·μ_D, ν = π·inflow(μ), and the sets of `Sets`, what the other side could still do to a point is

    D(μ, ν) = min_{Q,λ} L = ⟨μ, r⟩ + Σ min(q_low (ν−μ), q_high (ν−μ)) − B max(0, max_i τ_i − ⟨μ, g_i⟩)
    U(Q, λ) = max_{w,π} L = (1−γ) d₀·max_a Q + C Σ μ_D [r_λ + γP max_a Q − Q]₊ − λ·τ

and ξ = U − D ≥ 0. A point with gap ξ is a ξ-near saddle point, so in this model its policy is at most ξ from optimal
and misses a limit by at most ξ (Lemma 14). That is a statement about optimisation, not about statistics. D is
concave in (μ, ν) and U convex in (Q, λ): averages have a gap no worse than the mean gap, and an averaged ν gives one
stationary policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, Sets


class Point(NamedTuple):
    """One play of all players, or an average of plays: it may be averaged because L is linear in all four."""

    mu: Floats  # [S, A] w·μ_D
    nu: Floats  # [S, A] π·inflow(μ)
    Q: Floats  # [S, A]
    lam: Floats  # [I]


class Certificate(NamedTuple):
    """D ≤ the saddle value ≤ U."""

    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """ξ, with the rounding of an exact solution cut off at 0."""
        return max(self.upper - self.lower, 0.0)


def certify(L: Lagrangian, sets: Sets, point: Point) -> Certificate:
    """ξ of a point whose μ, ν, Q and λ lie in their sets, which is checked."""
    _check_inside(L, sets, point)
    return Certificate(lower_value(L, sets, point.mu, point.nu), upper_value(L, sets, point.Q, point.lam))


def lower_value(L: Lagrangian, sets: Sets, mu: Floats, nu: Floats) -> float:
    """D(μ, ν) = min over Q and λ."""
    moved = nu - mu
    worst_Q = np.minimum(sets.q_low * moved, sets.q_high * moved).sum()
    worst_lam = sets.B * max(0.0, float(-L.slack(mu).min(initial=0)))
    return float(np.vdot(mu, L.r) + worst_Q - worst_lam)


def upper_value(L: Lagrangian, sets: Sets, Q: Floats, lam: Floats) -> float:
    """U(Q, λ) = max over w and π."""
    V = Q.max(axis=1)
    gain = np.maximum(L.residual(V, Q, lam), 0)
    return float((1 - L.gamma) * L.d0 @ V + sets.C * np.vdot(L.mu_D, gain) - lam @ L.tau)


def _check_inside(L: Lagrangian, sets: Sets, point: Point) -> None:
    """The formulas hold only inside the sets; a point outside is a mistake of the solver, not of the user."""
    mu, nu, Q, lam = point
    room = 1e-9 * (1 + abs(sets.q_low) + abs(sets.q_high))
    assert np.all(mu >= 0), "μ ≥ 0"
    assert np.all(mu <= sets.C * L.mu_D * (1 + 1e-9)), "μ ≤ C μ_D"
    assert np.all(nu >= 0), "ν ≥ 0"
    assert np.abs(nu.sum(axis=1) - L.inflow(mu)).max() <= 1e-9, "Σ_a ν = inflow(μ)"
    assert Q.min() >= sets.q_low - room, "Q ≥ q_low"
    assert Q.max() <= sets.q_high + room, "Q ≤ q_high"
    assert lam.min(initial=0) >= 0, "λ ≥ 0"
    assert lam.sum() <= sets.B * (1 + 1e-9), "Σλ ≤ B"
