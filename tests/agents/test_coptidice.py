"""COptiDICE: its divergence, and what its constraint is held against."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from pdocrl.agents.agent import find_agent, make_config
from pdocrl.agents.coptidice import conjugate, cost_limit, ratio


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
