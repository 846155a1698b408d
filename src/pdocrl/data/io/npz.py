"""Plain `.npz`: one array per key, with DSRL's names or `Dataset`'s own. Nothing in it is ever unpickled.

`action_bounds` [2, A], lowest and highest, says what ±1 stands for. Discrete `actions` [N] are labels,
and `action_choices` [n] says which there are.

Members are read block by block from the archive, so a file larger than memory can be drawn from; the archive's own
checksums are verified on the way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pdocrl.data.bounds import Bounds, make_bounds
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import KEY, chosen, stored
from pdocrl.data.source import FIELDS, Column, Source, blaming, mapped_columns
from pdocrl.errors import DataError
from pdocrl.files import atomic_path

BLOCK_BYTES = 1 << 20
DAMAGE = (
    OSError,
    EOFError,
    RuntimeError,
    KeyError,
    ValueError,
    NotImplementedError,
    MemoryError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    SyntaxError,
    tokenize.TokenError,
)


@dataclasses.dataclass
class NpzColumn:
    """One member of the archive. Reading goes forward; a smaller `start` begins again at the front."""

    key: str
    archive: zipfile.ZipFile
    name: str

    def __post_init__(self) -> None:
        self.shape, self.dtype, self._fortran, self._stream = self._open()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=object))
        header = self._stream.tell()
        held = self.archive.getinfo(f"{self.key}.npy").file_size - header
        promised = self._row_bytes * (self.shape[0] if self.shape else 1)
        if self.dtype.hasobject is False and held != promised:
            raise DataError(f"{self.name}: `{self.key}` promises {promised:,} bytes and holds {held:,}. It is damaged.")
        self._next_row = 0

    @property
    def block_rows(self) -> int:
        return max(1, BLOCK_BYTES // max(1, self._row_bytes))

    def read(self, out: NDArray[Any], start: int) -> None:
        # Too large for float32 becomes infinite, which validation names.
        with blaming(f"{self.name}: `{self.key}`", *DAMAGE), np.errstate(over="ignore"):
            if self._fortran:
                out[...] = self._whole()[start : start + len(out)].reshape(out.shape)
                return
            if start < self._next_row:
                self._stream = self._open()[3]
                self._next_row = 0
            self._take(start - self._next_row, None)
            self._take(len(out), out)
            if start + len(out) == self.shape[0]:
                self._stream.read(1)  # the archive compares its checksum when the end is reached

    def _take(self, rows: int, out: NDArray[Any] | None) -> None:
        """The next rows into `out`, or past them."""
        for first in range(0, rows, self.block_rows):
            count = min(self.block_rows, rows - first)
            data = self._stream.read(count * self._row_bytes)
            if len(data) != count * self._row_bytes:
                raise EOFError("ends early")
            if out is not None and data:
                block = out[first : first + count]
                block[...] = np.frombuffer(data, self.dtype).reshape(block.shape)
            self._next_row += count

    def _whole(self) -> NDArray[Any]:
        """A Fortran-ordered member has no rows on disk; it can only be read whole."""
        stream = self._open()[3]
        values = np.frombuffer(stream.read(), self.dtype)
        return values.reshape(self.shape, order="F")

    def _open(self) -> tuple[tuple[int, ...], np.dtype[Any], bool, IO[bytes]]:
        stream = self.archive.open(f"{self.key}.npy")
        version = npy.read_magic(stream)
        if version not in {(1, 0), (2, 0)}:
            raise DataError(
                f"{self.name}: `{self.key}` is in version {version} of the npy format, which has no numbers."
            )
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
        if any(length < 0 for length in shape):
            raise DataError(f"{self.name}: `{self.key}` has a negative length in its shape {shape}. It is damaged.")
        return shape, dtype, fortran and len(shape) > 1, stream


@contextlib.contextmanager
def open_source(path: Path, mapping: Mapping[str, Sequence[str]] | None = None) -> Iterator[Source]:
    """The archive's columns, readable while the context is open."""
    with blaming(path.name, *DAMAGE):
        archive = zipfile.ZipFile(path)
    with archive:
        with blaming(path.name, *DAMAGE):
            for name in archive.namelist():
                archive.open(name).close()  # a damaged name is noticed, not taken for one that is missing
            keys = tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
            columns = mapped_columns(path.name, keys, mapping or {}, lambda key: NpzColumn(key, archive, path.name))
            names = _cost_names(archive, columns, path.name) if "cost_names" in keys else ()
            bounds, discrete_actions = None, _small(archive, KEY) if KEY in keys else None
            if "action" in columns and "action_bounds" in keys and discrete_actions is None:
                bounds = _action_bounds(archive, (columns["action"].shape[1:] or (1,))[0], path.name)
        source = Source(path.name, columns, keys, path.stat().st_size, names, bounds)
        yield source if discrete_actions is None else chosen(source, discrete_actions)


def write(dataset: Dataset, path: Path) -> None:
    """An uncompressed archive with the dataset in it, whole or not at all."""
    arrays = {field.key: getattr(dataset, field.name) for field in FIELDS}
    if dataset.discrete_actions:
        arrays |= {"actions": stored(dataset.action, dataset.discrete_actions), KEY: np.array(dataset.discrete_actions)}
    else:
        arrays["action_bounds"] = np.asarray(dataset.action_bounds, np.float32)
    with atomic_path(path) as temporary:
        arrays = {"cost_names": np.array(dataset.cost_names, dtype=np.str_)} | arrays
        # As `numpy.savez` does, which leaves its file open where a write fails.
        with zipfile.ZipFile(temporary, "w") as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as stream:
                    npy.write_array(stream, array, allow_pickle=False)


def _small(archive: zipfile.ZipFile, key: str) -> NDArray[Any]:
    with archive.open(f"{key}.npy") as stream:
        return npy.read_array(stream, allow_pickle=False)


def _action_bounds(archive: zipfile.ZipFile, dims: int, name: str) -> Bounds:
    stored = _small(archive, "action_bounds")
    if stored.shape != (2, dims) or stored.dtype.kind not in "fiu":
        raise DataError(f"{name}: `action_bounds` has shape {stored.shape}, expected (2, {dims}): lowest and highest.")
    return make_bounds(name, stored[0], stored[1], dims)


def _cost_names(archive: zipfile.ZipFile, columns: dict[str, Column], name: str) -> tuple[str, ...]:
    names = _small(archive, "cost_names")
    width = (columns["cost"].shape[1:] or (1,))[0] if "cost" in columns else 0
    if names.dtype.kind != "U" or names.shape != (width,):
        raise DataError(f"{name}: `cost_names` has shape {names.shape}, expected one name per cost column ({width}).")
    return tuple(str(cost) for cost in names)
