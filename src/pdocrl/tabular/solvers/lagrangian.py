"""The Lagrangian of the paper, for a known model or for counts, the sets the players play in, and the certificate.

    L(w, π; Q, λ) = (1−γ) d₀·Q_π + ⟨w, r_λ + γPQ_π − Q⟩_{μ_D} − λ·τ

with r_λ = r + Σ λ_i g_i and Q_π(s) = Σ_a π(a|s) Q(s,a). With μ = w·μ_D, and ν = π·((1−γ)d₀ + γPᵀμ) the mass that
flows into a state, spread by the policy, it is also

    L = ⟨μ, r⟩ + ⟨ν − μ, Q⟩ + λ·(⟨μ, g⟩ − τ)

The population and the empirical Lagrangian (L̂) are the same function of different data: (μ_D, P) of a known CMDP, or
(μ̂_D, P̂) of a log. A cost c with (1−γ)J_c ≤ limit is g = −c, τ = −limit.

How far a pair of primal and dual points is from a saddle point has a closed form. What the other side could still do is

    D(μ, ν) = min_{Q,λ} L = ⟨μ, r⟩ + Σ min(q_low (ν−μ), q_high (ν−μ)) − B max(0, max_i τ_i − ⟨μ, g_i⟩)
    U(Q, λ) = max_{w,π} L = (1−γ) d₀·max_a Q + C Σ μ_D [r_λ + γP max_a Q − Q]₊ − λ·τ

and ξ = U − D ≥ 0. A point with gap ξ is a ξ-near saddle point, so in this model its policy is at most ξ from optimal
and misses a limit by at most ξ (Lemma 14). That is a statement about optimisation, not about statistics. D is concave
in (μ, ν) and U convex in (Q, λ): averages have a gap no worse than the mean gap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import CMDP, occupancy
from pdocrl.tabular.counts import Counts

Floats = NDArray[np.float64]
NOTHING = 1e-150  # a signal of this size at most counts as 0


@dataclasses.dataclass(frozen=True, eq=False)
class Lagrangian:
    """The data of L. Where a row of P sums to less than one, the rest is the end of the episode, without reward."""

    mu_D: Floats  # [S, A] the data distribution, with the mass of the behaviour's μ^π; 0 where a pair was never tried
    P: csr_array  # [S·A, S]
    r: Floats  # [S, A]
    g: Floats  # [I, S, A] constraint rewards
    tau: Floats  # [I] (1−γ)J_i ≥ τ_i
    d0: Floats  # [S]
    gamma: float

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1:
            raise PdocrlError(f"gamma is {self.gamma}; it must lie strictly between 0 and 1.")

    @classmethod
    def population(cls, cmdp: CMDP, mu_D: Floats) -> Lagrangian:
        """L of a known CMDP and data distribution."""
        return cls(np.asarray(mu_D), cmdp.P, cmdp.r, cmdp.g, cmdp.tau, cmdp.d0, cmdp.gamma)

    @classmethod
    def empirical(cls, counts: Counts, gamma: float, limits: Sequence[Limit] = ()) -> Lagrangian:
        """L̂ of a log: one constraint per limit, on one of its costs.

        μ̂_D = n(s,a)/n is scaled to the mass
        of the behaviour's own occupancy, which is less than one where episodes end, so that w = μ^π/μ̂_D is about one
        for the policy that made the log, and C means the same for a log with ends and for one without.
        """
        if tail := next((limit for limit in limits if limit.tail), None):
            raise PdocrlError(f"limit {tail} is on a tail, and only limits on means are linear here; call `solve`.")
        g = [limit.sign * counts.costs[limit.index(counts.cost_names)] for limit in limits]
        tau = np.array([limit.sign * limit.value for limit in limits])
        mu_D = counts.mu * behaviour_mass(counts, gamma)
        return cls(mu_D, counts.P, counts.r, np.reshape(g, (-1, *counts.shape)), tau, counts.d0, gamma)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """[S, A] the pairs the data covers."""
        return np.asarray(self.mu_D > 0)

    @cached_property
    def behaviour(self) -> Floats:
        """[S, A] the policy that made the data; in states it has nothing of, its mix of the actions that cost least."""
        tried = np.where(self.mu_D.sum(axis=1, keepdims=True) > 0, self.mu_D, careful(self.mu_D, self.g))
        return np.asarray(tried / tried.sum(axis=1, keepdims=True))

    @cached_property
    def r_range(self) -> tuple[float, float]:
        """The least and largest reward, with 0 between them: the reward of a finished episode."""
        return min(0.0, float(self.r.min())), max(0.0, float(self.r.max()))

    @cached_property
    def g_range(self) -> Floats:
        """[I, 2] likewise for each constraint reward."""
        return np.stack([self.g.min(axis=(1, 2), initial=0), self.g.max(axis=(1, 2), initial=0)], axis=1)

    @cached_property
    def _P_transposed(self) -> csr_array:
        return self.P.T.tocsr()

    def __call__(self, w: Floats, pi: Floats, Q: Floats, lam: Floats) -> float:
        """L(w, π; Q, λ): w [S, A], π [S, A], Q [S, A], λ [I] → scalar."""
        V = expected(Q, pi)
        start = (1 - self.gamma) * self.d0 @ V
        return float(start + np.vdot(w * self.mu_D, self.residual(V, Q, lam)) - lam @ self.tau)

    def residual(self, V: Floats, Q: Floats, lam: Floats) -> Floats:
        """r_λ + γPV − Q [S, A]; times μ_D it is ∇_w L, when V = Q_π."""
        return np.asarray(self.reward(lam) + self.gamma * (self.P @ V).reshape(self.r.shape) - Q)

    def reward(self, lam: Floats) -> Floats:
        """r_λ = r + Σ λ_i g_i [S, A]."""
        return np.asarray(self.r + np.tensordot(lam, self.g, axes=1))

    def inflow(self, mu: Floats) -> Floats:
        """(1−γ)d₀ + γPᵀμ [S]: the mass that arrives in each state."""
        return np.asarray((1 - self.gamma) * self.d0 + self.gamma * (self._P_transposed @ mu.ravel()))

    def slack(self, mu: Floats) -> Floats:
        """⟨μ, g_i⟩ − τ_i [I], which is ∇_λ L; negative where a constraint is missed."""
        return np.asarray(np.tensordot(self.g, mu, axes=2) - self.tau)

    def grad_w(self, pi: Floats, Q: Floats, lam: Floats) -> Floats:
        """∇_w L = μ_D (r_λ + γPQ_π − Q) [S, A]."""
        return self.mu_D * self.residual(expected(Q, pi), Q, lam)

    def grad_pi(self, w: Floats, Q: Floats) -> Floats:
        """∇_π L = inflow(s) Q(s, a) [S, A]."""
        return self.inflow(w * self.mu_D)[:, None] * Q

    def grad_Q(self, w: Floats, pi: Floats) -> Floats:
        """∇_Q L = ν − μ [S, A]."""
        mu = w * self.mu_D
        return pi * self.inflow(mu)[:, None] - mu

    def grad_lam(self, w: Floats) -> Floats:
        """∇_λ L = ⟨μ, g⟩ − τ [I]."""
        return self.slack(w * self.mu_D)


def behaviour_mass(counts: Counts, gamma: float) -> float:
    """Σ μ^b of the policy that made the log, in the log's own model: one without ends, (1−γ)E[length] with them."""
    n = counts.n.sum(axis=1)
    ends = not counts.restarts and bool(np.any(counts.to == counts.n_states))
    if not np.any(n[counts.to[counts.to < counts.n_states]] == 0) and not ends:
        return 1.0
    behaviour = np.divide(counts.n, n[:, None], out=np.full(counts.shape, 1 / counts.n_actions), where=n[:, None] > 0)
    model = CMDP(counts.P, counts.r, np.zeros((0, *counts.shape)), np.zeros(0), counts.d0, gamma)
    return min(float(occupancy(model, behaviour).sum()), 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Units:
    """The largest magnitude of reward and of each constraint reward: in these units every signal lies within ±1."""

    reward: float
    constraints: Floats  # [I]

    @classmethod
    def of(cls, L: Lagrangian) -> Units:
        """Of the pairs seen; 1 for a signal that is 0 throughout, or so small that a price in it would overflow."""
        sizes = [float(np.abs(x[L.seen]).max(initial=0.0)) for x in (L.r, *L.g)]
        sizes = [size if size > NOTHING else 1.0 for size in sizes]
        return cls(sizes[0], np.array(sizes[1:]))

    def scale(self, L: Lagrangian) -> Lagrangian:
        """L in these units: solvers then see the same numbers whether reward is in cents or in millions."""
        g = L.g / self.constraints[:, None, None]
        return dataclasses.replace(L, r=L.r / self.reward, g=g, tau=L.tau / self.constraints)

    @property
    def multipliers(self) -> Floats:
        """[I] λ in these units times this is λ in reward per unit of the limit."""
        return np.asarray(self.reward / self.constraints)


def careful(mu_D: Floats, g: Floats) -> Floats:
    """[A] the data's mix of those actions that, on average over all its states, do best by every limit, g [I, S, A].

    For states the data has nothing of: that an action never cost anything elsewhere is all there is to go by. With
    several limits the worst of them decides, in shares of its range; without any, all actions are in.
    """
    often = mu_D.sum(axis=0)
    if not often.sum() > 0:
        return np.full(len(often), 1 / len(often))
    mean = (mu_D * g).sum(axis=1) / np.where(often > 0, often, 1.0)
    tried = mean[:, often > 0]
    size = np.ptp(tried, axis=1, keepdims=True)
    short = ((tried.max(axis=1, keepdims=True) - mean) / np.where(size > 0, size, 1.0)).max(axis=0, initial=0.0)
    best = (often > 0) & (short <= short[often > 0].min() + 1e-9)
    return np.asarray(np.where(best, often, 0.0) / often[best].sum())


def policy_of(L: Lagrangian, nu: Floats) -> Floats:
    """π(a|s) = ν(s, a)/ν(s) [S, A]. Where ν is 0 the data's own policy stands, since the uniform one may be harmful."""
    mass = nu.sum(axis=1, keepdims=True)
    return np.where(mass > 1e-12, nu / np.where(mass > 1e-12, mass, 1), L.behaviour)


def expected(Q: Floats, pi: Floats) -> Floats:
    """Q_π(s) = Σ_a π(a|s) Q(s, a) [S]."""
    return np.asarray(np.einsum("sa,sa->s", Q, pi))


def pessimistic_model(L: Lagrangian, worst: Lagrangian | None = None) -> CMDP:
    """The data's own CMDP, where a pair the data never tried is followed by the worst of every signal for ever.

    `worst` says how bad that is, if not L itself: a resampled log must not forget it.
    """
    bound, unknown = worst or L, 1 / (1 - L.gamma)
    r = np.where(L.seen, L.r, bound.r_range[0] * unknown)
    g = np.where(L.seen, L.g, bound.g_range[:, 0, None, None] * unknown)
    return CMDP(L.P, r, g, L.tau, L.d0, L.gamma)


@dataclasses.dataclass(frozen=True)
class Sets:
    """Where the players play: w ∈ [0, C], Q ∈ [q_low, q_high], λ ≥ 0 with Σλ ≤ B; π is any policy.

    The theory asks that Q_λ^π be in the set for every π and every λ of BΔ (all-policy realisability). With r ∈ [r₋, r₊]
    and g_i ∈ [g₋, g₊], both around 0, that is q_low ≤ (r₋ + B·g₋)/(1−γ) and q_high ≥ (r₊ + B·g₊)/(1−γ). Costs make
    g₋ negative, so Q must be allowed to be negative even where rewards are not.
    """

    C: float
    B: float
    q_low: float
    q_high: float

    def __post_init__(self) -> None:
        if not self.C > 0:
            raise PdocrlError(f"C is {self.C}; the bound on w must be positive.")
        if not (self.B >= 0 and np.isfinite(self.B)):
            raise PdocrlError(f"B is {self.B}; the bound on the multipliers must be finite and at least 0.")

    @classmethod
    def tight(cls, L: Lagrangian, C: float, B: float) -> Sets:
        """The smallest box for Q that the theory allows."""
        low, high = L.r_range
        g_low = min(L.g_range[:, 0], default=0.0)
        g_high = max(L.g_range[:, 1], default=0.0)
        return cls(C, B, (low + B * g_low) / (1 - L.gamma), (high + B * g_high) / (1 - L.gamma))

    @classmethod
    def paper(cls, L: Lagrangian, C: float, phi: float) -> Sets:
        """As the paper has them, for a Slater margin φ: B = 1 + 1/φ and |Q| ≤ (2 + 1/φ)/(1−γ) when |r|, |g| ≤ 1."""
        if not phi > 0:
            raise PdocrlError(
                f"the Slater margin is {phi}; without room inside the limits the multipliers are unbounded."
            )
        B = 1 + 1 / phi
        scale = np.abs([*L.r_range]).max() + B * np.abs(L.g_range).max(initial=0)
        return cls(C, B, -scale / (1 - L.gamma), scale / (1 - L.gamma))


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
