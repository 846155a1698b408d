"""Logs read part by part, whole episodes each, so that no more than a part is in memory; continuous actions.

Episodes are dealt to parts by a hash of their names, and DuckDB reads one part at a time; bandits by their rows.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.data.io.log_paths import find_files, reader
from pdocrl.data.named_columns import (
    PROPENSITY,
    Floats,
    Ints,
    Label,
    Table,
    as_floats,
    column_names,
    read_part,
    read_table,
)
from pdocrl.errors import DataError, by_door

PART = 250_000  # rows in memory at once, about
MOST_ROWS = 3_000_000  # of files; more are read part by part
SAMPLE = 200_000  # rows of the sample that functions are fitted on, about
CONSTANT, FOLD = "_constant action", "_fold"


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the columns are; see `EventLog.read`."""

    action: str = "action"
    reward: str = "reward"
    costs: Sequence[str] | None = None
    episode: str | None = "episode"
    step: str | None = None
    terminal: str | None = None
    decider: str | None = None
    propensity: str | None = None
    columns: Sequence[str] | None = None


def count_rows(source: Any) -> int:
    """Of files; 0 of what is in memory."""
    if not isinstance(source, str | os.PathLike | list | tuple):
        return 0
    return int(_ask(source, "count(*)")[0][0])


def in_parts(source: Any, stream: bool | None) -> bool:
    """Whether to read a log part by part."""
    return count_rows(source) > MOST_ROWS if stream is None else stream


def is_continuous(source: Any, action: str) -> bool:
    """Whether the actions are numbers that are not all whole."""
    if isinstance(source, str | os.PathLike | list | tuple):
        if action not in column_names(source):
            return False
        number = f"TRY_CAST({_quoted(action)} AS DOUBLE)"
        [(whole, known, rows)] = _ask(
            source, f"count(*) FILTER ({number} = floor({number})), count({number}), count({_quoted(action)})"
        )
        return bool(known == rows and whole < known)
    table = source.columns if isinstance(source, Table) else source
    if action not in table:
        return False
    values = np.ma.getdata(np.ma.asarray(np.asarray(table[action])))
    numbers = values[np.isfinite(values)] if values.dtype.kind == "f" else np.zeros(0)
    return bool((numbers != np.floor(numbers)).any())


def with_own_propensity(source: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Names of columns, among them that of a column `propensity` which nobody named and which holds propensities.

    Those of discrete actions lie in (0, 1], of continuous ones above 0. `propensity=None` has them estimated.
    """
    given = [name for one in columns.values() for name in (one if isinstance(one, list | tuple) else [one])]
    if PROPENSITY in columns or PROPENSITY in given or PROPENSITY not in column_names(source):
        return columns
    most = np.inf if is_continuous(source, columns.get("action", "action")) else 1.0
    if isinstance(source, str | os.PathLike | list | tuple):
        number = f"TRY_CAST({_quoted(PROPENSITY)} AS DOUBLE)"
        [(smallest, largest, known, rows)] = _ask(
            source, f"min({number}), max({number}), count({number}) FILTER (isfinite({number})), count(*)"
        )
    else:
        table = source.columns if isinstance(source, Table) else source
        values = as_floats(np.ma.asarray(np.asarray(table[PROPENSITY])))
        known, rows = int(np.isfinite(values).sum()), len(values)
        smallest, largest = values.min(initial=np.inf), values.max(initial=0.0)
    sound = rows > 0 and known == rows and smallest > 0 and largest <= most
    return columns | {PROPENSITY: PROPENSITY} if sound else columns


class Parts:
    """Logs of whole episodes, one after the other, and a sample of all of them.

    Episodes belong to fold 0 or 1: what judges those of one is fitted on the sample of the other. With `half` only
    one half of the episodes is there, to choose or to judge what was chosen. Of a table in memory both are as
    `EventLog.split` and `folds` have them; of files by a hash of the episodes' names.
    """

    def __init__(
        self,
        source: Any,
        roles: Roles,
        policies: Any = (),
        limited: Sequence[str] = (),
        rows: int = PART,
        half: int | None = None,
        seed: int = 0,
        sample: int = SAMPLE,
    ) -> None:
        self.source, self.roles, self.half = source, roles, half
        self.continuous = is_continuous(source, roles.action)
        self.in_files = isinstance(source, str | os.PathLike | list | tuple)
        there = column_names(source)
        if self.in_files and roles.episode is not None and roles.episode not in there:
            raise DataError(
                f"{name_of_log(source)}: no column `{roles.episode}`; name it: {by_door('episode=…', '--episode')}."
            )
        names = [str(one) for one in (policies.values() if isinstance(policies, dict) else policies)]
        keep = [name for name in dict.fromkeys(names) if name in there] + [roles.action] * self.continuous
        self.given: dict[str, Any] = dataclasses.asdict(roles) | {"keep": keep, "limited": list(limited)}
        self.actions = _labels(source, roles.action) if self.in_files and not self.continuous else ()
        self.count = count_rows(source)
        every = 2 if half is None else 4
        self.many = max(every, math.ceil(self.count / rows))
        self.many += -self.many % every
        self.sample, self.fold = self._sampled(sample) if self.in_files else self._whole(seed)
        if self.complete and int(self.sample.episode[-1]) == 0:
            raise DataError(f"{self.sample.name}: one episode tells nothing of how episodes differ; give two or more.")
        # What names rows in one part may not in another, and words of one part may be numbers: as in the sample.
        columns = self.sample.columns
        self.given["columns"] = [column.name for column in columns]
        self.given["categorical"] = [column.name for column in columns if column.kind == "categorical"]

    @property
    def complete(self) -> bool:
        """Whether the sample is all there is."""
        return not self.in_files or self.step == 1

    def __iter__(self) -> Iterator[tuple[int, EventLog]]:
        """(fold, log)"""
        if not self.in_files:
            for fold in (0, 1):
                yield fold, self.sample.take(self.fold[self.sample.episode] == fold)
            return
        read = 0
        size = math.ceil(self.count / self.many)
        for k in range(self.many):
            if self.half not in (None, k // 2 % 2):
                continue
            condition = f" LIMIT {size} OFFSET {k * size}"
            if self.roles.episode is not None:
                condition = f" WHERE {self._number} = {k}"
            table = read_part(self.source, condition)
            if len(next(iter(table.columns.values()))):
                log = self._log(table)
                read += len(log)
                yield k % 2, log
        if self.half is None and read != self.count:
            raise DataError(f"{name_of_log(self.source)}: {read} of {self.count} rows were read: the files changed.")

    @property
    def _number(self) -> str:
        """The part of a row, in SQL."""
        if self.roles.episode is None:
            return f"((row_number() OVER () - 1) // {math.ceil(self.count / self.many)})"
        return f"(hash(CAST({_quoted(self.roles.episode)} AS VARCHAR)) % {self.many})"

    def _sampled(self, most: int) -> tuple[EventLog, Ints]:
        """About `most` rows of whole episodes, in order of appearance, and the folds [E] of these."""
        share = 1.0 if self.half is None else 0.5
        self.step = max(1, math.ceil(share * self.count / most))
        table = self._chosen()
        while self.step > 1 and not len(table.columns[FOLD]):  # few episodes, all of them long
            self.step //= 2
            table = self._chosen()
        self.given["keep"].append(FOLD)
        log = self._log(table)
        self.given["keep"].remove(FOLD)
        return log, np.asarray(np.ma.getdata(log.extras.pop(FOLD)), np.int64)[log.step == 0]

    def _chosen(self) -> Table:
        """The rows of every so many episodes."""
        name, words = "row_number() OVER ()", "QUALIFY"
        if self.roles.episode is not None:
            name, words = f"CAST({_quoted(self.roles.episode)} AS VARCHAR)", "WHERE"
        half = "" if self.half is None else f" AND {self._number} // 2 % 2 = {self.half}"
        condition = f" {words} hash({name}) // {self.many} % {self.step} = 0{half}"
        return read_part(self.source, condition, {FOLD: f"CAST({self._number} % 2 AS BIGINT)"})

    def _whole(self, seed: int) -> tuple[EventLog, Ints]:
        log = self._log(read_table(self.source))
        if self.half is not None:
            log = log.split(seed)[self.half]
        return log, log.folds(seed) if int(log.episode[-1]) else np.zeros(1, np.int64)

    def _log(self, table: Table) -> EventLog:
        given = self.given
        if not self.continuous:
            log = EventLog.read(table, **given)
            if not self.actions:
                return log
            place = {label: i for i, label in enumerate(self.actions)}
            codes = np.array([place[label] for label in log.actions])[log.action]
            return dataclasses.replace(log, action=codes, actions=self.actions)
        chance, table = _without_densities(table, self.roles)
        log = EventLog.read(table, **given | {"action": CONSTANT, "propensity": None})
        assert log.source_row is not None
        values = np.asarray(np.ma.getdata(log.extras[self.roles.action]), np.float64)
        extras = log.extras | {self.roles.action: values}
        return dataclasses.replace(log, propensity=chance[log.source_row], extras=extras)


def _without_densities(table: Table, roles: Roles) -> tuple[Floats, Table]:
    """The densities [n] of what was done, checked, and the table with one action."""
    assert roles.propensity is not None
    if roles.propensity not in table.columns:
        raise DataError(f"{table.name}: no column `{roles.propensity}`.")
    chance = np.asarray(np.ma.filled(table.columns[roles.propensity].astype(np.float64), np.nan))
    wrong = np.flatnonzero(~(np.isfinite(chance) & (chance > 0)))
    if wrong.size:
        raise DataError(
            f"{table.name}: column `{roles.propensity}`, row {wrong[0] + 1}: {chance[wrong[0]]:g}, expected the "
            "density of the logged action, a finite number above 0."
        )
    left = {name: values for name, values in table.columns.items() if name != roles.propensity}
    return chance, Table(left | {CONSTANT: np.ma.zeros(len(chance), np.int64)}, table.name)


def _labels(source: Any, action: str) -> tuple[Label, ...]:
    """All labels of the files, as `EventLog` sorts them."""
    found = [str(row[0]) for row in _ask(source, f"DISTINCT TRIM(CAST({_quoted(action)} AS VARCHAR))") if row[0]]
    try:
        return tuple(sorted({int(float(label)) for label in found}))
    except ValueError:
        return tuple(sorted(found))


def _ask(source: Any, what: str) -> list[Any]:
    import duckdb

    files = find_files(source)
    try:
        with duckdb.connect() as connection:
            return list(connection.execute(f"SELECT {what} FROM {reader(files)}").fetchall())
    except duckdb.Error as error:
        raise DataError(f"{files[0]}: cannot be read ({' '.join(str(error).split())[:200]}).") from None


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def name_of_log(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "the log"
