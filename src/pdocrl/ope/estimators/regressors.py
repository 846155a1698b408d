"""Regressions inside fitted Q evaluation, of boosted trees (scikit-learn) or a network; forward weights use the trees.

Inputs of a row are its encoded columns and its time step, x = [columns, t]; with an action [columns, t, a], or, of a
network, [x, one-hot a], standardised. A network has two hidden layers, trained by Adam on minibatches; each fit goes on
from the weights of the last one, so that later iterations follow a moving target instead of learning anew.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from pdocrl.errors import MissingExtraError
from pdocrl.nn.mlp import MLP
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


HIDDEN = (64, 64)
FIRST, STEPS, BATCH, RATE = 1500, 200, 256, 3e-3  # of the first and of each later fit


class NetworkQ:
    """Regression of y [n] on rows and actions."""

    def __init__(self, problem: Problem, rows: Ints) -> None:
        self.problem = problem
        x = problem.inputs[rows]
        self.mean, self.scale = x.mean(0), np.where(x.std(0) > 1e-12, x.std(0), 1.0)
        self.size = problem.target.shape[1]
        self.network = MLP.create(jax.random.key(problem.seed), (x.shape[1] + self.size, *HIDDEN, 1))
        self.rng = np.random.default_rng(problem.seed)
        self.unit: float | None = None  # what y is divided by: its first deviation

    def fit(self, rows: Ints, y: Floats) -> NetworkQ:
        """Go on from the last fit."""
        steps = FIRST if self.unit is None else STEPS
        self.unit = self.unit or float(y.std()) or 1.0
        x = jnp.asarray(self._inputs(rows, self.problem.log.action[rows]), jnp.float32)
        target = jnp.asarray(y / self.unit, jnp.float32)
        at = jnp.asarray(self.rng.integers(len(rows), size=(steps, min(BATCH, len(rows)))))
        self.network = _train(self.network, x, target, at)
        return self

    def predict(self, rows: Ints, action: Ints) -> Floats:
        """[n]"""
        x = jnp.asarray(self._inputs(rows, action), jnp.float32)
        return (self.unit or 1.0) * np.asarray(self.network(x)[:, 0], np.float64)

    def _inputs(self, rows: Ints, action: Ints) -> Floats:
        x = (self.problem.inputs[rows] - self.mean) / self.scale
        return np.concatenate([x, np.eye(self.size)[action]], axis=1)


@jax.jit
def _train(network: MLP, x: Any, y: Any, at: Any) -> MLP:
    """Adam over the minibatches at [steps, B] of rows, with a rate that falls to zero along a cosine."""
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, len(at)))

    def loss(parameters: MLP, rows: Any) -> Any:
        return jnp.mean((parameters(x[rows])[:, 0] - y[rows]) ** 2)

    def step(carry: tuple[MLP, Any], rows: Any) -> tuple[tuple[MLP, Any], None]:
        parameters, state = carry
        updates, state = optimiser.update(jax.grad(loss)(parameters, rows), state)
        return (eqx.apply_updates(parameters, updates), state), None

    (network, _), _ = jax.lax.scan(step, (network, optimiser.init(eqx.filter(network, eqx.is_array))), at)
    return network
