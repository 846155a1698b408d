"""Choices: actions that are one of n, not amounts. A `Dataset` holds them one-hot [N, n], and their names beside.

    action[:, i] = 1  where the environment was given choices[i]

The names are whole numbers in a row, as Gymnasium's `Discrete(n, start)` has them. Files hold the names themselves,
one column of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.source import SeenColumn, Source
from pdocrl.errors import DataError

KEY = "action_choices"  # of the names, in every file
Choices = tuple[int, ...]


def make_choices(name: str, given: int | Sequence[int] | NDArray[Any]) -> Choices:
    """The choices 0 … n − 1 from their number, or the given ones, which must be at least two in a row."""
    told = np.asarray(given).reshape(-1)
    if told.size == 1:
        told = np.arange(int(told[0]))
    if told.dtype.kind not in "iu" or len(told) < 2 or (np.diff(told) != 1).any():
        raise DataError(
            f"{name}: {np.asarray(given).tolist()} are not choices. Give how many there are, at least 2, or each of "
            "them, whole numbers in a row."
        )
    return tuple(int(choice) for choice in told)


def words(choices: Choices) -> str:
    """0 … 4."""
    return f"{choices[0]} … {choices[-1]}"


def one_hot(names: ArrayLike, choices: Choices, where: str, first_row: int = 0) -> NDArray[np.float32]:
    """Names [N] of choices → [N, n]."""
    given = np.asarray(names).reshape(-1)
    out: NDArray[np.float32] = (given[:, None] == np.asarray(choices)).astype(np.float32)
    unknown = np.flatnonzero(out.sum(1) != 1)
    if len(unknown):
        row = int(unknown[0])
        raise DataError(f"{where} is {given[row]:g} at row {first_row + row}. The choices are {words(choices)}.")
    return out


def stored(action: NDArray[np.float32], choices: Choices) -> NDArray[Any]:
    """Actions as files hold them: the names [N] of choices, amounts [N, A] as they are."""
    return np.asarray(choices, np.int64)[action.argmax(1)] if choices else action


@dataclasses.dataclass(frozen=True)
class ChoiceColumn(SeenColumn):
    """A column of names [N], read one-hot [N, n]."""

    choices: Choices
    name: str  # of the file

    @property
    def shape(self) -> tuple[int, ...]:
        return self.column.shape[0], len(self.choices)

    def read(self, out: NDArray[Any], start: int) -> None:
        names = np.empty(len(out), np.float64)
        self.column.read(names, start)
        out[...] = one_hot(names, self.choices, f"{self.name}: `{self.key}`", start)


def chosen(source: Source, given: int | Sequence[int] | NDArray[Any]) -> Source:
    """The source with its one column of actions read as choices."""
    choices, action = make_choices(source.name, given), source.columns.get("action")
    if source.choices:
        if source.choices != choices:
            raise DataError(f"{source.name}: says itself that its choices are {words(source.choices)}.")
        return source
    if action is None or not action.shape:
        return source  # what is wrong is named when shapes are checked
    if action.shape[1:] not in ((), (1,)):
        raise DataError(f"{source.name}: `{action.key}` has shape {action.shape}; choices are one column of numbers.")
    columns = {**source.columns, "action": ChoiceColumn(action, choices, source.name)}
    return dataclasses.replace(source, columns=columns, choices=choices)
