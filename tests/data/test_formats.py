"""What goes into a file comes out of it, and what others write can be read."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_dataset import datasets

from pdocrl.data import Dataset, load, save
from pdocrl.errors import DataError

SUFFIXES = [".hdf5", ".h5", ".npz", ".parquet", ".csv"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dataset=datasets())
def test_a_round_trip_keeps_the_digest(suffix: str, dataset: Dataset) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save(dataset, Path(folder) / f"x{suffix}")
        again = load(Path(folder) / f"x{suffix}")
    assert again.digest == dataset.digest
    assert again.cost_names == dataset.cost_names
    assert again.n_episodes == dataset.n_episodes


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_csv_keeps_every_bit_of_every_float32(values: list[float]) -> None:
    """Also denormals, −0 and numbers that a detour by float64 would round twice."""
    n = len(values)
    array = np.array(values, np.float32)
    zeros, never, ends = np.zeros((n, 1), np.float32), np.zeros(n, bool), np.arange(n) == n - 1
    dataset = Dataset(array[:, None], zeros, array, zeros, array[:, None], never, ends)
    with tempfile.TemporaryDirectory() as folder:
        save(dataset, Path(folder) / "x.csv")
        assert load(Path(folder) / "x.csv").digest == dataset.digest


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_of_costs_survive(small_dataset: Dataset, tmp_path: Path, suffix: str) -> None:
    costs = np.repeat(small_dataset.cost, 2, axis=1)
    two = dataclasses.replace(small_dataset, cost=costs, cost_names=("cost_boundary", "cost_speed"))
    save(two, tmp_path / f"x{suffix}")
    assert load(tmp_path / f"x{suffix}").cost_names == ("cost_boundary", "cost_speed")


def write_hdf5(path: Path, dataset: Dataset, **changes: Any) -> Path:
    arrays = {
        "observations": dataset.obs,
        "actions": dataset.action,
        "rewards": dataset.reward,
        "costs": dataset.cost,
        "next_observations": dataset.next_obs,
        "terminals": dataset.terminal,
        "timeouts": dataset.timeout,
    }
    with h5py.File(path, "w") as file:
        for key, array in (arrays | changes).items():
            if array is not None:
                file[key] = array
    return path


def test_hdf5_as_found_in_the_wild(small_dataset: Dataset, tmp_path: Path) -> None:
    """[N, 1] columns, float64, 0/1 flags of several types, and keys nobody asked for: all the same dataset."""
    n = len(small_dataset)
    variants: list[dict[str, Any]] = [
        {"rewards": small_dataset.reward[:, None], "costs": small_dataset.cost[:, 0]},
        {"terminals": small_dataset.terminal[:, None], "timeouts": small_dataset.timeout[:, None]},
        {"observations": small_dataset.obs.astype(np.float64), "rewards": small_dataset.reward.astype(">f8")},
        {"terminals": small_dataset.terminal.astype(np.int64), "timeouts": small_dataset.timeout.astype(np.float32)},
        {"costs": small_dataset.cost.astype(np.uint8)},
        {"infos": np.zeros((3, 3)), "metadata": "collected on a Tuesday"},
        {"observations": None, "obs": np.asfortranarray(small_dataset.obs)},
    ]
    for number, changes in enumerate(variants):
        path = write_hdf5(tmp_path / f"{number}.hdf5", small_dataset, **changes)
        assert load(path).digest == small_dataset.digest, changes
    several = np.repeat(small_dataset.cost, 3, axis=1)
    assert load(write_hdf5(tmp_path / "k.hdf5", small_dataset, costs=several)).cost_return.shape[1] == 3
    assert n == len(load(tmp_path / "k.hdf5"))


def test_a_file_without_costs_has_no_constraints_and_says_so(small_dataset: Dataset, tmp_path: Path) -> None:
    dataset = load(write_hdf5(tmp_path / "x.hdf5", small_dataset, costs=None))
    assert dataset.n_costs == 0
    assert "without constraints" in dataset.notes[0]


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".parquet", ".csv"])
def test_missing_next_observations_are_derived_honestly(suffix: str, tmp_path: Path) -> None:
    """Episodes: s0 s1 s2 (timeout) · s3 s4 (terminal) · s5 (timeout, alone) · s6 (terminal, alone) · s7 s8 (cut).

    A timed-out or cut last step has no recorded successor and its value goes on, so it is dropped and the row before it
    becomes the end. A terminal step stays: nothing bootstraps from its successor.
    """
    state = np.arange(9, dtype=np.float32)
    terminal, timeout = np.isin(state, [4, 6]), np.isin(state, [2, 5])
    zeros = np.zeros((9, 1), np.float32)
    full = Dataset(state[:, None], zeros, state, zeros, zeros, terminal, timeout)
    save(full, tmp_path / f"x{suffix}")
    _remove_next_obs(tmp_path / f"x{suffix}")
    derived = load(tmp_path / f"x{suffix}")
    assert derived.obs[:, 0].tolist() == [0, 1, 3, 4, 6, 7]
    assert derived.next_obs[:, 0].tolist() == [1, 2, 4, 4, 6, 8]
    assert derived.terminal.tolist() == [False, False, False, True, True, False]
    assert derived.timeout.tolist() == [False, True, False, False, False, True]
    assert derived.reward.tolist() == [0, 1, 3, 4, 6, 7]
    assert derived.n_episodes == 4
    assert "3 last rows without one were dropped" in derived.notes[-1]


def _remove_next_obs(path: Path) -> None:
    if path.suffix == ".hdf5":
        with h5py.File(path, "r+") as file:
            del file["next_observations"]
    elif path.suffix == ".npz":
        with np.load(path) as file:
            arrays = {key: file[key] for key in file if key != "next_observations"}
        np.savez_compressed(path, **arrays)
    elif path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.drop_columns(["next_obs_0"]), path)
    else:
        import pyarrow.csv

        pyarrow.csv.write_csv(pyarrow.csv.read_csv(path).drop_columns(["next_obs_0"]), path)


def test_where_nothing_can_be_derived_the_file_is_refused(tmp_path: Path, small_dataset: Dataset) -> None:
    ones = np.ones(len(small_dataset), bool)
    path = write_hdf5(tmp_path / "x.hdf5", small_dataset, next_observations=None, terminals=~ones, timeouts=ones)
    with pytest.raises(DataError, match="no episode has two rows to derive it from"):
        load(path)


def test_derived_and_recorded_next_observations_agree_on_shared_data(shared_data: Path, tmp_path: Path) -> None:
    recorded = load(shared_data / "SafetyBallRun-v0-80-1197.hdf5").episodes(range(50))
    derived = load(write_hdf5(tmp_path / "x.hdf5", recorded, next_observations=None))
    rows = np.setdiff1d(np.arange(len(recorded)), recorded.episode_start + recorded.episode_length - 1)
    assert (derived.next_obs == recorded.next_obs[rows]).all()


def test_npz_members_of_other_orders_and_compressions_are_read(small_dataset: Dataset, tmp_path: Path) -> None:
    arrays = {
        "obs": np.asfortranarray(small_dataset.obs.astype(np.float64)),
        "action": small_dataset.action,
        "reward": small_dataset.reward.astype(">f4"),
        "cost": small_dataset.cost,
        "next_obs": small_dataset.next_obs,
        "terminal": small_dataset.terminal.astype(np.int8),
        "timeout": small_dataset.timeout,
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    assert load(tmp_path / "x.npz").digest == small_dataset.digest


def test_npz_is_never_unpickled(small_dataset: Dataset, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    np.savez(tmp_path / "x.npz", observations=np.array([Trap()], object), actions=small_dataset.action)
    with pytest.raises(DataError):
        load(tmp_path / "x.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".parquet"])
def test_a_flipped_bit_is_an_error_not_a_number(small_dataset: Dataset, tmp_path: Path, suffix: str) -> None:
    """The formats we write carry checksums; no flip may yield another dataset that looks fine."""
    path = tmp_path / f"x{suffix}"
    save(small_dataset, path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(len(content), size=150):
        broken = bytearray(content)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with contextlib.suppress(DataError):
            assert load(path).digest == small_dataset.digest


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("obs_0,obs_2,action_0,reward,terminal,timeout", "0,0,0,0,1,0", "column `obs_1` is missing"),
        ("obs_1,action_0,reward,terminal,timeout", "0,0,0,1,0", "column `obs_0` is missing"),
        ("obs_0,action_0,reward,cost,cost_a,terminal,timeout", "0,0,0,0,0,1,0", "both `cost` and `cost_a`"),
        ("obs_0,obs_0,action_0,reward,terminal,timeout", "0,0,0,0,1,0", "column `obs_0` appears twice"),
        ("obs_0,action_0,reward,terminal,timeout", "0,0,,1,0", "`reward` is empty at row 0"),
        ("obs_0,action_0,reward,terminal,timeout", "0,0,much,1,0", "invalid value 'much'"),
        ("obs_0,action_0,reward,terminal,timeout", "0,0,nan,1,0", "`reward` is nan at row 0"),
        ("obs_0,action_0,reward,terminal", "0,0,1,1", "key `timeout` is missing. Found: `obs_0`"),
        ("obs_0,action_0,reward,terminal,timeout", "0,0,1", "damaged"),
    ],
)
def test_tables_that_cannot_be_used_say_why(tmp_path: Path, header: str, row: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(DataError) as error:
        load(tmp_path / "x.csv")
    assert message in str(error.value)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the resident set is measured on Linux")
def test_reading_needs_little_more_memory_than_the_arrays(shared_data: Path, tmp_path: Path) -> None:
    """Straight into the destination: the process grows by at most 1.3 × the arrays, checks and libraries included."""
    script = Path(__file__).parents[2] / "benchmarks" / "bench_read.py"
    file = shared_data / "SafetyCarCircle-v0-100-1333.hdf5"
    arguments = [str(file), "--repeats", "1", "--out", str(tmp_path / "read.csv")]
    subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True)
    with (tmp_path / "read.csv").open() as results:
        ratio = {row["reader"]: float(row["peak_over_arrays"]) for row in csv.DictReader(results)}
    assert 1 <= ratio["load"] <= 1.3


def test_the_digest_of_shared_data_is_known(shared_data: Path) -> None:
    """Computed on another machine; equal wherever these files are read."""
    assert load(shared_data / "SafetyBallRun-v0-80-1197.hdf5").digest.startswith("f083d1867bdd3571a8c181a2b91d97d5")
