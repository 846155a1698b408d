"""Logs as people have them: packed, in parts, with times, flags and decimals; each works or is told in one line."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import pdocrl
from pdocrl.errors import DataError, PdocrlError
from pdocrl.tabular.api import solve
from pdocrl.tabular.io.cells import CellSpec
from pdocrl.tabular.io.logs import count_log
from pdocrl.tabular.result.policy import InputError, load
from pdocrl.tabular.result.report import notes
from pdocrl.tabular.workflow import LogOptions, solve_log

Run = Callable[..., tuple[int, str, str]]
N = 60


def table(**changes: object) -> pyarrow.Table:
    rng = np.random.default_rng(0)
    s = rng.integers(3, size=N)
    columns: dict[str, object] = {
        "state": s,
        "action": rng.integers(2, size=N),
        "next_state": np.append(s[1:], s[0]),
        "reward": rng.random(N),
    }
    return pyarrow.table({k: v for k, v in {**columns, **changes}.items() if v is not None})


def write(data: pyarrow.Table, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(data, path)
    else:
        packed = {"gz": "gzip", "zst": "zstd"}.get(path.suffix[1:], "none")
        with duckdb.connect() as connection:
            connection.register("data", data)
            connection.execute(f"COPY data TO '{path}' (FORMAT csv, HEADER, COMPRESSION {packed})")
    return str(path)


def test_packed_files_folders_and_patterns_are_the_same_log(tmp_path: Path) -> None:
    whole = count_log(write(table(), tmp_path / "whole.parquet"))
    for name in ("log.csv", "log.csv.gz", "log.csv.zst"):
        np.testing.assert_array_equal(count_log(write(table(), tmp_path / name)).count, whole.count)
    for k in range(3):
        write(table().slice(20 * k, 20), tmp_path / "parts" / f"site={k}" / f"part{k}.parquet")
    for path in (tmp_path / "parts", tmp_path / "parts" / "site=[012]" / "part?.parquet"):
        np.testing.assert_array_equal(count_log(str(path)).count, whole.count)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"no \.parquet or \.csv files"):
        count_log(tmp_path / "none")


def test_times_decimals_flags_categories_and_unicode_are_understood(tmp_path: Path) -> None:
    start = datetime.datetime(2026, 1, 1)
    times = [start + datetime.timedelta(hours=k) for k in range(N)]
    days = [start + datetime.timedelta(days=k // 6) for k in range(N)]
    order = np.random.default_rng(1).permutation(N)
    labels = np.array(["früh", "日本", "нет"])[np.random.default_rng(0).integers(3, size=N)]
    data = table(
        state=pyarrow.array(labels).dictionary_encode(),
        next_state=np.append(labels[1:], labels[0]),
        action=[bool(k % 2) for k in range(N)],
        reward=[decimal.Decimal(k) / 4 for k in range(N)],
        cost=[k % 3 == 0 for k in range(N)],
        step=times,
        episode=days,
    )
    counts = count_log(write(data.take(order), tmp_path / "log.parquet"))
    assert set(counts.states) == {"früh", "日本", "нет"}
    assert counts.actions == (0, 1)
    assert counts.starts.sum() == 10
    first = [labels[k] for k in range(0, N, 6)]
    assert counts.starts.tolist() == [first.count(state) for state in counts.states]
    text = count_log(write(data.take(order), tmp_path / "log.csv"))
    np.testing.assert_array_equal(text.starts, counts.starts)
    assert counts.costs.max() <= 1


def test_decimal_labels_are_integers_where_they_are_whole(tmp_path: Path) -> None:
    states = [decimal.Decimal(k % 3).quantize(decimal.Decimal("1.00")) for k in range(N)]
    counts = count_log(write(table(state=states, next_state=[*states[1:], states[0]]), tmp_path / "log.parquet"))
    assert counts.states == (0, 1, 2)


def test_one_row_is_a_log(run_cli: Run, tmp_path: Path) -> None:
    log = write(table().slice(0, 1).set_column(2, "next_state", table().slice(0, 1)["state"]), tmp_path / "one.parquet")
    status, out, err = run_cli("solve", log, "--gamma", "0.9", "--resamples", "5", "--refits", "1", "--json")
    assert status == 0, err
    assert json.loads(out)["policy"][0]["probability"] == 1


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = tmp_path / "twice.csv"
    twice.write_text("state,action,next_state,reward,reward\n0,0,0,1,2\n0,1,0,1,2\n")
    with pytest.raises(DataError, match="two columns are called `reward`"):
        count_log(twice)
    both = pyarrow.Table.from_arrays([*table().columns, table()["reward"]], names=[*table().column_names, "reward"])
    with pytest.raises(DataError, match="two columns are called `reward`"):
        count_log(write(both, tmp_path / "twice.parquet"))


def test_a_flag_that_is_none_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'yes' is neither true nor false; write true or false, or 1 or 0"):
        count_log(write(table(terminal=["yes"] * N), tmp_path / "log.parquet"))


def continuous(n: int = 3000) -> pyarrow.Table:
    """A stock in [0, 10] that is sold and ordered; its next value is in the next row."""
    rng = np.random.default_rng(0)
    stock, order, level = [], rng.integers(2, size=n), 5.0
    for k in range(n):
        level = rng.uniform(0, 10) if k % 30 == 0 else level
        stock.append(level)
        level = float(np.clip(level + 3 * order[k] - rng.uniform(0, 3), 0, 10))
    x = np.array(stock)
    columns = {"stock": x, "kind": np.where(x > 3, "a", "b"), "action": order, "reward": np.minimum(x, 2) - 0.1 * order}
    return pyarrow.table(columns | {"cost": (x < 1) * 1.0, "episode": np.arange(n) // 30, "step": np.arange(n) % 30})


def test_bins_make_states_that_travel_with_the_policy(run_cli: Run, tmp_path: Path) -> None:
    data = continuous()
    log = write(data, tmp_path / "log.parquet")
    quick = ("--gamma", "0.9", "--C", "5", "--resamples", "5", "--refits", "1", "--limit", "cost<=0.3")
    out = tmp_path / "policy"
    status, _, err = run_cli("solve", log, *quick, "--bins", "stock=8", "kind=values", "--out", str(out))
    assert status == 0, err
    policy = load(out)
    content = json.loads((out / "policy.json").read_text())
    np.testing.assert_allclose(content["cells"]["edges"][0], np.linspace(*np.quantile(data["stock"], [0, 1]), 9)[1:-1])
    seen = {row["state"] for row in content["rows"]}
    for value in (0.0, 1.3, 4.9, 9.99):
        name = policy.state({"stock": value, "kind": "a" if value > 3 else "b"})
        assert name in seen
    assert policy.act({"stock": 4.2, "kind": "a"}) in (0, 1)
    with pytest.raises(InputError, match="`kind` is 'c', which the log never had; it has a, b"):
        policy.act({"stock": 4.2, "kind": "c"})
    status, said, err = run_cli("solve", log, *quick[:2], "--compare", str(out), str(out), "--json")
    assert status == 0, err
    judged = json.loads(said)["policies"][0]  # by the cells it was stored with
    assert judged["outside"] < 0.05


def test_bins_that_collapse_are_told(tmp_path: Path) -> None:
    data = continuous()
    data = data.set_column(data.column_names.index("stock"), "stock", pyarrow.array(np.full(len(data), 4.0)))
    counts = count_log(write(data, tmp_path / "log.parquet"), cells=CellSpec.parse(["stock=quantile:2"], None, []))
    assert counts.n_states == 1
    said = notes(solve(counts, 0.9, (), C=np.inf, resamples=0), counts)
    assert "`stock` has one bin in place of 2: too many of its values are the same." in said


def test_a_bandit_with_episodes_says_where_they_begin(tmp_path: Path) -> None:
    data = table(episode=np.arange(N), step=np.zeros(N, int), terminal=[True] * N)
    counts = count_log(write(data, tmp_path / "log.parquet"))
    said = notes(solve(counts, 0.9, (), C=np.inf, resamples=0), counts)
    assert not any("where episodes begin" in note for note in said)


def test_coarse_cells_are_told_to_hide_more_than_fine_ones(tmp_path: Path) -> None:
    log = write(continuous(), tmp_path / "log.parquet")
    shares = []
    for bins in ("stock=2", "stock=quantile:20"):
        counts = count_log(log, cells=CellSpec.parse([bins], None, []))
        assert counts.cells is not None
        shares.append({one.signal: one.share for one in counts.cells.hidden})
    assert shares[0]["next_stock"] > 0.15
    assert shares[1]["next_stock"] < 0.02
    assert shares[0]["reward"] > shares[1]["reward"]


def test_a_frequent_least_value_is_a_bin_of_its_own(tmp_path: Path) -> None:
    """Two bins of equal size cannot be had where 60 % of the rows are 0; once there was one bin, and no word of it."""
    x = np.where(np.arange(400) % 5 < 3, 0.0, 1.0 + np.arange(400) % 7)
    columns = {"x": x, "action": np.arange(400) % 2, "reward": x, "cost": x, "episode": np.arange(400) // 10}
    log = write(pyarrow.table(columns | {"step": np.arange(400) % 10}), tmp_path / "log.parquet")
    counts = count_log(log, cells=CellSpec.parse(["x=quantile:2"], None, []))
    assert counts.cells is not None
    assert counts.cells.values["edges"] == [[1.0]]
    assert set(counts.states) == {"x=0", "x=1"}


def test_clusters_assign_as_the_policy_does(tmp_path: Path) -> None:
    data = continuous()
    log = write(data, tmp_path / "log.parquet")
    counts = count_log(log, cells=CellSpec.parse([], 12, ["stock"]))
    assert counts.n_states == 12
    assert counts.cells is not None
    centres = np.array(counts.cells.values["centres"])[:, 0] * counts.cells.values["scale"][0]
    centres += counts.cells.values["mean"][0]
    stock = data["stock"].to_numpy()
    has_next = data["step"].to_numpy() < 29
    near = np.abs(stock[:, None] - centres).argmin(axis=1)[has_next]
    np.testing.assert_array_equal(counts.n.sum(axis=1)[np.argsort([int(s) for s in counts.states])], np.bincount(near))
    again = count_log(log, cells=CellSpec.parse([], 12, ["stock"]), threads=1)
    np.testing.assert_array_equal(again.count, counts.count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bins", "stock"), "write it as stock=10"),
        (("--bins", "stok=3"), "no column `stok`. Did you mean `stock`?"),
        (("--bins", "kind=3"), "bins need numbers"),
        (("--bins", "stock=3", "--cluster", "4"), "not both"),
        (("--cluster", "4"), "--cells the columns"),
        (("--cluster", "4", "--cells", "stock", "kind"), "column `kind` of --cells has values that are missing or no"),
    ],
)
def test_cells_that_cannot_be_made_are_one_line(run_cli: Run, tmp_path: Path, options: tuple, message: str) -> None:
    log = write(continuous(100), tmp_path / "log.parquet")
    status, _, err = run_cli("solve", log, "--gamma", "0.9", *options)
    assert status == 2
    assert message in " ".join(err.split())


def test_numbers_too_large_to_square_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column `reward` goes up to 1e\+308; give it in a larger unit"):
        count_log(write(table(reward=[1e308] * N), tmp_path / "log.parquet"))


def test_a_cost_too_small_to_be_priced_counts_as_none(run_cli: Run, tmp_path: Path) -> None:
    rows = "".join(f"0,{i % 2},0,1,{i % 2 and '1e-308'}\n" for i in range(40))
    (tmp_path / "log.csv").write_text(f"state,action,next_state,reward,cost\n{rows}")
    asked = ("--gamma", "0.5", "--C", "inf", "--limit", "cost<=0", "--resamples", "0", "--json")
    status, out, _ = run_cli("solve", tmp_path / "log.csv", *asked)
    assert (status, json.loads(out)["status"]) == (0, "optimal")


def test_clusters_of_either_half_are_solved_beside_those_of_all_rows(run_cli: Run, tmp_path: Path) -> None:
    log = write(continuous(), tmp_path / "log.parquet")
    quick = ("--gamma", "0.9", "--C", "inf", "--resamples", "0", "--limit", "cost<=0.5", "--cells", "stock", "--json")
    apart = []
    for cells in ("3", "25"):
        status, out, err = run_cli("solve", log, *quick, "--cluster", cells)
        assert status == 0, err
        found = json.loads(out)
        others = [one["value"] for one in found["clusterings"]]
        assert len({found["value"], *others}) == 3  # centres of other rows lie elsewhere
        apart.append(max(abs(value - found["value"]) for value in others))
    assert apart[1] < 0.1
    status, out, _ = run_cli("solve", log, *quick[:-3], "--bins", "stock=4", "--json")
    assert "clusterings" not in json.loads(out)


@pytest.mark.parametrize("bad", [np.nan, np.inf, None])
@pytest.mark.parametrize("cells", [("--bins", "stock=4"), ("--cluster", "3", "--cells", "stock")])
def test_cells_of_missing_values_are_refused_with_a_remedy(
    run_cli: Run, tmp_path: Path, bad: float | None, cells: tuple[str, ...]
) -> None:
    rows = continuous()
    stock = rows["stock"].to_pylist()
    stock[7] = bad
    rows = rows.set_column(rows.schema.get_field_index("stock"), "stock", pyarrow.array(stock))
    log = write(rows, tmp_path / "log.parquet")
    status, _, err = run_cli("solve", log, "--gamma", "0.9", "--C", "2", "--resamples", "0", *cells)
    assert status == 2
    assert "column `stock`" in err
    assert "solve with --state-columns, which takes missing values" in err


def test_an_example_is_solved_by_its_name_from_python() -> None:
    result = pdocrl.solve("inventory", 0.97, ["delivery<=0.3"], C=2, resamples=0)
    assert result.status == "optimal"
    with pytest.raises(DataError, match=r"no example of that name\. Did you mean `inventory`\?"):
        pdocrl.solve("inventorry", 0.97)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: solve_log("inventory"), "Give gamma, such as 0.97, or horizon for episodes"),
        (lambda: solve_log("inventory", 2.0), "gamma is 2.0"),
        (lambda: solve_log("inventory", 0.9, limit_horizon=3, read=LogOptions(horizon=3)), "limit_horizon for"),
        (lambda: CellSpec.parse(("x=3",), 2, ("x",)), "give bins or cluster, not both"),
        (lambda: CellSpec.parse(("x",), None, ()), "bins 'x' is not understood"),
        (lambda: pdocrl.certify(), "a policy with a log, or audit=FILE"),
        (lambda: pdocrl.certify("policy", limits="cost<=1"), "limits are for log or audit"),
        (lambda: pdocrl.collect("BallRun", budget="soon"), "budget 'soon': write steps"),
        (lambda: pdocrl.collect("BallRun", budget=100, cost_max=(1, 2)), "cost_max has 2 numbers for 1 costs"),
    ],
)
def test_python_is_answered_in_words_of_python(call: Callable[[], object], words: str) -> None:
    with pytest.raises(PdocrlError) as raised:
        call()
    assert words in str(raised.value)
    assert "--" not in str(raised.value)


def test_the_command_line_is_answered_in_words_of_its_own(run_cli: Run) -> None:
    assert "Give --gamma, such as 0.97, or --horizon for episodes." in run_cli("solve", "inventory")[2]
    assert "a policy with --log FILE, or --audit FILE with limits." in run_cli("certify")[2]
