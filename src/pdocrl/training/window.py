"""Training from a file that does not fit: a window of drawn rows stands for it, and is drawn anew as steps go by.

    steps [i·every, (i+1)·every)  sample from window i:  `size` rows, independent and uniform over the whole file

Every row of every mini-batch is thus uniform over the file; batches of one window share its rows. Window i depends on i
alone, not on seeds or on company, so a resumed training meets the windows it would have met. The next window is read in
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
from pdocrl.errors import PdocrlError


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Window(Dataset):
    """Rows drawn from a file, as the dataset an agent is given.

    What it says of the data as a whole is true of the file; of the episodes its rows come from it knows nothing.
    """

    windows: FileWindows = dataclasses.field(kw_only=True)
    starts: Floats = dataclasses.field(kw_only=True)  # [E, S] where the file's episodes start

    @cached_property
    def _ends(self) -> Rows:
        raise PdocrlError(
            f"{self.name}: this agent, or this setting of it, needs whole episodes, and a window holds single "
            "transitions. Train without --window."
        )

    @cached_property
    def initial_obs(self) -> Floats:
        return self.starts

    @cached_property
    def obs_moments(self) -> Moments:
        return self.windows.stream.facts.obs_moments

    @cached_property
    def longest_episode(self) -> int:
        return self.windows.stream.longest_episode

    @cached_property
    def largest_reward(self) -> float:
        return self.windows.stream.facts.largest_reward

    @cached_property
    def largest_costs(self) -> tuple[float, ...]:
        return self.windows.stream.facts.largest_costs

    @cached_property
    def digest(self) -> str:
        return self.windows.stream.facts.digest


class FileWindows:
    """The windows over a stream, by number."""

    def __init__(self, stream: Stream, size: int, every: int) -> None:
        if size < 1 or every < 1:
            raise PdocrlError(f"a window of {size} rows for {every} steps: both must be at least 1.")
        self.stream, self.size, self.every = stream, size, every
        self.initial_obs = stream.initial_obs()
        self._reader = ThreadPoolExecutor(1)  # one thread reads: a file is not read from two at once
        self._ahead: tuple[int, Future[Window]] | None = None

    def read(self, number: int) -> Window:
        """Window `number`; the next one is begun."""
        if self._ahead is not None and self._ahead[0] == number:
            wanted = self._ahead[1]
        else:
            wanted = self._reader.submit(self._draw, number)
        self._ahead = number + 1, self._reader.submit(self._draw, number + 1)
        return wanted.result()

    def close(self) -> None:
        self._reader.shutdown(cancel_futures=True)

    def holding(self, rows: Rows) -> Window:
        """The window of the given rows."""
        arrays: dict[str, Any] = self.stream.rows(rows)
        low, high = self.stream.action_bounds
        return Window(
            **arrays,
            name=self.stream.name,
            cost_names=self.stream.cost_names,
            action_low=low,
            action_high=high,
            choices=self.stream.choices,
            windows=self,
            starts=self.initial_obs,
        )

    def _draw(self, number: int) -> Window:
        return self.holding(np.random.default_rng((0, number)).integers(len(self.stream), size=self.size))


@contextlib.contextmanager
def open_windows(data: str | os.PathLike[str], task: str | Task | None, size: int, every: int) -> Iterator[Window]:
    """A window of one row that knows the file as a whole and leads to the numbered ones while the context is open."""
    with open_stream(data, task) as stream, contextlib.closing(FileWindows(stream, size, every)) as windows:
        yield windows.holding(np.zeros(1, np.int64))
