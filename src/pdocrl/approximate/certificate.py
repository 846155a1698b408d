"""How far a pair of points is from a saddle point of L̂ over function classes: exact, also for real-valued states.

L̂ is linear in each of w, Q and λ, so the average of L̂(w, π; Q_t, λ_t) is L̂(w, π; Q̄, λ̄). For w ≥ 0 no policy does better
against Q̄ than the one that is greedy at every state, whatever w is; then the best w maximises a linear function over
its class, and so do Q and λ on the other side:

    U(Q, λ) = (1−γ) d₀·max_a Q + max_{w ∈ W} ⟨w, μ_D (r_λ + γP max_a Q − Q)⟩ − λ·τ
    D(μ, ν) = ⟨μ, r⟩ + min_{Q ∈ 𝒬} ⟨ν − μ, Q⟩ − B max(0, max_i τ_i − ⟨μ, g_i⟩)                       ξ = U − D

U bounds the saddle value from above, D(w, π) from below for any w; the best w for a policy is a linear program
(`lp.best_response`). By Lemma 14 a policy with gap ξ is within ξ of the best that the classes know of, in the model the
log stands for; that is a statement about optimisation, not about statistics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdocrl.approximate.game import Game, Saddle
from pdocrl.tabular.solvers.lagrangian import Certificate, expected

Floats = NDArray[np.float64]
ROUNDING = 1e-7


def lower_value(game: Game, theta_w: Floats, nu: Floats) -> float:
    """D: min over Q and λ of L̂ at w and ν = π·inflow(w·μ_D) [X, A]."""
    mu = game.mu(theta_w)
    missed = float(-game.L.slack(mu).min(initial=0))
    return float(np.vdot(mu, game.L.r) + game.Q.minimum(nu - mu) - game.B * max(0.0, missed))


def upper_value(game: Game, theta_Q: Floats, lam: Floats) -> float:
    """U: max over π and w of L̂ at Q and λ; over finitely many policies, the largest of theirs."""
    L, Q = game.L, game.Q(theta_Q)
    best = [Q.max(axis=1)] if game.policies is None else [expected(Q, pi) for pi in game.policies]
    values = [(1 - L.gamma) * L.d0 @ V + game.W.maximum(L.mu_D * L.residual(V, Q, lam)) for V in best]
    return float(max(values) - lam @ L.tau)


def certify(game: Game, point: Saddle) -> Certificate:
    """ξ of a point whose parts lie in their sets, which is checked."""
    check_inside(game, point)
    return Certificate(lower_value(game, point.theta_w, point.nu), upper_value(game, point.theta_Q, point.lam))


def check_inside(game: Game, point: Saddle) -> None:
    """The formulas hold only inside the sets; a point outside is a mistake of the solver, not of the user."""
    inflow = game.L.inflow(game.mu(point.theta_w))
    for F, theta in ((game.W, point.theta_w), (game.Q, point.theta_Q)):
        assert F.coefficients.violation(theta) <= ROUNDING * (1 + float(np.abs(theta).max(initial=0)))
    assert np.all(point.nu >= 0), "ν ≥ 0"
    assert np.abs(point.nu.sum(axis=1) - inflow).max() <= ROUNDING, "Σ_a ν = inflow(μ)"
    assert point.lam.min(initial=0) >= 0, "λ ≥ 0"
    assert point.lam.sum() <= game.B * (1 + ROUNDING), "Σλ ≤ B"
