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


class TreesQ:
    """Regression of y [n] on the inputs of rows and actions."""

    def __init__(self, problem: Problem, rows: Ints) -> None:
        self.problem = problem
        few = problem.target.shape[1] <= MOST_CATEGORIES
        self.categorical = [problem.inputs.shape[1]] if few else None
        self.model: Any = None

    def fit(self, rows: Ints, y: Floats) -> TreesQ:
        inputs = self._inputs(rows, self.problem.log.action[rows])
        self.model = regressor(self.categorical, seed=self.problem.seed).fit(inputs, y)
        return self

    def predict(self, rows: Ints, action: Ints) -> Floats:
        """[n]"""
        return np.asarray(self.model.predict(self._inputs(rows, action)), np.float64)

    def _inputs(self, rows: Ints, action: Ints) -> Floats:
        return np.asarray(np.c_[self.problem.inputs[rows], action], np.float64)
