"""DSRL's HDF5 format: one array per key, the rows of all episodes one after another.

Read with tolerance for what is found in the wild: `next_observations` missing (see `validate`), `[N, 1]` columns,
float64, flags as bool or 0/1, several costs as `costs` [N, K], further keys. What ±1 stands for among the actions is
the array `action_bounds` [2, A], unless it is ±1. Choices are an array of names [N]; `action_choices` [n] says which.
Written with a checksum per chunk, so that a flipped bit is an error and not a number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pdocrl.data.bounds import Bounds, is_unit, make_bounds
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import KEY, chosen, stored
from pdocrl.data.io.hdf5 import new_file
from pdocrl.data.source import FIELDS, Column, Source, blaming, mapped_columns
from pdocrl.errors import DataError
from pdocrl.files import atomic_path

CHUNK_ROWS = 8192  # whole rows per chunk: reading one row costs one chunk, not one per column
BOUNDS = "action_bounds"
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, NotImplementedError)  # what h5py raises


@dataclasses.dataclass(frozen=True)
class HDF5Column:
    """One HDF5 array; h5py converts while reading, straight into the destination."""

    key: str
    array: h5py.Dataset
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    block_rows: int
    name: str

    def read(self, out: NDArray[Any], start: int) -> None:
        if out.size:
            with blaming(f"{self.name}: `{self.key}`", *DAMAGE):
                rows = out.reshape(len(out), *self.shape[1:])
                self.array.read_direct(rows, np.s_[start : start + len(out)])


@contextlib.contextmanager
def open_source(path: Path, mapping: Mapping[str, Sequence[str]] | None = None) -> Iterator[Source]:
    """The file's columns, readable while the context is open."""
    with blaming(path.name, *DAMAGE):
        # No lock: a file being read elsewhere, or on a read-only share, is fine. No chunk cache: each chunk is read
        # once, and the library would keep up to 8 MB of them for every array.
        file = h5py.File(path, "r", locking=False, rdcc_nbytes=0)
    with file:
        with blaming(path.name, *DAMAGE):
            keys = tuple(file)
            columns = mapped_columns(path.name, keys, mapping or {}, lambda key: _column(file, key, path.name))
            names, bounds = _cost_names(file, columns), _action_bounds(file, columns, path.name)
            told = file.attrs.get("task")
            discrete_actions = np.asarray(file[KEY][...]) if KEY in file else None
        task = told if isinstance(told, str) else None
        source = Source(path.name, columns, keys, path.stat().st_size, names, bounds, task)
        yield source if discrete_actions is None else chosen(source, discrete_actions)


def write(dataset: Dataset, path: Path, attributes: Mapping[str, str] | None = None) -> None:
    """A DSRL file with the dataset in it, whole or not at all. Attributes are kept at the root of the file."""
    with atomic_path(path) as temporary, new_file(temporary) as file:
        file.attrs.update(attributes or {})
        for field in FIELDS:
            array = getattr(dataset, field.name)
            if field.name == "action":
                array = stored(array, dataset.discrete_actions)
            if not array.size:  # no costs: an array without columns, which has no chunks to compress
                file.create_dataset(field.key, data=array)
                continue
            chunk = (min(len(array), CHUNK_ROWS), *array.shape[1:])
            file.create_dataset(field.key, data=array, chunks=chunk, compression="gzip", shuffle=True, fletcher32=True)
        file["costs"].attrs["names"] = list(dataset.cost_names)
        if not is_unit(dataset.action_bounds):
            bounds = np.asarray(dataset.action_bounds, np.float32)
            file.create_dataset(BOUNDS, data=bounds, chunks=bounds.shape, fletcher32=True)
        if dataset.discrete_actions:
            file.create_dataset(
                KEY, data=dataset.discrete_actions, chunks=(len(dataset.discrete_actions),), fletcher32=True
            )


def _column(file: h5py.File, key: str, name: str) -> Column:
    if not isinstance(file.get(key, getlink=True), h5py.HardLink):
        raise DataError(f"{name}: `{key}` is a link. Make a copy that holds its own data (`h5repack`).")
    array = file[key]
    if not isinstance(array, h5py.Dataset):
        raise DataError(f"{name}: `{key}` is a group, not an array. Is it a Minari file? Give its folder.")
    if array.is_virtual or array.external:
        raise DataError(f"{name}: `{key}` keeps its data in another file. Make a copy that holds it (`h5repack`).")
    shape = tuple(int(length) for length in array.shape or ())
    return HDF5Column(key, array, shape, array.dtype, _block_rows(array, shape), name)


def _block_rows(array: h5py.Dataset, shape: tuple[int, ...]) -> int:
    """Rows per chunk; without chunks, about 256 KiB of rows."""
    if array.chunks:
        return int(array.chunks[0])
    row_bytes = int(array.dtype.itemsize) * int(np.prod(shape[1:], dtype=object))
    return max(1, (1 << 18) // max(1, row_bytes))


def _action_bounds(file: h5py.File, columns: dict[str, Column], name: str) -> Bounds | None:
    """What `write` left beside the columns (older collections: in their metadata); files from elsewhere say nothing."""
    if "action" not in columns:
        return None
    dims = columns["action"].shape[1] if len(columns["action"].shape) == 2 else 1
    if BOUNDS in file:
        stored = np.asarray(file[BOUNDS][...])
        if stored.shape != (2, dims):
            raise DataError(f"{name}: `{BOUNDS}` has shape {stored.shape}, expected (2, {dims}): lowest and highest.")
        return make_bounds(name, stored[0], stored[1], dims)
    old = json.loads(file.attrs.get("collection", "{}"))
    return make_bounds(name, old["action_low"], old["action_high"], dims) if "action_low" in old else None


def _cost_names(file: h5py.File, columns: dict[str, Column]) -> tuple[str, ...]:
    """The names `write` left beside the costs; files from elsewhere have none."""
    if "cost" not in columns:
        return ()
    key = columns["cost"].key
    names = file[key].attrs.get("names", ()) if key in file else ()
    width = columns["cost"].shape[1] if len(columns["cost"].shape) == 2 else 1
    known = all(isinstance(name, str) for name in names) and len(names) == width
    return tuple(names) if known else ()
