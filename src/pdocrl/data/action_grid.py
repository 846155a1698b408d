"""Actions that are no labels yet: amounts are replaced by the nearest of a few, several decisions become one label.

    dose 0.31 → "0.28"          action=dose+rate → "dose=0.28, rate=2"

An amount is a column of numbers that are not whole, or of more whole ones than there may be actions. Its grid is the
middle of as many equally frequent parts as `LEVELS` says, so that each level was taken often.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.named_columns import Table, read_table
from pdocrl.errors import DataError, did_you_mean

MOST_LABELS = 200  # whole numbers or words
FEWEST_AMOUNTS = 20  # so many different numbers, not all whole, are amounts
LEVELS = {1: 7, 2: 4}  # by how many decisions there are at once
JOIN = "+"


def with_labels(source: Any, action: str) -> tuple[Any, list[str]]:
    """The log with labels in the column `action`, and notes; the source itself where there is nothing to do."""
    table = read_table(source)
    parts = [action] if action in table.columns else action.split(JOIN)
    for part in parts:
        if part not in table.columns:
            hint = did_you_mean(part, table.columns) or f" Columns: {', '.join(table.columns)}."
            raise DataError(f"{table.name}: no column `{part}`.{hint}")
    found: list[NDArray[Any]] = []
    notes: list[str] = []
    for part in parts:
        values = table.columns[part]
        levels = _levels(values, LEVELS.get(len(parts), 3))
        if levels is None:
            found.append(values)
        else:
            nearest = np.abs(np.ma.getdata(values).astype(np.float64)[:, None] - levels).argmin(1)
            found.append(np.array([f"{level:.4g}" for level in levels])[nearest])
            words = ", ".join(f"{level:.4g}" for level in levels)
            notes.append(
                f"`{part}`: {len(np.unique(values)):,} different amounts, each replaced by the nearest of {words}; the "
                "policy chooses among these"
            )
    if len(parts) == 1 and not notes:
        return table, notes
    rest = {name: values for name, values in table.columns.items() if name not in parts}
    return dataclasses.replace(table, columns={**rest, action: _joined(table, parts, found)}), notes


def _levels(values: NDArray[Any], count: int) -> NDArray[np.float64] | None:
    """The grid of a column of amounts; None for labels and where a value is missing, which is refused later."""
    data = np.ma.getdata(values)
    if data.dtype.kind not in "fiu" or np.ma.getmaskarray(values).any() or not np.isfinite(data).all():
        return None
    different = np.unique(data)
    if len(different) <= (MOST_LABELS if (different == np.floor(different)).all() else FEWEST_AMOUNTS):
        return None
    middles = (np.arange(count) + 0.5) / count
    return np.unique([float(f"{x:.4g}") for x in np.quantile(data.astype(np.float64), middles)])


def _joined(table: Table, parts: list[str], found: list[NDArray[Any]]) -> NDArray[Any]:
    if len(parts) == 1:
        return found[0]
    for part, values in zip(parts, found, strict=True):
        if np.ma.getmaskarray(values).any():
            row = int(np.argmax(np.ma.getmaskarray(values))) + 1
            raise DataError(f"{table.name}: column `{part}`, row {row}: a missing value, expected a label; fill it in.")
    rows = zip(*(values.tolist() for values in found), strict=True)
    return np.array([", ".join(f"{p}={_word(x)}" for p, x in zip(parts, row, strict=True)) for row in rows])


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
