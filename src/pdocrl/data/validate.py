"""The one place that decides whether a file may become a `Dataset`: first shapes, then values, nothing read twice.

Each finding is one line: which file, which key, which row (counted from 0), what to do. `read` stops at the first;
with another `report` (a list's `append`) all of them are collected, which is what `pdocrl data check` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, Flags, Rows
from pdocrl.data.source import FIELDS, Column, Field, Source
from pdocrl.data.tasks import Task
from pdocrl.errors import DataError, did_you_mean

Report = Callable[[str], object]

ACTION_SLACK = 1e-5  # rounding of a rescaled action, not a different scale
LARGEST_RATIO = 1100  # deflate, the densest common compression, reaches 1032:1; more is a broken or hostile header
BLOCK_ROWS = 1 << 16  # values are checked in blocks, so that checking needs no memory worth naming


def refuse(finding: str) -> NoReturn:
    raise DataError(finding)


def read(source: Source, task: Task | None = None, report: Report = refuse) -> Dataset | None:
    """The dataset in a source, or None where `report` was told why there is none."""
    findings = _Findings(report)
    check_shapes(source, task, findings)
    if findings.any():
        return None
    arrays = {field.name: _read_field(source, field, findings) for field in FIELDS if field.name in source.columns}
    n, notes = len(source), list(source.notes)
    if not (arrays["terminal"].any() or arrays["timeout"].any()):
        keys = f"`{source.columns['terminal'].key}` nor `{source.columns['timeout'].key}`"
        findings(f"{source.name}: no episode end: neither {keys} is ever set. Mark each episode's last row.")
    if findings.any():
        return None
    if "cost" not in arrays:
        arrays["cost"] = np.zeros((n, 0), np.float32)
        notes.append("no costs in the file: read as a dataset without constraints.")
    if "next_obs" not in arrays:
        notes.append(_derive_next_obs(arrays, source.name))
    return Dataset(**arrays, name=source.name, cost_names=source.cost_names, notes=tuple(notes))


def check_shapes(source: Source, task: Task | None, report: Report) -> None:
    """Report what is wrong with the keys, types and shapes, before anything is read."""
    name, columns = source.name, source.columns
    for field in FIELDS:
        needed = field.required or (field.name == "cost" and task is not None and task.cost_max is not None)
        if field.name not in columns and needed:
            hint = did_you_mean(field.key, source.keys) or f" Found: {_some(source.keys)}."
            report(f"{name}: key `{field.key}` is missing.{hint}")
    good: dict[str, Column] = {}
    for field in FIELDS:
        column = columns.get(field.name)
        if column is None:
            continue
        if column.dtype.kind not in "fiub":
            report(f"{name}: `{column.key}` holds {column.dtype}, not numbers.")
        elif len(column.shape) not in (1, 2) or (field.axes == 1 and column.shape[1:] not in ((), (1,))):
            report(
                f"{name}: `{column.key}` has shape {column.shape}, expected {'[N, dim]' if field.axes == 2 else '[N]'}."
            )
        elif column.shape[1:] == (0,) and field.name != "cost":
            report(f"{name}: `{column.key}` has no columns (shape {column.shape}).")
        else:
            good[field.name] = column
    if "obs" in good:
        _check_against_obs(name, good, task, report)
    if "action" in good and task is not None:
        _check_width(name, good["action"], task.action_dim, task, report)
    _check_size(source, report)


def _check_against_obs(name: str, columns: dict[str, Column], task: Task | None, report: Report) -> None:
    obs = columns["obs"]
    n = obs.shape[0]
    if n == 0:
        report(f"{name}: no transitions: `{obs.key}` has 0 rows.")
    again = f" Try `pdocrl data fetch {task.name}`." if task is not None and task.files else ""
    for column in columns.values():
        if column.shape[0] != n:
            report(
                f"{name}: `{column.key}` has {column.shape[0]} rows, `{obs.key}` has {n}. "
                f"Was the file cut while copying?{again}"
            )
    if "next_obs" in columns and _width(columns["next_obs"]) != _width(obs):
        other = columns["next_obs"]
        report(f"{name}: `{other.key}` has {_width(other)} columns, `{obs.key}` has {_width(obs)}. They must agree.")
    if task is not None:
        _check_width(name, obs, task.obs_dim, task, report)


def _check_width(name: str, column: Column, expected: int | None, task: Task, report: Report) -> None:
    if expected is not None and _width(column) != expected:
        report(
            f"{name}: `{column.key}` has {_width(column)} columns, task {task.name} has {expected}. "
            f"Is it the data of another task? `pdocrl tasks` lists all."
        )


def _check_size(source: Source, report: Report) -> None:
    """Refuse a header that promises more than its file can hold or this machine can take, before allocating it."""
    promised = sum(4 * int(np.prod(column.shape, dtype=object)) for column in source.columns.values())
    if source.stored_bytes is not None and promised > max(LARGEST_RATIO * source.stored_bytes, 1 << 26):
        report(f"{source.name}: promises {promised:,} bytes but is only {source.stored_bytes:,} long. It is damaged.")
    elif promised > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        report(
            f"{source.name}: needs {promised / 1e9:.1f} GB, this machine has {memory / 1e9:.1f} GB. "
            "Draw batches from the file instead (`pdocrl.data.stream`)."
        )


def _read_field(source: Source, field: Field, report: Report) -> NDArray[Any]:
    """One column, in its final type and shape; what is wrong with its values is reported."""
    column = source.columns[field.name]
    n = column.shape[0]
    shape = (n, _width(column)) if field.axes == 2 else (n,)
    # Flags keep the file's type until checked: h5py has no conversion to bool, and 2 or NaN must not become True.
    out = np.empty(shape, column.dtype if field.flag else np.float32)
    column.read(out, 0)
    for start in range(0, n, BLOCK_ROWS):
        block = out[start : start + BLOCK_ROWS]
        finding = wrong_value(field, column.key, block, np.arange(start, start + len(block)))
        if finding:
            report(f"{source.name}: {finding}")
            break
    return out if not field.flag else np.ascontiguousarray(out != 0)


def wrong_value(field: Field, key: str, block: NDArray[Any], rows: Rows) -> str | None:
    """What is wrong with the first bad row of a block [n, …] whose rows in the file are `rows` [n], or None."""
    values = block.reshape(len(block), -1)
    if field.flag:
        bad, why = (values != 0) & (values != 1), "Flags are true or false, 0 or 1."
    else:
        bad, why = ~np.isfinite(values), "Remove that episode, or repair the value."
    if not bad.any() and field.name == "action":
        bad, why = np.abs(values) > 1 + ACTION_SLACK, "Rescale actions to [-1, 1]."
    if not bad.any() and field.name == "cost":
        bad, why = values < 0, "Costs must be ≥ 0: is this a reward?"
    if not bad.any():
        return None
    row, column = (int(i) for i in np.argwhere(bad)[0])
    place = f"row {rows[row]}" + (f", column {column}" if values.shape[1] > 1 else "")
    return f"`{key}` is {values[row, column]:g} at {place}. {why}"


def last_rows_without_successor(terminal: Flags, timeout: Flags) -> Rows:
    """[M] rows whose next observation was never recorded when a log has no `next_observations`.

    That is the last row of each episode that did not end by itself. A terminal row needs no successor, since no value
    lies beyond it. A timed-out row does: its value goes on, from a state the log does not hold.
    """
    ends = timeout.copy()
    ends[-1] = True
    return np.flatnonzero(ends & ~terminal)


def _derive_next_obs(arrays: dict[str, NDArray[Any]], name: str) -> str:
    """Add `next_obs` by shifting `obs` inside episodes; returns what was done, as a note.

    The last row of a timed-out (or cut) episode is dropped, and the row before it, whose successor is known, becomes
    the timed-out end: bootstrapping from an invented state would be worse than one step less. A terminal row stays,
    with its own observation as a placeholder that nothing bootstraps from.
    """
    dropped = last_rows_without_successor(arrays["terminal"], arrays["timeout"])
    n = len(arrays["obs"])
    keep = np.ones(n, bool)
    keep[dropped] = False
    if not keep.any():
        raise DataError(f"{name}: `next_observations` is missing and no episode has two rows to derive it from.")
    successor = np.minimum(np.arange(n) + 1, n - 1)
    successor[arrays["terminal"]] -= 1
    successor[-1] = n - 1
    timeout = arrays["timeout"].copy()
    before = dropped[dropped > 0] - 1
    timeout[before] |= ~arrays["terminal"][before]  # a one-row episode leaves nothing behind to mark
    next_obs = arrays["obs"][successor[keep]]
    for field, array in arrays.items():
        arrays[field] = array[keep]
    arrays["timeout"], arrays["next_obs"] = timeout[keep], next_obs
    return (
        f"`next_observations` is missing: derived inside episodes; {len(dropped)} last rows without one were dropped."
    )


class _Findings:
    """A `Report` that remembers whether it was called."""

    def __init__(self, report: Report) -> None:
        self._report, self._called = report, False

    def __call__(self, finding: str) -> None:
        self._called = True
        self._report(finding)

    def any(self) -> bool:
        return self._called


def _width(column: Column) -> int:
    return column.shape[1] if len(column.shape) == 2 else 1


def _some(keys: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{key}`" for key in keys[:8]) or "nothing"
    return shown + (", …" if len(keys) > 8 else "")
