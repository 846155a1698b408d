"""COptiDICE: its divergence, and what its constraint is held against."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.coptidice import conjugate, cost_limit, ratio
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import make_dataset
from pdocrl.training.trainer import Run, Trainer


def test_the_ratio_is_the_slope_of_the_conjugate_and_attains_it() -> None:
    """f*(y) = max_w w y − f(w), attained at w = f*′(y), for the soft χ² divergence f."""
    y = np.array([-5.0, -1.0, -1e-3, 1e-3, 0.5, 4.0], np.float32)
    w = np.asarray(ratio(y), np.float64)
    f = np.where(w < 1, w * np.log(w) - w + 1, (w - 1) ** 2 / 2)
    np.testing.assert_allclose(conjugate(y), w * y - f, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(jax.grad(conjugate))(y), w, rtol=1e-5)
    grid = np.linspace(1e-6, 8, 100_001)
    best = [(grid * v - np.where(grid < 1, grid * np.log(grid) - grid + 1, (grid - 1) ** 2 / 2)).max() for v in y]
    np.testing.assert_allclose(conjugate(y), best, atol=1e-4)


def test_the_published_normalisation_lies_beyond_any_per_step_cost() -> None:
    """Limit 40 over 200 steps is a rate of 0.2; the published constant is 17, while a step costs at most 1."""
    agent = find_agent("coptidice")
    rate = make_config(agent, cost_limit=(40.0,), horizon=200.0)
    published = make_config(agent, cost_limit=(40.0,), horizon=200.0, normalisation="published")
    assert float(cost_limit(rate)[0]) == pytest.approx(0.2)
    assert float(cost_limit(published)[0]) == pytest.approx(0.2 * (1 - 0.99**200) / 0.01, rel=1e-5)
    assert float(cost_limit(published)[0]) > 17


def test_a_corridor_cut_by_time_limits_is_walked_forwards() -> None:
    """x′ = x + a, r = a, nothing costs: forwards is best at every x. Nobody is seen beyond the time limit's x."""
    rng = np.random.default_rng(0)
    n, horizon = 20_000, 10
    action = rng.uniform(-1, 1, (n // horizon, horizon)) + rng.uniform(-0.5, 1, (n // horizon, 1))
    action = np.clip(action, -1, 1)
    after = np.cumsum(action, 1)
    cut = np.tile(np.arange(horizon) == horizon - 1, n // horizon)
    dataset = make_dataset(
        (after - action).reshape(n, 1),
        action.reshape(n, 1),
        action.reshape(n),
        np.zeros((n, 1)),
        after.reshape(n, 1),
        np.zeros(n),
        cut,
    )
    agent = find_agent("coptidice")
    settings = {"hidden": (32, 32), "batch_size": 64, "gamma": 0.9, "reward_scale": 1.0, "actor_rate": 1e-3}
    config = make_config(agent, cost_limit=(5.0,), horizon=float(horizon), alpha=0.1, **settings)
    trainer = Trainer(agent, dataset, [Run(config, 0)])
    trainer.advance(3000)
    acts = trainer.policies()[0](np.array([[0.0], [2.0], [5.0]], np.float32))
    assert (acts > 0.5).all(), acts
