"""The paper's three negative results as objects to compute with: what fails, and every constant of the proofs.

    weighted_cloning_fails()   Proposition 1 (Appendix A): fitting a policy to samples weighted by a density ratio
    spurious_v_saddle()        Proposition 9: a saddle point of the V-form Lagrangian whose policy is not optimal
    spurious_q_saddle()        Proposition 2: the same for the Q-form, although π*, μ* and every Q*_α are in the classes

The fields hold the numbers as the proofs state them; the methods compute them from the model.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from pdocrl.tabular.cmdp import CMDP, Floats, Ints, as_matrix, backup, evaluate

L, R = 0, 1  # the actions of the two saddle examples
S0, L1, R1, L2, R2 = range(5)  # their states


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedCloning:
    """A one-step problem where weighted cloning picks the bad one of two policies with constant probability."""

    cmdp: CMDP  # states c, r; actions 0, 1; γ = 0
    mu_D: Floats  # [2, 2] uniform
    best: Floats  # [2, 2] π*, worth 1/2
    other: Floats  # [2, 2] π̃, worth 1/14

    def ratio(self, n: int) -> Floats:
        """ŵ_n [2, 2]: within [0, 2], and π(ŵ_n μ_D) is optimal."""
        return np.array([[2 - 1 / n, 1 / n], [0, 2]])

    def objective(self, pi: Floats, weights: NDArray[np.floating]) -> Floats:
        """Σ_{s,a} weights · log π(a|s) for weights [..., 2, 2]; where a weight is zero, 0·log 0 counts nothing."""
        log_pi = np.log(pi, out=np.zeros_like(pi), where=pi > 0)
        impossible = ((weights > 0) & (pi == 0)).any(axis=(-2, -1))
        total: Floats = np.where(impossible, -np.inf, (weights * log_pi).sum(axis=(-2, -1)))
        return total

    def fails(self, n: int, counts: Ints) -> NDArray[np.bool_]:
        """Whether cloning on n samples, given as counts [..., 2, 2], prefers π̃ strictly."""
        weights = counts * self.ratio(n)
        return np.asarray(self.objective(self.other, weights) > self.objective(self.best, weights))

    def failure_probability(self, n: ArrayLike) -> Floats:
        """P(N_{c0} > N_{r1}) = (1 − C(2n, n)/4ⁿ)/2: the difference of the two counts, plus n, is Binomial(2n, 1/2).

        At least 1/4, as the paper proves, and tending to 1/2.
        """
        n = np.asarray(n, dtype=np.float64)
        log_tie = scipy.special.gammaln(2 * n + 1) - 2 * scipy.special.gammaln(n + 1) - 2 * n * np.log(2)
        probability: Floats = -np.expm1(log_tie) / 2
        return probability

    def tabular_failure_probability(self, n: ArrayLike) -> Floats:
        """With all policies to choose from, cloning is optimal unless (r, 1) is missing from the data: (3/4)ⁿ."""
        return np.asarray(0.75 ** np.asarray(n, dtype=np.float64))

    def saddle_fails(self, n: int, counts: Ints, C: float = 2.0) -> NDArray[np.bool_]:
        """Whether max_{w ≤ C, π ∈ Π} min_{|Q| ≤ 1} L̂ on the same counts [..., 2, 2] prefers π̃.

        Given π, L̂ separates over (s, a), with ν = d_0 π: max_{0 ≤ μ ≤ Cμ̂} μ r − |ν − μ|, attained at min(ν, Cμ̂).
        """
        values = []
        for pi in (self.best, self.other):
            nu = self.cmdp.d0[:, None] * pi
            mu = np.minimum(nu, C * counts / n)
            values.append((mu * self.cmdp.r - (nu - mu)).sum(axis=(-2, -1)))
        return np.asarray(values[1] > values[0])

    def sample(self, n: int, runs: int, seed: int = 0) -> Ints:
        """Counts [runs, 2, 2] of n draws from μ_D."""
        drawn: Ints = np.random.default_rng(seed).multinomial(n, self.mu_D.ravel(), size=runs)
        return drawn.reshape(runs, 2, 2)


def weighted_cloning_fails() -> WeightedCloning:
    """The construction of Appendix A."""
    nothing_follows = np.zeros((4, 2))
    cmdp = CMDP(
        nothing_follows, np.array([[0.0, 0.0], [0.0, 1.0]]), np.zeros((0, 2, 2)), np.zeros(0), np.full(2, 1 / 2), 0.0
    )
    best = np.array([[1 / 8, 7 / 8], [0, 1]])
    other = np.array([[7 / 8, 1 / 8], [6 / 7, 1 / 7]])
    return WeightedCloning(cmdp, np.full((2, 2), 1 / 4), best, other)


@dataclasses.dataclass(frozen=True, eq=False)
class VSaddle:
    """(μ̃; V*, 0) is a saddle point over {μ*, μ̃} × ({V*} × ℝ₊), and π(μ̃) is not optimal."""

    cmdp: CMDP  # γ = 1/2, r_1 = r_0, τ_1 = 0
    V_star: Floats  # [5]
    mu_star: Floats  # [5, 2] of the policy that always plays L
    mu_spurious: Floats  # [5, 2] μ̃: no policy's occupancy, though the proof calls the class admissible
    value_default_R: float  # V^π̃(s_0), unvisited states playing R, as in the proof
    value_default_uniform: float  # the same with the uniform default of eq. (3)

    def lagrangian(self, mu: Floats, V: Floats, lam: float) -> float:
        """L(μ; V, λ) = ⟨μ, r_0⟩ + ⟨V, (1−γ)d_0 + γP^⊤μ − E^⊤μ⟩ + λ(⟨μ, r_1⟩ − τ_1)."""
        earned = np.vdot(mu, self.cmdp.r) + lam * (np.vdot(mu, self.cmdp.g[0]) - self.cmdp.tau[0])
        return float(earned + V @ self.flow_residual(mu))

    def flow_residual(self, mu: Floats) -> Floats:
        """(1−γ)d_0 + γP^⊤μ − E^⊤μ [5]; zero for an occupancy measure."""
        cmdp = self.cmdp
        inflow = (1 - cmdp.gamma) * cmdp.d0 + cmdp.gamma * (cmdp.P.T @ mu.ravel())
        residual: Floats = inflow - mu.sum(axis=1)
        return residual

    def bellman_residual(self, V: Floats) -> Floats:
        """r_0 + γPV − V [5, 2]."""
        return backup(self.cmdp, self.cmdp.r, V) - V[:, None]


def spurious_v_saddle() -> VSaddle:
    """The construction of Appendix B, in the proof of Proposition 9."""
    P = np.zeros((5, 2, 5))
    P[[L1, L2, R2], :, [L1, L2, R2]] = 1
    P[S0, L, [L1, R1]] = P[R1, L, [L2, R2]] = 1 / 2
    P[S0, R, [L1, R1]] = P[R1, R, [L2, R2]] = 1 / 4, 3 / 4
    r = np.zeros((5, 2))
    r[L1], r[L2] = 1, 4
    mu_star, mu_spurious = np.zeros((2, 5, 2))
    mu_star[[S0, L1, R1, L2, R2], L] = 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16
    mu_spurious[S0, R], mu_spurious[L1] = 1 / 2, 1 / 4
    return VSaddle(
        cmdp=CMDP(P, r, r[None], np.zeros(1), np.eye(5)[S0], 0.5),
        V_star=np.array([1.0, 2.0, 2.0, 8.0, 0.0]),
        mu_star=mu_star,
        mu_spurious=mu_spurious,
        value_default_R=5 / 8,
        value_default_uniform=13 / 16,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class QSaddle:
    """(μ*, π̂; Q*_0, 0) is a saddle point over ({μ*} × {π*, π̂}) × ({(1+α)Q*_0} × ℝ₊), and π̂ is worth nothing."""

    cmdp: CMDP  # γ = 1/2, deterministic, r_1 = r_0, τ_1 = 0
    Q_star: Floats  # [5, 2] Q*_0
    mu_star: Floats  # [5, 2]
    best: Ints  # [5] π*: always L
    spurious: Ints  # [5] π̂: R in s_0 and r_1

    def lagrangian(self, mu: Floats, pi: Ints, Q: Floats, lam: float) -> float:
        """L(μ, π; Q, λ) = (1−γ)⟨Q_π, d_0⟩ + ⟨μ, r_λ + γPQ_π − Q⟩ − λτ."""
        cmdp = self.cmdp
        Q_pi = (as_matrix(pi, 2) * Q).sum(axis=1)
        residual = backup(cmdp, cmdp.r + lam * cmdp.g[0], Q_pi) - Q
        return float((1 - cmdp.gamma) * cmdp.d0 @ Q_pi + np.vdot(mu, residual) - lam * cmdp.tau[0])

    def is_spurious(self, pi: Ints) -> bool:
        """Whether π, put in the place of π̂, makes a saddle point and is not optimal.

        Along α and λ the Lagrangian is affine, so the dual side is settled by the value at (0, 0) and two slopes.
        """
        at = self.lagrangian(self.mu_star, pi, self.Q_star, 0)
        alpha_slope = self.lagrangian(self.mu_star, pi, 2 * self.Q_star, 0) - at
        lam_slope = self.lagrangian(self.mu_star, pi, self.Q_star, 1) - at
        primal = at >= self.lagrangian(self.mu_star, self.best, self.Q_star, 0)
        optimal = evaluate(self.cmdp, pi).value >= evaluate(self.cmdp, self.best).value - 1e-12
        return bool(primal and alpha_slope >= 0 and lam_slope >= 0 and not optimal)


def spurious_q_saddle() -> QSaddle:
    """The construction of Appendix C.1."""
    P = np.zeros((5, 2, 5))
    P[[L1, L2, R2], :, [L1, L2, R2]] = 1
    P[S0, L, L1] = P[S0, R, R1] = P[R1, L, L2] = P[R1, R, R2] = 1
    r = np.zeros((5, 2))
    r[L1], r[L2] = 1, 2
    mu_star = np.zeros((5, 2))
    mu_star[[S0, L1], L] = 1 / 2
    return QSaddle(
        cmdp=CMDP(P, r, r[None], np.zeros(1), np.eye(5)[S0], 0.5),
        Q_star=np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 0.0], [4.0, 4.0], [0.0, 0.0]]),
        mu_star=mu_star,
        best=np.full(5, L),
        spurious=np.array([R, L, R, L, L]),
    )
