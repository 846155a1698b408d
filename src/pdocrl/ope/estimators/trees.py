"""Gradient-boosted trees as the regression inside fitted Q evaluation and forward weights (scikit-learn).

Inputs of a row are its encoded columns and its time step, x = [columns, t]; with an action, [columns, t, a].
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from pdocrl.errors import MissingExtraError
from pdocrl.ope.estimators.problem import Floats, Ints, Problem

MOST_CATEGORIES = 200  # actions beyond are an ordinal input


def installed() -> bool:
    """Whether scikit-learn is there."""
    return find_spec("sklearn") is not None


def regressor(
    categorical: list[int] | None = None, loss: Literal["squared_error", "poisson"] = "squared_error", seed: int = 0
) -> Any:
    """40 trees of at most 20 leaves; no early stopping, which would draw rows of one episode apart."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("regression with trees", "trees") from None
    return HistGradientBoostingRegressor(
        loss=loss,
        max_iter=40,
        learning_rate=0.2,
        max_leaf_nodes=20,
        min_samples_leaf=20,
        early_stopping=False,
        categorical_features=categorical or None,
        random_state=seed,
    )


def fit_q(problem: Problem, rows: Ints, y: Floats) -> Any:
    """Regress y [n] on the inputs and logged actions of some rows."""
    inputs = with_action(problem, rows, problem.log.action[rows])
    few = problem.target.shape[1] <= MOST_CATEGORIES
    return regressor([inputs.shape[1] - 1] if few else None, seed=problem.seed).fit(inputs, y)


def with_action(problem: Problem, rows: Ints, action: Ints) -> Floats:
    """[n, D + 1]"""
    return np.asarray(np.c_[problem.inputs[rows], action], np.float64)


def expected(problem: Problem, model: Any, rows: Ints) -> Floats:
    """[n] Σ_a π(a|s) g(s, a), asking only for actions the policy takes."""
    found = np.zeros(len(rows))
    for a in range(problem.target.shape[1]):
        taken = np.flatnonzero(problem.target[rows, a] > 0)
        if taken.size:
            asked = with_action(problem, rows[taken], np.full(taken.size, a))
            found[taken] += problem.target[rows[taken], a] * model.predict(asked)
    return found
