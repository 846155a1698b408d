"""Columns of a table by name: read from files, DataFrames or dicts, checked, and given a kind.

A value that cannot be used is refused in one line with the file, the column, the row (from 1) and what to do.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.io.log_paths import check_columns, check_names, find_files, reader, unreadable
from pdocrl.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Label: TypeAlias = str | int
Kind = Literal["numeric", "categorical", "boolean"]

TRUE, FALSE = {"true", "yes", "y", "t"}, {"false", "no", "n", "f"}
UNKNOWN = {"na", "n/a", "#n/a", "nan", "null", "none", "missing", "unknown", "-", "?", "."}  # among numbers
MOST_CATEGORIES = 50  # words with more distinct values than this, most of them rare, are names of rows
FEWEST_NAMES = 200  # whole numbers that differ in at least so many rows or episodes, all of them, are their names
COMMAS = r"[-+]?[\d,. ]*\d"
PROPENSITY = "propensity"
REMEDY = "fill it in or leave the row's episode out"


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """One column of features."""

    name: str
    kind: Kind
    values: Floats  # [N] numbers, 0/1, or the category's place in `categories`; 0 where missing
    missing: Flags  # [N]
    categories: tuple[str, ...] = ()

    def take(self, rows: Any) -> Column:
        return dataclasses.replace(self, values=self.values[rows], missing=self.missing[rows])

    def raw(self) -> NDArray[Any]:
        """[N] as a person writes it: words, booleans or numbers; None or NaN where missing."""
        if self.kind == "numeric":
            return np.where(self.missing, np.nan, self.values)
        known: Sequence[Any] = self.categories if self.kind == "categorical" else (False, True)
        if self.kind == "boolean" and not self.missing.any():
            return self.values.astype(bool)
        found = np.array([*known, None], object)
        return np.asarray(found[np.where(self.missing, len(known), self.values.astype(np.int64))])


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns that were read."""

    columns: dict[str, NDArray[Any]]  # name → [N]; masked arrays have missing values
    name: str  # for messages


@dataclasses.dataclass(frozen=True)
class SampledFiles:
    """Files of which only a share of the episodes is read, chosen by a hash of their names."""

    files: tuple[str, ...]
    episode: str
    share: float  # of the episodes
    total: int  # rows of the files

    @classmethod
    def of(cls, source: Any, episode: str, most: int) -> SampledFiles:
        """A share that leaves about `most` rows."""
        import duckdb

        files = find_files(source if isinstance(source, str | list | tuple) else Path(source))
        try:
            with duckdb.connect() as connection:
                total = int((connection.execute(f"SELECT count(*) FROM {reader(files)}").fetchone() or (0,))[0])
        except duckdb.Error as error:
            raise unreadable(files, error) from None
        return cls(tuple(files), episode, min(1.0, most / max(total, 1)), total)

    @property
    def condition(self) -> str:
        """SQL that keeps the share; nothing where all is read."""
        if self.share >= 1:
            return ""
        name = '"' + self.episode.replace('"', '""') + '"'
        return f" WHERE hash(CAST({name} AS VARCHAR)) % 1000000 < {int(1e6 * self.share)}"


def column_names(source: Any) -> list[str]:
    """The columns of a log, without reading it."""
    if isinstance(source, str | os.PathLike | list | tuple):
        import duckdb

        files = find_files(source if isinstance(source, str | list | tuple) else Path(source))
        try:
            with duckdb.connect() as connection:
                found = connection.execute(f"DESCRIBE SELECT * FROM {reader(files)}").fetchall()
        except duckdb.Error as error:
            raise unreadable(files, error) from None
        names = [str(row[0]) for row in found]
        check_columns(files[0], names)
        return names
    if isinstance(source, Mapping):
        return [str(name) for name in source]
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        return [str(name) for name in source.columns]
    raise DataError(f"a log is a file, a DataFrame or a dict of arrays, not a {type(source).__name__}.")


def read_table(source: Any) -> Table:
    """The columns of a log."""
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike | list | tuple):
        return _from_files(find_files(source if isinstance(source, str | list | tuple) else Path(source)))
    if isinstance(source, SampledFiles):
        there = source.share < 1 and source.episode in column_names(list(source.files))
        return _from_files(list(source.files), source.condition if there else "")
    if isinstance(source, Mapping):
        table: dict[str, NDArray[Any]] = {str(name): np.ma.asarray(values) for name, values in source.items()}
        name = "the log"
    elif hasattr(source, "columns") and hasattr(source, "__getitem__"):
        table = {str(c): np.ma.asarray(np.asarray(source[c])) for c in source.columns}
        name = "the DataFrame"
    else:
        raise DataError(f"a log is a file, a DataFrame or a dict of arrays, not a {type(source).__name__}.")
    sizes = {column: len(values) if values.ndim == 1 else -1 for column, values in table.items()}
    if len(set(sizes.values())) > 1 or -1 in sizes.values():
        raise DataError(f"{name}: columns must be of one dimension and one length, not {sizes}.")
    return Table(table, name)


def read_part(source: Any, condition: str, computed: Mapping[str, str] | None = None) -> Table:
    """Rows of files that a condition in SQL keeps; columns are of the kinds that they are in the whole files.

    `computed` {name: expression in SQL} are further columns.
    """
    files = find_files(source if isinstance(source, str | list | tuple) else Path(source))
    return _from_files(files, condition, computed or {})


def _from_files(files: list[str], condition: str = "", computed: Mapping[str, str] | None = None) -> Table:
    """Columns of text that holds nothing but numbers become numbers."""
    import duckdb

    name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    try:
        with duckdb.connect() as connection:
            check_names(connection, files)
            rows = reader(files)
            types = {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()}
            quoted = {column: '"' + column.replace('"', '""') + '"' for column in types}
            text = [column for column, kind in types.items() if kind == "VARCHAR"]
            counts = "".join(f", count(TRY_CAST({quoted[c]} AS DOUBLE)) = count({quoted[c]})" for c in text)
            numeric = (connection.execute(f"SELECT count(*){counts} FROM {rows}").fetchone() or ())[1:]
            cast = {column for column, all_numbers in zip(text, numeric, strict=True) if all_numbers}
            cast |= {column for column, kind in types.items() if kind.startswith(("DECIMAL", "HUGEINT"))}
            trimmed = {column: f"TRIM({quoted[column]}) AS {quoted[column]}" for column in text}
            wanted = [f"CAST({q} AS DOUBLE) AS {q}" if c in cast else trimmed.get(c, q) for c, q in quoted.items()]
            made = {f'"{name}"': expression for name, expression in (computed or {}).items()}
            wanted += [f"{expression} AS {name}" for name, expression in made.items()]
            table = connection.execute(f"SELECT {', '.join(wanted)} FROM {rows}{condition}").fetchnumpy()
    except duckdb.Error as error:
        raise unreadable(files, error) from None
    return Table({column: np.ma.asarray(table[column]) for column in [*types, *(computed or {})]}, name)


def _missing(values: NDArray[Any]) -> Flags:
    """[N] masked, None, NaN, NaT or an empty word."""
    mask = np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind in "fmM":
        return np.asarray(mask | (np.isnat(data) if data.dtype.kind in "mM" else np.isnan(data)))
    if data.dtype.kind in "OUST":
        return np.asarray(
            mask | np.array([x is None or x == "" or x != x or str(x) == "<NA>" for x in data.tolist()], bool)
        )
    return np.asarray(mask)


def _refuse(name: str, column: str, bad: Flags, values: NDArray[Any], must: str, remedy: str = REMEDY) -> None:
    """One line for the first row at fault."""
    rows = np.flatnonzero(bad)
    if rows.size:
        more = f" (and in {rows.size - 1} more)" if rows.size > 1 else ""
        value = np.ma.getdata(values)[rows[0]]
        found = "a missing value" if _missing(values)[rows[0]] else repr(getattr(value, "tolist", lambda: value)())
        raise DataError(f"{name}: column `{column}`, row {rows[0] + 1}{more}: {found}, {must}; {remedy}.")


def as_floats(values: NDArray[Any]) -> Floats:
    """[N]; NaN where it is no number."""

    def number(x: Any) -> float:
        try:
            return float(x)
        except (TypeError, ValueError):
            return np.nan

    data = np.ma.getdata(values)
    if data.dtype.kind in "fiub":
        return np.where(np.ma.getmaskarray(values), np.nan, data.astype(np.float64))
    return np.where(_missing(values), np.nan, np.array([number(x) for x in data.tolist()], np.float64))


def numbers(name: str, column: str, values: NDArray[Any]) -> Floats:
    found = as_floats(values)
    _refuse_commas(name, column, values)
    _refuse(name, column, ~np.isfinite(found), values, "expected a finite number")
    return found


def times(name: str, column: str, values: NDArray[Any]) -> Floats:
    """[N] numbers, or dates (ISO 8601 where they are words) as seconds."""
    data, missing = np.ma.getdata(values), _missing(values)
    if data.dtype.kind == "O" and all(isinstance(x, datetime.date) for x in data[~missing].tolist()):
        data = np.where(missing, "NaT", data.astype(str))
    if data.dtype.kind in "OUS" and not np.isfinite(as_floats(values)[~missing]).all():
        try:
            data = np.where(missing, "NaT", data.astype(str)).astype("datetime64[us]")
        except ValueError:
            remedy = "give numbers or dates such as 2024-01-31 12:00, or drop the column where rows are in time order"
            bad = ~missing & ~np.isfinite(as_floats(values))
            _refuse(name, column, bad, values, "expected a number or a date", remedy)
    if data.dtype.kind == "M":
        _refuse(name, column, missing, values, "expected a date")
        return np.asarray(data.astype("datetime64[us]").astype(np.int64) / 1e6, np.float64)
    return numbers(name, column, values)


def _refuse_commas(name: str, column: str, values: NDArray[Any]) -> None:
    """Numbers written with commas: no reader can tell a decimal comma from a separator of thousands."""
    data, missing = np.ma.getdata(values), _missing(values)
    if data.dtype.kind not in "OUS" or missing.all():
        return
    words = [str(x) for x in data[~missing].tolist()]
    if any("," in word for word in words) and all(re.fullmatch(COMMAS, word) for word in words):
        bad = np.zeros(len(data), bool)
        bad[~missing] = ["," in word for word in words]
        remedy = "write numbers with a decimal point and without separators of thousands"
        _refuse(name, column, bad, values, "a number with a comma", remedy)


def propensities(name: str, column: str, values: NDArray[Any]) -> Floats:
    found = as_floats(values)
    remedy = "give the probability of the logged action, or leave the column out to have it estimated"
    _refuse(name, column, ~((found > 0) & (found <= 1)), values, "expected a probability in (0, 1]", remedy)
    return found


def labels(name: str, column: str, values: NDArray[Any]) -> tuple[Ints, tuple[Label, ...]]:
    """Codes [N] and labels: integers where all are, in order; words otherwise."""
    _refuse(name, column, _missing(values), values, "expected a label")
    data = np.ma.getdata(values)
    if data.dtype.kind in "fiub" and np.all(data == np.floor(data)):
        found, codes = np.unique(data.astype(np.int64), return_inverse=True)
        return codes.astype(np.int64), tuple(int(x) for x in found)
    words, codes = np.unique(np.array([str(x) for x in data.tolist()]), return_inverse=True)
    return codes.astype(np.int64), tuple(str(x) for x in words)


def first_seen(codes: Ints) -> Ints:
    """The same groups, numbered in order of appearance."""
    _, first = np.unique(codes, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[codes]


def _truths(values: NDArray[Any]) -> Floats | None:
    """[N] 0 or 1 (NaN where missing) of booleans in words or not; None where they are something else."""
    data, missing = np.ma.getdata(values), _missing(values)
    if data.dtype.kind == "b":
        return np.where(missing, np.nan, data.astype(np.float64))
    if data.dtype.kind not in "OUST" or missing.all():
        return None
    words = [str(x).lower() for x in data.tolist()]
    truth = np.array([1.0 if w in TRUE else 0.0 if w in FALSE else -1.0 for w in words])
    return None if (truth[~missing] < 0).any() else np.where(missing, np.nan, truth)


def flags(name: str, column: str, values: NDArray[Any]) -> Flags:
    truth = _truths(values)
    found = as_floats(values) if truth is None else truth
    _refuse(name, column, ~np.isin(found, (0.0, 1.0)), values, "expected true or false", "write true or false")
    return np.asarray(found == 1)


def feature_columns(
    name: str,
    table: dict[str, NDArray[Any]],
    columns: Sequence[str] | None,
    used: set[str],
    episode: Ints | None = None,
    categorical: Sequence[str] = (),
) -> tuple[list[Column], tuple[str, ...]]:
    """The feature columns, and those left out.

    Left out are names of rows or of episodes [N], `next_x` beside x (the future), and `propensity`, which is of the
    decision and no state. `categorical` are so whatever their values are.
    """
    found: list[Column] = []
    ignored: list[str] = []
    for column in table if columns is None else columns:
        if column in used:
            continue
        one = _column(name, column, table[column], column in categorical)
        if columns is None:
            ahead = column.startswith("next_") and column.removeprefix("next_") in table
            if ahead or column == PROPENSITY or _is_name(one, episode):
                ignored.append(column)
                continue
        elif len(one.categories) > max(MOST_CATEGORIES, 0.5 * len(one.values)):
            raise DataError(
                f"{name}: column `{column}` has {len(one.categories)} distinct words in {len(one.values)} rows, so it "
                "names rows; leave it out, or make numbers of it (a date: the days since …)."
            )
        found.append(one)
    return found, tuple(ignored)


def _is_name(one: Column, episode: Ints | None) -> bool:
    """Whether a column names rows or episodes: nearly all its words differ, or all its whole numbers do."""
    if len(one.categories) > max(MOST_CATEGORIES, 0.05 * len(one.values)):
        return True
    whole = one.kind == "numeric" and not one.missing.any() and bool((one.values == np.floor(one.values)).all())
    if one.missing.any() or not (whole or one.kind == "categorical"):
        return False
    if whole and len(one.values) >= FEWEST_NAMES and len(np.unique(one.values)) == len(one.values):
        return True
    if episode is None:
        return False
    pairs = np.unique(np.c_[episode, one.values], axis=0)
    episodes, each = len(np.unique(episode)), len(np.unique(one.values))
    return len(pairs) == episodes == each >= (FEWEST_NAMES if whole else MOST_CATEGORIES)


def _column(name: str, column: str, values: NDArray[Any], categorical: bool = False) -> Column:
    missing = _missing(values)
    truth = None if categorical else _truths(values)
    if truth is not None:
        return Column(column, "boolean", np.where(missing, 0.0, truth), missing)
    numbers = as_floats(values)
    unknown = ~missing & np.isnan(numbers)
    if unknown.any() and not np.isnan(numbers).all() and not categorical:
        unclear = {str(x).strip().lower() for x in np.ma.getdata(values)[unknown].tolist()}
        missing = missing | unknown if unclear <= UNKNOWN else missing
    if categorical or np.isnan(numbers[~missing]).any():
        _refuse_commas(name, column, values)
        words = np.where(missing, "", np.array([str(x) for x in np.ma.getdata(values).tolist()]))
        categories, codes = np.unique(words[~missing], return_inverse=True)
        places = np.zeros(len(words))
        places[~missing] = codes
        return Column(column, "categorical", places, missing, tuple(str(x) for x in categories))
    _refuse(name, column, np.isinf(numbers), values, "expected a finite number", "leave it empty where it is unknown")
    return Column(column, "numeric", np.where(missing, 0.0, numbers), missing)
