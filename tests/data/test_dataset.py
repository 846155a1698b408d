"""What a `Dataset` promises about episodes, returns and its digest."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdocrl.data import Dataset, make_dataset
from pdocrl.errors import DataError


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Any shape of log: K from 0 to 3, terminals and timeouts mixed, the last episode perhaps cut."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    n, ends = sum(lengths), np.cumsum(lengths) - 1
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    terminal, timeout = np.zeros(n, bool), np.zeros(n, bool)
    terminal[ends] = rng.random(len(ends)) < 0.5
    timeout[ends] = ~terminal[ends]
    if len(ends) > 1 and draw(st.booleans()):
        terminal[-1] = timeout[-1] = False
    obs_dim, action_dim, n_costs = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 3))
    return make_dataset(
        obs=rng.normal(size=(n, obs_dim)) * 10.0 ** rng.integers(-30, 30),
        action=rng.uniform(-1, 1, (n, action_dim)),
        reward=rng.normal(size=n),
        cost=rng.integers(0, 3, (n, n_costs)),
        next_obs=rng.normal(size=(n, obs_dim)),
        terminal=terminal,
        timeout=timeout,
    )


@given(datasets())
def test_episodes_partition_the_rows_and_returns_add_up(dataset: Dataset) -> None:
    assert dataset.episode_length.sum() == len(dataset)
    assert (np.diff(dataset.episode_start) == dataset.episode_length[:-1]).all()
    assert np.isclose(dataset.reward_return.sum(), dataset.reward.sum(dtype=np.float64))
    assert (dataset.cost_return.sum(axis=0) == dataset.cost.sum(axis=0)).all()
    assert dataset.cost_return.shape == (dataset.n_episodes, dataset.n_costs)
    ends = dataset.episode_start + dataset.episode_length - 1
    inside = np.ones(len(dataset), bool)
    inside[ends] = False
    assert not (dataset.terminal | dataset.timeout)[inside].any()


@given(datasets(), st.data())
def test_chosen_episodes_keep_their_rows_and_stay_apart(dataset: Dataset, data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, dataset.n_episodes - 1), min_size=1, max_size=8))
    chosen = dataset.episodes(which)
    assert (chosen.episode_length == dataset.episode_length[which]).all()
    assert np.allclose(chosen.reward_return, dataset.reward_return[which])
    assert (chosen.initial_obs == dataset.initial_obs[which]).all()


def test_arrays_cannot_be_written_to(small_dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="read-only"):
        small_dataset.reward[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_dataset.reward = small_dataset.reward  # type: ignore[misc]


def test_the_digest_is_the_one_of_every_other_machine() -> None:
    """A constant, computed once: byte order, platform and library versions must not change it."""
    dataset = make_dataset(
        obs=[[0.5, -1.25], [2.0, 3.5]],
        action=[[0.0], [1.0]],
        reward=[1.0, -2.0],
        cost=[0, 1],
        next_obs=[[2.0, 3.5], [4.0, 5.0]],
        terminal=[0, 0],
        timeout=[0, 1],
    )
    assert dataset.digest == "ae067e627046c7780c78ca3ca6f4b23570a2af557f39da60bbe483204ef49b44"


@pytest.mark.parametrize("field", ["obs", "action", "reward", "cost", "next_obs", "terminal", "timeout"])
def test_the_digest_notices_one_changed_number(small_dataset: Dataset, field: str) -> None:
    array = getattr(small_dataset, field).copy()
    array.flat[5] = not array.flat[5] if array.dtype == bool else array.flat[5] + 0.5
    assert dataclasses.replace(small_dataset, **{field: array}).digest != small_dataset.digest


def test_costs_are_named() -> None:
    def with_costs(k: int) -> Dataset:
        return make_dataset([[0.0]], [[0.0]], [0.0], np.zeros((1, k)), [[0.0]], [1], [0])

    assert with_costs(0).cost_names == ()
    assert with_costs(1).cost_names == ("cost",)
    assert with_costs(2).cost_names == ("cost_0", "cost_1")


def test_shapes_that_disagree_are_refused(small_dataset: Dataset) -> None:
    with pytest.raises(DataError, match=r"`reward` has shape"):
        dataclasses.replace(small_dataset, reward=small_dataset.reward[:-1])
    with pytest.raises(DataError, match=r"`next_obs` has shape"):
        dataclasses.replace(small_dataset, next_obs=small_dataset.next_obs[:, :1])
    with pytest.raises(DataError, match="2 cost names for 1 cost columns"):
        dataclasses.replace(small_dataset, cost_names=("a", "b"))
    with pytest.raises(DataError, match="keeps no episode"):
        small_dataset.episodes([])


def test_a_summary_counts_and_has_the_range_of_returns(make_random_dataset: Any) -> None:
    data = make_random_dataset(episodes=7, n_costs=2)
    told = data.summary()
    assert (told["episodes"], told["transitions"], told["n_costs"]) == (7, len(data), 2)
    assert told["terminals"] + told["timeouts"] == 7
    low, high = (float(extreme(data.cost_return[:, 1])) for extreme in (np.min, np.max))
    assert (told["cost_return"][1]["min"], told["cost_return"][1]["max"]) == (low, high)
    assert told["digest"] == data.digest
