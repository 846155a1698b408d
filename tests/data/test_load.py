"""Where a dataset is looked for, and how a name is understood."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdocrl.data import Dataset, Task, load, register, save
from pdocrl.data.load import cache_folder, locate
from pdocrl.data.tasks import find_task
from pdocrl.errors import DataError, PdocrlError


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An empty `PDOCRL_DATA` folder and an empty download cache."""
    own, cache = tmp_path / "own", tmp_path / "home" / "pdocrl"
    own.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setenv("PDOCRL_DATA", str(own))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    return own, cache


def test_own_folder_comes_before_the_cache_and_the_exact_file_before_one_alike(folders: tuple[Path, Path]) -> None:
    own, cache = folders
    task = find_task("CarRun")
    (cache / "SafetyCarRun-v0-40-651.hdf5").touch()
    assert locate(task) == cache_folder() / "SafetyCarRun-v0-40-651.hdf5"
    (own / "SafetyCarRun-v0-40-681.hdf5").touch()
    assert locate(task) == own / "SafetyCarRun-v0-40-681.hdf5"
    (own / "SafetyCarRun-v0-40-651.hdf5").touch()
    assert locate(task) == own / "SafetyCarRun-v0-40-651.hdf5"


def test_two_files_that_fit_equally_are_not_chosen_between(folders: tuple[Path, Path]) -> None:
    for count in (1, 2):
        (folders[0] / f"SafetyCarRun-v0-40-{count}.hdf5").touch()
    with pytest.raises(DataError, match="2 files fit task CarRun"):
        locate(find_task("CarRun"))


def test_a_mistyped_folder_is_not_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere is not a folder"):
        load("CarRun")


def test_a_task_is_found_in_any_spelling_and_by_its_environment(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(shared_data))
    assert load("ballrun").digest == load("SafetyBallRun-v0").digest == load("BallRun", task="BallRun").digest


def test_a_task_s_own_file_is_checked_against_the_task(folders: tuple[Path, Path], small_dataset: Dataset) -> None:
    save(small_dataset, folders[0] / "SafetyCarRun-v0-40-651.hdf5")
    with pytest.raises(DataError, match="task CarRun has 7"):
        load("CarRun")


def test_a_task_of_one_s_own_loads_by_name(tmp_path: Path, small_dataset: Dataset, monkeypatch: Any) -> None:
    save(small_dataset, tmp_path / "robot.npz")
    (tmp_path / "tasks.toml").write_text('[MyRobot]\nhorizon = 9\nobs_dim = 3\nfiles = ["robot.npz"]\n')
    monkeypatch.setenv("PDOCRL_TASKS", str(tmp_path / "tasks.toml"))
    assert load("MyRobot").digest == small_dataset.digest
    register(Task("Registered", horizon=9, files=(str(tmp_path / "robot.npz"),)))
    assert load("registered").digest == small_dataset.digest


def test_a_file_named_like_a_task_is_the_file(tmp_path: Path, small_dataset: Dataset, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    save(small_dataset, "BallRun")
    assert load("BallRun").digest == small_dataset.digest


def test_folders_and_unknown_suffixes_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder and not a Minari dataset"):
        load(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(PdocrlError, match="no such file or folder"):
        load("no/such/thing")


def test_a_renamed_file_says_what_it_is_not(tmp_path: Path, small_dataset: Dataset) -> None:
    save(small_dataset, tmp_path / "x.npz")
    for suffix in (".hdf5", ".parquet", ".csv"):
        shutil.copy(tmp_path / "x.npz", tmp_path / f"y{suffix}")
        with pytest.raises(DataError, match=rf"y\{suffix}: "):
            load(tmp_path / f"y{suffix}")


def ogbench() -> dict[str, Any]:
    """Two recordings of five steps as `make_env_and_datasets` gives them; the task is solved in row 3."""
    rng = np.random.default_rng(0)
    ends, masks = np.zeros(10), np.ones(10)
    ends[[4, 9]], masks[3] = 1, 0
    obs = rng.normal(size=(10, 3))
    moves = {"observations": obs, "actions": rng.uniform(-1, 1, (10, 2)), "next_observations": obs + 1}
    return {**moves, "terminals": ends, "rewards": masks - 1, "masks": masks}


def test_ogbench_s_masks_say_where_no_value_lies_beyond(tmp_path: Path) -> None:
    np.savez(tmp_path / "cube.npz", **ogbench())
    for given in (ogbench(), tmp_path / "cube.npz"):
        found = load(given)
        assert np.flatnonzero(found.terminal).tolist() == [3]
        assert np.flatnonzero(found.timeout).tolist() == [4, 9]
        assert (found.path == "") == isinstance(given, dict)
    bare = {key: ogbench()[key] for key in ("observations", "actions", "terminals")}
    with pytest.raises(DataError, match=r"`rewards` is missing. Is it OGBench's\?"):
        load(bare)
    renamed = {**ogbench(), "s": ogbench()["observations"], "timeouts": ogbench()["terminals"]}
    del renamed["observations"], renamed["masks"]
    assert load(renamed, columns={"obs": "s"}).obs_dim == 3


def test_what_is_refused_is_said_in_the_words_of_the_door(tmp_path: Path, run_cli: Any) -> None:
    far = {**ogbench(), "actions": 5 * ogbench()["actions"]}
    np.savez(tmp_path / "far.npz", **far)
    with pytest.raises(DataError, match=r"`pdocrl.load\(…, action_low=LOW, action_high=HIGH\)` makes them so"):
        load(tmp_path / "far.npz")
    assert "--rescale-actions LOW HIGH" in run_cli("data", "info", tmp_path / "far.npz")[2]
    with pytest.raises(DataError, match="action_low=LOW"):  # the command line's words end with its command
        load(tmp_path / "far.npz")
