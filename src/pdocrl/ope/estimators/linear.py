"""Linear functions of features and action, φ(s, a) = e_a ⊗ f(s), and the two systems they solve under a policy π.

    A = Σ_i φ_i (φ_i − γ φ'_i)ᵀ,   φ_i = φ(s_i, a_i),   φ'_i = Σ_a π(a|s'_i) φ(s'_i, a), 0 after a terminal row

    Q(s, a) = φ(s, a)ᵀ θ,   A θ = Σ_i φ_i x_i                      (LSTDQ: Lagoudakis and Parr, 2003)
    w(s, a) = φ(s, a)ᵀ α,   Aᵀ α = Σ_e Σ_a π(a|s_e0) φ(s_e0, a)    (minimax weights: Uehara, Huang and Jiang, 2020)

Rows where the record was cut have no φ' and take no part. One-hot states make both exact for the counted MDP.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Floats, Ints, Problem

RIDGE = 1e-3  # rows of pseudo-observations of zero, per unit of a feature's mean square
CHUNK = 20_000  # rows at once
QUARTILES = (0.25, 0.5, 0.75)
MOST = 600  # features × actions, so that the linear systems stay small


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """f(s) = [ 1, x, τ, τ², max(0, x_j − q) for the quartiles q of each numeric x_j ],   τ = step/longest episode,

    x the encoded columns. Fitted on one log, applied to any with its columns.
    """

    encoding: Encoding
    longest: int  # step of the longest episode; 0 without time
    knots: tuple[tuple[int, Floats], ...]  # (place of a numeric column in x, its quartiles)

    @classmethod
    def fit(cls, log: EventLog, time: bool) -> tuple[Basis, Floats]:
        """With the features [N, F] of the log itself."""
        encoding = Encoding.fit(log.columns)
        matrix, names = encoded(encoding, log), encoding.names
        longest = int(log.step.max()) if time else 0
        numeric = [names.index(column.name) for column in log.columns if column.kind == "numeric"]
        width = 1 + matrix.shape[1] + 2 * (longest > 0) + len(QUARTILES) * len(numeric)
        knots = []
        for j in numeric if width * len(log.actions) <= MOST else []:
            found = np.unique(np.quantile(matrix[:, j], QUARTILES))
            knots.append((j, found[(found > matrix[:, j].min()) & (found < matrix[:, j].max())]))
        basis = cls(encoding, longest, tuple(knots))
        return basis, basis.features(matrix, log.step)

    def __call__(self, log: EventLog, strict: bool = True) -> Floats:
        """[N, F]; not `strict`, what the fitted log did not have (a word, a missing value) is 0."""
        return self.features(encoded(self.encoding, log, strict), log.step)

    def features(self, matrix: Floats, step: Ints) -> Floats:
        """[N, F] of encoded columns [N, D]."""
        parts = [np.ones((len(matrix), 1)), matrix]
        if self.longest:
            clock = step / self.longest
            parts.append(np.stack([clock, clock**2], axis=1))
        parts += [np.maximum(0.0, matrix[:, j, None] - knots) for j, knots in self.knots]
        return np.concatenate(parts, axis=1)


def encoded(encoding: Encoding, log: EventLog, strict: bool = True) -> Floats:
    """[N, D]"""
    return encoding(log.columns, log.name, strict).reshape(len(log), -1 if log.columns else 0)


def basis(log: EventLog, time: bool) -> Floats:
    """[N, F] of the log that it is fitted on; with `time` where totals are not discounted."""
    return Basis.fit(log, time)[1]


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
