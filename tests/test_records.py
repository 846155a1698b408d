"""Records are read back as they were written, and what cannot be read is told in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.records import Part, Record, as_plain, read_record, write_record


class Inner(Part, frozen=True, kw_only=True):
    limit: list[float]
    seed: int = 0


class Outer(Record, frozen=True, kw_only=True):
    FORMAT: ClassVar[int] = 2
    task: str
    runs: list[Inner]
    settings: dict[str, object] = {}  # noqa: RUF012

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        return {**fields, "runs": [{"limit": [run["limit"]]} for run in fields["runs"]]} if number == 1 else None


def test_what_is_written_is_read_back_with_its_types(tmp_path: Path) -> None:
    record = Outer(task="CarRun", runs=[Inner(limit=[10.0], seed=3), Inner(limit=[])], settings={"a": [8, "x"], "b": 1})
    write_record(tmp_path / "outer.json", record)
    assert read_record(tmp_path / "outer.json", Outer) == record
    assert json.loads((tmp_path / "outer.json").read_text())["format"] == 2


def test_numbers_of_numpy_become_plain_numbers() -> None:
    record = Outer(task="CarRun", runs=[Inner(limit=np.array([1.5, 2.0]), seed=np.int64(4))])  # type: ignore[arg-type]
    assert as_plain(record)["runs"] == [{"limit": [1.5, 2.0], "seed": 4}]


def test_an_older_file_is_upgraded(tmp_path: Path) -> None:
    (tmp_path / "outer.json").write_text('{"format": 1, "task": "CarRun", "runs": [{"limit": 10.0}]}')
    assert read_record(tmp_path / "outer.json", Outer).runs[0].limit == [10.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ('{"format": 2, "task": ', "cannot be read"),
        ("[1, 2]", "expected an object"),
        ('{"task": "CarRun", "runs": []}', "`format` is 0, this version reads 2"),
        ('{"format": 3, "task": "CarRun", "runs": []}', "`format` is 3, this version reads 2"),
        ('{"format": 1, "other": "file"}', "`format` is 1, this version reads 2"),
        ('{"format": 2, "runs": []}', "missing required field `task`"),
        ('{"format": 2, "task": 7, "runs": []}', "field `task`: expected `str`, got `int`"),
        ('{"format": 2, "task": "x", "runs": [{"limit": ["a"]}]}', "field `runs[0].limit[0]`: expected `float`"),
    ],
)
def test_a_broken_or_foreign_file_is_one_line_with_file_field_and_remedy(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "outer.json"
    path.write_text(text)
    with pytest.raises(PdocrlError) as told:
        read_record(path, Outer, "Make it again.")
    message = str(told.value)
    assert says in message
    assert str(path) in message
    assert message.endswith("Make it again.")
    assert "\n" not in message


def test_a_missing_file_is_told_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(PdocrlError, match=r"no outer\.json here"):
        read_record(tmp_path / "outer.json", Outer)


def test_a_number_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path / "outer.json", Outer(task="x", runs=[Inner(limit=[float("nan")])]))
    assert not (tmp_path / "outer.json").exists()
