"""The table of episodes survives its files, whatever the number of constraints."""

from __future__ import annotations

import csv
import dataclasses
import math
import tempfile
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.bench.results import FIELDS, Row, make_runs, read_rows, read_status, read_suite, write_rows
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.score import summarise

numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    constraints = draw(st.integers(0, 3))
    vector = st.tuples(*[numbers] * constraints)
    kinds = {"str": words, "int": st.integers(0, 2**40), "float": numbers, "bool": st.booleans()}
    values = {}
    for field in dataclasses.fields(Row):
        kind = str(field.type)
        base = vector if kind.startswith("tuple") else kinds[kind.split(" ")[0]]
        values[field.name] = draw(st.none() | base if "None" in kind else base)
    return Row(**values)


@given(st.lists(rows(), max_size=5))
@settings(max_examples=50, deadline=None)
def test_rows_are_read_as_they_were_written(written: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_rows(folder, written)
        assert read_rows(folder) == written


def test_one_constraint_has_a_plain_column_and_two_have_numbered_ones(row: Row, tmp_path: Path) -> None:
    write_rows(tmp_path, [row])
    assert list(pyarrow.parquet.read_table(tmp_path / "results.parquet").column_names) == list(FIELDS)
    write_rows(tmp_path, [row, dataclasses.replace(row, cost_limit=(1.0, 2.0), cost=(3.0, 4.0))])
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert (first["cost_limit_1"], first["cost_limit_2"]) == ("10.0", "")
    assert (second["cost_limit_2"], second["cost_2"]) == ("2.0", "4.0")
    assert "cost" not in first


def test_text_and_parquet_hold_the_same_numbers(row: Row, tmp_path: Path) -> None:
    write_rows(tmp_path, [dataclasses.replace(row, reward=math.pi)])
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        assert float(next(csv.DictReader(file))["reward"]) == read_rows(tmp_path)[0].reward == math.pi


def test_a_folder_without_results_is_told_in_one_line(tmp_path: Path) -> None:
    for read in (read_rows, read_suite, read_status):
        with pytest.raises(PdocrlError, match="`pdocrl bench` wrote"):
            read(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(PdocrlError, match="cannot be read"):
        read_rows(tmp_path)


def test_rows_are_runs_of_the_policies_that_played_them(row: Row) -> None:
    """Two episodes of cost 5 and 15 at limit 10: their mean is the limit, and a run of another seed is its own."""
    rows = [
        dataclasses.replace(row, episode=i, seed=seed, training=seed, cost=(cost,), normalized_reward=reward)
        for seed in (0, 5)
        for i, (cost, reward) in enumerate([(5.0, 0.2), (15.0, 0.6)])
    ]
    runs = make_runs(rows)
    assert [(run.task, run.method, run.limit, run.seed, run.training) for run in runs] == [
        ("BallRun", "pdocrl", "10", 0, 0),
        ("BallRun", "pdocrl", "10", 5, 5),
    ]
    assert (runs[0].cost, runs[0].normalized_cost, runs[0].safe) == ([10.0], 1.0, True)
    assert runs[0].normalized_reward == pytest.approx(0.4)
    assert runs[0].normalised_costs.tolist() == [[0.5], [1.5]]
    with pytest.raises(PdocrlError, match="seed 0: an episode stands twice"):
        make_runs([rows[0], rows[0]])


def test_runs_asked_for_a_limit_on_a_tail_are_safe_where_it_holds(row: Row) -> None:
    """One of two episodes costs 15 > 10: half of them, though the mean is at the limit."""
    for limit, safe in (("P(cost>10)<=0.4", False), ("P(cost>10)<=0.5", True)):
        rows = [dataclasses.replace(row, episode=i, cost=(cost,), limits=limit) for i, cost in enumerate((5.0, 15.0))]
        (run,) = make_runs(rows)
        assert (run.safe, [one.satisfied for one in run.limits]) == (safe, [safe])
        assert summarise([run])[0].safe == safe
