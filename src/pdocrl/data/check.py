"""Everything wrong with a file at once, and what is odd about it without being wrong."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pdocrl.data import validate
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import open_named
from pdocrl.data.tasks import Task
from pdocrl.errors import DataError, by_door

SCALES_APART = 1e3  # columns whose sizes differ by more are named
FEW_DIGITS = 1e-4  # of a column's size; what changes by less has three digits left at best
UNIT = 100.0  # rewards and costs of a step so many times larger or smaller than 1 are mentioned
MOST_CHOICES = 10  # actions with so few values are asked about
LOOKED_AT = 20_000  # rows, when values are counted


@dataclasses.dataclass(frozen=True)
class Findings:
    """Errors keep a dataset from being used; notes do not."""

    errors: tuple[str, ...]
    notes: tuple[str, ...]


def check(
    name_or_path: str | os.PathLike[str],
    task: str | Task | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> Findings:
    """Read a dataset as `load` would, but go on after the first error. A path that cannot be opened raises."""
    errors: list[str] = []
    dataset = None
    with open_named(name_or_path, task, columns) as (source, known):
        try:
            dataset = validate.read(source, known, errors.append)
        except DataError as error:  # a column that cannot be read at all
            errors.append(str(error))
    return Findings(tuple(errors), tuple(notes(dataset, known)) if dataset is not None else ())


def notes(dataset: Dataset, task: Task | None = None) -> list[str]:
    """What a careful reader would mention about usable data."""
    found = list(dataset.notes)
    last = len(dataset) - 1
    if not (dataset.terminal[last] or dataset.timeout[last]):
        found.append(f"the last episode ({dataset.episode_length[-1]} rows) is cut: no terminal or timeout ends it.")
    inside = np.ones(len(dataset), bool)
    inside[dataset.episode_start + dataset.episode_length - 1] = False
    rows = np.flatnonzero(inside)
    gaps = rows[(dataset.next_obs[rows] != dataset.obs[rows + 1]).any(axis=1)]
    if len(gaps):
        found.append(
            f"{len(gaps)} rows inside episodes have another next observation than the row after (first: {gaps[0]})."
        )
    found += _odd_columns(dataset)
    sizes = {"rewards": float(np.abs(dataset.reward).max())}
    sizes |= {f"`{name}`": float(cost.max()) for name, cost in zip(dataset.cost_names, dataset.cost.T, strict=True)}
    far = [f"{name} {size:.3g}" for name, size in sizes.items() if size and not 1 / UNIT <= size <= UNIT]
    if far:
        found.append(
            f"a step's largest: {', '.join(far)}. `bc`, `dial`, `pdocrl_anchored` and `ope` take any unit; the critics "
            "of other agents are made for about 1, so choose units (and limits) for them."
        )
    never = [f"`{name}`" for name, cost in zip(dataset.cost_names, dataset.cost.T, strict=True) if not cost.any()]
    if never:
        found.append(f"{', '.join(never)} never occurs: nothing can be learned or shown about what costs.")
    whole = task.horizon if task is not None else int(dataset.episode_length.max())
    ends = dataset.episode_start + dataset.episode_length - 1
    cut = int((dataset.timeout[ends] & ~dataset.terminal[ends] & (dataset.episode_length < whole)).sum())
    if cut:
        found.append(
            f"{cut} of {dataset.n_episodes} episodes end by a timeout before step {whole}. If the world stopped there, "
            "mark them as terminal; if only the recording did, what they went on to cost is not known, and agents that "
            "copy whole episodes take it for nothing."
        )
    if task is not None:
        longer = np.flatnonzero(dataset.episode_length > task.horizon)
        if len(longer):
            found.append(
                f"{len(longer)} episodes are longer than the horizon {task.horizon} (first: episode {longer[0]})."
            )
        low, high = dataset.reward_return.min(), dataset.reward_return.max()
        if low < task.reward_min or high > task.reward_max:
            found.append(
                f"returns {low:.4g} … {high:.4g} reach beyond the reference scores {task.reward_min:.4g} … "
                f"{task.reward_max:.4g}: normalised rewards below 0 or above 1 are possible."
            )
    return found


def _odd_columns(dataset: Dataset) -> list[str]:
    """Observations and actions that are not what networks like best; what is done about them is said too."""
    found = []
    mean, std = dataset.obs_moments
    changes = dataset.obs_varies
    if not changes.all():
        found.append(f"observation columns that never change beyond rounding, and are ignored: {_listed(~changes)}.")
    coarse = changes & (std < FEW_DIGITS * np.abs(mean))
    if coarse.any():
        found.append(
            f"observation columns that change by less than {FEW_DIGITS:g} of their size: {_listed(coarse)}. Numbers "
            "are kept in single precision, some seven digits: subtract what is common to all rows first."
        )
    size = np.hypot(mean, std)
    if changes.any() and size[changes].max() > SCALES_APART * max(float(size[changes].min()), 1e-30):
        large = int(np.argmax(np.where(changes, size, -1)))
        found.append(
            f"observation columns differ in scale by more than {SCALES_APART:g} (column {large} is about "
            f"{size[large]:.3g}); training standardises each."
        )
    step = dataset.next_obs - dataset.obs
    clock = changes & (np.ptp(step, axis=0) <= 1e-4 * np.abs(step).max(axis=0)) & (np.abs(step).max(axis=0) > 0)
    if clock.any():
        found.append(f"observation columns that count steps: {_listed(clock)}. Does the policy get a clock, too?")
    few = np.array([len(np.unique(column[:LOOKED_AT])) <= 10 for column in dataset.obs.T]) & changes
    values = np.unique(dataset.action[:LOOKED_AT])
    if not dataset.discrete_actions and 2 <= len(values) <= MOST_CHOICES:
        found.append(
            f"actions take {len(values)} values only. Are they discrete? "
            + by_door("`pdocrl.load(…, discrete_actions=N)`.", "`pdocrl data convert --discrete-actions N`.")
        )
    unseen = [str(c) for c, taken in zip(dataset.discrete_actions, dataset.action.max(0), strict=False) if not taken]
    if unseen:
        found.append(f"discrete actions that were never taken, of which nothing can be learned: {', '.join(unseen)}.")
    if few.any():
        found.append(f"observation columns with at most ten values: {_listed(few)}. Categories do better one-hot.")
    return found


def _listed(columns: NDArray[np.bool_]) -> str:
    return ", ".join(str(i) for i in np.flatnonzero(columns))
