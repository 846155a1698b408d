"""Batches from a file too large for memory: exactly the batches that sampling in memory would give.

What is sampled: every row of every batch is drawn independently and uniformly from all N transitions, with replacement
(`rng.integers(N)`), so the stream for a seed is the same whether the data lies in memory or on disk, compressed or not,
and however much memory is allowed. What makes it fast: the row numbers of many batches are drawn ahead, as many as fit
the memory allowed, read in the order of the file, and handed out in the order they were drawn. Reading then approaches
one sequential pass per look-ahead. The look-ahead starts at one batch and doubles, so the first batches come at once.

What training must know of the whole file (its digest, its largest numbers, its longest episode) takes one pass in
constant memory.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data import validate
from pdocrl.data.bounds import Bounds, unit_bounds
from pdocrl.data.dataset import Floats, Moments, Rows, add_meaning, moments
from pdocrl.data.discrete import DiscreteActions
from pdocrl.data.load import open_named
from pdocrl.data.source import FIELDS, Source
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError

MEMORY = 1 << 28  # bytes of look-ahead, unless told otherwise
DENSE_BYTES = 1 << 22  # how much to read at once when most blocks are needed anyway
INDEX_BYTES = 32  # per row drawn: its number, the sorting order, the sorted numbers, one temporary
FLOATS = tuple(field.name for field in FIELDS if not field.flag)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What one pass over the file tells."""

    digest: str  # that of the `Dataset` the file would load as
    largest_reward: float  # |r|
    largest_costs: tuple[float, ...]  # [K]
    obs_moments: Moments  # mean and standard deviation of each observation column


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

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def cost_names(self) -> tuple[str, ...]:
        """As the file names them; empty where it does not."""
        return self._source.cost_names

    @property
    def action_bounds(self) -> Bounds:
        """What −1 and 1 stand for in the environment."""
        return self._source.action_bounds or unit_bounds(self.action_dim)

    @property
    def discrete_actions(self) -> DiscreteActions:
        """What the columns of one-hot actions stand for; (): actions are continuous."""
        return self._source.discrete_actions

    @cached_property
    def longest_episode(self) -> int:
        ends = np.flatnonzero(self._kept("terminal") | self._kept("timeout"))
        return int(np.diff(np.append(ends, len(self) - 1), prepend=-1).max())

    @cached_property
    def facts(self) -> Facts:
        """Read the file once from front to back, every value checked."""
        sha, largest = hashlib.sha256(), {name: np.zeros(self._tail(name)) for name in FLOATS}

        held: set[str] = set()  # what actions are: 0, 1 or something between

        def noted(name: str) -> Iterator[Floats]:
            for block in self._blocks(name):
                if name == "action" and "between" not in held:
                    held.update(validate.kinds_of(block))
                largest[name] = np.maximum(largest[name], np.abs(block).max(axis=0, initial=0.0))
                sha.update(np.ascontiguousarray(block, dtype="<f4").data)
                yield block

        for name in FLOATS:
            sha.update(f"{name}{(len(self), *self._tail(name))}".encode())
            if name == "obs":
                spread = moments(block for block in noted(name) if len(block))
            else:
                collections.deque(noted(name), maxlen=0)
        if held == {"0", "1"} and not self.discrete_actions:
            validate.refuse(f"{self.name}: `{self._source.columns['action'].key}` {validate.only_0_and_1()}")
        for name in self._flags:
            sha.update(np.packbits(self._kept(name)).tobytes())
        add_meaning(sha, self.action_bounds, self.discrete_actions)
        return Facts(sha.hexdigest(), float(largest["reward"]), tuple(largest["cost"].tolist()), spread)

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
        table: dict[str, NDArray[Any]] = {name: self._values(name, sorted_rows, order) for name in FLOATS}
        return table | {name: flags[rows] for name, flags in self._flags.items()}

    def initial_obs(self) -> Floats:
        """[E, S] the first observation of each episode."""
        ends = self._flags["terminal"] | self._flags["timeout"]
        ends[self._dropped] = True
        starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
        starts = np.setdiff1d(starts, self._dropped)  # an episode of one row without successor left nothing
        return self._gather("obs", starts, np.arange(len(starts)))

    def _kept(self, name: str) -> NDArray[np.bool_]:
        """[N] a flag, without the rows that were dropped."""
        return np.delete(self._flags[name], self._dropped)

    def _blocks(self, name: str) -> Iterator[Floats]:
        """All values of a field in the order of the file, some at a time."""
        stored = name if self._has(name) else "obs"
        # Whole blocks, as `_gather` reads them, or some would be read twice.
        rows = self._block_rows(self._source.columns[stored].block_rows, max(1, self._widths[stored]), 1, 1)
        for start in range(0, len(self._source), rows):
            here = np.arange(start, min(start + rows, len(self._source)))
            first, last = np.searchsorted(self._dropped, [start, start + rows])
            kept = np.delete(here, self._dropped[first:last] - start)
            yield self._values(name, kept, np.arange(len(kept)))

    def _values(self, name: str, sorted_rows: Rows, order: Rows) -> Floats:
        """A field at the given rows of the file, stored there or derived, as `_gather` orders it."""
        if self._has(name):
            return self._gather(name, sorted_rows, order)
        if name == "cost":
            return np.zeros((len(order), 0), np.float32)
        return self._gather("obs", sorted_rows + ~self._flags["terminal"][sorted_rows], order)

    def _tail(self, name: str) -> tuple[int, ...]:
        """The shape of a row."""
        field = next(field for field in FIELDS if field.name == name)
        return (self._widths[name],) if field.axes == 2 else ()

    def _gather(self, name: str, sorted_rows: Rows, order: Rows) -> Floats:
        """[M, width] (or [M]): out[order[i]] is row sorted_rows[i] of the column, read block by block."""
        column = self._source.columns[name]
        field = next(field for field in FIELDS if field.name == name)
        tail = self._tail(name)
        out = np.empty((len(order), *tail), np.float32)
        if not len(order):
            return out
        span = int(sorted_rows[-1] - sorted_rows[0]) + 1
        block_rows = self._block_rows(column.block_rows, max(1, self._widths[name]), len(order), span)
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

    def _block_rows(self, grain: int, width: int, drawn: int, span: int) -> int:
        """Whole blocks of the file; many at once when most of those the rows span are needed anyway."""
        dense = 2 * drawn * grain >= span
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
