"""A policy as a table of probabilities in a file, CSV or Parquet.

per row      one row per row of the log, in the log file's order; a column per action, named as it is (or `p_<action>`)
per state    the state columns of the log that decide, and a column per action
long         the state columns, `action` and `probability`; what is not listed has probability 0

    state,order_0,order_5        state,action,probability
    low,0.1,0.9                  low,order_5,0.9
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import numbers, read_table
from pdocrl.errors import DataError
from pdocrl.ope.estimators.problem import Floats

LONG = ("action", "probability")


def from_file(path: Path, log: EventLog) -> Floats:
    """[N, A] of the rows of a log."""
    read = read_table(path)
    table, name = read.columns, read.name
    wide = _action_columns(table, log)
    if set(LONG) <= table.keys():
        return _by_state(name, _from_long(name, table, log), log)
    if not wide:
        actions = ", ".join(map(str, log.actions[:8]))
        raise DataError(f"{name}: no column is named like an action of {log.name} ({actions}); see the docs on tables.")
    chances = np.zeros((len(next(iter(table.values()))), len(log.actions)))
    for place, column in wide.items():
        chances[:, place] = numbers(name, column, table[column])
    keys = [column for column in table if column not in wide.values()]
    if not keys:
        return _per_row(name, chances, log)
    places = _columns(name, keys, log)
    return _by_state(name, (places, _keys(table, keys), chances), log)


def _action_columns(table: dict[str, Any], log: EventLog) -> dict[int, str]:
    """{place of the action: column}"""
    features = {column.name for column in log.columns}
    found = {}
    for place, label in enumerate(log.actions):
        named = [c for c in (str(label), f"p_{label}") if c in table and c not in features]
        if named:
            found[place] = named[0]
    return found


def _per_row(name: str, chances: Floats, log: EventLog) -> Floats:
    order = log.source_row
    if len(chances) != len(log) or (order is not None and sorted(order.tolist()) != list(range(len(log)))):
        raise DataError(f"{name}: has {len(chances)} rows, {log.name} has {len(log)}; give one for each, or states.")
    return chances if order is None else chances[order]


State = tuple[list[NDArray[Any]], list[tuple[str, ...]], Floats]  # columns of the log, keys and chances of the table


def _from_long(name: str, table: dict[str, Any], log: EventLog) -> State:
    keys = [column for column in table if column not in LONG]
    if not keys:
        raise DataError(f"{name}: a table of `action` and `probability` needs the state columns, too.")
    places = _columns(name, keys, log)
    chance = numbers(name, "probability", table["probability"])
    taken = np.flatnonzero(chance > 0)
    codes = log.action_codes(np.ma.getdata(table["action"])[taken])
    listed: dict[tuple[str, ...], Floats] = {}
    every = _keys(table, keys)
    for row, code in zip(taken, codes, strict=True):
        listed.setdefault(every[row], np.zeros(len(log.actions)))[code] += chance[row]
    return places, list(listed), np.array(list(listed.values()))


def _columns(name: str, keys: list[str], log: EventLog) -> list[NDArray[Any]]:
    known = {column.name: column.raw() for column in log.columns} | log.extras
    for key in keys:
        if key not in known:
            there = ", ".join(known) or "none"
            raise DataError(f"{name}: column `{key}` is neither an action nor a column of {log.name} ({there}).")
    return [known[key] for key in keys]


def _keys(table: dict[str, Any], keys: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*[[_word(x) for x in np.ma.getdata(table[key]).tolist()] for key in keys], strict=True))


def _by_state(name: str, state: State, log: EventLog) -> Floats:
    columns, keys, chances = state
    place: dict[tuple[str, ...], int] = {}
    for i, key in enumerate(keys):
        if key in place:
            raise DataError(f"{name}: the state {', '.join(key)} stands twice (rows {place[key] + 1} and {i + 1}).")
        place[key] = i
    off = np.flatnonzero(~(np.abs(chances.sum(1) - 1) < 1e-6) | (chances < 0).any(1))
    if off.size:
        total = float(chances[off[0]].sum())
        raise DataError(f"{name}: the probabilities of state {', '.join(keys[off[0]])} sum to {total:g}, not to 1.")
    rows = list(zip(*[[_word(x) for x in column.tolist()] for column in columns], strict=True))
    missing = [i for i, row in enumerate(rows) if row not in place]
    if missing:
        raise DataError(
            f"{name}: no row for the state {', '.join(rows[missing[0]])} (row {missing[0] + 1} of {log.name}, "
            f"{len(missing)} in all); add it."
        )
    return chances[[place[row] for row in rows]]


def _word(value: Any) -> str:
    """One word for 3, 3.0 and "3"."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
