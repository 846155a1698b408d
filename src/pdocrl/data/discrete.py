"""Discrete actions: that are one of n, not continuous. A `Dataset` holds them one-hot [N, n], and their names beside.

    action[:, i] = 1  where the environment was given discrete_actions[i]

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
DiscreteActions = tuple[int, ...]


def make_discrete_actions(name: str, given: int | Sequence[int] | NDArray[Any]) -> DiscreteActions:
    """The discrete actions 0 … n − 1 from their number, or the given ones, which must be at least two in a row."""
    told = np.asarray(given).reshape(-1)
    if told.size == 1:
        told = np.arange(int(told[0]))
    if told.dtype.kind not in "iu" or len(told) < 2 or (np.diff(told) != 1).any():
        raise DataError(
            f"{name}: {np.asarray(given).tolist()} are not discrete actions. Give how many there are, at least 2, or "
            "each of them, whole numbers in a row."
        )
    return tuple(int(choice) for choice in told)


def words(discrete_actions: DiscreteActions) -> str:
    """0 … 4."""
    return f"{discrete_actions[0]} … {discrete_actions[-1]}"


def one_hot(names: ArrayLike, discrete_actions: DiscreteActions, where: str, first_row: int = 0) -> NDArray[np.float32]:
    """Names [N] of discrete actions → [N, n]."""
    given = np.asarray(names).reshape(-1)
    out: NDArray[np.float32] = (given[:, None] == np.asarray(discrete_actions)).astype(np.float32)
    unknown = np.flatnonzero(out.sum(1) != 1)
    if len(unknown):
        row = int(unknown[0])
        raise DataError(
            f"{where} is {given[row]:g} at row {first_row + row}. The discrete actions are {words(discrete_actions)}."
        )
    return out


def stored(action: NDArray[np.float32], discrete_actions: DiscreteActions) -> NDArray[Any]:
    """Actions as files hold them: the names [N] of discrete actions, continuous ones [N, A] as they are."""
    return np.asarray(discrete_actions, np.int64)[action.argmax(1)] if discrete_actions else action


@dataclasses.dataclass(frozen=True)
class DiscreteColumn(SeenColumn):
    """A column of names [N], read one-hot [N, n]."""

    discrete_actions: DiscreteActions
    name: str  # of the file

    @property
    def shape(self) -> tuple[int, ...]:
        return self.column.shape[0], len(self.discrete_actions)

    def read(self, out: NDArray[Any], start: int) -> None:
        names = np.empty(len(out), np.float64)
        self.column.read(names, start)
        out[...] = one_hot(names, self.discrete_actions, f"{self.name}: `{self.key}`", start)


def chosen(source: Source, given: int | Sequence[int] | NDArray[Any]) -> Source:
    """The source with its one column of actions read as discrete actions."""
    discrete_actions, action = make_discrete_actions(source.name, given), source.columns.get("action")
    if source.discrete_actions:
        if source.discrete_actions != discrete_actions:
            raise DataError(f"{source.name}: has the discrete actions {words(source.discrete_actions)}.")
        return source
    if action is None or not action.shape:
        return source  # what is wrong is named when shapes are checked
    if action.shape[1:] not in ((), (1,)):
        raise DataError(
            f"{source.name}: `{action.key}` has shape {action.shape}; discrete actions are one column of numbers."
        )
    columns = {**source.columns, "action": DiscreteColumn(action, discrete_actions, source.name)}
    return dataclasses.replace(source, columns=columns, discrete_actions=discrete_actions)
