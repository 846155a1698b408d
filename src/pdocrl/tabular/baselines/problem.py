"""What every baseline starts from: the log's own model, pessimistic where the log has nothing, and its occupancies.

A pair the log never tried is followed by the worst of every signal (`pessimistic_model`), so that no baseline is
tempted by what nobody has seen. Where their papers leave the value of such a pair open, this is the choice that helps
them most. The best occupancy μ = w·μ̂_D is a linear program or, by Clarabel (the extra `cone`),

    max  ⟨μ, r⟩ − ρ‖w‖ − α/2 ‖w‖²      ‖w‖² = Σ μ̂_D w²
    s.t. flow,  0 ≤ μ ≤ Cμ̂_D,  ⟨μ, g_i⟩ − ρ‖w‖ ≥ τ_i

Mass may leave the data where the log never acted (or where C lets it go no further), and is then worth the least. If
the limits cannot be satisfied, they are first missed by as little as possible.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack

from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.cmdp import CMDP, solve_linear, transition_matrix
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.highs import Start, maximise
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model, policy_of
from pdocrl.tabular.solvers.lp import PLANNED_UP_TO, SIMPLEX_UP_TO, plan_columns

DENSE_STATES = 1500  # up to here a dense factorisation is quicker than the Krylov method of `solve_linear`
DENSE_NUMBERS = 10**6  # transition probabilities up to which products with dense ones are quicker


class PolicyInModel:
    """I − γP_π of one policy, factorised once for its values of all signals and their adjoints."""

    def __init__(self, model: CMDP, pi: Floats, P: Floats | None = None) -> None:
        """P [S, A, S] is the model's as a dense array, where that is small."""
        self.model, self.pi = model, pi
        if P is not None:
            self.P: Any = P.reshape(-1, model.n_states)
            moves: Floats | None = (pi[:, None] @ P)[:, 0]
        else:
            self.P, self.moves = model.P, transition_matrix(model, pi)
            moves = self.moves.toarray() if model.n_states <= DENSE_STATES else None
        self.factors = None
        if moves is not None:
            self.factors = lapack.dgetrf(np.eye(model.n_states) - model.gamma * moves, overwrite_a=True)[:2]

    def Q(self, reward: Floats) -> Floats:
        """Q^π [S, A] of any reward [S, A]."""
        V = self._solve((self.pi * reward).sum(axis=1), transposed=False)
        return np.asarray(reward + self.model.gamma * (self.P @ V).reshape(reward.shape))

    def adjoint(self, x: Floats) -> Floats:
        """(I − γP̂Π)⁻ᵀ x [S, A]: with it ⟨x, Q^π of reward⟩ = ⟨adjoint(x), reward⟩."""
        z = self._solve(self.P.T @ x.ravel(), transposed=True)
        return np.asarray(x + self.model.gamma * self.pi * z[:, None])

    @cached_property
    def visits(self) -> Floats:
        """[S, A] the policy's occupancy."""
        d = self._solve((1 - self.model.gamma) * self.model.d0, transposed=True)
        return np.asarray(self.pi * np.maximum(d, 0)[:, None])

    def _solve(self, b: Floats, transposed: bool) -> Floats:
        if self.factors is not None:
            x: Floats = lapack.dgetrs(*self.factors, b, trans=int(transposed))[0]
            return x
        return solve_linear(self.moves.T.tocsr() if transposed else self.moves, b, self.model.gamma)


@dataclasses.dataclass(frozen=True, eq=False)
class LogModel:
    """A log as the baselines see it."""

    L: Lagrangian
    n: NDArray[np.int64]  # [S, A] how often each pair was tried

    @classmethod
    def of(cls, counts: Counts, gamma: float, limits: Limits = ()) -> LogModel:
        return cls(Lagrangian.empirical(counts, gamma, as_limits(limits)), counts.n)

    @classmethod
    def free(cls, counts: Counts, gamma: float, limits: Limits, name: str, instead: str) -> LogModel:
        """For a method whose paper has no limits: they are refused, not ignored."""
        if as_limits(limits):
            raise PdocrlError(f"{name} knows no limits; {instead} is its relative with limits.")
        return cls.of(counts, gamma)

    @cached_property
    def model(self) -> CMDP:
        """The log's own CMDP; what was never tried is followed by the worst for ever."""
        return pessimistic_model(self.L)

    @cached_property
    def box(self) -> tuple[float, float]:
        """The least and largest value a policy can have, not scaled by 1−γ."""
        low, high = self.L.r_range
        return low / (1 - self.L.gamma), high / (1 - self.L.gamma)

    @property
    def span(self) -> float:
        """V_max: the range of values."""
        return max(self.box[1] - self.box[0], np.finfo(float).tiny)

    @property
    def cost_span(self) -> float:
        """The largest range of a constraint's values; 0 without limits."""
        return float(np.ptp(self.L.g_range, axis=1).max(initial=0.0)) / (1 - self.L.gamma)

    def under(self, pi: Floats) -> PolicyInModel:
        """One policy in the log's own model, for its values."""
        return PolicyInModel(self.model, pi, self._dense)

    @cached_property
    def _dense(self) -> Floats | None:
        """[S, A, S] the model's transitions, where they are few."""
        S, A = self.L.r.shape
        return self.model.P.toarray().reshape(S, A, S) if S * S * A <= DENSE_NUMBERS else None

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """[m] the pairs tried."""
        return np.flatnonzero(self.L.seen)

    @cached_property
    def flow(self) -> sp.csr_array:
        """[S, m] Σ_a μ(s, a) − γP̂ᵀμ, over the pairs tried."""
        S, A = self.L.r.shape
        m = len(self.pairs)
        leaving = sp.csr_array((np.ones(m), (self.pairs // A, np.arange(m))), shape=(S, m))
        return sp.csr_array(leaving - self.L.gamma * self.L.P[self.pairs].T)

    @cached_property
    def critic_rows(self) -> sp.csc_array:
        """[S + m + 2, 3m + S + 1] rows of an adversarial critic's program (`adversarial.py`), a policy of ones in them.

        V = f(·, π) in every state, f − γP̂V = r + δ₊ − δ₋ for every pair tried, and e at least either sum of μ̂δ.
        """
        (S, A), m = self.L.r.shape, len(self.pairs)
        choose = sp.csr_array((np.ones(m), (self.pairs // A, np.arange(m))), shape=(S, m))
        one, sums, e = sp.eye_array(m), sp.csr_array(self.L.mu_D.ravel()[None, self.pairs]), np.array([[-1.0]])
        blocks = [
            [-choose, sp.eye_array(S), None, None, None],
            [one, -self.L.gamma * self.L.P[self.pairs], -one, one, None],
            [None, None, sums, None, e],
            [None, None, None, sums, e],
        ]
        matrix = sp.block_array(blocks, format="csc")
        matrix.sort_indices()
        return matrix

    @property
    def start(self) -> Floats:
        """[S] (1−γ)d₀."""
        return np.asarray((1 - self.L.gamma) * self.L.d0)

    @cached_property
    def leak(self) -> Floats:
        """[1+I] what a unit of mass that leaves the data is worth: the worst reward and constraint rewards for ever."""
        return np.asarray(np.r_[self.L.r_range[0], self.L.g_range[:, 0]] / (1 - self.L.gamma))

    def room(self, anywhere: bool) -> Floats:
        """[S] how much mass may leave in each state: any where the log never acted, none elsewhere unless `anywhere`.

        Elsewhere it would be a way out of penalties that no policy has; a small C may leave no other.
        """
        return np.asarray(np.where(anywhere | ~self.L.seen.any(axis=1), np.inf, 0.0))

    def signals(self, bonus: Floats | None = None) -> Floats:
        """[1+I, m] reward and constraint rewards of the pairs tried, each less a bonus [S, A]."""
        every = np.concatenate([self.L.r[None], self.L.g]).reshape(1 + len(self.L.tau), -1)[:, self.pairs]
        return every if bonus is None else every - bonus.ravel()[self.pairs]

    def table(self, x: Floats) -> Floats:
        """[m] values of the pairs tried as [S, A], 0 elsewhere."""
        full = np.zeros(self.L.r.size)
        full[self.pairs] = x
        return full.reshape(self.L.r.shape)

    def planned(self, shape: tuple[int, int], bonus: Floats | None = None) -> Start | None:
        """Where simplex on occupancies begins, the reward less a bonus alone in mind; None where it is not worth it."""
        if not SIMPLEX_UP_TO < len(self.pairs) <= PLANNED_UP_TO:
            return None
        return Start.at(plan_columns(self.L, self.L.r if bonus is None else self.L.r - bonus), shape)

    def policy(self, mu: Floats) -> Floats:
        """π(a|s) ∝ μ(s, a), with μ [m] = w·μ̂_D: extraction by the log's own policy, which stands where μ is 0."""
        return policy_of(self.L, self.table(np.maximum(mu, 0)))


def best_occupancy(
    problem: LogModel,
    C: float = np.inf,
    bonus: Floats | None = None,
    tau: Floats | None = None,
    extra: tuple[sp.csr_array, Floats, Floats] | None = None,
) -> Floats:
    """max ⟨μ, r − bonus⟩ over occupancies μ [m] ≤ Cμ̂_D of the log's model with ⟨μ, g_i − bonus⟩ ≥ τ_i.

    Mass may leave the data where the log never acted (or where C lets it go no further), and is then worth the least.
    If none satisfies the limits, they are first missed by as little as possible. `extra` is (matrix [rows, m + more],
    lower, upper): further rows, whose further columns are numbers at least 0.
    """
    L, m, S, I = problem.L, len(problem.pairs), len(problem.L.d0), len(problem.L.tau)
    wanted = L.tau if tau is None else tau
    signals = problem.signals(bonus)
    more = 0 if extra is None else extra[0].shape[1] - m
    # Columns: μ, the mass p that leaves in each state, the largest miss t of a limit, then the further ones.
    blocks = [[problem.flow, sp.eye_array(S), sp.csr_array((S, 1)), sp.csr_array((S, more))]]
    if I:
        leaks = np.repeat(problem.leak[1:, None], S, axis=1)
        blocks.append([sp.csr_array(signals[1:]), sp.csr_array(leaks), np.ones((I, 1)), sp.csr_array((I, more))])
    lower, upper = np.r_[problem.start, wanted], np.r_[problem.start, np.full(I, np.inf)]
    if extra is not None:
        rows = len(extra[1])
        blocks.append([extra[0][:, :m], sp.csr_array((rows, S)), sp.csr_array((rows, 1)), extra[0][:, m:]])
        lower, upper = np.r_[lower, extra[1]], np.r_[upper, extra[2]]
    matrix = sp.block_array(blocks, format="csc")

    planned = problem.planned(matrix.shape, bonus) if extra is None else None

    def optimise(objective: Floats, miss: float, anywhere: bool) -> Floats | None:
        found = maximise(
            objective=objective,
            matrix=matrix,
            row_lower=lower,
            row_upper=upper,
            column_lower=np.zeros(matrix.shape[1]),
            column_upper=np.r_[C * L.mu_D.ravel()[problem.pairs], problem.room(anywhere), miss, np.full(more, np.inf)],
            method="simplex" if m <= SIMPLEX_UP_TO else "ipm",
            start=planned if objective is earned else None,
        )
        return found.x if found.optimal else None

    earned = np.r_[signals[0], np.full(S, problem.leak[0]), np.zeros(1 + more)]
    for anywhere in (False, True):
        x = optimise(earned, 0.0, anywhere)
        if x is None and I:
            least = optimise(-np.eye(1, len(earned), m + S)[0], np.inf, anywhere)
            if least is not None:
                x = optimise(earned, float(least[m + S]) * (1 + 1e-9) + 1e-9, anywhere)
        if x is not None:
            return np.asarray(x[:m])
    raise PdocrlError("HiGHS found no occupancy; are the signals of sensible size?")


def occupancy_cone(problem: LogModel, C: float = np.inf, alpha: float = 0.0, radius: float = 0.0) -> Floats:
    """μ [m] of the pairs tried: α is the penalty on ‖w‖²/2, radius the price ρ of ‖w‖."""
    if alpha < 0 or radius < 0:
        raise PdocrlError(f"alpha is {alpha} and the radius {radius}; neither can be negative.")
    m, S, I = len(problem.pairs), len(problem.L.d0), len(problem.L.tau)
    mu_D = problem.L.mu_D.ravel()[problem.pairs]
    scale = np.sqrt(mu_D)
    # Columns: x = μ/√μ̂_D (so that ‖w‖ = ‖x‖, and all are of a size), p, z ≥ ‖x‖, the largest miss t.
    columns = m + S + 2
    X = sp.diags_array(scale)
    signals = problem.signals() * scale
    equal = sp.hstack([problem.flow @ X, sp.eye_array(S), sp.csr_array((S, 2))])
    least = [sp.eye_array(m + S, columns), sp.csr_array(np.eye(1, columns, columns - 1))]
    bound = [np.zeros(m + S + 1)]
    if np.isfinite(C):
        least.append(sp.hstack([-sp.eye_array(m), sp.csr_array((m, S + 2))]))
        bound.append(-C * scale)
    if I:
        leaks = np.repeat(problem.leak[1:, None], S, axis=1)
        least.append(sp.csr_array(np.hstack([signals[1:], leaks, np.full((I, 1), -radius), np.ones((I, 1))])))
        bound.append(problem.L.tau)
    cone = sp.csr_array((np.ones(m + 1), (np.arange(m + 1), np.r_[m + S, np.arange(m)])), shape=(m + 1, columns))
    reward = np.r_[signals[0], np.full(S, problem.leak[0]), -radius, 0.0]
    quadratic = np.r_[np.full(m, alpha), np.zeros(S + 2)]

    def solve(objective: Floats, penalty: Floats, miss: float, anywhere: bool) -> Floats | None:
        most = np.r_[problem.room(anywhere), np.inf, miss]
        capped = np.flatnonzero(np.isfinite(most))
        rows = [equal, *(-part for part in least), sp.eye_array(columns, format="csr")[m + capped]]
        limits = [problem.start, *(-part for part in bound), most[capped]]
        return _clarabel(penalty, -objective, [*rows, -cone], [*limits, np.zeros(m + 1)], S, m + 1)

    for anywhere in (False, True):
        x = solve(reward, quadratic, 0.0, anywhere)
        if x is None and I:
            nearest = solve(-np.eye(1, columns, columns - 1)[0], np.zeros(columns), np.inf, anywhere)
            if nearest is not None:
                x = solve(reward, quadratic, max(float(nearest[-1]), 0.0) * (1 + 1e-6) + 1e-7, anywhere)
        if x is not None:
            return np.asarray(np.maximum(x[:m], 0) * scale)
    raise PdocrlError("Clarabel found no occupancy; are the signals and limits of sensible size?")


def _clarabel(
    diagonal: Floats, q: Floats, rows: list[Any], limits: list[Floats], zeros: int, cone: int
) -> Floats | None:
    """min ½ Σ diagonal x² + q·x over rows·x + s = limits, where s is 0, then ≥ 0, then in a second-order cone."""
    try:
        import clarabel
    except ImportError:
        raise MissingExtraError("a cone program", "cone") from None
    A, b = sp.csc_matrix(sp.vstack(rows)), np.concatenate(limits)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(zeros), clarabel.NonnegativeConeT(len(b) - zeros - cone)]
    if cone:
        cones.append(clarabel.SecondOrderConeT(cone))
    found = clarabel.DefaultSolver(sp.csc_matrix(sp.diags_array(diagonal)), q, A, b, cones, settings).solve()
    good = (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)
    return np.array(found.x) if found.status in good else None


def minimise_linear(
    objective: Floats, matrix: Any, row_lower: Floats, row_upper: Floats, column_lower: Floats, column_upper: Floats
) -> Floats | None:
    """A linear program as `highs.maximise` takes it, but minimised: with thousands of dense rows several times faster.

    Rows are equal to their bounds or at most their upper one. None if it is not solved.
    """
    A, I = sp.csr_array(matrix), sp.eye_array(len(objective), format="csr")
    equal = row_lower == row_upper
    low, high = np.isfinite(column_lower), np.isfinite(column_upper)
    rows = [A[equal], A[~equal], -I[low], I[high]]
    bounds = [row_upper[equal], row_upper[~equal], -column_lower[low], column_upper[high]]
    return _clarabel(np.zeros(len(objective)), objective, rows, bounds, int(equal.sum()), 0)
