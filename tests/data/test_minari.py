"""Minari, both ways, checked against the Minari package itself."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdocrl.data import Dataset, load, save
from pdocrl.errors import DataError, MissingExtraError, PdocrlError

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")


@pytest.mark.parametrize("n_costs", [0, 1, 2, 3])
def test_a_round_trip_keeps_the_digest(make_random_dataset: Any, tmp_path: Path, n_costs: int) -> None:
    dataset = make_random_dataset(n_costs=n_costs, seed=n_costs)
    save(dataset, tmp_path / "mine-v1")
    again = load(tmp_path / "mine-v1")
    assert again.digest == dataset.digest
    assert again.cost_names == dataset.cost_names


def test_minari_reads_what_we_write(small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    save(small_dataset, "minari:robots/arm-v3")
    dataset = minari.load_dataset("robots/arm-v3")
    assert dataset.spec.total_episodes == small_dataset.n_episodes
    assert dataset.spec.total_steps == len(small_dataset)
    for index, episode in enumerate(dataset.iterate_episodes()):
        start, length = small_dataset.episode_start[index], small_dataset.episode_length[index]
        assert episode.observations.shape == (length + 1, 3)
        assert (episode.rewards == small_dataset.reward[start : start + length]).all()
        assert episode.infos["cost"].shape == (length + 1,)
        assert (episode.infos["cost"][1:] == small_dataset.cost[start : start + length, 0]).all()
    assert load("robots/arm-v3").digest == load("minari:robots/arm-v3").digest == small_dataset.digest


def collected(folder: Path, infos: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two episodes of three steps, written by Minari itself."""
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    buffers = [
        EpisodeBuffer(
            observations=np.arange(4, dtype=np.float64)[:, None] + 10 * episode,
            actions=np.zeros((3, 1)),
            rewards=[1.0, 2.0, 3.0],
            terminations=[False, False, episode == 0],
            truncations=[False, False, episode == 1],
            infos=infos,
        )
        for episode in range(2)
    ]
    space = Box(-np.inf, np.inf, (1,), np.float64)
    minari.create_dataset_from_buffers(
        "test/small-v0", buffers, observation_space=space, action_space=Box(-1, 1, (1,), np.float64)
    )
    return folder / "test" / "small-v0"


@pytest.mark.parametrize(
    ("infos", "costs"),
    [
        ({"cost": np.array([9.0, 0, 1, 0])}, [[0], [1], [0]]),  # with an entry for the reset, as the collector writes
        ({"cost": np.array([0.0, 1, 0])}, [[0], [1], [0]]),  # one per step
        ({"cost": np.array([[0.0, 2], [1, 0], [0, 1]])}, [[0, 2], [1, 0], [0, 1]]),  # several costs in one entry
        ({"cost_b": np.array([0.0, 2, 2]), "cost_a": np.array([1.0, 0, 0])}, [[1, 0], [0, 2], [0, 2]]),
        ({"speed": np.array([5.0, 5, 5])}, [[], [], []]),
    ],
)
def test_we_read_what_minari_writes(tmp_path: Path, infos: Any, costs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load(collected(tmp_path, infos, monkeypatch))
    assert dataset.obs[:, 0].tolist() == [0, 1, 2, 10, 11, 12]
    assert dataset.next_obs[:, 0].tolist() == [1, 2, 3, 11, 12, 13]
    assert dataset.cost.tolist() == costs * 2
    assert dataset.terminal.tolist() == [False, False, True, False, False, False]
    assert dataset.timeout.tolist() == [False] * 5 + [True]


def test_infos_of_another_length_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"episode 0: `infos/cost` has shape \(2,\) for 3 steps"):
        load(collected(tmp_path, {"cost": np.array([0.0, 1.0])}, monkeypatch))


def test_a_log_with_gaps_cannot_be_told_as_episodes_of_states(small_dataset: Dataset, tmp_path: Path) -> None:
    shifted = dataclasses.replace(small_dataset, next_obs=small_dataset.next_obs + np.float32(1))
    with pytest.raises(DataError, match="which Minari cannot store"):
        save(shifted, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x")
    with pytest.raises(PdocrlError, match="already exists"):
        save(small_dataset, tmp_path / "x")


def test_damage_is_named(small_dataset: Dataset, tmp_path: Path) -> None:
    save(small_dataset, tmp_path / "x")
    (tmp_path / "x" / "data" / "main_data.hdf5").write_bytes(b"nothing")
    with pytest.raises(DataError, match="x: damaged"):
        load(tmp_path / "x")
    (tmp_path / "x" / "data" / "metadata.json").write_text("{}")
    with pytest.raises(DataError, match="x: damaged"):
        load(tmp_path / "x")


def test_without_the_extra_the_message_says_how_to_get_it(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(small_dataset, tmp_path / "x")
    for name in [name for name in sys.modules if name.split(".")[0] == "minari"]:
        monkeypatch.setitem(sys.modules, name, None)
    for action in (lambda: load(tmp_path / "x"), lambda: save(small_dataset, tmp_path / "y")):
        with pytest.raises(MissingExtraError, match=r"pip install 'pdocrl\[minari\]'"):
            action()
