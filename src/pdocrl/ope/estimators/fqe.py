"""Fitted Q evaluation, the direct method: regress, again and again, what follows a row under the policy.

    Q ← argmin_f Σ_i ( f(s_i, a_i) − x_i − γ Σ_a π(a|s'_i) Q(s'_i, a) )²,   v = mean_e Σ_a π(a|s_e0) Q(s_e0, a)

Le, Voloshin and Yue, "Batch policy learning under constraints", 2019. `linear` solves for the fixed point at once
(`linear.py`). `trees` and `network` fit boosted trees or a neural network to what the linear Q leaves,
Q = Q_linear + g, from g = 0, once per step of the longest episode or `ITERATIONS` times. Time is an input where totals
are not discounted: what is left to come depends on it. Cross-fitted: the Q of a row never saw its episode. States must
be Markov and Q near the function class; the error of the regression is in no interval, so none is given: doubly robust
estimates put one around the same Q.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pdocrl.errors import UnknownNameError
from pdocrl.ope.estimators import regressors
from pdocrl.ope.estimators.linear import fitted_without, values
from pdocrl.ope.estimators.problem import Estimate, Floats, Ints, Problem

REGRESSORS = ("linear", "trees", "network")
ITERATIONS = 30  # of trees and networks, at most


def q_values(problem: Problem, signal: str, regressor: str = "linear") -> Floats:
    """[N, A] the cross-fitted Q of every row and action."""
    if regressor not in REGRESSORS:
        raise UnknownNameError("regressor", regressor, REGRESSORS, f"Known: {', '.join(REGRESSORS)}.")
    low, high = possible(problem, signal)
    found = np.zeros(problem.target.shape)
    for fold in (0, 1):
        rows, here = np.flatnonzero(problem.folds != fold), np.flatnonzero(problem.folds == fold)
        q = np.clip(values(problem, fitted_without(problem, fold).q(signal)), low[:, None], high[:, None])
        found[here] = q[here] if regressor == "linear" else _residual_fitted(regressor, problem, signal, rows, q, here)
    return np.clip(found, low[:, None], high[:, None])


def direct(problem: Problem, signal: str, q: Floats, regressor: str = "linear") -> Estimate:
    """The mean value of the first states."""
    starts = problem.starts
    value = float((problem.target[starts] * q[starts]).sum(1).mean())
    return Estimate(
        estimator=f"fitted Q evaluation ({regressor})",
        signal=signal,
        value=value,
        interval=None,
        assumptions=assumed(regressor),
    )


def assumed(regressor: str) -> tuple[str, ...]:
    """What the direct method rests on."""
    return "the columns tell all that matters of the past (Markov)", f"Q is near the class `{regressor}`"


def possible(problem: Problem, signal: str) -> tuple[Floats, Floats]:
    """[N] the least and largest total that steps as logged can still add up to."""
    x = problem.log.signals[signal]
    left = problem.longest - problem.log.step
    gamma = problem.discount
    weight = np.asarray(left if gamma == 1 else (1 - gamma**left) / (1 - gamma), np.float64)
    return min(float(x.min()), 0.0) * weight, max(float(x.max()), 0.0) * weight


class Regression(Protocol):
    """What is fitted to the residual of the linear Q, on rows of the log and their actions."""

    def fit(self, rows: Ints, y: Floats) -> Any: ...

    def predict(self, rows: Ints, action: Ints) -> Floats: ...


def _regression(kind: str, problem: Problem, rows: Ints) -> Regression:
    if kind == "trees":
        return regressors.TreesQ(problem, rows)
    return regressors.NetworkQ(problem, rows)


def _residual_fitted(kind: str, problem: Problem, signal: str, rows: Ints, q: Floats, here: Ints) -> Floats:
    """[n, A] at the rows `here`, of a regression fitted on `rows` to what q [N, A] leaves."""
    known = rows[problem.following[rows] > -2]
    if not known.size:
        return q[here]
    following = problem.following[known]
    goes_on = following >= 0
    after = following[goes_on]
    v_base = (problem.target * q).sum(1)[after]
    base = np.take_along_axis(q[known], problem.log.action[known][:, None], 1)[:, 0]
    low, high = (ends[after] for ends in possible(problem, signal))
    v = v_base
    model = _regression(kind, problem, known)
    for iteration in range(min(problem.longest, ITERATIONS)):
        if iteration and not goes_on.any():
            break
        y = problem.log.signals[signal][known] - base
        y[goes_on] += problem.discount * v
        model.fit(known, y)
        if after.size:
            v = np.clip(v_base + _expected(problem, model, after), low, high)
    more = [model.predict(here, np.full(len(here), a)) for a in range(q.shape[1])]
    return np.asarray(q[here] + np.stack(more, axis=1), np.float64)


def _expected(problem: Problem, model: Regression, rows: Ints) -> Floats:
    """[n] Σ_a π(a|s) g(s, a), asking only for actions the policy takes."""
    found = np.zeros(len(rows))
    for a in range(problem.target.shape[1]):
        taken = np.flatnonzero(problem.target[rows, a] > 0)
        if taken.size:
            found[taken] += problem.target[rows[taken], a] * model.predict(rows[taken], np.full(taken.size, a))
    return found
