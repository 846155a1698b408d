"""A log as counts: the same bits from arrays, Parquet, CSV and many machines; bad logs are refused in one line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.errors import DataError
from pdocrl.tabular.cmdp import CMDP, random_cmdp
from pdocrl.tabular.counts import Counts, merge
from pdocrl.tabular.io.logs import count_log, counts_with_ray

FIELDS = ("pair", "to", "count", "mean", "variance", "starts")


def assert_same_bits(first: Counts, second: Counts) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field), err_msg=field)
    assert (first.states, first.actions, first.cost_names) == (second.states, second.actions, second.cost_names)


def episodes(n: int = 3000, seed: int = 0, labels: bool = False) -> dict[str, np.ndarray]:
    """A log of episodes of 1 … 30 steps, some ended by a terminal; signals with awkward fractions."""
    rng = np.random.default_rng(seed)
    log: dict[str, list[object]] = {
        k: [] for k in ("episode", "step", "state", "action", "next_state", "reward", "cost", "cost_fuel", "terminal")
    }
    episode, step, state = 0, 0, int(rng.integers(7))
    for _ in range(n):
        action = int(rng.integers(3))
        then = (state + action * int(rng.integers(3))) % 7
        terminal = bool(rng.random() < 0.03)
        cost = float(rng.random() < 0.2) / 3
        row = (episode, step, state, action, then, float(rng.normal() * 100), cost, 0.1, terminal)
        for column, value in zip(log.values(), row, strict=True):
            column.append(value)
        state, step = then, step + 1
        if terminal or rng.random() < 0.03:
            episode, step, state = episode + 1, 0, int(rng.integers(7))
    table = {name: np.array(column) for name, column in log.items()}
    if labels:
        rooms = np.array(["attic", "bath", "café", "den", "hall's", "kitchen", "porch"])
        table |= {name: rooms[table[name]] for name in ("state", "next_state")}
    return table


def from_columns(log: dict[str, np.ndarray]) -> Counts:
    return Counts.from_arrays(
        log["state"],
        log["action"],
        log["next_state"],
        log["reward"],
        {"cost": log["cost"], "cost_fuel": log["cost_fuel"]},
        terminal=log["terminal"],
        initial=log["step"] == 0,
    )


def write(log: dict[str, np.ndarray], path: Path) -> Path:
    table = pyarrow.table({name: pyarrow.array(column) for name, column in log.items()})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_gives_the_same_bits_as_its_arrays(tmp_path: Path, suffix: str, labels: bool) -> None:
    log = episodes(labels=labels)
    assert_same_bits(count_log(write(log, tmp_path / f"log{suffix}")), from_columns(log))


@given(st.permutations(range(40)), st.lists(st.floats(-1e6, 1e6), min_size=40, max_size=40))
@settings(max_examples=50, deadline=None)
def test_the_order_of_rows_changes_no_bit(order: list[int], rewards: list[float]) -> None:
    log = {name: column[:40] for name, column in episodes(40).items()} | {"reward": np.array(rewards)}
    shuffled = {name: column[np.array(order)] for name, column in log.items()}
    assert_same_bits(from_columns(log), from_columns(shuffled))


def test_means_and_variances_are_those_of_the_rows() -> None:
    log = episodes()
    counts = from_columns(log)
    for s, a in np.ndindex(*counts.shape):
        rows = (log["state"] == s) & (log["action"] == a)
        assert counts.n[s, a] == rows.sum()
        mean = math.fsum(log["reward"][rows]) / rows.sum()
        assert counts.r[s, a] == pytest.approx(mean, rel=1e-13, abs=1e-12)
    cell = (counts.pair == 4) & (counts.to == 1)
    rows = (log["state"] == 1) & (log["action"] == 1) & (log["next_state"] == 1) & ~log["terminal"]
    assert counts.variance[0, cell][0] == pytest.approx(log["reward"][rows].var(), rel=1e-9)
    assert not counts.variance[2].any(), "a constant has no variance, even one that binary fractions cannot write"


def test_transitions_that_end_the_world_leave_rows_of_p_short() -> None:
    log = episodes()
    counts = from_columns(log)
    ended = np.zeros(counts.shape)
    np.add.at(ended, (log["state"], log["action"]), log["terminal"])
    np.testing.assert_array_equal(counts.next.sum(axis=1), (counts.n - ended).ravel())
    np.testing.assert_allclose(counts.P.sum(axis=1), (1 - ended / counts.n).ravel(), rtol=1e-14)
    assert counts.mu.sum() == pytest.approx(1, abs=1e-15)
    assert counts.size == len(log["state"])


def test_counts_add_up() -> None:
    log = episodes(labels=True)
    cuts = (slice(0, 700), slice(700, 710), slice(710, None))
    parts = [from_columns({name: column[cut] for name, column in log.items()}) for cut in cuts]
    whole, merged = from_columns(log), merge(*parts)
    for field in ("pair", "to", "count", "starts"):
        np.testing.assert_array_equal(getattr(merged, field), getattr(whole, field))
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(merged.variance, whole.variance, atol=1e-9)
    assert merged.states == whole.states


def test_many_files_are_one_log_on_one_machine_and_on_many(tmp_path: Path) -> None:
    """Episodes go on from one file to the next, and labels of one file are unknown to another."""
    ray = pytest.importorskip("ray")
    log = episodes(labels=True)
    for index, cut in enumerate((slice(0, 1001), slice(1001, 1003), slice(1003, None))):
        write({name: column[cut] for name, column in log.items()}, tmp_path / f"part{index}.parquet")
    no_steps = tmp_path / "no_steps"
    no_steps.mkdir()
    for file in tmp_path.glob("part*.parquet"):
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns("step"), no_steps / file.name)
    whole = from_columns(log)
    assert_same_bits(count_log(tmp_path / "part*.parquet"), whole)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        assert_same_bits(counts_with_ray(tmp_path / "part*.parquet"), whole)
        assert_same_bits(counts_with_ray(no_steps / "part*.parquet"), whole)
        write({**log, "cost": -log["cost"]}, tmp_path / "part1.parquet")
        with pytest.raises(DataError, match=r"part1\.parquet: column `cost`, row \d+.*negative"):
            counts_with_ray(tmp_path / "part*.parquet")
    finally:
        ray.shutdown()


def test_episodes_begin_where_the_log_says(tmp_path: Path) -> None:
    log = episodes()
    begun = np.bincount(log["state"][log["step"] == 0], minlength=7)
    by_flag = {**log, "initial": (log["step"] == 0).astype(int)}
    del by_flag["episode"], by_flag["step"]
    order = np.random.default_rng(1).permutation(len(log["state"]))
    shuffled = {name: column[order] for name, column in log.items()}
    in_order = {name: column for name, column in log.items() if name != "step"}
    for name, variant in {"flag": by_flag, "shuffled": shuffled, "in_order": in_order}.items():
        counts = count_log(write(variant, tmp_path / f"{name}.parquet"))
        np.testing.assert_array_equal(counts.starts, begun, err_msg=name)
    assert count_log(tmp_path / "flag.parquet", start=3).d0.tolist() == [0, 0, 0, 1, 0, 0, 0]
    silent = {name: column for name, column in by_flag.items() if name != "initial"}
    counts = count_log(write(silent, tmp_path / "silent.parquet"))
    np.testing.assert_array_equal(counts.starts, counts.n.sum(axis=1))


def test_columns_may_have_other_names_and_a_terminal_row_no_next_state(tmp_path: Path) -> None:
    log = episodes(labels=True)
    then = [None if end else str(s) for s, end in zip(log["next_state"], log["terminal"], strict=True)]
    table = pyarrow.table({**{k: v for k, v in log.items() if k not in {"state", "next_state"}}})
    table = table.append_column("room", pyarrow.array(log["state"])).append_column("then", pyarrow.array(then))
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    counts = count_log(tmp_path / "log.parquet", columns={"state": "room", "next_state": "then"})
    assert_same_bits(counts, from_columns(log))


def test_whole_floats_are_labels_as_pandas_writes_integers_with_gaps(tmp_path: Path) -> None:
    log = episodes()
    then = np.where(log["terminal"], np.nan, log["next_state"])
    assert_same_bits(count_log(write({**log, "next_state": then}, tmp_path / "log.parquet")), from_columns(log))
    with pytest.raises(DataError, match=r"column `state`, row 6: 1\.5 is not a label"):
        count_log(write({**log, "state": np.where(np.arange(3000) == 5, 1.5, 1.0)}, tmp_path / "bad.parquet"))


def test_sampled_episodes_end_as_often_as_the_model_says() -> None:
    """A row of P that sums to 0.7 ends the episode 3 times in 10, and one that is empty always."""
    P = np.array([[0.2, 0.5], [0.0, 0.0]])
    cmdp = CMDP(P, np.ones((2, 1)), np.zeros((0, 2, 1)), np.zeros(0), np.array([1.0, 0.0]), 0.9)
    counts = Counts.sample(cmdp, np.array([[0.5], [0.5]]), 10**8, seed=0)
    assert counts.P.toarray() == pytest.approx(P, abs=1e-3)
    assert counts.n.sum() == 10**8


def test_sampled_counts_have_the_law_of_a_sampled_log() -> None:
    cmdp = random_cmdp(5, 2, seed=0)
    mu_D = np.random.default_rng(0).dirichlet(np.ones(10)).reshape(5, 2)
    counts = Counts.sample(cmdp, mu_D, 10**9, seed=0)
    assert counts.size == 10**9
    np.testing.assert_allclose(counts.mu, mu_D, atol=1e-4)
    np.testing.assert_allclose(counts.P.toarray(), cmdp.P.toarray(), atol=1e-3)
    np.testing.assert_allclose(counts.costs, -cmdp.g, rtol=1e-15)
    np.testing.assert_allclose(counts.r, cmdp.r, rtol=1e-15)


def spoil(log: dict[str, np.ndarray], column: str, row: int, value: object) -> dict[str, object]:
    values = log[column].tolist()
    values[row] = value
    return {**log, column: values}


BAD = {
    "unknown column": (lambda log: {**log, "rewrd": log["reward"], "reward": None}, "no column `reward`. Did you mean"),
    "text in numbers": (lambda log: spoil({**log, "reward": log["reward"].astype(str)}, "reward", 7, "much"), "'much'"),
    "negative cost": (lambda log: spoil(log, "cost", 11, -0.5), "column `cost`, row 12: -0.5 is negative"),
    "nan cost": (lambda log: spoil(log, "cost", 3, float("nan")), "column `cost`, row 4: missing, NaN or infinite"),
    "missing reward": (lambda log: spoil(log, "reward", 3, None), "column `reward`, row 4: missing, NaN or infinite"),
    "infinite reward": (
        lambda log: spoil(log, "reward", 3, float("inf")),
        "column `reward`, row 4: missing, NaN or infinite",
    ),
    "missing state": (lambda log: spoil(log, "state", 9, None), "column `state`, row 10: missing"),
    "missing action": (lambda log: spoil(log, "action", 9, None), "column `action`, row 10: missing"),
    "odd flag": (
        lambda log: {**log, "terminal": np.where(np.arange(len(log["state"])) == 2, 2, 0)},
        "column `terminal`, row 3: '2' is neither true nor false",
    ),
    "empty": (lambda log: {name: column[:0] for name, column in log.items()}, "is empty"),
    "a state that is never entered": (
        lambda log: spoil(spoil(log, "state", 5, 99), "step", 5, 1),
        "state 99 never appears as a start or a next state",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_bad_log_is_refused_in_one_line_that_names_the_place(tmp_path: Path, case: str, suffix: str) -> None:
    change, message = BAD[case]
    log = {name: column for name, column in change(episodes()).items() if column is not None}
    path = write(log, tmp_path / f"log{suffix}")
    with pytest.raises(DataError) as caught:
        count_log(path)
    text = str(caught.value)
    assert message in text
    assert str(path) in text
    assert "\n" not in text


def test_other_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    good = write(episodes(), tmp_path / "log.parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"not a parquet file")
    for path, options, message in (
        (tmp_path / "none.parquet", {}, "no such file"),
        (tmp_path / "no*.parquet", {}, "no such file"),
        (broken, {}, "cannot be read"),
        (good, {"costs": ["cots"]}, "no column `cots`. Did you mean `cost`?"),
        (good, {"start": 42}, "no state 42 to start from"),
        (good, {"columns": {"stat": "state"}}, "no role `stat`"),
        (write(episodes(), tmp_path / "log.txt2"), {}, "a log is a Parquet or CSV file"),
    ):
        with pytest.raises(DataError) as caught:
            count_log(path, **options)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_bad_arrays_are_refused() -> None:
    good = {"state": [0, 1], "action": [0, 0], "next_state": [1, 0], "reward": [0.0, 1.0]}
    for change, message in (
        ({"costs": [0.0, -1.0]}, "`cost` is negative in row 1"),
        ({"costs": [np.nan, 0.0]}, "`cost` holds a missing or infinite value in row 0"),
        ({"reward": [0.0]}, "has shape"),
        ({"n_states": 1}, "`next_state` holds 1"),
        ({"state": [], "action": [], "next_state": [], "reward": []}, "empty"),
        ({"d0": [1.0]}, "start distribution has shape"),
        ({"initial": [False, False]}, "no start state"),
    ):
        with pytest.raises(DataError, match=message):
            _ = Counts.from_arrays(**{**good, **change}).d0


def test_a_log_that_names_episodes_is_also_counted_by_groups_of_them(tmp_path: Path) -> None:
    """Group by group the log adds up to the whole, and its groups are the same transitions as in memory."""
    rng = np.random.default_rng(0)
    n, episode = 3000, np.repeat(np.arange(60), 50)
    columns = {
        "episode": episode,
        "step": np.tile(np.arange(50), 60),
        "state": rng.integers(4, size=n),
        "action": rng.integers(2, size=n),
        "next_state": rng.integers(4, size=n),
        "reward": rng.normal(size=n),
        "cost": rng.random(n) + episode,
        "terminal": rng.random(n) < 0.1,
    }
    file = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    read = count_log(file)
    assert read.groups is not None
    assert 32 <= len(read.groups) <= 60  # two episodes may share a group
    count, mean, starts = read.groups.weighted(np.ones(len(read.groups)), len(read.count))
    np.testing.assert_array_equal(count, read.count)
    np.testing.assert_allclose(mean, read.mean, rtol=1e-12)
    np.testing.assert_array_equal(starts, read.starts)
    # The mean cost tells which episodes a group holds; each has 50 rows.
    sizes = np.bincount(read.groups.group, weights=read.groups.count)
    assert np.all(sizes % 50 == 0)
    assert count_log(file, start=0).groups is not None
