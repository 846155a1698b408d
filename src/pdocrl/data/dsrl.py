"""DSRL's HDF5 format, read and written: one array per key, rows of all episodes one after another."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import DataError
from pdocrl.files import atomic_path


def read(path: Path) -> Dataset:
    """The dataset in a DSRL file."""
    try:
        with h5py.File(path, "r") as file:
            return make_dataset(
                file["observations"][()],
                file["actions"][()],
                file["rewards"][()],
                file["costs"][()],
                file["next_observations"][()],
                file["terminals"][()],
                file["timeouts"][()],
                name=path.name,
            )
    except (OSError, KeyError) as error:
        raise DataError(f"{path}: {error}") from error


def write(dataset: Dataset, path: Path) -> None:
    """A DSRL file with the dataset in it, whole or not at all."""
    arrays = {
        "observations": dataset.obs,
        "actions": dataset.action,
        "rewards": dataset.reward,
        "costs": dataset.cost,
        "next_observations": dataset.next_obs,
        "terminals": dataset.terminal,
        "timeouts": dataset.timeout,
    }
    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=np.asarray(array), compression="gzip" if array.size else None)
