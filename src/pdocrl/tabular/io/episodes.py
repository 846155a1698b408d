"""Whole episodes of a log: groups of them, since episodes and not rows are independent, and a sample in their order.

Rows of one episode share what the state does not say: a frail patient stays frail. Redrawing rows would take 50 of its
visits for 50 patients. An episode is a group of its own, up to `MOST` of them; beyond, episodes share a group at
random, which keeps what a log takes in memory in bounds and the spread between groups an honest one. Counts forget the
order of rows, which a test of the Markov property needs: so some whole episodes are kept besides.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 512  # groups
MOST_ROWS = 100_000  # of whole episodes


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Z entries: how often each group of episodes made each of the log's M distinct transitions."""

    group: Ints  # [Z] 0 … G−1
    cell: Ints  # [Z] 0 … M−1, a position in the arrays of `Counts`
    count: Ints  # [Z]
    mean: Floats  # [1+K, Z] mean reward and costs of these occurrences
    starts: Floats  # [G, S] episodes begun in each state; all 0 where the log's d₀ is known beforehand

    @classmethod
    def of_rows(cls, group: Ints, cell: Ints, signals: Floats, starts: Floats) -> Groups:
        """From the group [n] and cell [n] of every row and its signals [1+K, n]."""
        cells = int(cell.max()) + 1
        key, entry, count = np.unique(group * cells + cell, return_inverse=True, return_counts=True)
        sums = np.array([np.bincount(entry, weights=row, minlength=len(key)) for row in signals])
        return cls(key // cells, key % cells, count.astype(np.int64), sums / count, starts)

    def __len__(self) -> int:
        return len(self.starts)

    def weighted(self, weight: Floats, cells: int) -> tuple[Floats, Floats, Floats]:
        """Counts [M], means [1+K, M] and starts [S] of the log in which group g occurs weight[g] times."""
        each = weight[self.group] * self.count
        count = np.asarray(np.bincount(self.cell, weights=each, minlength=cells), np.float64)
        sums = np.array([np.bincount(self.cell, weights=each * row, minlength=cells) for row in self.mean])
        return count, sums / np.maximum(count, 1e-300), weight @ self.starts

    def subset(self, cells: Ints) -> Groups:
        """The same groups, of a log that has only these of the transitions (positions, increasing)."""
        place = np.searchsorted(cells, self.cell)
        kept = (place < len(cells)) & (np.append(cells, -1)[place] == self.cell)
        return dataclasses.replace(
            self, group=self.group[kept], cell=place[kept], count=self.count[kept], mean=self.mean[:, kept]
        )

    def merged(self, cell: Ints, cells: int) -> Groups:
        """The same groups after transition i has become transition cell[i] of fewer."""
        key, entry = np.unique(self.group * cells + cell[self.cell], return_inverse=True)
        count = np.bincount(entry, weights=self.count)
        sums = np.array([np.bincount(entry, weights=self.count * row) for row in self.mean])
        return Groups(key // cells, key % cells, count.astype(np.int64), sums / count, self.starts)


def group_of(episode: NDArray[np.generic]) -> Ints:
    """[n] the group of each row, from the name of its episode [n]."""
    _, code = np.unique(episode, return_inverse=True)
    episodes = int(code.max()) + 1
    if episodes <= MOST:
        return np.asarray(code, np.int64)
    return np.asarray(np.random.default_rng(0).permutation(episodes)[code] % MOST, np.int64)


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
