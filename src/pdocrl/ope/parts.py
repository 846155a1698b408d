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
CONSTANT = "_constant action"


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


def parts_of(
    source: Any, roles: Roles, policies: Any, limited: list[str], rows: int, continuous: bool
) -> Iterator[EventLog]:
    """Logs of whole episodes."""
    names = [str(one) for one in (policies.values() if isinstance(policies, dict) else policies)]
    there = column_names(source)
    keep = [name for name in dict.fromkeys(names) if name in there] + [roles.action] * continuous
    given = dataclasses.asdict(roles) | {"keep": keep, "limited": limited}
    actions: tuple[Label, ...] = ()
    if not continuous and isinstance(source, str | os.PathLike | list | tuple):
        actions = _labels(source, roles.action)
    for table in _tables(source, roles, rows):
        if not len(next(iter(table.columns.values()))):
            continue
        if continuous:
            chance, table = _without_densities(table, roles)
        log = EventLog.read(table, **given | ({"action": CONSTANT, "propensity": None} if continuous else {}))
        # What names rows in one part may not in another: later parts have the columns of the first.
        given["columns"] = [column.name for column in log.columns]
        if continuous:
            assert log.source_row is not None
            values = np.asarray(np.ma.getdata(log.extras[roles.action]), np.float64)
            extras = log.extras | {roles.action: values}
            log = dataclasses.replace(log, propensity=chance[log.source_row], extras=extras)
        elif actions:
            place = {label: i for i, label in enumerate(actions)}
            codes = np.array([place[label] for label in log.actions])[log.action]
            log = dataclasses.replace(log, action=codes, actions=actions)
        yield log


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


def _tables(source: Any, roles: Roles, rows: int) -> Iterator[Table]:
    if not isinstance(source, str | os.PathLike | list | tuple):
        yield read_table(source)
        return
    count = count_rows(source)
    many = max(1, math.ceil(count / rows))
    if roles.episode is not None and roles.episode not in column_names(source):
        raise DataError(
            f"{name_of_log(source)}: no column `{roles.episode}`; name it: {by_door('episode=…', '--episode')}."
        )
    for k in range(many):
        if roles.episode is None:
            yield read_part(source, f" LIMIT {rows} OFFSET {k * rows}")
        else:
            yield read_part(source, f" WHERE hash(CAST({_quoted(roles.episode)} AS VARCHAR)) % {many} = {k}")


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
