"""Tables as other people write them: their names for columns, an episode column, flags in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pdocrl.data import load
from pdocrl.errors import DataError

Cli = Callable[..., tuple[int, str, str]]
HEADER = "x,speed,force,r,c,done,episode"
ROWS = ["0,0,0.5,1,0,no,a", "1,1,-0.5,2,1,yes,a", "5,0,0.25,3,0,no,b", "6,1,0,4,0,no,b", "7,2,0,5,1,no,b"]
WORDS = ["obs=x,speed", "action=force", "reward=r", "cost=c", "terminal=done"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def test_columns_are_mapped_and_episodes_end_where_their_number_changes(log: Path, run_cli: Cli) -> None:
    status, _, err = run_cli("data", "convert", log, "--out", log.with_suffix(".npz"), "--columns", *WORDS)
    assert status == 0, err
    found = load(log.with_suffix(".npz"))
    # the last row of episode b has no successor, so the one before it becomes the timed-out end
    np.testing.assert_array_equal(found.obs, [[0, 0], [1, 1], [5, 0], [6, 1]])
    np.testing.assert_array_equal(found.next_obs[2:], [[6, 1], [7, 2]])
    assert found.terminal.tolist() == [False, True, False, False]
    assert found.timeout.tolist() == [False, False, False, True]
    assert found.cost[:, 0].tolist() == [0, 1, 0, 0]
    assert run_cli("data", "check", log, "--columns", *WORDS)[0] == 0


def test_the_same_table_as_parquet_reads_the_same(log: Path) -> None:
    table = pyarrow.csv.read_csv(log)
    pyarrow.parquet.write_table(table, log.with_suffix(".parquet"))
    mapping = {"obs": ["x", "speed"], "action": "force", "reward": "r", "cost": "c", "terminal": "done"}
    assert load(log, columns=mapping).digest == load(log.with_suffix(".parquet"), columns=mapping).digest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["obs=x,spede"], "Did you mean `speed`"),
        (["rewards=r"], "unknown field 'rewards'. Did you mean `reward`"),
        (["reward=r,c"], "`reward` is one column, 2 were named"),
        (["reward"], "not of the form name=value"),
    ],
)
def test_a_mapping_that_does_not_fit_is_explained(log: Path, run_cli: Cli, words: list[str], message: str) -> None:
    status, _, err = run_cli("data", "check", log, "--columns", *words)
    assert status == 2
    assert message in err


def test_scattered_episodes_and_strange_flags_are_refused(tmp_path: Path) -> None:
    mapping = {"obs": ["x", "speed"], "action": "force", "reward": "r", "cost": "c", "terminal": "done"}
    path = tmp_path / "x.csv"
    path.write_text("\n".join([HEADER, *ROWS, "1,1,0,1,0,no,a"]) + "\n")
    with pytest.raises(DataError, match="do not stand together"):
        load(path, columns=mapping)
    path.write_text("\n".join([HEADER, ROWS[0].replace("no", "maybe"), *ROWS[1:]]) + "\n")
    with pytest.raises(DataError, match=r"`done` is 'maybe' at row 0. Flags are yes or no"):
        load(path, columns=mapping)


@pytest.mark.parametrize(
    ("rows", "says"),
    [([], "log.csv: no transitions"), ([ROWS[0], ROWS[1].replace("2,1", "2,many")], "`c` holds words, not numbers")],
)
def test_no_rows_and_words_for_numbers_are_one_line(log: Path, run_cli: Cli, rows: list[str], says: str) -> None:
    log.write_text("\n".join([HEADER, *rows]) + "\n")
    status, _, err = run_cli("data", "check", log, "--columns", *WORDS)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
