"""Episodes as objects, datasets joined and cut, DataFrames there and back, keys of files by other names."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from pdocrl.data import Dataset, load, to_dataframe
from pdocrl.errors import DataError, UnknownNameError
from pdocrl.training.config import task_of


def test_episodes_are_the_rows_between_ends(small_dataset: Dataset) -> None:
    assert len(small_dataset.episodes) == small_dataset.n_episodes
    for episode in small_dataset.episodes:
        assert episode.reward_return == pytest.approx(small_dataset.reward_return[episode.number])
        np.testing.assert_allclose(episode.cost_return, small_dataset.cost_return[episode.number])
    last = small_dataset.episodes[-1]
    np.testing.assert_array_equal(last.obs[-1], small_dataset.obs[-1])
    assert sum(episode.length for episode in small_dataset.episodes) == len(small_dataset)
    assert "steps, return" in repr(last)
    with pytest.raises(IndexError):
        small_dataset.episodes[small_dataset.n_episodes]


def test_filter_split_and_concatenate_keep_whole_episodes(small_dataset: Dataset) -> None:
    bound = float(np.median(small_dataset.reward_return))
    good = small_dataset.filter(lambda episode: episode.reward_return >= bound)
    rest = small_dataset.filter(small_dataset.reward_return < bound)
    assert (good.reward_return >= bound).all()
    assert good.n_episodes + rest.n_episodes == small_dataset.n_episodes
    whole = good.concatenate(rest)
    assert sorted(whole.reward_return) == sorted(small_dataset.reward_return)
    assert (whole.path, good.path) == ("", "")
    one, other = small_dataset.split(0.3, seed=1)
    assert one.n_episodes + other.n_episodes == small_dataset.n_episodes
    with pytest.raises(DataError, match="a mask"):
        small_dataset.filter([True])


def test_a_dataframe_comes_back_with_the_same_digest(small_dataset: Dataset) -> None:
    pytest.importorskip("pandas")
    frame = to_dataframe(small_dataset)
    assert len(frame) == len(small_dataset)
    assert load(frame).digest == small_dataset.digest
    renamed = frame.rename(columns={"obs_0": "speed", "obs_1": "height", "obs_2": "tilt"})
    mapped = load(renamed, columns={"obs": ["speed", "height", "tilt"]})
    assert mapped.obs_names == ("speed", "height", "tilt")


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_keys_of_files_are_mapped(small_dataset: Dataset, tmp_path: Path, suffix: str) -> None:
    arrays = {
        "s": small_dataset.obs,
        "a": small_dataset.action,
        "r": small_dataset.reward,
        "c1": small_dataset.cost[:, 0],
        "c2": 2 * small_dataset.cost[:, 0],
        "after": small_dataset.next_obs,
        "done": small_dataset.terminal,
        "cut": small_dataset.timeout,
    }
    path = tmp_path / f"x.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    mapping = {"obs": "s", "action": "a", "reward": "r", "cost": ["c1", "c2"], "next_obs": "after"}
    data = load(path, columns=mapping | {"terminal": "done", "timeout": "cut"})
    np.testing.assert_array_equal(data.reward, small_dataset.reward)
    np.testing.assert_array_equal(data.cost[:, 1], 2 * small_dataset.cost[:, 0])
    with pytest.raises(UnknownNameError, match=r"'rr'"):
        load(path, columns=mapping | {"reward": "rr"})


@pytest.mark.parametrize(
    ("file", "task"),
    [
        ("SafetyBallRun-v0-80-940.hdf5", "BallRun"),
        ("SafetyPointCircle1Gymnasium-v0-200-1098.hdf5", "PointCircle1"),
        ("SafetyAntVelocityGymnasium-v1-250-2249.hdf5", "AntVelocity"),
        ("SafeMetaDrive-harddense-v0-85-1000.hdf5", "harddense"),
    ],
)
def test_published_files_are_recognised(file: str, task: str) -> None:
    found = task_of(file, None)
    assert found is not None
    assert found.name == task
    assert file in found.files
