"""Exact solutions of a known CMDP, with multipliers and a certified bound on the optimum.

    max_{μ ≥ 0} ⟨μ, r_0⟩   s.t.   E^⊤μ = (1−γ)d_0 + γP^⊤μ,   ⟨μ, r_i⟩ ≥ τ_i                                   eq. (2)

Two ways: the linear program as it stands, for small problems, and Dantzig–Wolfe decomposition, which replaces its
S rows by a planning problem without constraints and keeps a master program of I + 1 rows, for large ones.

Every solution carries the bound  (1−γ)d_0·V + max_{s,a}[r_λ + γPV − V]₊ − λ·τ,  which holds for any V and any λ ≥ 0:
its gap to the value is a proof of optimality that does not depend on the solver that found it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import CMDP, Floats, Ints, backup, extract, occupancy, plan
from pdocrl.tabular.solvers.highs import LinearOptimum, maximise

_LP_PAIRS = 1200  # up to this many pairs (s, a) the simplex method is at least as fast as Dantzig–Wolfe
_INNER = 0.5  # how far prices stay with the best ones so far; plain Dantzig–Wolfe (0) needs half as many policies again
_ROOM = 1e-9  # limits count as met to this accuracy

Status = Literal["optimal", "approximate", "infeasible"]


@dataclasses.dataclass(frozen=True, eq=False)
class ExactSolution:
    """An optimal policy with its multipliers and a proof.

    When no policy satisfies the limits (`infeasible`), the policy is the one whose largest violation is smallest, `lam`
    sums to one and Σ λ_i((1−γ)J_i(π) − τ_i) < 0 for every policy π, which proves it; `bound` is −∞.
    """

    status: Status  # "approximate": the bound is further than the tolerance from the value
    value: float  # (1−γ)J_0 of pi
    constraints: Floats  # [I] (1−γ)J_i of pi
    pi: Floats  # [S, A]
    mu: Floats  # [S, A] the occupancy of pi
    lam: Floats  # [I] multipliers ≥ 0; −λ_i is the slope of the optimum in τ_i
    V: Floats  # [S] multipliers of the flow constraint: the value function of r_λ
    bound: float  # no feasible policy is worth more
    weights: Floats  # [m] Dantzig–Wolfe: an equivalent mixture of m ≤ I + 1 deterministic policies …
    policies: Ints  # [m, S] … one of which is drawn at the start of an episode

    @property
    def gap(self) -> float:
        """How far the value can be from the optimum."""
        return self.bound - self.value


def solve(cmdp: CMDP, tolerance: float = 1e-8) -> ExactSolution:
    """The optimum, by the method that is faster at this size."""
    return solve_lp(cmdp) if cmdp.r.size <= _LP_PAIRS else solve_columns(cmdp, tolerance)


def slater_margin(cmdp: CMDP, tolerance: float = 1e-8) -> float:
    """φ = max_π min_i (1−γ)J_i(π) − τ_i: how much room the limits leave; negative when no policy satisfies them all."""
    if cmdp.n_constraints == 0:
        return np.inf
    if cmdp.r.size <= _LP_PAIRS:
        return _occupancy_lp(cmdp, "simplex", reward=False).objective
    columns = Columns(cmdp)
    columns.price(np.full(cmdp.n_constraints, 1 / cmdp.n_constraints), reward=False)
    return generate(columns, reward=False, tolerance=tolerance).value


def dual_bound(cmdp: CMDP) -> float:
    """B = 1 + 1/φ, so that ‖λ*‖₁ ≤ B − 1 (Lemma 3); rewards outside [0, 1] scale it. Infinite when φ ≤ 0."""
    phi = slater_margin(cmdp)
    spread = max(float(cmdp.r.max()), 0.0) - min(float(cmdp.r.min()), 0.0)
    return 1 + max(1.0, spread) / phi if phi > 0 else np.inf


def upper_bound(cmdp: CMDP, V: Floats, lam: Floats, reward: bool = True) -> float:
    """What no feasible policy exceeds, from any V [S] and λ ≥ 0 [I].

    With δ the largest residual of r_λ + γPV − V, V + δ/(1−γ) is a super-solution of the optimality equation of r_λ,
    and a feasible policy's value is at most its Lagrangian. Without `reward`, a bound on Σ λ_i((1−γ)J_i − τ_i).
    """
    r_lam = reward * cmdp.r + np.tensordot(lam, cmdp.g, axes=1)
    excess = float((backup(cmdp, r_lam, V) - V[:, None]).max())
    return (1 - cmdp.gamma) * float(cmdp.d0 @ V) + max(excess, 0.0) - float(lam @ cmdp.tau)


def solve_lp(cmdp: CMDP, method: Literal["simplex", "ipm"] = "simplex") -> ExactSolution:
    """The linear program in HiGHS; occupancy and V are then recomputed from its policy and λ, to full accuracy."""
    found = _occupancy_lp(cmdp, method, reward=True)
    feasible = found.optimal
    if not feasible:
        # Feasibility is decided by a program that always has a solution, not by the solver's word.
        found = _occupancy_lp(cmdp, method, reward=False)
        feasible = found.objective >= -_ROOM
        if feasible:
            found = _occupancy_lp(cmdp.replace(tau=cmdp.tau - 2 * _ROOM), method, reward=True)
        if not found.optimal:
            raise PdocrlError(
                f"linear program: HiGHS ({method}) found no solution. Try the other method or `solve_columns`."
            )
    S, n = cmdp.n_states, cmdp.r.size
    pi = extract(np.maximum(found.x[:n], 0).reshape(cmdp.r.shape))
    # Its duals are slopes of the minimum of −⟨μ, r_0⟩: V turns the sign, λ (minus the slope of the maximum) does not.
    V, lam = -found.dual[:S], np.maximum(found.dual[S:], 0)
    V = plan(cmdp, feasible * cmdp.r + np.tensordot(lam, cmdp.g, axes=1), start=V).V
    return _solution(cmdp, feasible, pi, lam, V, np.zeros(0), np.zeros((0, S), dtype=np.int64), tolerance=1e-8)


def _solution(
    cmdp: CMDP, feasible: bool, pi: Floats, lam: Floats, V: Floats, weights: Floats, policies: Ints, tolerance: float
) -> ExactSolution:
    mu = occupancy(cmdp, pi)
    value, constraints = float(np.vdot(mu, cmdp.r)), np.tensordot(cmdp.g, mu, axes=2)
    bound = upper_bound(cmdp, V, lam) if feasible else -np.inf
    close = bound - value <= tolerance * max(1.0, abs(value))
    status: Status = "infeasible" if not feasible else "optimal" if close else "approximate"
    return ExactSolution(status, value, constraints, pi, mu, lam, V, bound, weights, policies)


def _occupancy_lp(cmdp: CMDP, method: Literal["simplex", "ipm"], reward: bool) -> LinearOptimum:
    """max ⟨μ, r_0⟩, or without `reward` max t with ⟨μ, r_i⟩ − t ≥ τ_i, over occupancies μ; x = (μ, t)."""
    S, A, n, I = cmdp.n_states, cmdp.n_actions, cmdp.r.size, cmdp.n_constraints
    E_T = sp.kron(sp.eye_array(S), np.ones((1, A)), format="csr")
    flow = E_T - cmdp.gamma * cmdp.P.T
    G = sp.csr_array(cmdp.g.reshape(I, n))
    t = sp.csr_array(np.r_[np.zeros(S), np.full(I, -1.0)][:, None])
    rhs = (1 - cmdp.gamma) * cmdp.d0
    return maximise(
        objective=np.r_[cmdp.r.ravel() * reward, 0.0 if reward else 1.0],
        matrix=sp.hstack([sp.vstack([flow, G]), t]),
        row_lower=np.r_[rhs, cmdp.tau],
        row_upper=np.r_[rhs, np.full(I, np.inf)],
        column_lower=np.r_[np.zeros(n), 0.0 if reward else -np.inf],
        column_upper=np.r_[np.full(n, np.inf), 0.0 if reward else np.inf],
        method=method,
    )


def solve_columns(cmdp: CMDP, tolerance: float = 1e-8, max_policies: int = 1000) -> ExactSolution:
    """Dantzig–Wolfe decomposition.

    Master: the best mixture of the deterministic policies found so far; its duals λ are prices for the constraints.
    Pricing: plan for the reward r_λ; the policy found joins the master, and its value bounds the optimum from above.
    Ends when bound and master agree to `tolerance` (relative for values above one). A vertex of the master mixes at
    most I + 1 policies; their averaged occupancy is that of one stationary policy, which is returned.
    """
    columns = Columns(cmdp)
    columns.price(np.zeros(cmdp.n_constraints), reward=True)
    slack, feasible = 0.0, True
    if cmdp.n_constraints:
        best = generate(columns, reward=False, tolerance=_ROOM, enough=_ROOM, max_policies=max_policies)
        # Where the limits leave no room, rounding would decide what is feasible: they are loosened a little.
        slack, feasible = min(best.value - _ROOM, 0.0), best.bound >= 0
    if feasible:
        best = generate(columns, reward=True, tolerance=tolerance, slack=slack, max_policies=max_policies)
    used = np.flatnonzero(best.weights > 0)
    weights = best.weights[used] / best.weights[used].sum()
    mu = np.zeros_like(cmdp.r)
    everywhere = np.arange(cmdp.n_states)
    for weight, k in zip(weights, used, strict=True):
        mu[everywhere, columns.actions[k]] += weight * columns.visits[k]
    policies = np.array([columns.actions[k] for k in used])
    return _solution(cmdp, feasible, extract(mu), best.lam, best.V, weights, policies, 2 * tolerance)


class Columns:
    """The deterministic policies found so far: the value of each, and where it goes."""

    def __init__(self, cmdp: CMDP) -> None:
        self.cmdp = cmdp
        self.actions: list[Ints] = []  # [S] each
        self.visits: list[Floats] = []  # [S] each: state occupancy
        self.values: list[float] = []
        self.constraints: list[Floats] = []  # [I] each
        self.V = np.zeros(cmdp.n_states)  # the last plan's, where the next one starts

    def price(self, lam: Floats, reward: bool) -> float:
        """Add the best policy for the reward r_λ (without `reward`: Σ λ_i r_i); returns its certified bound."""
        cmdp = self.cmdp
        visits, excess = self.best(reward * cmdp.r + np.tensordot(lam, cmdp.g, axes=1))
        self.values.append(float(np.vdot(visits, cmdp.r)))
        self.constraints.append(np.tensordot(cmdp.g, visits, axes=2))
        return (1 - cmdp.gamma) * float(cmdp.d0 @ self.V) + excess - float(lam @ cmdp.tau)

    def best(self, reward: Floats) -> tuple[Floats, float]:
        """The occupancy [S, A] of the best policy for a reward, whose V is kept, and what V may be too small by."""
        found = plan(self.cmdp, reward, start=self.V)
        visits = occupancy(self.cmdp, found.actions)
        self.V = found.V
        self.actions.append(found.actions)
        self.visits.append(visits.sum(axis=1))
        return visits, found.excess

    def master(self, reward: bool, slack: float) -> tuple[float, Floats, Floats]:
        """The best mixture: objective, weights [k] and prices λ [I]."""
        k, I = len(self.values), self.cmdp.n_constraints
        matrix = np.zeros((I + 1, k + 1))
        matrix[:I, :k] = np.array(self.constraints).reshape(k, I).T
        matrix[:I, k] = -1
        matrix[I, :k] = 1
        found = maximise(
            objective=np.r_[np.array(self.values) * reward, 0.0 if reward else 1.0],
            matrix=matrix,
            row_lower=np.r_[self.cmdp.tau, 1.0],
            row_upper=np.r_[np.full(I, np.inf), 1.0],
            column_lower=np.r_[np.zeros(k), slack if reward else -np.inf],
            column_upper=np.r_[np.full(k, np.inf), slack if reward else np.inf],
        )
        if not found.optimal:
            raise PdocrlError(
                "Dantzig–Wolfe: the master program lost its feasible mixture to rounding; use `solve_lp`."
            )
        return found.objective, found.x[:k], np.maximum(found.dual[:I], 0)


class _Mixture(NamedTuple):
    value: float  # of the mixture
    bound: float  # at the prices lam
    weights: Floats  # [k]
    lam: Floats  # [I]
    V: Floats  # [S]


def generate(
    columns: Columns,
    reward: bool,
    tolerance: float,
    enough: float = np.inf,
    slack: float = 0.0,
    max_policies: int = 1000,
) -> _Mixture:
    """Add policies until the master's value meets the bound, or exceeds `enough`.

    With `reward` maximises ⟨μ, r_0⟩ with all limits loosened by −slack, else the smallest slack of all limits.
    Prices are taken between the master's and the best so far (in-out separation): the master's alone jump about.
    """
    bound, lam, V = np.inf, np.zeros(0), np.zeros(0)
    while True:
        value, weights, prices = columns.master(reward, slack)
        done = bound - value <= tolerance * max(1.0, abs(value))
        if done or value > enough or len(columns.values) >= max_policies:
            return _Mixture(value, bound, weights, lam, V)
        if np.isfinite(bound):
            prices = _INNER * lam + (1 - _INNER) * prices
        new = columns.price(prices, reward)
        if new < bound:
            bound, lam, V = new, prices, columns.V
