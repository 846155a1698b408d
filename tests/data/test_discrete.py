"""Discrete actions: one-hot in memory, by name in every file, and never taken for continuous actions without a word."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pdocrl import train
from pdocrl.data import Dataset, make_dataset, save
from pdocrl.data.check import notes
from pdocrl.data.discrete import stored
from pdocrl.data.filters import split
from pdocrl.data.load import load
from pdocrl.data.stream import open_stream
from pdocrl.errors import DataError, PdocrlError

Cli = Callable[..., tuple[int, str, str]]
NAMES = np.arange(60) * 7 % 3 + 1  # of discrete actions 1, 2, 3


def log(action: np.ndarray = NAMES, discrete_actions: int | tuple[int, ...] = (1, 2, 3)) -> Dataset:
    """Six episodes of ten steps."""
    n, rng = len(action), np.random.default_rng(0)
    obs = rng.normal(size=(n + 1, 2))
    ends = np.arange(n) % 10 == 9
    return make_dataset(
        obs[:-1], action, np.ones(n), np.zeros(n), obs[1:], 0 * ends, ends, "log", discrete_actions=discrete_actions
    )


def test_choices_are_one_hot_in_memory_and_their_names_come_back() -> None:
    data = log()
    assert data.discrete_actions == (1, 2, 3)
    assert data.action.shape == (60, 3)
    np.testing.assert_array_equal(data.action.argmax(1) + 1, NAMES)
    np.testing.assert_array_equal(stored(data.action, data.discrete_actions), NAMES)
    assert log(NAMES - 1, 3).digest != data.digest  # the same columns with other names are other actions
    assert dataclasses.replace(log(NAMES - 1, 3), discrete_actions=(1, 2, 3)).digest == data.digest


@pytest.mark.parametrize("name", ["x.hdf5", "x.npz", "x.csv", "x.parquet", "x-v0"])
def test_every_format_keeps_choices_and_the_digest(tmp_path: Path, name: str) -> None:
    if name == "x-v0":
        pytest.importorskip("minari")
    save(log(), tmp_path / name)
    again = load(tmp_path / name)
    assert again.discrete_actions == (1, 2, 3)
    assert again.digest == log().digest
    assert all(part.discrete_actions == (1, 2, 3) for part in split(again, 0.5, 0))


@pytest.mark.parametrize("name", ["x.hdf5", "x.npz"])
def test_a_window_over_a_file_holds_the_same_discrete_actions(tmp_path: Path, name: str) -> None:
    save(log(), tmp_path / name)
    with open_stream(tmp_path / name) as stream:
        assert stream.discrete_actions == (1, 2, 3)
        assert stream.facts.digest == log().digest
        rows = np.array([5, 0, 59])
        np.testing.assert_array_equal(stream.rows(rows)["action"], log().action[rows])
    assert train(
        tmp_path / name, "bc", steps=2, cost_limit=2, buffer_size=20, settings={"hidden": (4,)}
    ).config.discrete_actions == [
        1,
        2,
        3,
    ]


def plain(path: Path, values: np.ndarray) -> Path:
    """A file with these numbers in its column of actions, which says nothing about them."""
    save(log(np.linspace(-1, 1, 60), ()), path.with_suffix(".npz"))
    np.savez(path, **(dict(np.load(path.with_suffix(".npz"))) | {"actions": values}))
    return path


def test_numbers_become_choices_when_told_so_and_only_then(tmp_path: Path, run_cli: Cli) -> None:
    path = plain(tmp_path / "y.npz", np.arange(60) % 2)
    with pytest.raises(
        DataError, match=r"nothing but 0 and 1. Are they discrete\? .*discrete_actions=2.*action_high=1"
    ):
        load(path)
    assert load(path, discrete_actions=2).discrete_actions == (0, 1)
    assert load(path, action_low=0, action_high=1).action.min() == -1  # amounts after all
    assert run_cli("data", "convert", path, "--out", tmp_path / "z.csv", "--discrete-actions", "2")[0] == 0
    assert load(tmp_path / "z.csv").discrete_actions == (0, 1)
    assert json.loads(run_cli("data", "info", tmp_path / "z.csv", "--json")[1])["discrete_actions"] == [0, 1]


def test_what_is_no_choice_is_named_with_its_row(tmp_path: Path) -> None:
    path = plain(tmp_path / "y.npz", NAMES)
    with pytest.raises(DataError, match=r"`actions` is 3 at row 2. The discrete actions are 0 … 2"):
        load(path, discrete_actions=3)
    with pytest.raises(DataError, match="at least 2, or each"):
        load(path, discrete_actions=[1, 3])
    with pytest.raises(DataError, match="not discrete"):
        load(path, discrete_actions=1)
    save(log(), tmp_path / "told.npz")
    with pytest.raises(DataError, match="has the discrete actions 1 … 3"):
        load(tmp_path / "told.npz", discrete_actions=3)
    with pytest.raises(DataError, match="its actions are discrete, not continuous"):
        load(tmp_path / "told.npz", action_low=0, action_high=5)
    with pytest.raises(DataError, match="expected 3 discrete actions, one-hot"):
        dataclasses.replace(log(), action=np.full((60, 3), 0.5, np.float32))


def test_check_asks_about_few_values_and_names_choices_never_taken() -> None:
    assert "actions take 3 values only. Are they discrete?" in " ".join(notes(log(np.arange(60) % 3 - 1, ())))
    assert "never taken, of which nothing can be learned: 0." in " ".join(notes(log(NAMES, (0, 1, 2, 3))))
    assert "values only" not in " ".join(notes(log()))


def test_agents_for_continuous_actions_refuse_discrete_ones_and_name_those_that_do_not() -> None:
    with pytest.raises(PdocrlError, match=r"log: its 3 actions are discrete, cpq is for continuous .* dial, .*bc, cdt"):
        train(log(), "cpq", steps=1)
