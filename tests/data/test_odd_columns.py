"""What `data check` says of columns networks do not like; 0 and 1 are asked about wherever data comes in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pdocrl import train
from pdocrl.data import Dataset, make_dataset, save
from pdocrl.data.check import notes
from pdocrl.data.load import load
from pdocrl.errors import DataError, PdocrlError


def log(action: np.ndarray, n: int = 60) -> Dataset:
    rng = np.random.default_rng(0)
    time = np.arange(n) % 10
    obs = np.column_stack([rng.normal(size=n), 5000 * rng.normal(size=n), time, np.ones(n), rng.integers(0, 3, n)])
    after = obs.copy()
    after[:, 2] += 1
    return make_dataset(obs, action, np.ones(n), np.zeros(n), after, np.zeros(n), time == 9, name="log")


def test_check_names_scales_clocks_constants_and_categories() -> None:
    said = " ".join(notes(log(np.linspace(-1, 1, 60))))
    assert "differ in scale by more than 1000 (column 1" in said
    assert "count steps: 2." in said
    assert "never change beyond rounding, and are ignored: 3." in said
    assert "at most ten values: 2, 4." in said


def test_check_mentions_costs_that_never_occur_and_recordings_that_were_cut() -> None:
    said = " ".join(notes(log(np.linspace(-1, 1, 60))))
    assert "`cost` never occurs" in said
    assert "end by a timeout" not in said
    data = log(np.linspace(-1, 1, 60))
    timeout = data.timeout.copy()
    timeout[[3, 13]] = True
    assert "4 of 8 episodes end by a timeout before step 10" in " ".join(
        notes(dataclasses.replace(data, timeout=timeout))
    )


def test_check_names_columns_that_single_precision_leaves_few_digits_of() -> None:
    """Seconds since 1970: two days of them are a ten-thousandth."""
    data = log(np.linspace(-1, 1, 60))
    obs = data.obs.astype(np.float64)
    obs[:, 0] = 1.7e9 + np.linspace(0, 1.8e5, 60)
    said = " ".join(notes(dataclasses.replace(data, obs=obs.astype(np.float32))))
    assert "change by less than 0.0001 of their size: 0." in said


def test_check_mentions_rewards_and_costs_far_from_one() -> None:
    data = log(np.linspace(-1, 1, 60))
    far = dataclasses.replace(data, reward=data.reward * 4000, cost=data.cost + np.float32(0.001))
    assert "a step's largest: rewards 4e+03, `cost` 0.001." in " ".join(notes(far))
    assert "a step's largest" not in " ".join(notes(data))


def test_plain_data_is_not_complained_about(small_dataset: Dataset) -> None:
    assert not [note for note in notes(small_dataset) if "observation columns" in note]


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".csv"])
def test_actions_of_zero_and_one_are_refused_with_the_remedy(tmp_path: Path, suffix: str) -> None:
    save(log(np.arange(60) % 2), tmp_path / f"x{suffix}")
    with pytest.raises(DataError, match=r"nothing but 0 and 1. Are they discrete.*discrete_actions=2"):
        load(tmp_path / f"x{suffix}")


def test_integer_actions_are_asked_whether_they_are_discrete_actions(tmp_path: Path) -> None:
    save(log(np.linspace(-1, 1, 60)), tmp_path / "x.npz")
    arrays = dict(np.load(tmp_path / "x.npz"))
    np.savez(tmp_path / "y.npz", **(arrays | {"actions": np.arange(60) % 4}))
    with pytest.raises(DataError, match="Are they discrete"):
        load(tmp_path / "y.npz")


def test_training_refuses_choices_in_memory_and_in_windows(tmp_path: Path) -> None:
    data = log(np.arange(60) % 2)
    with pytest.raises(PdocrlError, match="log: `action` holds nothing but 0 and 1"):
        train(data, "bc", cost_limit=1, steps=1)
    save(data, tmp_path / "x.npz")
    with pytest.raises(PdocrlError, match="nothing but 0 and 1"):
        train(tmp_path / "x.npz", "bc", cost_limit=1, steps=1, buffer_size=10)


def test_actions_that_are_always_one_are_amounts() -> None:
    assert len(dataclasses.replace(log(np.ones(60)))) == 60
