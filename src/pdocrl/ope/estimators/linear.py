"""Linear functions of features and action, φ(s, a) = e_a ⊗ f(s), and the two systems they solve under a policy π.

    A = Σ_i φ_i (φ_i − γ φ'_i)ᵀ,   φ_i = φ(s_i, a_i),   φ'_i = Σ_a π(a|s'_i) φ(s'_i, a), 0 after a terminal row

    Q(s, a) = φ(s, a)ᵀ θ,   A θ = Σ_i φ_i x_i                      (LSTDQ: Lagoudakis and Parr, 2003)
    w(s, a) = φ(s, a)ᵀ α,   Aᵀ α = Σ_e Σ_a π(a|s_e0) φ(s_e0, a)    (minimax weights: Uehara, Huang and Jiang, 2020)

Rows where the record was cut have no φ' and take no part. One-hot states make both exact for the counted MDP.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Floats, Ints, Problem

RIDGE = 1e-3  # rows of pseudo-observations of zero, per unit of a feature's mean square
CHUNK = 20_000  # rows at once
QUARTILES = (0.25, 0.5, 0.75)
MOST = 600  # features × actions, so that the linear systems stay small


def basis(log: EventLog, time: bool) -> Floats:
    """[N, F] a one, the encoded columns, hinges of the numeric ones, and where totals are not discounted time.

    f(s) = [ 1, x, max(0, x_j − q) for the quartiles q of each numeric x_j, τ, τ² ],   τ = step/longest episode
    """
    matrix, names = log.features()
    parts = [np.ones((len(log), 1)), matrix]
    longest = int(log.step.max())
    if time and longest > 0:
        clock = log.step / longest
        parts.append(np.stack([clock, clock**2], axis=1))
    numeric = [names.index(column.name) for column in log.columns if column.kind == "numeric"]
    width = sum(part.shape[1] for part in parts) + len(QUARTILES) * len(numeric)
    if width * len(log.actions) <= MOST:
        for j in numeric:
            knots = np.unique(np.quantile(matrix[:, j], QUARTILES))
            inside = knots[(knots > matrix[:, j].min()) & (knots < matrix[:, j].max())]
            parts.append(np.maximum(0.0, matrix[:, j, None] - inside))
    return np.concatenate(parts, axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class LinearSystem:
    """The moments of some rows."""

    problem: Problem
    rows: Ints  # [n] with a known successor
    matrix: Floats  # A [D, D], D = A·F

    @classmethod
    def of(cls, problem: Problem, rows: Ints | None = None, ridge: float = RIDGE) -> LinearSystem:
        chosen = np.arange(len(problem.log)) if rows is None else rows
        chosen = chosen[problem.following[chosen] > -2]
        size = problem.target.shape[1] * problem.features.shape[1]
        matrix = np.zeros((size, size))
        square = np.zeros(size)
        for part in _chunks(chosen):
            now = taken(problem, part)
            following = problem.following[part]
            after = np.where((following >= 0)[:, None], expected(problem, following), 0.0)
            matrix += now.T @ (now - problem.discount * after)
            square += (now**2).sum(0)
        return cls(problem, chosen, matrix + ridge * np.diag(square / max(len(chosen), 1)))

    def q(self, signal: str) -> Floats:
        """θ as [A, F]."""
        values = self.problem.log.signals[signal]
        right = np.zeros(len(self.matrix))
        for part in _chunks(self.rows):
            right += taken(self.problem, part).T @ values[part]
        return _solve(self.matrix, right, self.problem.target.shape[1])

    def w(self, starts: Ints) -> Floats:
        """α as [A, F], for episodes that begin in the rows `starts`: Σ_i w_i x_i is their total of x."""
        right = expected(self.problem, starts).sum(0)
        return _solve(self.matrix.T, right, self.problem.target.shape[1])


def fitted_without(problem: Problem, fold: int) -> LinearSystem:
    """The system of all rows but those of a fold, made once per problem."""
    if fold not in problem.fitted:
        problem.fitted[fold] = LinearSystem.of(problem, np.flatnonzero(problem.folds != fold))
    found: LinearSystem = problem.fitted[fold]
    return found


def _solve(matrix: Floats, right: Floats, actions: int) -> Floats:
    """[A, F] the solution of least norm: what was never seen is 0."""
    return np.asarray(np.linalg.lstsq(matrix, right)[0], np.float64).reshape(actions, -1)


def values(problem: Problem, parameters: Floats) -> Floats:
    """[N, A] φ(s, a)ᵀθ of every row and action."""
    return problem.features @ parameters.T


def taken(problem: Problem, rows: Ints) -> Floats:
    """[n, A·F] φ of the logged action."""
    return _crossed(problem, np.eye(problem.target.shape[1])[problem.log.action[rows]], rows)


def expected(problem: Problem, rows: Ints) -> Floats:
    """[n, A·F] Σ_a π(a|s) φ(s, a)."""
    return _crossed(problem, problem.target[rows], rows)


def _crossed(problem: Problem, probabilities: Floats, rows: Ints) -> Floats:
    return (probabilities[:, :, None] * problem.features[rows][:, None, :]).reshape(len(rows), -1)


def _chunks(rows: Ints) -> list[Ints]:
    return [rows[i : i + CHUNK] for i in range(0, len(rows), CHUNK)]
