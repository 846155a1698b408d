"""What estimators read of a dataset: some of its rows, which episode each is of, and where episodes start."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, Rows

Array = NDArray[np.floating]


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """n transitions of E episodes. Signals are the reward and then the K costs."""

    obs: Array  # [n, S]
    action: Array  # [n, A]
    signal: Array  # [n, 1 + K]
    next_obs: Array  # [n, S]
    not_done: Array  # [n] 0 where the episode truly ended: no sum goes on beyond it; 1 at a timeout
    episode: Rows  # [n] which of the E episodes
    start: Array  # [E, S]

    @staticmethod
    def of(dataset: Dataset) -> Log:
        return Log(
            obs=dataset.obs,
            action=dataset.action,
            signal=np.concatenate([dataset.reward[:, None], dataset.cost], axis=1),
            next_obs=dataset.next_obs,
            not_done=(~dataset.terminal).astype(np.float32),
            episode=np.repeat(np.arange(dataset.n_episodes), dataset.episode_length),
            start=dataset.initial_obs,
        )

    def __len__(self) -> int:
        return len(self.obs)

    @cached_property
    def pairs(self) -> Array:
        """[n, S + A] (s, a)."""
        return np.concatenate([self.obs, self.action], axis=1)

    def take(self, rows: Rows) -> Log:
        """Some rows, in the given order and as often as given; episodes and starts stay."""
        return dataclasses.replace(
            self,
            obs=self.obs[rows],
            action=self.action[rows],
            signal=self.signal[rows],
            next_obs=self.next_obs[rows],
            not_done=self.not_done[rows],
            episode=self.episode[rows],
        )

    def thin(self, most: int, rng: np.random.Generator) -> Log:
        """At most that many rows, drawn without replacement."""
        return self if len(self) <= most else self.take(np.sort(rng.permutation(len(self))[:most]))
