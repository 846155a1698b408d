"""Minari datasets, both ways: episodes with T + 1 observations, costs in `infos["cost"]` or `infos["cost_<name>"]`.

Infos recorded by Minari's collector have T + 1 entries, the first belonging to the reset; infos with T entries are read
as one per step. Actions are stored in the units of the dataset's own action space, and read from them to [−1, 1]; those
of a `Discrete` space are discrete actions. Needs the extra `minari`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.bounds import rescaled, to_real
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import chosen, stored
from pdocrl.data.io.hdf5 import new_file
from pdocrl.data.source import ArrayColumn, Source, blaming
from pdocrl.errors import DataError, MissingExtraError
from pdocrl.files import atomic_folder

DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AssertionError, MemoryError, ImportError)


def is_minari_folder(path: Path) -> bool:
    """Whether a folder is a Minari dataset (holds `data/metadata.json`) or its `data` folder."""
    return (path / "data" / "metadata.json").is_file() or (path / "metadata.json").is_file()


def folder_of(dataset_id: str) -> Path:
    """Where Minari keeps, or would keep, the dataset of that id. (Asking Minari itself would create the folder.)"""
    root = os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets"
    return Path(root) / dataset_id


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The episodes of a Minari folder, joined into columns in memory."""
    dataset_class = _minari_module("minari").MinariDataset
    data = path / "data" if (path / "data").is_dir() else path
    with blaming(path.name, *DAMAGE):
        opened = dataset_class(data)
        episodes = list(opened.iterate_episodes())
    if not episodes:
        raise DataError(f"{path.name}: no episodes.")
    parts = [_episode_columns(path.name, index, episode) for index, episode in enumerate(episodes)]
    odd = next((i for i, part in enumerate(parts) if part.keys() != parts[0].keys()), None)
    if odd is not None:
        raise DataError(f"{path.name}: episode {odd} has other costs in `infos` than episode 0.")
    with blaming(path.name, ValueError):
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    costs = [key for key in joined if key.startswith("cost")]
    columns = {key: ArrayColumn(key, values) for key, values in joined.items() if key not in costs}
    if costs:
        columns["cost"] = ArrayColumn("infos/cost", np.concatenate([_as_matrix(joined[key]) for key in costs], axis=1))
    names = tuple(costs) if costs and columns["cost"].shape[1] == len(costs) else ()
    source = Source(path.name, columns, tuple(joined), cost_names=names)
    yield _understood(source, opened.spec.action_space)


def write(dataset: Dataset, path: Path, dataset_id: str | None = None) -> None:
    """A Minari dataset folder, whole or not at all. `dataset_id` defaults to the folder's name, with a version."""
    minari = _minari_module("minari")
    storage_class = _minari_module("minari.dataset.minari_storage").MinariStorage
    from gymnasium.spaces import Box, Discrete

    _refuse_gaps(dataset)
    name = dataset_id or (path.name if re.search(r"-v\d+$", path.name) else f"{path.name}-v0")
    with atomic_folder(path) as temporary:
        data = (temporary / "data").absolute()  # Minari measures the size of relative folders wrongly
        storage = storage_class.new(
            data,
            observation_space=Box(-np.inf, np.inf, (dataset.obs_dim,), np.float32),
            action_space=Discrete(len(dataset.discrete_actions), start=dataset.discrete_actions[0])
            if dataset.discrete_actions
            else Box(*np.asarray(dataset.action_bounds, np.float32), dtype=np.float32),
        )
        # Minari's own writer lets libhdf5 meet a full disk (see `hdf5`); so its main file is written here.
        with new_file(data / "main_data.hdf5") as file:
            for index in range(dataset.n_episodes):
                _write_episode(file.create_group(f"episode_{index}", track_order=True), dataset, index)
        totals = {"total_episodes": dataset.n_episodes, "total_steps": len(dataset), "dataset_size": storage.get_size()}
        storage.update_metadata({"dataset_id": name, "minari_version": minari.__version__} | totals)


def _write_episode(group: Any, dataset: Dataset, index: int) -> None:
    start, length = dataset.episode_start[index], dataset.episode_length[index]
    rows = slice(start, start + length)
    group.attrs["id"] = index
    group.attrs["total_steps"] = int(length)
    group["observations"] = np.concatenate([dataset.obs[rows], dataset.next_obs[rows][-1:]])
    action = dataset.action[rows]
    group["actions"] = (
        stored(action, dataset.discrete_actions) if dataset.discrete_actions else to_real(action, dataset.action_bounds)
    )
    group["rewards"] = dataset.reward[rows]
    group["terminations"] = dataset.terminal[rows]
    group["truncations"] = dataset.timeout[rows]
    infos = group.create_group("infos")
    for name, cost in zip(dataset.cost_names, dataset.cost[rows].T, strict=True):
        key = name if name.startswith("cost") else f"cost_{name}"
        infos[key] = np.concatenate([[np.float32(0)], cost])  # infos begin with the reset, which costs nothing


def _refuse_gaps(dataset: Dataset) -> None:
    """Minari stores s₀ … s_T once; a dataset whose next_obs is not the next row's obs cannot be told that way."""
    inside = np.ones(len(dataset), bool)
    inside[dataset.episode_start + dataset.episode_length - 1] = False
    rows = np.flatnonzero(inside)
    gaps = rows[(dataset.next_obs[rows] != dataset.obs[rows + 1]).any(axis=1)]
    if len(gaps):
        raise DataError(
            f"{dataset.name}: `next_obs` of row {gaps[0]} is not `obs` of row {gaps[0] + 1} ({len(gaps)} such rows), "
            "which Minari cannot store. Write .hdf5, .npz or .parquet."
        )


def _understood(source: Source, space: Any) -> Source:
    """The source with its actions read by the space Minari keeps beside them; infinite bounds say nothing."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return chosen(source, range(int(space.start), int(space.start + space.n)))
    if not isinstance(space, Box):
        raise DataError(f"{source.name}: its action space is {space}; boxes and `Discrete` are read.")
    finite = np.isfinite(space.low).all() and np.isfinite(space.high).all()
    if not finite or ((space.low == -1).all() and (space.high == 1).all()):
        return source
    return rescaled(source, space.low.reshape(-1), space.high.reshape(-1))


def _episode_columns(name: str, index: int, episode: Any) -> dict[str, NDArray[Any]]:
    """One episode's columns: [T, …] each."""
    place = f"{name}: episode {index}"
    if not isinstance(episode.observations, np.ndarray) or not isinstance(episode.actions, np.ndarray):
        raise DataError(
            f"{place}: observations and actions must be plain arrays, not nested spaces. Flatten them first."
        )
    steps = len(episode.rewards)
    if len(episode.observations) != steps + 1:
        raise DataError(f"{place}: {len(episode.observations)} observations for {steps} steps, expected {steps + 1}.")
    columns = {
        "obs": episode.observations[:-1],
        "action": episode.actions,
        "reward": episode.rewards,
        "next_obs": episode.observations[1:],
        "terminal": episode.terminations,
        "timeout": episode.truncations,
    }
    infos = episode.infos or {}
    for key in ["cost"] if "cost" in infos else sorted(key for key in infos if key.startswith("cost_")):
        values = np.asarray(infos[key])
        if values.ndim == 0 or len(values) not in (steps, steps + 1):
            raise DataError(f"{place}: `infos/{key}` has shape {values.shape} for {steps} steps.")
        columns[key] = values[-steps:] if steps else values[:0]
    return columns


def _as_matrix(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values


def _minari_module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("reading or writing a Minari dataset", "minari") from error
