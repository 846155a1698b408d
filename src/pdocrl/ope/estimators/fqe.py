"""Fitted Q evaluation, the direct method: regress, again and again, what follows a row under the policy.

    Q ← argmin_f Σ_i ( f(s_i, a_i) − x_i − γ Σ_a π(a|s'_i) Q(s'_i, a) )²,   v = mean_e Σ_a π(a|s_e0) Q(s_e0, a)

Le, Voloshin and Yue, "Batch policy learning under constraints", 2019. `linear` solves for the fixed point at once;
`trees` starts there and refits gradient-boosted trees (scikit-learn). Cross-fitted: the Q of a row never saw its
episode. States must be Markov and Q near the function class; the error of the regression is not in any interval, so
none is given: doubly robust estimates put one around the same Q.
"""

from __future__ import annotations

import numpy as np

from pdocrl.errors import MissingExtraError, UnknownNameError
from pdocrl.ope.estimators.linear import LinearSystem, values
from pdocrl.ope.estimators.problem import Estimate, Floats, Ints, Problem

REGRESSORS = ("linear", "trees")
ITERATIONS = 20  # of trees


def q_values(problem: Problem, signal: str, regressor: str = "linear") -> Floats:
    """[N, A] the cross-fitted Q of every row and action."""
    if regressor not in REGRESSORS:
        raise UnknownNameError("regressor", regressor, REGRESSORS, f"Known: {', '.join(REGRESSORS)}.")
    found = np.zeros(problem.target.shape)
    for fold in (0, 1):
        rows = np.flatnonzero(problem.folds != fold)
        q = values(problem, LinearSystem.of(problem, rows).q(signal))
        if regressor == "trees":
            q = _trees(problem, signal, rows, q)
        found[problem.folds == fold] = q[problem.folds == fold]
    return found


def direct(problem: Problem, signal: str, q: Floats, regressor: str = "linear") -> Estimate:
    """The mean value of the first states."""
    starts = problem.starts
    value = float((problem.target[starts] * q[starts]).sum(1).mean())
    assumed = ("the columns tell all that matters of the past (Markov)", f"Q is near the class `{regressor}`")
    return Estimate(
        estimator=f"fitted Q evaluation ({regressor})",
        signal=signal,
        value=value,
        interval=None,
        assumptions=problem.assumptions(*assumed),
    )


def _trees(problem: Problem, signal: str, rows: Ints, q: Floats) -> Floats:
    """[N, A] after refitting on `rows`, from a Q to begin with."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("fitted Q evaluation with trees", "trees") from None
    count = problem.target.shape[1]
    known = rows[problem.following[rows] > -2]
    following = problem.following[known]
    inputs = [np.c_[problem.features, np.full(len(problem.log), a)] for a in range(count)]
    seen = np.c_[problem.features[known], problem.log.action[known]]
    x = problem.log.signals[signal][known]
    for _ in range(ITERATIONS):
        after = np.where(following >= 0, (problem.target * q).sum(1)[following], 0.0)
        model = HistGradientBoostingRegressor(
            max_iter=60, max_leaf_nodes=15, min_samples_leaf=20, categorical_features=[seen.shape[1] - 1]
        )
        model.fit(seen, x + problem.discount * after)
        q = np.stack([model.predict(one) for one in inputs], axis=1)
    return q
