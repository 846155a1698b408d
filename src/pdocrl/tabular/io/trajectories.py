"""A sample of a log's episodes in their order: what counts forget, and a test of the Markov property needs."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_ROWS = 100_000  # of whole episodes


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectories:
    """n rows, episode by episode and in time order within each."""

    episode: Ints  # [n] codes
    pair: Ints  # [n] s·A + a
    to: Ints  # [n] the next state, or S where the episode ended
    signals: Floats  # [1+K, n] reward, then costs
    columns: tuple[str, ...] = ()  # numbers that states were made of, known before the action
    values: Floats | None = None  # [c, n]
    outcomes: tuple[str, ...] = ()  # other columns of numbers, of which only the past may be used
    outcome_values: Floats | None = None  # [d, n]
    decider: NDArray[np.str_] | None = None  # [n] who acted, where the log says

    def __len__(self) -> int:
        return len(self.pair)

    @classmethod
    def of_rows(cls, episode: Ints, time: NDArray[np.generic], pair: Ints, to: Ints, signals: Floats) -> Trajectories:
        """From rows in any order; of longer logs, the first episodes of a shuffled order."""
        rows = sample_episodes(episode, np.lexsort((time, episode)))
        return cls(episode[rows], pair[rows], to[rows], signals[:, rows])

    def scaled(self, weight: Floats, n_actions: int) -> Trajectories:
        """With signals times a weight [1+K, S] of their state."""
        return dataclasses.replace(self, signals=self.signals * weight[:, self.pair // n_actions])

    def ending_in(self, states: Ints, n_states: int) -> Trajectories:
        """With these states as ends."""
        return dataclasses.replace(self, to=np.where(np.isin(self.to, states), n_states, self.to))


def sample_episodes(episode: Ints, rows: Ints) -> Ints:
    """Of rows sorted by episode, those of so many whole episodes as fit in `MOST_ROWS`."""
    if len(rows) <= MOST_ROWS:
        return rows
    names, length = np.unique(episode, return_counts=True)
    drawn = np.random.default_rng(0).permutation(len(names))
    few = drawn[: max(int(np.searchsorted(np.cumsum(length[drawn]), MOST_ROWS)), 1)]
    return rows[np.isin(episode[rows], names[few])]
