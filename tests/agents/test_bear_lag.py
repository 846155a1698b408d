"""BEAR-Lag: the discrepancy that holds the policy near the data."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.bear_lag import discrepancy
from pdocrl.agents.registry import find_agent
from pdocrl.data import Dataset
from pdocrl.training.trainer import Run, Trainer


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_discrepancy_vanishes_on_equal_samples_and_grows_with_their_distance(kernel: str) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5, 2)), jnp.float32)
    gaps = [discrepancy(x, x + shift, kernel, 50.0) for shift in (0.0, 0.5, 1.0, 2.0)]
    np.testing.assert_allclose(gaps[0], 1e-3, atol=3e-4)  # √1e-6, what keeps the root's slope finite
    for nearer, farther in itertools.pairwise(gaps):
        assert (nearer < farther).all()


def test_a_wide_gaussian_kernel_measures_the_distance_of_means() -> None:
    """MMD² → |Δ|²/σ for a kernel much wider than the samples: ε = 0.05 with σ = 50 is a distance of 0.35."""
    x = jnp.zeros((4, 1, 1))
    assert float(discrepancy(x, x + 0.35, "gaussian", 50.0)[0]) == pytest.approx(0.05, rel=0.02)


def test_the_price_of_leaving_the_data_is_cut_where_each_run_says(small_dataset: Dataset) -> None:
    """With ε = 0 the discrepancy is always too large, and log α grows at every step, up to the cut."""
    agent = find_agent("bear_lag")
    settings = {"hidden": (8,), "vae_hidden": (8,), "batch_size": 16, "discrepancy": 0.0, "alpha_rate": 1.0}
    runs = [Run(make_config(agent, cost_limit=(1.0,), log_alpha_max=cut, **settings), 0) for cut in (0.5, 2.5, 9.0)]
    trainer = Trainer(agent, small_dataset, runs)
    trainer.advance(4)
    low, high, free = np.asarray(trainer.state.log_alpha)
    assert (low, high) == (0.5, 2.5)
    assert 2.5 < free < 9.0
