"""Typed records in files: one way to write them, one way to read them back.

    class Score(Part, frozen=True, kw_only=True):
        cost_limit: list[float]
        reward: float

    class Scores(Record, frozen=True, kw_only=True):
        FORMAT: ClassVar[int] = 2
        task: str
        runs: list[Score]

    write_record(folder / "scores.json", Scores(task="BallRun", runs=[...]))
    scores = read_record(folder / "scores.json", Scores, "Make it again: pdocrl evaluate runs/ballrun.")

A file is one JSON object, {"format": 2, "task": …}. It appears whole or not at all. One that is cut, foreign, of
another format or with a field of another type gives one line that names the file and the field. Fields with defaults
may be missing from a file, and fields nobody knows are passed over, so a record can grow without a new number; a new
number is for a change of meaning. `upgrade` gives the fields of an older format the names and shapes of this one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.files import read_json, write_json


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is made of: fields with types, given by name."""


class Record(Part, frozen=True, kw_only=True):
    """What one file holds. A subclass gives its own `FORMAT` when its fields change their meaning."""

    FORMAT: ClassVar[int] = 1

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        """The fields of an older file (number 0: without one) as they would stand in a file of today; None: cannot."""
        return None


R = TypeVar("R", bound=Record)
T = TypeVar("T")


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record with its format number, whole or not at all. NaN and infinity are refused."""
    write_json(path, {"format": record.FORMAT, **as_plain(record)})


def read_record(path: str | os.PathLike[str], kind: type[R], remedy: str = "") -> R:
    """The record a file holds; the error names file and field, and ends with the remedy."""
    path = Path(path)
    hint = f" {remedy}" if remedy else ""
    try:
        found = read_json(path)
    except PdocrlError as error:
        raise PdocrlError(f"{error}{hint}") from error
    if not isinstance(found, dict):
        raise PdocrlError(f"{path}: holds a {type(found).__name__}, expected an object with fields.{hint}")
    number = found.get("format", 0)
    if number != kind.FORMAT:
        older = isinstance(number, int) and number < kind.FORMAT
        upgraded = _upgraded(kind, found, number) if older else None
        if upgraded is None:
            raise PdocrlError(f"{path}: field `format` is {number!r}, this version reads {kind.FORMAT}.{hint}")
        found = upgraded
    try:
        return from_plain(found, kind)
    except PdocrlError as error:
        raise PdocrlError(f"{path}: {error}{hint}") from error


def as_plain(record: Part) -> dict[str, Any]:
    """The fields as JSON has them: dicts, lists, numbers and text."""
    return dict(msgspec.to_builtins(record, enc_hook=_numbers))


def from_plain(fields: object, kind: type[T]) -> T:
    """The record that plain values describe; the error names the field."""
    try:
        return msgspec.convert(fields, kind, dec_hook=_anything)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`").lstrip(".")
        raise PdocrlError(f"{f'field `{place}`: ' if place else ''}{what[:1].lower()}{what[1:]}.") from error


def _upgraded(kind: type[Record], found: dict[str, Any], number: int) -> dict[str, Any] | None:
    """A file of another kind has not the fields an upgrade looks for."""
    try:
        return kind.upgrade(found, number)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        return None


def _numbers(value: object) -> object:
    """NumPy's numbers and arrays, sequences of any kind, and paths, as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a record cannot hold a {type(value).__name__}")


def _anything(kind: type, value: object) -> object:
    """A field of type `object` holds whatever JSON does."""
    if kind is object:
        return value
    raise NotImplementedError(f"a record cannot hold a {kind.__name__}")
