"""The algorithm for a known data distribution (Appendix B): a V-form saddle point, then extraction with μ_D.

    max_{w ∈ [0, C]} min_{V ∈ [v_low, v_high], λ ∈ BΔ} L̂(w; V, λ)
    L̂(w; V, λ) = (1−γ)d_0·V + ⟨w, r_λ + γP̂V − V⟩_{μ̂_D} − λ·τ
    π̂(a|s) ∝ ŵ(s, a) μ_D(s, a)

For these sets it is one linear program in μ = w·μ̂_D. The true μ_D enters at the extraction only (eq. 15): there it
replaces the frequencies μ̂_D of the log, which is the step the paper's Proposition 1 shows to fail without it when
policies come from a restricted class.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import Floats, extract
from pdocrl.tabular.solvers.highs import maximise
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets


@dataclasses.dataclass(frozen=True, eq=False)
class KnownSolution:
    """A saddle point of the V-form and the policy extracted from it."""

    pi: Floats  # [S, A]
    w: Floats  # [S, A] zero where the log has nothing
    V: Floats  # [S]
    lam: Floats  # [I]
    lower: float  # min over V and λ at w
    upper: float  # max over w at (V, λ)

    @property
    def gap(self) -> float:
        """ξ ≥ 0: the point is a ξ-near saddle point of the empirical problem."""
        return self.upper - self.lower


def solve_known(
    L: Lagrangian, sets: Sets, mu_D: Floats, unvisited: Literal["uniform"] | int = "uniform"
) -> KnownSolution:
    """The saddle point over the sets (V in the box of Q), and the policy extracted with the true μ_D [S, A].

    L holds the log's frequencies μ̂_D and P̂, or μ_D and P themselves for the population problem.
    """
    if mu_D.shape != L.r.shape or (mu_D < 0).any():
        raise PdocrlError(f"mu_D must be a distribution over {L.r.shape} pairs, not an array of shape {mu_D.shape}.")
    (S, A), n, I = L.r.shape, L.r.size, len(L.tau)
    # Columns: μ, then the flow's residual split as missing − surplus, then the largest violation t.
    E_T = sp.kron(sp.eye_array(S), np.ones((1, A)), format="csr")
    identity = sp.eye_array(S)
    matrix = sp.block_array(
        [
            [E_T - L.gamma * L.P.T, identity, -identity, sp.csr_array((S, 1))],
            [
                sp.csr_array(L.g.reshape(I, n)),
                sp.csr_array((I, S)),
                sp.csr_array((I, S)),
                sp.csr_array(np.ones((I, 1))),
            ],
        ][: 2 if I else 1]
    )
    start = (1 - L.gamma) * L.d0
    found = maximise(
        objective=np.r_[L.r.ravel(), np.full(S, sets.q_low), np.full(S, -sets.q_high), -sets.B],
        matrix=matrix,
        row_lower=np.r_[start, L.tau],
        row_upper=np.r_[start, np.full(I, np.inf)],
        column_lower=np.zeros(n + 2 * S + 1),
        column_upper=np.r_[sets.C * L.mu_D.ravel(), np.full(2 * S + 1, np.inf)],
    )
    if not found.optimal:
        raise PdocrlError("the V-form program found no saddle point; q_low must not exceed q_high.")
    mu = np.clip(found.x[:n].reshape(S, A), 0, sets.C * L.mu_D)
    V = np.clip(-found.dual[:S], sets.q_low, sets.q_high)
    lam = np.maximum(found.dual[S:], 0)
    lam *= min(1.0, sets.B / max(float(lam.sum()), np.finfo(float).tiny))
    w = np.divide(mu, L.mu_D, out=np.zeros_like(mu), where=L.seen)
    return KnownSolution(extract(w * mu_D, unvisited), w, V, lam, lower_value(L, sets, w), upper_value(L, sets, V, lam))


def lagrangian(L: Lagrangian, w: Floats, V: Floats, lam: Floats) -> float:
    """L̂(w; V, λ): the Q-form at Q(s, a) = V(s), where the policy plays no part."""
    Q = np.repeat(V[:, None], L.r.shape[1], axis=1)
    return L(w, np.full(L.r.shape, 1 / L.r.shape[1]), Q, lam)


def lower_value(L: Lagrangian, sets: Sets, w: Floats) -> float:
    """min_{V,λ} L̂ = ⟨μ, r⟩ + Σ_s min(v_low f, v_high f) − B max_i [τ_i − ⟨μ, r_i⟩]₊, with f the flow's residual [S]."""
    mu = w * L.mu_D
    residual = L.inflow(mu) - mu.sum(axis=1)
    worst_V = np.minimum(sets.q_low * residual, sets.q_high * residual).sum()
    return float(np.vdot(mu, L.r) + worst_V - sets.B * max(0.0, float(-L.slack(mu).min(initial=0))))


def upper_value(L: Lagrangian, sets: Sets, V: Floats, lam: Floats) -> float:
    """max_w L̂ = (1−γ)d_0·V + C Σ μ̂_D [r_λ + γP̂V − V]₊ − λ·τ."""
    gain = np.maximum(L.residual(V, np.zeros_like(L.r), lam) - V[:, None], 0)
    return float((1 - L.gamma) * L.d0 @ V + sets.C * np.vdot(L.mu_D, gain) - lam @ L.tau)
