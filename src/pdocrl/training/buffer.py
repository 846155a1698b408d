"""Training from a file larger than memory: on a random subset of its rows, resampled periodically.

    steps [i·every, (i+1)·every)  sample from buffer i:   `size` rows, independent and uniform over the whole file

Every row of every mini-batch is thus uniform over the file; batches of one buffer share its rows. Buffer i depends on i
alone, not on seeds or other runs, so a resumed training meets the buffers it would have met. The next one is read in
a thread while the device works on this one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np

from pdocrl.data.dataset import Dataset, Floats, Moments, Rows
from pdocrl.data.stream import Stream, open_stream
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError, by_door


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Buffer(Dataset):
    """Rows drawn from a file, as the dataset an agent is given.

    What it says of the data as a whole is true of the file; of the episodes its rows come from it knows nothing.
    """

    buffers: FileBuffers = dataclasses.field(kw_only=True)
    starts: Floats = dataclasses.field(kw_only=True)  # [E, S] where the file's episodes start

    @cached_property
    def _ends(self) -> Rows:
        raise PdocrlError(
            f"{self.name}: this agent, or this setting of it, needs whole episodes, and a buffer holds single "
            f"transitions. Train without {by_door('buffer_size', '--buffer-size')}."
        )

    @cached_property
    def initial_obs(self) -> Floats:
        return self.starts

    @cached_property
    def obs_moments(self) -> Moments:
        return self.buffers.stream.facts.obs_moments

    @cached_property
    def longest_episode(self) -> int:
        return self.buffers.stream.longest_episode

    @cached_property
    def largest_reward(self) -> float:
        return self.buffers.stream.facts.largest_reward

    @cached_property
    def largest_costs(self) -> tuple[float, ...]:
        return self.buffers.stream.facts.largest_costs

    @cached_property
    def digest(self) -> str:
        return self.buffers.stream.facts.digest


class FileBuffers:
    """The buffers over a stream, by number."""

    def __init__(self, stream: Stream, size: int, every: int) -> None:
        if size < 1 or every < 1:
            raise PdocrlError(f"a buffer of {size} rows for {every} steps: both must be at least 1.")
        self.stream, self.size, self.every = stream, size, every
        self.initial_obs = stream.initial_obs()
        self._reader = ThreadPoolExecutor(1)  # one thread reads: a file is not read from two at once
        self._ahead: tuple[int, Future[Buffer]] | None = None

    def read(self, number: int) -> Buffer:
        """Window `number`; the next one is begun."""
        if self._ahead is not None and self._ahead[0] == number:
            wanted = self._ahead[1]
        else:
            wanted = self._reader.submit(self._draw, number)
        self._ahead = number + 1, self._reader.submit(self._draw, number + 1)
        return wanted.result()

    def close(self) -> None:
        self._reader.shutdown(cancel_futures=True)

    def holding(self, rows: Rows) -> Buffer:
        """The buffer of the given rows."""
        arrays: dict[str, Any] = self.stream.rows(rows)
        low, high = self.stream.action_bounds
        return Buffer(
            **arrays,
            name=self.stream.name,
            cost_names=self.stream.cost_names,
            action_low=low,
            action_high=high,
            discrete_actions=self.stream.discrete_actions,
            buffers=self,
            starts=self.initial_obs,
        )

    def _draw(self, number: int) -> Buffer:
        return self.holding(np.random.default_rng((0, number)).integers(len(self.stream), size=self.size))


@contextlib.contextmanager
def open_buffers(data: str | os.PathLike[str], task: str | Task | None, size: int, every: int) -> Iterator[Buffer]:
    """A buffer of one row that knows the file as a whole and leads to the numbered ones while the context is open."""
    with open_stream(data, task) as stream, contextlib.closing(FileBuffers(stream, size, every)) as buffers:
        yield buffers.holding(np.zeros(1, np.int64))
