"""`pdocrl data`: what the commands print and write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from pdocrl.data import Dataset, filters, load, save
from pdocrl.data.episodes import episode_digests

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(small_dataset: Dataset, tmp_path: Path) -> Path:
    save(small_dataset, tmp_path / "x.hdf5")
    return tmp_path / "x.hdf5"


def test_info_prints_one_object_with_exactly_these_keys(run_cli: Run, file: Path, small_dataset: Dataset) -> None:
    status, out, err = run_cli("data", "info", file, "--json")
    summary = json.loads(out)
    assert (status, err) == (0, "")
    assert list(summary) == [
        "episodes",
        "transitions",
        "obs_dim",
        "action_dim",
        "action_low",
        "action_high",
        "n_costs",
        "reward_return",
        "cost_return",
        "terminals",
        "timeouts",
        "digest",
    ]
    assert summary["episodes"] == 12
    assert summary["transitions"] == len(small_dataset)
    assert summary["reward_return"] == {
        "min": small_dataset.reward_return.min(),
        "median": np.median(small_dataset.reward_return),
        "max": small_dataset.reward_return.max(),
    }
    assert summary["cost_return"]["median"] == np.median(small_dataset.cost_return[:, 0])
    assert summary["terminals"] + summary["timeouts"] == 12
    assert summary["digest"] == small_dataset.digest


def test_info_lists_the_costs_when_there_are_several_or_none(
    run_cli: Run, small_dataset: Dataset, tmp_path: Path
) -> None:
    for k in (0, 2):
        costs = np.repeat(small_dataset.cost, k, axis=1) if k else small_dataset.cost[:, :0]
        save(dataclasses.replace(small_dataset, cost=costs, cost_names=()), tmp_path / "x.npz")
        summary = json.loads(run_cli("data", "info", tmp_path / "x.npz", "--json")[1])
        assert summary["n_costs"] == k
        assert isinstance(summary["cost_return"], list)
        assert len(summary["cost_return"]) == k


def test_info_prints_a_table(run_cli: Run, file: Path, small_dataset: Dataset) -> None:
    _, out, _ = run_cli("data", "info", file)
    for text in ("episodes", "transitions", small_dataset.digest, "cost of an episode", "reward of an episode"):
        assert text in out


def test_check_finds_nothing_wrong_with_good_data(run_cli: Run, file: Path) -> None:
    with h5py.File(file, "r+") as opened:  # the world stopped wherever an episode ends: no recording was cut
        opened["terminals"][...] = opened["terminals"][...] | opened["timeouts"][...]
        opened["timeouts"][...] = False
    assert run_cli("data", "check", file) == (0, "nothing wrong\n", "")
    assert json.loads(run_cli("data", "check", file, "--json")[1]) == {"ok": True, "errors": [], "notes": []}


def test_check_mentions_what_is_odd_without_being_wrong(run_cli: Run, file: Path, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[Short]\nhorizon = 2\nreward_max = 0.5\n")
    with h5py.File(file, "r+") as opened:
        opened["terminals"][-1] = opened["timeouts"][-1] = False
        opened["observations"][:, 1] = 0
    _, out, _ = run_cli("data", "check", file, "--task", "Short", "--tasks-file", tmp_path / "t.toml", "--json")
    notes = json.loads(out)["notes"]
    for text in (
        "is cut",
        "another next observation",
        "never change beyond rounding, and are ignored: 1.",
        "longer than the horizon 2",
        "reference scores",
    ):
        assert any(text in note for note in notes), text
    with h5py.File(file, "r+") as opened:
        del opened["next_observations"]
    assert any("derived" in note for note in json.loads(run_cli("data", "check", file, "--json")[1])["notes"])


def test_check_reports_every_error_in_json_and_ends_with_2(run_cli: Run, file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        del opened["rewards"], opened["actions"]
    status, out, err = run_cli("data", "check", file, "--json")
    assert status == 2
    found = json.loads(out)
    assert not found["ok"]
    assert len(found["errors"]) == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".parquet", ".csv", ""])
def test_convert_keeps_the_digest(run_cli: Run, file: Path, tmp_path: Path, suffix: str) -> None:
    status, out, err = run_cli("data", "convert", file, "--out", tmp_path / f"y{suffix}", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["digest"] == load(file).digest == load(tmp_path / f"y{suffix}").digest


def test_convert_says_what_it_changed_and_a_table_of_other_names_is_told_how_to_name_them(
    run_cli: Run, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("x,u,r,end,cut\n" + "".join(f"{t},0.5,1,0,{int(t % 3 == 2)}\n" for t in range(9)))
    status, _, err = run_cli("data", "check", log)
    assert status == 2
    assert "--columns" in err
    words = ("obs=x", "action=u", "reward=r", "terminal=end", "timeout=cut")
    status, _, err = run_cli("data", "convert", log, "--out", tmp_path / "log.npz", "--columns", *words)
    assert status == 0
    assert "3 last rows without one were dropped" in err
    assert "3 episodes, 6 transitions" in err


def test_filters_apply_one_after_another(run_cli: Run, tmp_path: Path, make_random_dataset) -> None:  # type: ignore[no-untyped-def]
    data = make_random_dataset(episodes=200)
    save(data, tmp_path / "x.hdf5")
    arguments = [
        "--safe",
        "2",
        "--frontier",
        "0.8",
        "--density",
        "60",
        "--fraction",
        "0.5",
        "--noise",
        "0.1",
        "--seed",
        "4",
    ]
    status, _, _ = run_cli("data", "filter", tmp_path / "x.hdf5", "--out", tmp_path / "y.npz", *arguments)
    expected = filters.density(filters.frontier(filters.safe(data, 2), 0.8), 60, seed=4)
    expected = filters.noise(filters.fraction(expected, 0.5, seed=4), 0.1, seed=4)
    assert status == 0
    assert load(tmp_path / "y.npz").digest == expected.digest


def test_outliers_by_command(run_cli: Run, tmp_path: Path, make_random_dataset) -> None:  # type: ignore[no-untyped-def]
    data = make_random_dataset(episodes=200)
    save(data, tmp_path / "x.hdf5")
    run_cli(
        "data",
        "filter",
        tmp_path / "x.hdf5",
        "--out",
        tmp_path / "y.hdf5",
        "--outliers",
        "0.02",
        "--outlier-limit",
        "2",
    )
    assert load(tmp_path / "y.hdf5").digest == filters.outliers(data, 0.02, 2).digest


def test_a_filter_that_keeps_nothing_writes_nothing(run_cli: Run, file: Path, tmp_path: Path) -> None:
    with h5py.File(file, "r+") as opened:
        opened["costs"][:] = 5
    status, _, err = run_cli("data", "filter", file, "--out", tmp_path / "y.hdf5", "--safe", "1")
    assert status == 2
    assert "no episode satisfies the limit 1.0. The lowest cost is 5." in err
    assert not (tmp_path / "y.hdf5").exists()


def test_a_split_shares_no_episode_not_even_a_copy(run_cli: Run, tmp_path: Path, make_random_dataset) -> None:  # type: ignore[no-untyped-def]
    data = make_random_dataset(episodes=30)
    save(data.episodes([*range(30), *range(10)]), tmp_path / "x.hdf5")
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    status, out, _ = run_cli("data", "split", tmp_path / "x.hdf5", "--out", one, other, "--share", "0.7", "--json")
    parts = [load(one), load(other)]
    kinds = [set(episode_digests(part)) for part in parts]
    assert status == 0
    assert [len(k) for k in kinds] == [21, 9]
    assert not kinds[0] & kinds[1]
    assert sum(part.n_episodes for part in parts) == 40
    assert [part["digest"] for part in json.loads(out)["parts"]] == [part.digest for part in parts]
    assert filters.split(data, 0.5, seed=1)[0].digest != filters.split(data, 0.5, seed=2)[0].digest


@pytest.mark.parametrize(("options", "says"), [(("a.npz", "a.npz"), "twice"), (("a.npz", "b.npz"), "1 different")])
def test_what_cannot_be_split_writes_nothing(
    run_cli: Run,
    tmp_path: Path,
    make_random_dataset,
    options: tuple[str, str],
    says: str,  # type: ignore[no-untyped-def]
) -> None:
    save(make_random_dataset(episodes=1), tmp_path / "x.npz")
    status, _, err = run_cli("data", "split", tmp_path / "x.npz", "--out", *(tmp_path / name for name in options))
    assert (status, err.count("\n")) == (2, 1)
    assert says in err
    assert not (tmp_path / "a.npz").exists()
