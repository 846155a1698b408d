"""Drawing from a file gives exactly what sampling in memory would give."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdocrl.data import Dataset, load, save
from pdocrl.data import stream as stream_module
from pdocrl.data.stream import open_stream
from pdocrl.errors import DataError, PdocrlError

FIELDS = ("obs", "action", "reward", "cost", "next_obs", "terminal", "timeout")


def in_memory(dataset: Dataset, batch_size: int, seed: int) -> Any:
    """What the docstring of `stream` promises, written down once more."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.integers(len(dataset), size=batch_size)
        yield {field: getattr(dataset, field)[rows] for field in FIELDS}


def write(dataset: Dataset, path: Path, layout: str, skip: tuple[str, ...] = ()) -> None:
    """The same dataset in files of different inner structure."""
    fields = [field for field in FIELDS if field not in skip]
    if layout == "npz":
        save(dataset, path)
    elif layout == "npz compressed":
        np.savez_compressed(path, **{field: getattr(dataset, field) for field in fields})
    else:
        with h5py.File(path, "w") as file:
            for field in fields:
                array = getattr(dataset, field)
                chunks = {
                    "contiguous": None,
                    "chunked": (7, *array.shape[1:]),
                    "by column": (5, *[1] * (array.ndim - 1)),
                }
                compression = None if layout == "contiguous" else "gzip"
                file.create_dataset(field, data=array, chunks=chunks[layout], compression=compression)


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "by column", "npz", "npz compressed"])
@pytest.mark.parametrize("memory", [1, 20_000, 1 << 28])
def test_batches_are_those_of_sampling_in_memory(
    make_random_dataset: Any, tmp_path: Path, layout: str, memory: int
) -> None:
    dataset = make_random_dataset(episodes=40, n_costs=2)
    path = tmp_path / ("x.npz" if layout.startswith("npz") else "x.hdf5")
    write(dataset, path, layout)
    with open_stream(path, memory=memory) as stream:
        assert len(stream) == len(dataset)
        pairs = zip(stream.batches(16, seed=3), in_memory(dataset, 16, seed=3), strict=False)
        for drawn, expected in itertools.islice(pairs, 70):
            for field in FIELDS:
                assert drawn[field].dtype == expected[field].dtype
                assert (drawn[field] == expected[field]).all()


@pytest.mark.parametrize("suffix", [".hdf5", ".npz"])
def test_a_log_without_next_observations_streams_as_it_loads(
    make_random_dataset: Any, tmp_path: Path, suffix: str
) -> None:
    full = make_random_dataset(episodes=30)
    arrays = {field: getattr(full, field) for field in FIELDS if field != "next_obs"}
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for field, array in arrays.items():
                file[field] = array
    loaded = load(path)
    with open_stream(path) as stream:
        assert len(stream) == len(loaded) < len(full)
        every = stream.rows(np.arange(len(stream)))
        assert all((every[field] == getattr(loaded, field)).all() for field in FIELDS)
        assert (stream.initial_obs() == loaded.initial_obs).all()


def test_every_transition_is_equally_likely(make_random_dataset: Any, tmp_path: Path) -> None:
    """χ² over all rows: with N − 1 degrees of freedom it stays within five standard deviations of its mean."""
    dataset = make_random_dataset(episodes=20)
    save(dataset, tmp_path / "x.hdf5")
    number = {value: row for row, value in enumerate(dataset.reward.tolist())}
    counts = np.zeros(len(dataset))
    with open_stream(tmp_path / "x.hdf5") as stream:
        for batch in itertools.islice(stream.batches(100, seed=0), 300):
            np.add.at(counts, [number[value] for value in batch["reward"].tolist()], 1)
    expected = counts.sum() / len(dataset)
    freedom = len(dataset) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_initial_observations_and_dimensions(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x.hdf5")
    with open_stream(tmp_path / "x.hdf5") as stream:
        assert (stream.initial_obs() == small_dataset.initial_obs).all()
        assert (stream.obs_dim, stream.action_dim, stream.n_costs) == (3, 2, 1)


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "by column", "npz compressed"])
@pytest.mark.parametrize("derived", [False, True])
def test_one_pass_tells_what_the_loaded_dataset_would(
    make_random_dataset: Any, tmp_path: Path, layout: str, derived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digest, largest numbers and longest episode, also where next observations are derived; block by block."""
    monkeypatch.setattr(stream_module, "DENSE_BYTES", 200)
    path = tmp_path / ("x.npz" if layout.startswith("npz") else "x.hdf5")
    write(make_random_dataset(episodes=40, n_costs=2), path, layout, skip=("next_obs",) if derived else ())
    loaded = load(path)
    with open_stream(path) as stream:
        facts = stream.facts
        assert facts.digest == loaded.digest
        assert (facts.largest_reward, facts.largest_costs) == (loaded.largest_reward, loaded.largest_costs)
        assert stream.longest_episode == loaded.longest_episode


def test_batches_do_not_keep_the_look_ahead_alive(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x.hdf5")
    with open_stream(tmp_path / "x.hdf5") as stream:
        batches = list(itertools.islice(stream.batches(4, seed=0), 20))
    assert all(array.base is None for batch in batches for array in batch.values())


def test_a_bad_value_is_found_when_it_is_drawn(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x.hdf5")
    with h5py.File(tmp_path / "x.hdf5", "r+") as file:
        file["rewards"][7] = np.nan
    with open_stream(tmp_path / "x.hdf5") as stream:
        assert len(stream.rows(np.array([6, 8]))["reward"]) == 2
        with pytest.raises(DataError, match=r"x\.hdf5: `rewards` is nan at row 7\."):
            stream.rows(np.array([6, 7]))


def test_what_cannot_be_streamed_is_refused(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x.csv")
    with pytest.raises(PdocrlError, match="convert"), open_stream(tmp_path / "x.csv"):
        pass
    save(small_dataset, tmp_path / "x.hdf5")
    with pytest.raises(DataError, match="task BallRun has 7"), open_stream(tmp_path / "x.hdf5", task="BallRun"):
        pass
    with open_stream(tmp_path / "x.hdf5") as stream, pytest.raises(PdocrlError, match="batch size 0"):
        next(stream.batches(0, seed=0))


def test_a_task_s_file_streams_by_name(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(shared_data))
    dataset = load("CarRun")
    with open_stream("CarRun") as stream:
        drawn = next(stream.batches(256, seed=1))
    assert (drawn["obs"] == next(in_memory(dataset, 256, seed=1))["obs"]).all()
