"""A log's rows before they are counted: their labels, flags and signals, their steps, and sums without rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.errors import DataError, by_door

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Label = int | str

LIMB = 31  # bits in the low half of an exact sum
MARK = " @ "  # between a state and its step


def named_signals(
    reward: ArrayLike, costs: ArrayLike | Mapping[str, ArrayLike] | None
) -> tuple[tuple[str, ...], Floats]:
    """The costs' names, and reward and costs as one finite array [1+K, n] with costs ≥ 0."""
    if isinstance(costs, Mapping):
        names, columns = tuple(costs), [np.asarray(c, np.float64) for c in costs.values()]
    else:
        table = np.zeros((len(np.asarray(reward)), 0)) if costs is None else np.asarray(costs, np.float64)
        columns = list(table.T if table.ndim == 2 else table[None])
        names = ("cost",) if len(columns) == 1 else tuple(f"cost_{i}" for i in range(len(columns)))
    rows = [np.asarray(reward, np.float64), *columns]
    for index, (name, row) in enumerate(zip(("reward", *names), rows, strict=True)):
        if row.shape != rows[0].shape or row.ndim != 1:
            raise DataError(f"`{name}` has shape {row.shape}, `reward` has {rows[0].shape}.")
        if not np.all(np.isfinite(row)):
            raise DataError(
                f"`{name}` holds a missing or infinite value in row {np.flatnonzero(~np.isfinite(row))[0]}."
            )
        if index > 0 and np.any(row < 0):
            raise DataError(f"`{name}` is negative in row {np.flatnonzero(row < 0)[0]}: a cost is at least 0.")
    return names, np.stack(rows)


def flags_of(name: str, values: ArrayLike) -> NDArray[np.bool_]:
    """[n] truth values: booleans, or the numbers 0 and 1. Text is refused: NumPy takes "False" for true."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf" or not np.all((given == 0) | (given == 1)):
        wrong = given.ravel()[0] if given.dtype.kind not in "biuf" else given[(given != 0) & (given != 1)][0]
        raise DataError(f"`{name}` holds {wrong!r}; it must be true or false, or the numbers 1 or 0.")
    return given.astype(bool)


def labels_of(name: str, size: int | None, *columns: NDArray[Any]) -> tuple[Label, ...]:
    if size is not None:
        return tuple(range(size))
    return sorted_labels(name, {value for column in columns for value in np.unique(column).tolist()})


def sorted_labels(name: str, values: set[Any]) -> tuple[Label, ...]:
    """Distinct labels in order: all integers or all strings."""
    if all(isinstance(v, int | np.integer) for v in values):
        return tuple(sorted(int(v) for v in values))
    if all(isinstance(v, str) for v in values):
        return tuple(sorted(str(v) for v in values))
    kinds = sorted({type(v).__name__ for v in values})
    raise DataError(f"`{name}` labels must be all integers or all strings, not {' and '.join(kinds)}.")


def encode(name: str, values: ArrayLike, labels: Sequence[Label]) -> Ints:
    """[n] labels as positions in the sorted `labels`."""
    values, known = np.asarray(values), np.asarray(labels)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1).astype(np.int64)
    wrong = known[at] != values
    if np.any(wrong):
        raise DataError(f"`{name}` holds {values[wrong][0]!s}, which is not one of the {len(known)} known labels.")
    return at


def lookalikes(labels: Sequence[Label]) -> list[tuple[str, str]]:
    """Labels that may be meant as one: they differ in blanks or case only, or are one number, as "3" and "3.0" are."""
    found: dict[str | float, str] = {}
    pairs = []
    for label in labels:
        if not isinstance(label, str):
            return []
        plain: str | float = " ".join(label.split()).lower()
        with contextlib.suppress(ValueError):
            plain = float(label)
        if plain in found:
            pairs.append((found[plain], label))
        found.setdefault(plain, label)
    return pairs


def split_label(label: Label) -> tuple[str, int]:
    """('calm 10', 3) of 'calm 10 @ 3'."""
    state, _, step = str(label).rpartition(MARK)
    return state, int(step)


def order(episode: ArrayLike, step: ArrayLike | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """[n] the step of each row within its episode, counted from 0, and whether it is the episode's last."""
    names = np.unique(np.asarray(episode), return_inverse=True)[1]
    time = np.arange(len(names)) if step is None else np.asarray(step)
    rows = np.lexsort((np.arange(len(names)), time, names))
    first = np.r_[True, np.diff(names[rows]) > 0]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    t, last = np.empty(len(rows), np.int64), np.empty(len(rows), bool)
    t[rows] = np.arange(len(rows)) - begin
    last[rows] = np.r_[first[1:], True]
    return t, last


def check_length(longest: int, horizon: int, name: str = "the log") -> None:
    """An episode longer than the horizon would lose what happens after it."""
    if horizon < 1:
        raise DataError(f"the horizon is {horizon}; it must be at least 1 step.")
    if longest > horizon:
        raise DataError(
            f"{name}: an episode has {longest} steps, more than the horizon of {horizon}. Give "
            + by_door(
                f"horizon={longest}, or limit_horizon={horizon}", f"--horizon {longest}, or --limit-horizon {horizon}"
            )
            + f" for limits per {horizon} steps of a process that goes on."
        )


def exponents(signals: Floats) -> Ints:
    """[1+K] the power of two just above each signal's largest magnitude: the unit of its exact sums."""
    return np.asarray(np.frexp(np.abs(signals).max(axis=1))[1], np.int64)


def exact_sums(signals: Floats, exponent: Ints, cell: Ints, cells: int) -> tuple[Ints, Ints, Ints]:
    """Sums of x and of x² per cell, in integers: (high [2, 1+K, M], low [2, 1+K, M], exponent [1+K]).

    x·2^(62−e) fits in 63 bits and, within a factor 2⁹ of the largest |x|, is x exactly; integers add up to the same
    total in any order. A total is high·2³¹ + low with 0 ≤ low < 2³¹, good for 2³¹ rows.
    """
    unit = np.ldexp(signals, -exponent[:, None])  # in [−1, 1]
    scaled = np.rint(np.stack([unit, unit * unit]) * 2.0**62).astype(np.int64)
    high, low = np.zeros((2, *scaled.shape[:2], cells), np.int64)
    for index in np.ndindex(*scaled.shape[:2]):
        np.add.at(high[index], cell, scaled[index] >> LIMB)
        np.add.at(low[index], cell, scaled[index] & ((1 << LIMB) - 1))
    return high + (low >> LIMB), low & ((1 << LIMB) - 1), exponent


def moments(count: Ints, high: Ints, low: Ints, exponent: Ints) -> tuple[Floats, Floats]:
    """Mean and variance [1+K, M] from exact sums; equal sums give equal bits."""
    unit = (high * 2.0 ** (LIMB - 62) + low * 2.0**-62) / count
    variance = unit[1] - unit[0] ** 2
    variance[variance < 2.0**-44] = 0  # the rounding of the subtraction, not spread
    return np.ldexp(unit[0], exponent[:, None]), np.ldexp(variance, 2 * exponent[:, None])
