"""Programs over occupancies with a quadratic penalty or a second-order cone, solved by Clarabel (the extra `cone`).

    max  ⟨μ, r⟩ − ρ‖w‖ − α/2 ‖w‖²      w = μ/μ̂_D,  ‖w‖² = Σ μ̂_D w²
    s.t. flow,  0 ≤ μ ≤ Cμ̂_D,  ⟨μ, g_i⟩ − ρ‖w‖ ≥ τ_i

Mass may leave the data where the log never acted (or where C lets it go no further), and is then worth the least. If
the limits cannot be kept, they are first missed by as little as possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.solvers.lagrangian import Floats


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
