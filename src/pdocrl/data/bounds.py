"""Action bounds: what −1 and 1 stand for in the environment. A `Dataset` holds actions in [−1, 1], and bounds beside.

    a_real = centre + half · a,   centre = (low + high) / 2,   half = (high − low) / 2

The same arithmetic as `policies.policy.WorldScales`, which must travel without this package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.source import SeenColumn, Source
from pdocrl.errors import DataError

Bounds = tuple[tuple[float, ...], tuple[float, ...]]  # low, high, one number per action dimension


def unit_bounds(dims: int) -> Bounds:
    return (-1.0,) * dims, (1.0,) * dims


def is_unit(bounds: Bounds) -> bool:
    return bounds == unit_bounds(len(bounds[0]))


def make_bounds(name: str, low: ArrayLike, high: ArrayLike, dims: int) -> Bounds:
    """Bounds of `dims` dimensions from one number for all or one for each; refused unless low < high, both finite."""
    both = []
    for what, values in (("low", low), ("high", high)):
        given = np.asarray(values, np.float32).reshape(-1)
        if given.size not in (1, dims):
            raise DataError(f"{name}: {given.size} {what} action bounds for {dims} action columns. Give one, or each.")
        both.append(np.broadcast_to(given, (dims,)))
    if not (np.isfinite(both).all() and (both[0] < both[1]).all()):
        raise DataError(
            f"{name}: action bounds {both[0].tolist()} … {both[1].tolist()} are not finite with low < high."
        )
    return tuple(map(float, both[0])), tuple(map(float, both[1]))


def to_unit(action: ArrayLike, bounds: Bounds) -> NDArray[np.float32]:
    """[..., A] in the environment's units → [−1, 1]."""
    low, high = np.asarray(bounds, np.float32)
    out: NDArray[np.float32] = (np.asarray(action, np.float32) - (low + high) / 2) / ((high - low) / 2)
    return out


def to_real(action: ArrayLike, bounds: Bounds) -> NDArray[np.float32]:
    """[..., A] in [−1, 1] → the environment's units."""
    low, high = np.asarray(bounds, np.float32)
    out: NDArray[np.float32] = np.asarray(action, np.float32) * ((high - low) / 2) + (low + high) / 2
    return np.clip(out, low, high)


@dataclasses.dataclass(frozen=True)
class UnitColumn(SeenColumn):
    """A column of actions in the environment's units, read as [−1, 1]."""

    bounds: Bounds

    def read(self, out: NDArray[Any], start: int) -> None:
        self.column.read(out, start)
        out[...] = to_unit(out, self.bounds)


def rescaled(source: Source, low: Sequence[float] = (), high: Sequence[float] = ()) -> Source:
    """The source with its actions read from [low, high], one pair for all dimensions or one for each, to [−1, 1]."""
    action = source.columns.get("action")
    if source.discrete_actions:
        raise DataError(f"{source.name}: its actions are discrete, not continuous: they have no bounds.")
    if action is None or len(action.shape) not in (1, 2):
        return source  # what is wrong is named when shapes are checked
    dims = action.shape[1] if len(action.shape) == 2 else 1
    if not (len(low) and len(high)):
        raise DataError(f"{source.name}: which bounds? Give the lowest and the highest action of the environment.")
    bounds = make_bounds(source.name, low, high, dims)
    columns = {**source.columns, "action": UnitColumn(action, bounds)}
    return dataclasses.replace(source, columns=columns, action_bounds=bounds)
