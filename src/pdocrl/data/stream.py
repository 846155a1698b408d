"""Batches from a file too large for memory: exactly the batches that sampling in memory would give.

What is sampled: every row of every batch is drawn independently and uniformly from all N transitions, with replacement
(`rng.integers(N)`), so the stream for a seed is the same whether the data lies in memory or on disk, compressed or not,
and however much memory is allowed. What makes it fast: the row numbers of many batches are drawn ahead, as many as fit
the memory allowed, read in the order of the file, and handed out in the order they were drawn. Reading then approaches
one sequential pass per look-ahead. The look-ahead starts at one batch and doubles, so the first batches come at once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data import validate
from pdocrl.data.dataset import Floats, Rows
from pdocrl.data.load import open_named
from pdocrl.data.source import FIELDS, Source
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError

MEMORY = 1 << 28  # bytes of look-ahead, unless told otherwise
DENSE_BYTES = 1 << 22  # how much to read at once when most blocks are needed anyway
INDEX_BYTES = 32  # per row drawn: its number, the sorting order, the sorted numbers, one temporary


class Stream:
    """N transitions in an open file. Flags (2 N bytes) are kept in memory; everything else stays on disk.

    Shapes and flags are checked when opening, other values when they are drawn.
    """

    def __init__(self, source: Source, task: Task | None = None, memory: int = MEMORY) -> None:
        validate.check_shapes(source, task, validate.refuse)
        self._source, self._memory = source, memory
        self._flags = {field.name: validate.read_field(source, field) for field in FIELDS if field.flag}
        validate.check_ends(source, self._flags["terminal"], self._flags["timeout"], validate.refuse)
        self._dropped = np.empty(0, np.int64)
        if "next_obs" not in source.columns:
            self._dropped, self._flags["timeout"] = validate.drop_rows_without_successor(
                source.name, self._flags["terminal"], self._flags["timeout"]
            )
        self._widths = {name: validate.width(column) for name, column in source.columns.items()}
        self._widths.setdefault("next_obs", self._widths["obs"])
        self._widths.setdefault("cost", 0)

    def __len__(self) -> int:
        return len(self._source) - len(self._dropped)

    @property
    def obs_dim(self) -> int:
        return self._widths["obs"]

    @property
    def action_dim(self) -> int:
        return self._widths["action"]

    @property
    def n_costs(self) -> int:
        return self._widths["cost"]

    def batches(self, batch_size: int, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Endless batches {field: [B, …]}: obs, action, reward, cost, next_obs (float32); terminal, timeout (bool)."""
        if batch_size < 1:
            raise PdocrlError(f"batch size {batch_size} must be at least 1.")
        rng = np.random.default_rng(seed)
        row_bytes = 4 * sum(self._widths.values()) + INDEX_BYTES
        most = max(1, self._memory // (batch_size * row_bytes))
        ahead = 1
        while True:
            drawn = np.concatenate([rng.integers(len(self), size=batch_size) for _ in range(ahead)])
            table = self.rows(drawn)
            for start in range(0, len(drawn), batch_size):
                # A copy: a batch that is kept must not keep the whole table.
                yield {name: array[start : start + batch_size].copy() for name, array in table.items()}
            del table
            ahead = min(2 * ahead, most)

    def rows(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """The given transitions [M], in the given order, as {field: [M, …]}."""
        shift = self._dropped - np.arange(len(self._dropped))
        rows = rows + np.searchsorted(shift, rows, side="right")  # numbers among kept rows → rows of the file
        order = np.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        table: dict[str, NDArray[Any]] = {
            name: self._gather(name, sorted_rows, order)
            for name in ("obs", "action", "reward", "cost")
            if self._has(name)
        }
        if not self._has("cost"):
            table["cost"] = np.zeros((len(rows), 0), np.float32)
        if self._has("next_obs"):
            table["next_obs"] = self._gather("next_obs", sorted_rows, order)
        else:
            table["next_obs"] = self._gather("obs", sorted_rows + ~self._flags["terminal"][sorted_rows], order)
        return table | {name: flags[rows] for name, flags in self._flags.items()}

    def initial_obs(self) -> Floats:
        """[E, S] the first observation of each episode."""
        ends = self._flags["terminal"] | self._flags["timeout"]
        ends[self._dropped] = True
        starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
        starts = np.setdiff1d(starts, self._dropped)  # an episode of one row without successor left nothing
        return self._gather("obs", starts, np.arange(len(starts)))

    def _gather(self, name: str, sorted_rows: Rows, order: Rows) -> Floats:
        """[M, width] (or [M]): out[order[i]] is row sorted_rows[i] of the column, read block by block."""
        column = self._source.columns[name]
        field = next(field for field in FIELDS if field.name == name)
        tail = (self._widths[name],) if field.axes == 2 else ()
        out = np.empty((len(order), *tail), np.float32)
        block_rows = self._block_rows(column.block_rows, max(1, self._widths[name]), len(order))
        block = np.empty((min(block_rows, len(self._source)), *tail), np.float32)
        edges = np.flatnonzero(np.diff(sorted_rows // block_rows, prepend=-1))
        for low, high in zip(edges, np.append(edges[1:], len(order)), strict=True):
            start = int(sorted_rows[low] // block_rows) * block_rows
            part = block[: min(block_rows, len(self._source) - start)]
            column.read(part, start)
            picked = part[sorted_rows[low:high] - start]
            finding = validate.wrong_value(field, column.key, picked, sorted_rows[low:high])
            if finding:
                validate.refuse(f"{self._source.name}: {finding}")
            out[order[low:high]] = picked
        return out

    def _block_rows(self, grain: int, width: int, drawn: int) -> int:
        """Whole blocks of the file; many at once when most of them are needed anyway."""
        dense = 2 * drawn * grain >= len(self._source)
        return grain * max(1, DENSE_BYTES // (4 * width * grain)) if dense else grain

    def _has(self, name: str) -> bool:
        return name in self._source.columns


@contextlib.contextmanager
def open_stream(
    name_or_path: str | os.PathLike[str], task: str | Task | None = None, memory: int = MEMORY
) -> Iterator[Stream]:
    """A `Stream` over an HDF5 or .npz file (or a task's file), with `memory` bytes of look-ahead."""
    path = Path(name_or_path)
    if path.is_dir() or path.suffix in {".csv", ".parquet"}:
        raise PdocrlError(f"{path}: batches can be drawn from .hdf5 and .npz files. Use `pdocrl data convert` first.")
    with open_named(name_or_path, task) as (source, known):
        yield Stream(source, known, memory)
