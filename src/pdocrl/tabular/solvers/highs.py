"""One linear program in HiGHS, with the pitfalls of its interface dealt with in one place."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class LinearOptimum(NamedTuple):
    """What `maximise` found. Without an optimum, x and dual are empty and the objective is −∞."""

    optimal: bool
    objective: float
    x: Floats  # [columns]
    dual: Floats  # [rows] minus the slope of the maximum in the row's bound: ≥ 0 at a lower bound, ≤ 0 at an upper one


@dataclasses.dataclass(eq=False)
class Start:
    """Where simplex begins, for programs with the same rows and columns that differ little."""

    basis: highspy.HighsBasis | None = None

    @classmethod
    def at(cls, columns: NDArray[np.int64], shape: tuple[int, int]) -> Start:
        """Basic are these columns, one for each of the first rows, and the slacks of the other rows.

        The others are at their lower bounds, which must be finite.
        """
        status = highspy.HighsBasisStatus
        of_columns = [status.kLower] * shape[1]
        for j in columns:
            of_columns[j] = status.kBasic
        basis = highspy.HighsBasis()
        basis.col_status = of_columns
        basis.row_status = [status.kLower] * len(columns) + [status.kBasic] * (shape[0] - len(columns))
        basis.valid = True
        return cls(basis)


def maximise(
    objective: Floats,
    matrix: Any,
    row_lower: Floats,
    row_upper: Floats,
    column_lower: Floats,
    column_upper: Floats,
    method: Literal["simplex", "ipm"] = "simplex",
    start: Start | None = None,
    crossover: bool = True,
) -> LinearOptimum:
    """max objective·x over row_lower ≤ matrix·x ≤ row_upper, column_lower ≤ x ≤ column_upper.

    With a start that knows a basis, simplex begins there, whatever the method; an optimum becomes the next start.
    Without crossover the interior point's optimum is near 1e-8 and no vertex; with dense columns it is far quicker.
    """
    matrix = sp.csc_array(matrix)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    # Always as a minimisation: under `kMaximize` some of its methods return duals with flipped signs.
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = -objective, column_lower, column_upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("solver", method)
    highs.setOptionValue("run_crossover", "on" if crossover else "off")
    highs.setOptionValue("primal_feasibility_tolerance", 1e-10)
    highs.setOptionValue("dual_feasibility_tolerance", 1e-10)
    highs.setOptionValue("small_matrix_value", 1e-12)  # the default silently drops probabilities below 1e-9
    if start is not None and start.basis is not None:
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("presolve", "off")
        highs.passModel(lp)
        highs.setBasis(start.basis)
        highs.run()
        found = _optimum(highs, objective, start)
        if found or highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return found or NONE
        highs.setOptionValue("solver", method)
    for presolve in ("on", "off"):  # its presolve sometimes ends undecided
        highs.setOptionValue("presolve", presolve)
        highs.passModel(lp)
        highs.run()
        found = _optimum(highs, objective, start)
        if found:
            return found
    return NONE


NONE = LinearOptimum(False, -np.inf, np.zeros(0), np.zeros(0))


def _optimum(highs: highspy.Highs, objective: Floats, start: Start | None) -> LinearOptimum | None:
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    if start is not None:
        start.basis = highs.getBasis()
    solution = highs.getSolution()
    x = np.array(solution.col_value)
    return LinearOptimum(True, float(objective @ x), x, np.array(solution.row_dual))
