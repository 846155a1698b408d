"""Observations are standardised between the data and the device, once for all agents, and policies undo it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data import Dataset, make_dataset, save
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.training.buffer import open_buffers
from pdocrl.training.trainer import Run, Trainer, normalise_obs, normaliser_of

SMALL = {"hidden": (16,), "batch_size": 32, "cost_limit": (5.0,), "horizon": 20.0}


def clocked(episodes: int = 20, seed: int = 0) -> Dataset:
    """Two signals, a clock and a constant."""
    rng = np.random.default_rng(seed)
    n = episodes * 20
    signal = rng.normal([0.0, 3.0], [1.0, 0.01], (n + 1, 2))
    time = np.arange(n) % 20
    obs = np.column_stack([signal[:-1], time, np.full(n, 7)])
    after = np.column_stack([signal[1:], time + 1, np.full(n, 7)])
    action = np.tanh(signal[:-1, :1] + rng.normal(0, 0.1, (n, 1)))
    cost = (action > 0.5) * 1.0
    return make_dataset(obs, action, action[:, 0], cost, after, np.zeros(n), time == 19)


def scaled(dataset: Dataset, factor: np.ndarray, shift: np.ndarray) -> Dataset:
    obs, after = ((x * factor + shift).astype(np.float32) for x in (dataset.obs, dataset.next_obs))
    return dataclasses.replace(dataset, obs=obs, next_obs=after)


def test_columns_have_mean_zero_and_unit_spread_and_constants_vanish() -> None:
    data = clocked()
    seen = normalise_obs(data, normaliser_of(data))
    np.testing.assert_allclose(seen.obs.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.obs.std(0), [1, 1, 1, 0], atol=1e-4)
    np.testing.assert_array_equal(seen.initial_obs, seen.obs[seen.episode_start])


def test_rounding_around_zero_is_no_signal() -> None:
    """A simulator's column that is 0 up to 1e-14 must not reach networks as noise of size 1."""
    data = clocked()
    noise = np.random.default_rng(0).normal(0, 1e-14, len(data.obs)).astype(np.float32)
    obs = np.column_stack([data.obs, noise])
    found = normaliser_of(dataclasses.replace(data, obs=obs, next_obs=obs))
    assert found.obs_scale[-1] == 0
    assert (found.obs_scale[:3] > 0).all()


@pytest.mark.parametrize("name", ["bc", "pdocrl", "pdocrl_anchored", "bcq_lag"])
def test_a_column_in_other_units_changes_nothing(name: str) -> None:
    """Powers of two and no shift: float32 then computes the very same numbers."""
    agent = find_agent(name)
    config = make_config(agent, **SMALL)
    data, factor = clocked(), np.array([1024, 1, 0.25, 2], np.float32)
    acted = []
    for own in (data, scaled(data, factor, np.zeros(4, np.float32))):
        trainer = Trainer(agent, own, [Run(config, 0)])
        trainer.advance(20)
        acted.append(trainer.policies()[0](own.obs[:50]))
    np.testing.assert_array_equal(*acted)


@pytest.mark.parametrize("name", ["dial", "pdocrl_anchored"])
def test_two_costs_in_other_units_change_nothing(name: str) -> None:
    """Thousandths beside thousands: each cost, and its limit, is measured by itself."""
    agent, data, acted = find_agent(name), clocked(), []
    both = np.column_stack([data.cost[:, 0], data.obs[:, 0] > 1]).astype(np.float32)
    small = SMALL | ({"model_hidden": (8,)} if name == "dial" else {})
    for units in (np.ones(2, np.float32), np.array([2**11, 2**-11], np.float32)):
        own = dataclasses.replace(data, cost=both * units, cost_names=("cost_a", "cost_b"))
        config = make_config(agent, **(small | {"cost_limit": tuple((units * [5, 3]).tolist())}))
        trainer = Trainer(agent, own, [Run(config, 0)])
        trainer.advance(20)
        policy = trainer.policies()[0]
        acted.append(policy.network.bound / units if name == "dial" else policy(own.obs[:50]))  # dial: by rollouts
    np.testing.assert_array_equal(*acted)


def test_a_clock_has_a_unit_of_change() -> None:
    """Its change is the same at every step: measured by spread, the model's target would be a million."""
    data = clocked()
    seen = normalise_obs(data, normaliser_of(data))
    change = np.asarray(Normaliser.of(Normaliser.measure(seen)).change)
    target = (seen.next_obs - seen.obs) / change
    assert np.abs(target).max() < 10
    agent = find_agent("pdocrl_anchored")
    trainer = Trainer(agent, data, [Run(make_config(agent, **SMALL), 0)])
    assert trainer.advance(50)["model_loss"][0] < 100


def test_windows_are_standardised_by_the_whole_file(tmp_path: Path) -> None:
    data = clocked()
    save(data, tmp_path / "x.npz")
    whole = normaliser_of(data)
    with open_buffers(tmp_path / "x.npz", None, 30, 5) as sample:
        found = normaliser_of(sample)
        np.testing.assert_allclose(found.obs_mean, whole.obs_mean, rtol=1e-6)
        np.testing.assert_allclose(found.obs_scale, whole.obs_scale, rtol=1e-6)
        window = normalise_obs(sample.buffers.read(0), found)
        np.testing.assert_allclose(window.initial_obs, whole.normalise_obs(data.initial_obs), atol=1e-5)
