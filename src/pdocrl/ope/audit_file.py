"""A file of audited episodes: Parquet or CSV, a row an episode, a column `cost` or one per constraint, `cost_*`.

A column `run` says which run of a training played the episode.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError

INTEGERS = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")} | {"INTEGER", "UINTEGER"}
NUMBERS = INTEGERS | {"FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"}


@dataclasses.dataclass(frozen=True, eq=False)
class Audited:
    """Costs of n episodes."""

    name: str
    costs: dict[str, NDArray[np.float64]]  # by constraint, [n] each
    run: NDArray[np.float64] | None = None  # [n] which run played


def read_audit(path: Path) -> Audited:
    """Read the costs; anything that is not a finite number of at least 0 is named with its row."""
    import duckdb

    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a Parquet or CSV file with a row an episode and a column `cost`.")
    readers = {".parquet": "read_parquet", ".pq": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: files of episodes are .parquet or .csv, not `{path.suffix or path.name}`.")
    try:
        with duckdb.connect() as connection:
            table = connection.sql(f"SELECT * FROM {reader}(?)", params=[str(path)])
            kinds = dict(zip(table.columns, map(str, table.types), strict=True))
            found = table.fetchnumpy()
    except duckdb.Error as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())[:200]}).") from error
    names = ["cost"] if "cost" in kinds else [name for name in kinds if name.startswith("cost_")]
    if not names:
        listed = ", ".join(f"`{name}`" for name in list(kinds)[:8]) or "none"
        raise DataError(f"{path}: no column `cost` or `cost_*`; its columns are {listed}.")
    columns = {name: _numbers(path, name, found[name], kinds[name]) for name in [*names, *({"run"} & kinds.keys())]}
    run = columns.pop("run", None)
    return Audited(path.name, columns, run)


def _numbers(path: Path, name: str, column: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """A column of finite numbers of at least 0."""
    if len(column) == 0:
        raise DataError(f"{path}: no episodes.")
    if kind.partition("(")[0] not in NUMBERS:
        raise DataError(f"{path}: `{name}` {_not_a_number(column, kind)}, expected a number for each episode.")
    values = np.ma.filled(np.ma.asarray(column).astype(np.float64), np.nan)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        shown = "empty" if np.ma.getmaskarray(np.ma.asarray(column))[wrong[0]] else f"{values[wrong[0]]:g}"
        rule = "runs are numbered from 0" if name == "run" else "costs are finite and at least 0"
        raise DataError(f"{path}: `{name}` of episode {wrong[0] + 1} is {shown}; {rule}.")
    return values


def _not_a_number(column: NDArray[Any], kind: str) -> str:
    """What is wrong with a column that does not hold numbers: the first value that is none, where there is one."""
    for row, value in enumerate(np.ma.asarray(column)):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"of episode {row + 1} is {str(value)[:40]!r}"
    return f"holds {kind.lower()}"
