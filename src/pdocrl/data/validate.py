"""The one place that decides whether a file may become a `Dataset`: first shapes, then values, nothing read twice.

Each finding is one line: which file, which key, which row (counted from 0), what to do. `read` stops at the first;
with another `report` (a list's `append`) all of them are collected, which is what `pdocrl data check` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, Flags, Rows
from pdocrl.data.source import FIELDS, Column, Field, Source
from pdocrl.data.tasks import Task
from pdocrl.errors import DataError, by_door, did_you_mean
from pdocrl.machine import memory

Report = Callable[[str], object]

ACTION_SLACK = 1e-5  # rounding of a rescaled action, not a different scale
LARGEST_RATIO = 1100  # deflate, the densest common compression, reaches 1032:1; more is a broken or hostile header
BLOCK_ROWS = 1 << 14  # values are checked in blocks, so that checking needs no memory worth naming


def refuse(finding: str) -> NoReturn:
    raise DataError(finding)


def read(source: Source, task: Task | None = None, report: Report = refuse) -> Dataset | None:
    """The dataset in a source, or None where `report` was told why there is none."""
    findings = _Findings(report)
    check_shapes(source, task, findings)
    _check_memory(source, findings)
    if findings.any():
        return None
    arrays = {field.name: read_field(source, field, findings) for field in FIELDS if field.name in source.columns}
    check_ends(source, arrays["terminal"], arrays["timeout"], findings)
    if findings.any():
        return None
    notes = []
    if "cost" not in arrays:
        arrays["cost"] = np.zeros((len(source), 0), np.float32)
        notes.append("no costs in the file: read as a dataset without constraints.")
    if "next_obs" not in arrays:
        notes.append(_derive_next_obs(arrays, source.name))
    if not source.discrete_actions and finite_actions(arrays["action"]):
        findings(f"{source.name}: `{source.columns['action'].key}` {only_0_and_1()}")
        return None
    low, high = source.action_bounds or ((), ())
    return Dataset(
        **arrays,  # type: ignore[arg-type]
        name=source.name,
        cost_names=source.cost_names,
        notes=tuple(notes),
        action_low=low,
        action_high=high,
        discrete_actions=source.discrete_actions,
        obs_names=source.obs_names,
    )


def check_shapes(source: Source, task: Task | None, report: Report) -> None:
    """Report what is wrong with the keys, types and shapes, before anything is read."""
    name = source.name
    good: dict[str, Column] = {}
    for field in FIELDS:
        column = source.columns.get(field.name)
        if column is None:
            constrained = field.name == "cost" and task is not None and task.cost_max is not None
            if field.required or constrained:
                key = source.spelling[field.name]
                hint = did_you_mean(key, source.keys) or f" Found: {_some(source.keys)}."
                if (
                    key == "rewards"
                    and {"observations", "actions", "terminals"} <= {*source.keys}
                    and "timeouts" not in source.keys
                ):
                    hint = (
                        " Is it OGBench's? Its files have no rewards; those of a task come from "
                        "ogbench.make_env_and_datasets('…-singletask-v0'), whose dict `pdocrl.load` takes."
                    )
                if key == "obs_0":  # a table
                    told = by_door(
                        "columns={'obs': ['x', 'y'], 'action': 'u'}", "--columns, such as obs=x,y action=u reward=r"
                    )
                    hint += f" Other names are told by {told}."
                if field.name == "timeout":
                    named = by_door("columns={'timeout': KEY}", "`pdocrl data convert --columns timeout=KEY`")
                    hint += (
                        f" It marks where an episode was cut: name the key that has it, {named}; or add it, for "
                        f"episodes of H steps {key} = numpy.arange(N) % H == H - 1."
                    )
                report(f"{name}: key `{key}` is missing.{hint}")
        elif column.dtype.kind not in "fiub":
            report(f"{name}: `{column.key}` holds {column.dtype}, not numbers.")
        elif len(column.shape) not in (1, 2) or (field.axes == 1 and column.shape[1:] not in ((), (1,))):
            expected = "[N, dim]" if field.axes == 2 else "[N]"
            report(f"{name}: `{column.key}` has shape {column.shape}, expected {expected}.")
        elif column.shape[1:] == (0,) and field.name != "cost":
            report(f"{name}: `{column.key}` has no columns (shape {column.shape}).")
        else:
            good[field.name] = column
    if "obs" in good:
        _check_against_obs(name, good, task, report)
    if task is not None:
        for key, expected_width in (("obs", task.obs_dim), ("action", task.action_dim)):
            if key in good and expected_width is not None and width(good[key]) != expected_width:
                report(
                    f"{name}: `{good[key].key}` has {width(good[key])} columns, task {task.name} has {expected_width}. "
                    "Is it the data of another task? `pdocrl tasks` lists all."
                )
    _check_promise(source, report)


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
    other = columns.get("next_obs", obs)
    if width(other) != width(obs):
        report(f"{name}: `{other.key}` has {width(other)} columns, `{obs.key}` has {width(obs)}. They must agree.")


def _check_promise(source: Source, report: Report) -> None:
    """Refuse a header that promises more than its file can hold, before anything is allocated for it."""
    promised = _bytes_in_memory(source)
    if source.stored_bytes is not None and promised > max(LARGEST_RATIO * source.stored_bytes, 1 << 26):
        report(f"{source.name}: promises {promised:,} bytes but is only {source.stored_bytes:,} long. It is damaged.")


def _check_memory(source: Source, report: Report) -> None:
    there, needed = memory(), _bytes_in_memory(source)
    if there is not None and needed > there:
        report(
            f"{source.name}: needs {needed / 1e9:.1f} GB, this machine has {there / 1e9:.1f} GB. "
            f"Train with `{by_door('buffer_size=1_000_000', '--buffer-size 1000000')}`, or draw batches with "
            "`pdocrl.data.stream`."
        )


def read_field(source: Source, field: Field, report: Report = refuse) -> NDArray[Any]:
    """One column, in its final type and shape; the first thing wrong with its values is reported."""
    column = source.columns[field.name]
    n = column.shape[0]
    # Flags keep the file's type until checked: h5py has no conversion to bool, and 2 or NaN must not become True.
    out = np.empty((n, width(column)) if field.axes == 2 else n, column.dtype if field.flag else np.float32)
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
        bad, why = np.abs(values) > 1 + ACTION_SLACK, f"Actions {_rescale()}"
        if bad.any() and len(values) > 1 and (values == np.rint(values)).all():
            why = f"{_are_discrete('N')}. Else they {_rescale()}"
    if not bad.any() and field.name == "cost":
        bad, why = values < 0, "Costs must be ≥ 0: is this a reward?"
    if not bad.any():
        return None
    row, column = (int(i) for i in np.argwhere(bad)[0])
    place = f"row {rows[row]}" + (f", column {column}" if values.shape[1] > 1 else "")
    return f"`{key}` is {values[row, column]:g} at {place}. {why}"


def finite_actions(action: NDArray[Any]) -> bool:
    """Whether actions are 0 in some places, 1 in others and nothing else: discrete actions, not continuous ones."""
    return kinds_of(action) == {"0", "1"}


def only_0_and_1() -> str:
    """What is said of such actions."""
    otherwise = by_door("action_low=0, action_high=1", "--rescale-actions 0 1")
    return f"holds nothing but 0 and 1. {_are_discrete(2)}; continuous ones are told by `{otherwise}`."


def _are_discrete(n: object) -> str:
    way = by_door(f"pdocrl.load(…, discrete_actions={n})", f"pdocrl data convert --discrete-actions {n}")
    return f"Are they discrete? `{way}` says so"


def _rescale() -> str:
    way = by_door("pdocrl.load(…, action_low=LOW, action_high=HIGH)", "pdocrl data convert --rescale-actions LOW HIGH")
    return f"must lie in [-1, 1]: `{way}` makes them so."


def kinds_of(action: NDArray[Any]) -> set[str]:
    """Which of "0", "1" and "between" (anything else) there are among the actions."""
    zero, one = action == 0, action == 1
    found = {"0": zero.any(), "1": one.any(), "between": not (zero | one).all()}
    return {kind for kind, there in found.items() if there}


def check_ends(source: Source, terminal: Flags, timeout: Flags, report: Report) -> None:
    """Report a log in which no episode ever ends."""
    if not (terminal.any() or timeout.any()):
        keys = f"`{source.columns['terminal'].key}` nor `{source.columns['timeout'].key}`"
        report(f"{source.name}: no episode end: neither {keys} is ever set. Mark each episode's last row.")


def drop_rows_without_successor(name: str, terminal: Flags, timeout: Flags) -> tuple[Rows, Flags]:
    """For a log without `next_observations`: the rows [M] that must go, and the timeouts [N] that mark the new ends.

    Inside an episode the next observation is the next row's. A terminal row needs none, since no value lies beyond it;
    its own observation stands in, and nothing bootstraps from it. The last row of a timed-out (or cut) episode does
    need one, and the log does not hold it: bootstrapping from an invented state would be worse than one step less. So
    that row is dropped, and the row before it, whose successor is known, becomes the timed-out end.
    """
    cut = timeout & ~terminal
    cut[-1] = not terminal[-1]
    dropped = np.flatnonzero(cut)
    if len(dropped) == len(terminal):
        raise DataError(f"{name}: `next_observations` is missing and no episode has two rows to derive it from.")
    new_timeout = timeout.copy()
    before = dropped[dropped > 0] - 1
    new_timeout[before] |= ~terminal[before]  # before a one-row episode stands another's terminal: leave it
    return dropped, new_timeout


def _derive_next_obs(arrays: dict[str, NDArray[Any]], name: str) -> str:
    """Add `next_obs` [N, S] in place (see `drop_rows_without_successor`); returns what was done, as a note."""
    dropped, arrays["timeout"] = drop_rows_without_successor(name, arrays["terminal"], arrays["timeout"])
    kept = np.delete(np.arange(len(arrays["obs"])), dropped)
    arrays["next_obs"] = arrays["obs"][kept + ~arrays["terminal"][kept]]
    for field in arrays.keys() - {"next_obs"}:
        arrays[field] = arrays[field][kept]
    return f"no `next_observations`: derived inside episodes, and {len(dropped)} last rows without one were dropped."


class _Findings:
    """A `Report` that remembers whether it was called."""

    def __init__(self, report: Report) -> None:
        self._report, self._called = report, False

    def __call__(self, finding: str) -> None:
        self._called = True
        self._report(finding)

    def any(self) -> bool:
        return self._called


def width(column: Column) -> int:
    """How many numbers a row of the column holds."""
    return column.shape[1] if len(column.shape) == 2 else 1


def _bytes_in_memory(source: Source) -> int:
    return sum(4 * int(np.prod(column.shape, dtype=object)) for column in source.columns.values())


def _some(keys: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{key}`" for key in keys[:8]) or "nothing"
    return shown + (", …" if len(keys) > 8 else "")
