"""From a name to a dataset, and back to a file: `load("BallRun")`, `load("my.parquet")`, `save(dataset, "x.npz")`.

The suffix chooses the format: `.hdf5` and `.h5` (DSRL), `.npz`, `.parquet`, `.csv`; a folder without suffix, or
`minari:<id>`, is a Minari dataset.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pdocrl.data import validate
from pdocrl.data.bounds import rescaled
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import chosen
from pdocrl.data.io import columns as tables
from pdocrl.data.io import dsrl, minari, npz
from pdocrl.data.source import Source, from_arrays
from pdocrl.data.tasks import Task, all_tasks, find_task, refuse_other_task
from pdocrl.errors import DataError, UnknownNameError, did_you_mean

FORMATS = {".hdf5": dsrl, ".h5": dsrl, ".npz": npz, ".parquet": tables, ".csv": tables}
TABLES = (".parquet", ".csv")
EMBEDDED = Path(__file__).parent / "embedded"  # {task name in lower case}.hdf5


def load(
    data: str | os.PathLike[str] | Any,
    task: str | Task | None = None,
    *,
    action_low: float | Sequence[float] = (),
    action_high: float | Sequence[float] = (),
    discrete_actions: int | Sequence[int] = (),
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> Dataset:
    """The dataset of a task, a file in any format, a pandas DataFrame, or a dict of arrays with a file's keys.

    Args:
        data: a task's name (its file is in `PDOCRL_DATA`, the download cache or the package), a path, a DataFrame, or
            a dict {"observations": [N, S], "actions": …}, such as D4RL and OGBench give.
        task: a file is checked against it; a task's own file always is.
        action_low: of actions in the environment's own units the lowest, a number for all dimensions or one for each.
        action_high: … and the highest.
        discrete_actions: that actions are discrete: how many, or each.
        columns: keys or columns of a file that has other names: {"reward": "r", "cost": ["c1", "c2"]}.
    """
    low, high = np.atleast_1d(action_low).tolist(), np.atleast_1d(action_high).tolist()
    with open_named(data, task, columns) as (source, known):
        if low or high:
            source = rescaled(source, low, high)
        if np.size(discrete_actions):
            source = chosen(source, discrete_actions)
        dataset = validate.read(source, known)
    assert dataset is not None  # `validate.read` raises unless told to collect
    changed = bool(np.size(low) or np.size(high) or np.size(discrete_actions) or columns)
    in_memory = hasattr(data, "columns") or isinstance(data, Mapping)
    return dataclasses.replace(dataset, path="" if changed or in_memory else place_of(data))


def place_of(name_or_path: str | os.PathLike[str]) -> str:
    """How to find data again, from any folder: a task's name as it is, a file by its whole path."""
    text = os.fspath(name_or_path)
    path = None if text.startswith("minari:") else find(name_or_path)
    return text if path is None else os.path.abspath(path)


def place_exists(place: str) -> bool:
    """Whether what `place_of` gave leads to data."""
    try:
        path = find(place)
    except (DataError, UnknownNameError):
        return False
    return path is None or path.exists()


def to_dataframe(dataset: Dataset) -> Any:
    """A pandas DataFrame with one row per transition, the columns of the Parquet format, and `episode` and `step`."""
    try:
        import pandas
    except ImportError:
        raise DataError("a DataFrame needs pandas: pip install pandas") from None
    columns: dict[str, Any] = dict(tables.named_columns(dataset))
    columns["episode"] = np.repeat(np.arange(dataset.n_episodes), dataset.episode_length)
    columns["step"] = dataset.time_step()
    return pandas.DataFrame(columns)


def save(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a dataset in the format of the path's suffix, whole or not at all."""
    text = os.fspath(path)
    if text.startswith("minari:"):
        dataset_id = text.removeprefix("minari:")
        minari.write(dataset, minari.folder_of(dataset_id), dataset_id)
    elif not (target := Path(text)).suffix:
        minari.write(dataset, target)
    else:
        _format(target).write(dataset, target)


@contextlib.contextmanager
def open_named(
    name_or_path: str | os.PathLike[str],
    task: str | Task | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> Iterator[tuple[Source, Task | None]]:
    """The columns behind a name, a path or a DataFrame, and the task they should fit."""
    known = find_task(task) if isinstance(task, str) else task
    mapping = {field: [names] if isinstance(names, str) else list(names) for field, names in (columns or {}).items()}
    if hasattr(name_or_path, "columns"):
        yield tables.from_dataframe(name_or_path, mapping), known
        return
    if isinstance(name_or_path, Mapping):
        yield from_arrays(name_or_path, mapping), known
        return
    path = find(name_or_path)
    if path is None:
        known = known or find_task(os.fspath(name_or_path))
        path = locate(find_task(os.fspath(name_or_path)))
    with open_source(path, mapping) as source:
        if known is not None:
            refuse_other_task(source.name, source.task, known)
        yield source, known


@contextlib.contextmanager
def open_source(path: Path, mapping: Mapping[str, Sequence[str]] | None = None) -> Iterator[Source]:
    """The columns of a file or Minari folder, readable while the context is open."""
    _refuse_unreadable(path)
    if path.is_dir():
        if not minari.is_minari_folder(path):
            raise DataError(
                f"{path} is a folder and not a Minari dataset. Give a file, or a folder with data/metadata.json."
            )
        if mapping:
            raise DataError(f"{path}: a Minari dataset has its own names; columns={{…}} is for files.")
        with minari.open_source(path) as source:
            yield source
        return
    with _format(path).open_source(path, mapping) as source:
        yield source


def find(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The path meant, or None where a task's name is meant. A misspelt name raises with a suggestion."""
    text = os.fspath(name_or_path)
    path = Path(text)
    if text.startswith("minari:"):
        return minari.folder_of(text.removeprefix("minari:"))
    if path.suffix in FORMATS or os.path.exists(path):
        return path
    if not isinstance(name_or_path, str):
        raise DataError(f"{path}: no such file or folder.{_near(path)}")
    with contextlib.suppress(UnknownNameError):
        find_task(text)
        return None
    if os.path.isdir(folder := minari.folder_of(text)):
        return folder
    if "/" in text or path.suffix:
        raise DataError(f"{path}: no such file or folder.{_near(path)}")
    names = [task.name for task in all_tasks()]
    raise UnknownNameError("task or file", text, names, "`pdocrl tasks` lists all.")


def cache_folder() -> Path:
    """Where `pdocrl data fetch` keeps what it downloaded: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdocrl"


def locate(task: Task) -> Path:
    """The file of a task: in `PDOCRL_DATA`, then in the download cache, then inside the package."""
    found = search(task, data_folders())
    if found is not None:
        return found
    embedded = EMBEDDED / f"{task.name.lower()}.hdf5"
    if embedded.is_file():
        return embedded
    raise DataError(
        f"no data for task {task.name}. Run `pdocrl data fetch {task.name}`, or set PDOCRL_DATA to a folder."
    )


def data_folders() -> list[Path]:
    """Where files of tasks are looked for: `PDOCRL_DATA`, then the download cache."""
    own = os.environ.get("PDOCRL_DATA")
    if own and not os.path.isdir(own):
        raise DataError(f"PDOCRL_DATA={own} is not a folder.")
    return ([Path(own)] if own else []) + [cache_folder()]


def search(task: Task, folders: Iterable[Path]) -> Path | None:
    """The file of a task in the first folder that has one."""
    stem = task.env_id or task.name  # DSRL names files <environment>-<largest cost>-<episodes>.hdf5
    stems = (f"{stem}-", f"{stem.replace('Gymnasium', '')}-")
    for folder in folders:
        exact = [folder / file for file in task.files if (folder / file).is_file()]
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        alike = [path for path in inside if path.name.startswith(stems) and path.suffix == ".hdf5"]
        if not exact and len(alike) > 1:
            names = ", ".join(path.name for path in alike)
            raise DataError(f"{folder}: {len(alike)} files fit task {task.name} ({names}). Give the path of one.")
        if exact or alike:
            return (exact + alike)[0]
    return None


def _format(path: Path) -> ModuleType:
    """The module that reads and writes files with this suffix."""
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        hint = did_you_mean(path.suffix, FORMATS)
        raise DataError(f"{path}: unknown format {path.suffix!r}.{hint} Known: {known}, or a Minari folder.")
    return FORMATS[path.suffix]


def _refuse_unreadable(path: Path) -> None:
    """Say plainly what is wrong with a path, before a library words it differently, or waits on a pipe for ever."""
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise DataError(f"{path}: not a regular file.")
        if stat.S_ISREG(kind):
            path.open("rb").close()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.{_near(path)}") from None
    except PermissionError:
        raise DataError(f"{path}: no permission to read it. Try `chmod u+r`, or copy it to a place of yours.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def _near(path: Path) -> str:
    """' Did you mean `x`?' for a file beside the one named."""
    with contextlib.suppress(OSError):
        return did_you_mean(path.name, [other.name for other in path.parent.iterdir()])
    return ""
