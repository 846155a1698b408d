"""A neural network as the regression inside fitted Q evaluation: two hidden layers, trained by Adam on minibatches.

    g(x, a) = network([x, one-hot a]),   x = [encoded columns, time step], standardised

Each fit goes on from the weights of the last one, so that later iterations follow a moving target instead of learning
anew. Le, Voloshin and Yue, "Batch policy learning under constraints", 2019.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from pdocrl.nn.mlp import MLP
from pdocrl.ope.estimators.problem import Floats, Ints, Problem

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
