"""From a name to a dataset: `load("BallRun")`, `load("my.parquet")`. The suffix chooses the format."""

from __future__ import annotations

import os
from pathlib import Path

from pdocrl.data import dsrl
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import DataError

EMBEDDED = Path(__file__).parent / "embedded"  # {task name in lower case}.hdf5


def load(name_or_path: str | os.PathLike[str], task: str | Task | None = None) -> Dataset:
    """The dataset of a task (from `PDOCRL_DATA`, the download cache or the package), or of a file in any format."""
    path = Path(name_or_path)
    return dsrl.read(path if path.suffix in {".hdf5", ".h5"} else locate(find_task(str(name_or_path))))


def cache_folder() -> Path:
    """Where `pdocrl data fetch` keeps what it downloaded: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdocrl"


def locate(task: Task) -> Path:
    """The file of a task: in `PDOCRL_DATA`, then in the download cache, then inside the package."""
    own = os.environ.get("PDOCRL_DATA")
    for folder in ([Path(own)] if own else []) + [cache_folder()]:
        exact = [folder / file for file in task.files if (folder / file).is_file()]
        alike = sorted(folder.glob(f"{task.env_id or task.name}-*.hdf5"))
        if not exact and len(alike) > 1:
            names = ", ".join(path.name for path in alike)
            raise DataError(f"{folder}: {len(alike)} files fit task {task.name} ({names}). Give the path of one.")
        if exact or alike:
            return (exact + alike)[0]
    embedded = EMBEDDED / f"{task.name.lower()}.hdf5"
    if embedded.is_file():
        return embedded
    raise DataError(
        f"no data for task {task.name}. Run `pdocrl data fetch {task.name}`, or set PDOCRL_DATA to a folder."
    )
