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

from pdocrl.bench.results import FIELDS, Row, read_rows, read_status, read_suite, write_rows
from pdocrl.errors import PdocrlError

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
        with pytest.raises(PdocrlError, match="pdocrl bench --out"):
            read(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(PdocrlError, match="cannot be read"):
        read_rows(tmp_path)
