"""What a file offers before any of it is believed: named columns with a shape and a type, readable in blocks of rows.

Every format opens to a `Source`; `validate` decides whether it may become a `Dataset`, and `stream` draws from it
without reading it whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError


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
