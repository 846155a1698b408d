"""The episode log: what was written is there after a kill at any byte, and damage is told from a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pdocrl.collect import episode_log
from pdocrl.collect.episode_log import Episode, EpisodeLog
from pdocrl.errors import PdocrlError


def episode(number: int, steps: int = 5, costs: int = 2) -> Episode:
    rng = np.random.default_rng(number)
    return Episode(
        (0, 0, number),
        number,
        number % 2 == 0,
        rng.normal(size=(steps + 1, 3)).astype(np.float32),
        rng.normal(size=(steps, 2)).astype(np.float32),
        rng.normal(size=steps).astype(np.float32),
        rng.integers(2, size=(steps, costs)).astype(np.float32),
    )


def written(path: Path, *numbers: int) -> list[int]:
    """Write episodes; returns the file's size after each."""
    sizes = [0]
    with EpisodeLog(path) as recorded:
        for number in numbers:
            recorded.append(episode(number))
            sizes.append(path.stat().st_size)
    return sizes


def test_episodes_come_back_bit_for_bit_in_the_order_of_their_places(tmp_path):
    written(tmp_path / "j", 2, 0, 1)
    with EpisodeLog(tmp_path / "j") as recorded:
        assert [entry.place[2] for entry in recorded.ordered()] == [0, 1, 2]
        for entry in recorded.ordered():
            want, have = episode(entry.place[2]), recorded.read(entry)
            assert (have.seed, have.terminated) == (want.seed, want.terminated)
            for name in ("obs", "action", "reward", "cost"):
                np.testing.assert_array_equal(getattr(have, name), getattr(want, name))
            assert entry.cost == tuple(want.cost.sum(0).tolist())
        dataset = recorded.dataset(recorded.ordered(), "d", ("a", "b"))
    assert dataset.n_episodes == 3
    assert dataset.terminal.nonzero()[0].tolist() == [4, 14]
    assert dataset.timeout.nonzero()[0].tolist() == [9]
    np.testing.assert_array_equal(dataset.next_obs[:4], dataset.obs[1:5])


def test_a_kill_at_any_byte_loses_at_most_the_record_being_written(tmp_path):
    sizes = written(tmp_path / "whole", 0, 1, 2)
    whole = (tmp_path / "whole").read_bytes()
    for cut in [*range(0, len(whole), 7), *sizes, *(size - 1 for size in sizes[1:])]:
        (tmp_path / "cut").write_bytes(whole[:cut])
        with EpisodeLog(tmp_path / "cut") as recorded:
            assert len(recorded.entries) == sum(size <= cut for size in sizes[1:])
            recorded.append(episode(9))
        with EpisodeLog(tmp_path / "cut") as recorded:
            assert (0, 0, 9) in recorded.entries


def test_zeros_left_by_a_power_cut_are_dropped(tmp_path):
    written(tmp_path / "j", 0)
    with (tmp_path / "j").open("ab") as file:
        file.write(bytes(500))
    with EpisodeLog(tmp_path / "j") as recorded:
        assert len(recorded.entries) == 1


@pytest.mark.parametrize("place", [0, 20, 200])
def test_damage_before_the_end_is_refused_and_nothing_is_thrown_away(tmp_path, place):
    written(tmp_path / "j", 0, 1, 2)
    damaged = bytearray((tmp_path / "j").read_bytes())
    damaged[place] ^= 0xFF
    (tmp_path / "j").write_bytes(damaged)
    with pytest.raises(PdocrlError, match="damaged at byte 0"):
        EpisodeLog(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == damaged


def test_a_log_of_version_0_2_is_read(tmp_path, monkeypatch):
    """There the key of a record's metadata was `story`."""
    written(tmp_path / "new", 0, 1)
    with monkeypatch.context() as patch:
        pack = episode_log.pack
        patch.setattr(episode_log, "pack", lambda arrays, texts: pack(arrays, {"story": texts["metadata"]}))
        written(tmp_path / "old", 0, 1)
    assert b'"story"' in (tmp_path / "old").read_bytes()
    with EpisodeLog(tmp_path / "old") as old, EpisodeLog(tmp_path / "new") as new:
        assert [(entry.place, entry.cost) for entry in old.ordered()] == [(e.place, e.cost) for e in new.ordered()]


def test_two_collections_cannot_write_the_same_log(tmp_path):
    with EpisodeLog(tmp_path / "j"), pytest.raises(PdocrlError, match="another collection"):
        EpisodeLog(tmp_path / "j")
