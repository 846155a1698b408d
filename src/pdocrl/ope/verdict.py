"""An estimate of the ensemble and what may be said from it.

    how far the models may be off                             calibrated on held-out groups, see `calibrate`
    what a finite number of rollouts may have missed          a bound on the mean, see `pdocrl.evaluation.audit`

Both may fail, so the probability of error is divided between them (`support.split_level`) and their sum has the level.
Rare disasters count twice: they are in the mean as often as they are simulated, and what was simulated n times without
one may still have one in n. The bound on the mean of costs in [0, largest] knows both, and nothing is trimmed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pdocrl.evaluation.audit import mean_lower, mean_upper
from pdocrl.ope.calibrate import Calibration
from pdocrl.ope.result import LEVEL
from pdocrl.ope.rollouts import Rollouts
from pdocrl.ope.support import split_level

Floats = NDArray[np.float64]
# An ensemble whose members disagree on a policy so many times more than the median ensemble's is excluded on it: the
# fold it never saw holds what this policy does, and the others know it. Disagreements otherwise differ by less than 2.
OUT_OF_DEPTH = 4.0


@dataclasses.dataclass(frozen=True, eq=False)
class Calibrated:
    """The ensemble's word on one policy: undiscounted episode sums, reward first and then the K costs."""

    value: Floats  # [1 + K]
    interval: Floats  # [1 + K, 2]
    above: Floats  # [K] upper bound of each mean cost, one-sided at the level
    below: Floats  # [K] lower bound likewise
    simulated: Floats  # [F · n, 1 + K] the episodes, those of the ensembles that are included one after another

    @staticmethod
    def of(played: Rollouts, calibration: Calibration, largest: Floats, level: float = LEVEL) -> Calibrated:
        """largest [K]: what an episode can cost at most."""
        return Calibrated.judge(played.sums, played.disagreement.mean(axis=1), calibration, largest, level)

    @staticmethod
    def judge(
        sums: Floats, disagreement: Floats, calibration: Calibration, largest: Floats, level: float = LEVEL
    ) -> Calibrated:
        """From the episodes [F, n, 1 + K] simulated in each ensemble, and each one's disagreement [F] on the way."""
        included = disagreement <= OUT_OF_DEPTH * np.median(disagreement)
        episodes = sums[included].reshape(-1, sums.shape[-1])
        value = episodes.mean(axis=0)
        of_models, of_episodes = split_level(level)
        told = (np.where(included[:, None], sums.mean(axis=1), np.nan), disagreement, of_models)
        chance = norm.ppf((1 + of_episodes) / 2) * episodes.std(axis=0, ddof=1) / len(episodes) ** 0.5
        low, high = calibration.interval(*told).T
        low, high = np.minimum(low, value) - chance, np.maximum(high, value) + chance
        under, over = calibration.bounds(*told)
        under, over = np.maximum(value - under, 0), np.maximum(over - value, 0)  # how far the models may be off
        above, below = np.zeros(len(largest)), np.zeros(len(largest))
        for k, most in enumerate(largest):
            costs = np.clip(episodes[:, 1 + k], 0, most)
            shown = mean_upper(costs, most, of_episodes) if most > 0 else 0.0
            above[k] = min(shown + over[1 + k], most)
            below[k] = max(mean_lower(costs, of_episodes) - under[1 + k], 0.0)
            low[1 + k], high[1 + k] = max(low[1 + k], 0.0), min(max(high[1 + k], value[1 + k]), max(most, value[1 + k]))
        return Calibrated(value, np.stack([low, high], axis=1), above, below, episodes)

    def unknown(self, possible: Floats) -> Calibrated:
        """The same estimate where the data cannot carry an interval: everything that is possible [1 + K, 2]."""
        low, high = np.minimum(self.interval[:, 0], possible[:, 0]), np.maximum(self.interval[:, 1], possible[:, 1])
        return dataclasses.replace(self, interval=np.stack([low, high], axis=1), above=high[1:], below=low[1:])

    def within(self, limit: Sequence[float]) -> bool | None:
        """Whether all costs are shown to be within their limits (True), one to be over (False), or neither (None)."""
        if bool((self.above <= limit).all()):
            return True
        return False if bool((self.below > limit).any()) else None

    def share_over(self, limit: Sequence[float]) -> Floats:
        """[K] share of the simulated episodes over each limit."""
        return np.asarray((self.simulated[:, 1:] > np.asarray(limit)).mean(axis=0))
