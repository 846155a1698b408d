"""What a file offers before any of it is believed: named columns with a shape and a type, readable in blocks of rows.

Every format opens to a `Source`; `validate` decides whether it may become a `Dataset`, and `stream` draws from it
without reading it whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError, UnknownNameError


@dataclasses.dataclass(frozen=True)
class Field:
    """One array of a dataset."""

    name: str  # in `Dataset`
    key: str  # in DSRL's files
    axes: int  # 2: [N, dim], where [N] is read as [N, 1]; 1: [N], where [N, 1] is read as [N]
    flag: bool = False  # true or false, stored as bool or as 0 and 1
    required: bool = True


FIELDS = (
    Field("obs", "observations", 2),
    Field("action", "actions", 2),
    Field("reward", "rewards", 1),
    Field("cost", "costs", 2, required=False),
    Field("next_obs", "next_observations", 2, required=False),
    Field("terminal", "terminals", 1, flag=True),
    Field("timeout", "timeouts", 1, flag=True),
)


class Column(Protocol):
    """One array in a file."""

    @property
    def key(self) -> str:
        """Its name in the file, for messages."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def block_rows(self) -> int:
        """The file's own grain: reading whole blocks of so many rows touches every byte once."""

    def read(self, out: NDArray[Any], start: int) -> None:
        """Rows start … start + len(out) into `out` [n, …], converted to its type."""


@dataclasses.dataclass(frozen=True)
class SeenColumn:
    """A column read as something else: what it is in the file, of which others change how it is read."""

    column: Column

    @property
    def key(self) -> str:
        return self.column.key

    @property
    def shape(self) -> tuple[int, ...]:
        return self.column.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.column.dtype

    @property
    def block_rows(self) -> int:
        return self.column.block_rows


@dataclasses.dataclass(frozen=True)
class Source:
    """The columns of one file by the `Field.name` they belong to."""

    name: str  # the file, for messages
    columns: Mapping[str, Column]
    keys: tuple[str, ...]  # everything found in the file, for suggestions
    stored_bytes: int | None = None  # size of the file; None where it is already in memory
    cost_names: tuple[str, ...] = ()
    action_bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # what ±1 stands for; None: not said
    task: str | None = None  # whose data the file says it is
    discrete_actions: tuple[int, ...] = ()  # what the columns of one-hot actions stand for; (): actions are continuous
    obs_names: tuple[str, ...] = ()  # of the observation columns, where the file names them
    spelling: Mapping[str, str] = dataclasses.field(default_factory=lambda: {field.name: field.key for field in FIELDS})

    def __len__(self) -> int:
        return self.columns["obs"].shape[0]


@dataclasses.dataclass(frozen=True)
class ArrayColumn:
    """A column already in memory."""

    key: str
    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def block_rows(self) -> int:
        return max(1, len(self.array))

    def read(self, out: NDArray[Any], start: int) -> None:
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which validation names
            out[...] = self.array[start : start + len(out)].reshape(out.shape)


def fields_by_key(keys: Iterable[str]) -> dict[str, str]:
    """{field: key} for the keys of a file, which may be DSRL's (`observations`) or `Dataset`'s own (`obs`)."""
    keys = set(keys)
    return {field.name: key for field in FIELDS for key in (field.name, field.key) if key in keys}


@dataclasses.dataclass(frozen=True)
class StackedColumn:
    """Several arrays [N] or [N, n] of a file side by side."""

    columns: tuple[Column, ...]

    @property
    def key(self) -> str:
        return ", ".join(column.key for column in self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.columns[0].shape[0], sum(math.prod(column.shape[1:]) for column in self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(column.dtype for column in self.columns))

    @property
    def block_rows(self) -> int:
        return max(column.block_rows for column in self.columns)

    def read(self, out: NDArray[Any], start: int) -> None:
        at = 0
        for column in self.columns:
            width = math.prod(column.shape[1:])
            part = np.empty((len(out), *column.shape[1:]), out.dtype)
            column.read(part, start)
            out[:, at : at + width] = part.reshape(len(out), width)
            at += width


def mapped_columns(
    name: str, keys: Sequence[str], mapping: Mapping[str, Sequence[str]], open_key: Callable[[str], Column]
) -> dict[str, Column]:
    """{field: column} of a file's own keys, and of those a mapping gives: {"reward": ["r"], "cost": ["c1", "c2"]}."""
    columns = {field: open_key(key) for field, key in fields_by_key(keys).items() if field not in mapping}
    known = {field.name for field in FIELDS}
    for field, own in mapping.items():
        if field not in known:
            raise UnknownNameError("field of columns={…}", field, known, f"Known: {', '.join(sorted(known))}.")
        for key in own:
            if key not in keys and "/" not in key:
                raise UnknownNameError(f"key in {name}", key, keys)
        found = [open_key(key) for key in own]
        if len({column.shape[:1] for column in found}) > 1:
            raise DataError(f"{name}: {', '.join(own)} have different lengths.")
        columns[field] = found[0] if len(found) == 1 else StackedColumn(tuple(found))
    if (
        "masks" in keys
        and "terminal" in columns
        and not {"terminal", "timeout"} & {*mapping}
        and "timeout" not in columns
    ):
        columns |= _as_ogbench(columns["terminal"], open_key("masks"))
    return columns


@dataclasses.dataclass(frozen=True)
class CombinedFlags(SeenColumn):
    """Flags computed from two columns of 0 and 1: OGBench's `terminals`, where recordings end, and `masks`."""

    masks: Column  # 0 where the task is solved and no value lies beyond
    function: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]

    def read(self, out: NDArray[Any], start: int) -> None:
        ends, masks = np.empty(len(out), np.float32), np.empty(len(out), np.float32)
        self.column.read(ends, start)
        self.masks.read(masks, start)
        out[...] = self.function(ends, masks)


def _as_ogbench(ends: Column, masks: Column) -> dict[str, Column]:
    """terminal = 1 − mask; timeout = a recording's end elsewhere."""
    return {
        "terminal": CombinedFlags(ends, masks, lambda _, mask: 1 - mask),
        "timeout": CombinedFlags(ends, masks, lambda end, mask: end * mask),
    }


def from_arrays(arrays: Mapping[str, Any], mapping: Mapping[str, Sequence[str]]) -> Source:
    """A dict of arrays by the keys of a file."""
    held = {key: np.asarray(values) for key, values in arrays.items()}
    columns = mapped_columns("arrays", tuple(held), mapping, lambda key: ArrayColumn(key, held[key]))
    return Source("arrays", columns, tuple(held))


@contextlib.contextmanager
def blaming(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn what a format's library raises on a damaged file into one line that names the file."""
    try:
        yield
    except errors as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{name}: damaged, or not what its suffix says ({reason}). Copy or download it again."
        ) from error
