"""Episodes as objects: to look at, to iterate over, to choose among.

for episode in data.episodes:
    print(episode.length, episode.reward_return, episode.cost_return)
safe = data.filter(lambda episode: episode.cost_return[0] <= 20)
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError

Rows = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LoggedEpisode:
    """One episode of T transitions; arrays are views of the dataset's."""

    number: int  # in the dataset
    obs: NDArray[np.float32]  # [T, S]
    action: NDArray[np.float32]  # [T, A] in [−1, 1]; discrete actions one-hot
    reward: NDArray[np.float32]  # [T]
    cost: NDArray[np.float32]  # [T, K]
    next_obs: NDArray[np.float32]  # [T, S]
    terminal: bool  # whether it ended in a terminal state, not by a time limit

    @property
    def length(self) -> int:
        """T."""
        return len(self.reward)

    @property
    def reward_return(self) -> float:
        """Undiscounted reward."""
        return float(self.reward.sum(dtype=np.float64))

    @property
    def cost_return(self) -> NDArray[np.float64]:
        """[K] undiscounted costs."""
        return np.asarray(self.cost.sum(0, dtype=np.float64))

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        costs = ", ".join(f"{cost:g}" for cost in self.cost_return)
        end = "terminal" if self.terminal else "timeout"
        return (
            f"Episode({self.number}: {self.length} steps, return {self.reward_return:.4g}, cost {costs or '–'}, {end})"
        )


D = TypeVar("D")


class EpisodeList(Sequence[LoggedEpisode], Generic[D]):
    """The episodes of a dataset: `data.episodes[3]`, `len(data.episodes)`; called, the dataset of the given ones."""

    def __init__(self, dataset: Any) -> None:
        self._data = dataset

    def __len__(self) -> int:
        return int(self._data.n_episodes)

    @overload
    def __getitem__(self, number: int) -> LoggedEpisode: ...

    @overload
    def __getitem__(self, number: slice) -> list[LoggedEpisode]: ...

    def __getitem__(self, number: int | slice) -> LoggedEpisode | list[LoggedEpisode]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        place = number + len(self) if number < 0 else number
        if not 0 <= place < len(self):
            raise IndexError(f"{self._data.name} has {len(self)} episodes; there is no {number}")
        data, start = self._data, int(self._data.episode_start[place])
        rows = slice(start, start + int(data.episode_length[place]))
        columns = (data.obs[rows], data.action[rows], data.reward[rows], data.cost[rows], data.next_obs[rows])
        return LoggedEpisode(place, *columns, bool(data.terminal[rows.stop - 1]))

    def __iter__(self) -> Iterator[LoggedEpisode]:
        return (self[i] for i in range(len(self)))

    def __call__(self, which: Sequence[int] | Rows, name: str | None = None) -> D:
        """The dataset of the given episodes, in the given order."""
        chosen: D = self._data.choose_episodes(which, name)
        return chosen

    def __repr__(self) -> str:
        return f"<{len(self)} episodes of {self._data.name}>"


def chosen_by(dataset: Any, keep: Callable[[LoggedEpisode], Any] | Sequence[bool] | NDArray[Any]) -> Rows:
    """The numbers of the episodes for which a function, or a mask [E], says so."""
    if callable(keep):
        return np.flatnonzero([bool(keep(episode)) for episode in dataset.episodes]).astype(np.int64)
    mask = np.asarray(keep)
    if mask.dtype != bool or mask.shape != (dataset.n_episodes,):
        raise DataError(f"{dataset.name}: filter takes a function of an episode, or a mask [{dataset.n_episodes}].")
    return np.flatnonzero(mask).astype(np.int64)


def split(dataset: Any, share: float = 0.5, seed: int = 0) -> tuple[Rows, Rows]:
    """The numbers of a random share of the episodes, and of the others; copies of an episode fall on the same side."""
    if not 0 <= share <= 1:
        raise DataError(f"share: {share} must lie between 0 and 1.")
    kinds, kind = np.unique(np.array(episode_digests(dataset)), return_inverse=True)
    if len(kinds) < 2:
        raise DataError(f"{dataset.name}: {len(kinds)} different episode; two are needed to split them.")
    count = int(np.clip(round(share * len(kinds)), 1, len(kinds) - 1))
    first = np.isin(kind, np.random.default_rng(seed).permutation(len(kinds))[:count])
    return np.flatnonzero(first), np.flatnonzero(~first)


def episode_digests(dataset: Any) -> list[str]:
    """[E] what tells an episode from others: a hash of its observations and actions."""
    ends = dataset.episode_start + dataset.episode_length
    return [
        hashlib.sha256(dataset.obs[a:b].tobytes() + dataset.action[a:b].tobytes()).hexdigest()
        for a, b in zip(dataset.episode_start, ends, strict=True)
    ]


def concatenate(datasets: Sequence[Any], name: str | None = None) -> Any:
    """The episodes of all datasets, one after another; they must agree in columns, bounds and discrete actions."""
    first = datasets[0]
    for other in datasets[1:]:
        for what in ("obs_dim", "action_dim", "cost_names", "action_bounds", "discrete_actions"):
            if getattr(first, what) != getattr(other, what):
                raise DataError(
                    f"{other.name}: {what} is {getattr(other, what)}, that of {first.name} {getattr(first, what)}; "
                    "such datasets cannot be joined."
                )
    fields = ("obs", "action", "reward", "cost", "next_obs", "terminal")
    arrays: dict[str, Any] = {field: np.concatenate([getattr(data, field) for data in datasets]) for field in fields}
    ends = []
    for data in datasets:  # an episode cut by the end of its log must not run into the next
        timeout = data.timeout.copy()
        timeout[-1] |= not data.terminal[-1]
        ends.append(timeout)
    joined = name or " + ".join(dict.fromkeys(data.name for data in datasets))
    notes = tuple(dict.fromkeys(note for data in datasets for note in data.notes))
    return dataclasses.replace(first, **arrays, timeout=np.concatenate(ends), name=joined, path="", notes=notes)
