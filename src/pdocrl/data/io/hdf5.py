"""Writing HDF5 so that a full disk is an error message."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import h5py


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """An HDF5 file to fill. It is built in memory (its compressed size) and written to the target by Python.

    When a write fails inside libhdf5, closing the file takes the whole process down with a segmentation fault.
    """
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        yield file
    # No view may outlive a write that fails, which Python 3.13 would complain about: `write_bytes` would keep one.
    with image.getbuffer() as written, Path(target).open("wb") as out:
        out.write(written)
