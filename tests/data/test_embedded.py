"""The dataset inside the package: small, sound, and covering the frontier at the usual limits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pdocrl.data import filters, find_task, load
from pdocrl.data.check import check
from pdocrl.data.load import EMBEDDED

FILE = EMBEDDED / "ballrun.hdf5"


@pytest.fixture(scope="module")
def embedded():
    return load(FILE, "BallRun")


def test_it_is_found_by_name_where_there_is_no_other_file(monkeypatch, tmp_path, embedded):
    monkeypatch.delenv("PDOCRL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load("BallRun").digest == embedded.digest


def test_it_is_small_and_nothing_is_wrong_with_it():
    assert FILE.stat().st_size < 3_000_000
    assert check(FILE, "BallRun").errors == ()


def test_its_digest_is_the_documented_one(embedded):
    assert embedded.digest in re.findall("[0-9a-f]{64}", (EMBEDDED / "README.md").read_text(encoding="utf-8"))


def test_every_limit_has_safe_episodes_near_the_best_reward_there(embedded):
    reward, cost = embedded.reward_return, embedded.cost_return[:, 0]
    for limit, best in ((5, 451), (10, 455), (20, 459), (40, 600)):
        safe = reward[cost <= limit]
        assert safe.max() > best
        assert (safe > safe.max() - 0.1 * np.ptp(reward)).sum() >= 15
    assert filters.on_frontier(embedded).sum() >= 10
    assert (cost > 40).mean() > 0.4  # and enough that must be avoided


def test_episodes_last_the_whole_horizon(embedded):
    assert set(embedded.episode_length) == {find_task("BallRun").horizon}


def test_it_is_a_part_of_the_full_recording(embedded, shared_data: Path):
    full = load(next(shared_data.glob("SafetyBallRun-*.hdf5")))
    known = {full.obs[s : s + 100].tobytes() + full.action[s : s + 100].tobytes() for s in full.episode_start}
    chosen = [
        embedded.obs[s : s + 100].tobytes() + embedded.action[s : s + 100].tobytes() for s in embedded.episode_start
    ]
    assert set(chosen) <= known
    assert len(set(chosen)) == 400
