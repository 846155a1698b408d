"""Action bounds travel: what ±1 stands for stays with the data through every format, filter and command."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from pdocrl.data import Dataset, filters, load, save
from pdocrl.data.bounds import to_real
from pdocrl.data.stream import open_stream
from pdocrl.errors import DataError

LOW, HIGH = (0.0, -2.0), (5.0, 1.0)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bounded(small_dataset: Dataset) -> Dataset:
    return dataclasses.replace(small_dataset, action_low=LOW, action_high=HIGH)


@pytest.mark.parametrize("name", ["x.hdf5", "x.npz", "x.parquet", "x.csv", "x-v0"])
def test_bounds_survive_every_format(bounded: Dataset, tmp_path: Path, name: str) -> None:
    save(bounded, tmp_path / name)
    found = load(tmp_path / name)
    assert found.action_bounds == (LOW, HIGH)
    np.testing.assert_allclose(found.action, bounded.action, atol=1e-6)
    if name != "x-v0":  # Minari holds actions in the environment's units, which rounds
        assert found.digest == bounded.digest


def test_a_minari_file_holds_real_actions_in_its_own_box(bounded: Dataset, tmp_path: Path) -> None:
    save(bounded, tmp_path / "x-v0")
    with h5py.File(tmp_path / "x-v0" / "data" / "main_data.hdf5") as file:
        stored = file["episode_0/actions"][...]
    rows = bounded.episode_length[0]
    np.testing.assert_array_equal(stored, to_real(bounded.action[:rows], (LOW, HIGH)))


def test_bounds_survive_every_filter_and_the_stream(bounded: Dataset, tmp_path: Path) -> None:
    for kept in (filters.fraction(bounded, 0.5), filters.noise(bounded, 0.1), filters.frontier(bounded, 0.5)):
        assert kept.action_bounds == (LOW, HIGH)
    save(bounded, tmp_path / "x.npz")
    with open_stream(tmp_path / "x.npz") as stream:
        assert stream.action_bounds == (LOW, HIGH)
        assert stream.facts.digest == bounded.digest


def test_the_same_numbers_under_other_bounds_are_other_data(bounded: Dataset, small_dataset: Dataset) -> None:
    assert bounded.digest != small_dataset.digest


def test_convert_rescales_actions_of_a_log_in_real_units(small_dataset: Dataset, tmp_path: Path, run_cli: Run) -> None:
    real = to_real(small_dataset.action, (LOW, HIGH))
    arrays = {name: getattr(small_dataset, name) for name in ("obs", "reward", "cost", "next_obs")}
    flags = {name: getattr(small_dataset, name) for name in ("terminal", "timeout")}
    np.savez(tmp_path / "log.npz", action=real, **arrays, **flags)
    status, _, err = run_cli("data", "info", tmp_path / "log.npz")
    assert status == 2
    assert "--rescale-actions LOW HIGH" in err
    line = ["data", "convert", tmp_path / "log.npz", "--out", tmp_path / "x.hdf5", "--rescale-actions"]
    status, out, _ = run_cli(*line, "0", "-2", "5", "1", "--json")
    assert status == 0
    assert (json.loads(out)["action_low"], json.loads(out)["action_high"]) == ([*LOW], [*HIGH])
    np.testing.assert_allclose(load(tmp_path / "x.hdf5").action, small_dataset.action, atol=1e-6)
    assert run_cli(*line, "0", "-2", "5")[0] == 2


@pytest.mark.parametrize(
    ("low", "high"), [((0.0, 0.0), (5.0, 0.0)), ((0.0,) * 3, (1.0,) * 3), ((0.0, np.nan), (1.0, 1.0))]
)
def test_impossible_bounds_are_refused(small_dataset: Dataset, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="action bounds"):
        dataclasses.replace(small_dataset, action_low=low, action_high=high)


def test_bounds_of_an_older_collection_are_read_from_its_story(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "old.hdf5")
    with h5py.File(tmp_path / "old.hdf5", "a") as file:
        file.attrs["collection"] = json.dumps({"action_low": LOW, "action_high": HIGH})
    assert load(tmp_path / "old.hdf5").action_bounds == (LOW, HIGH)
