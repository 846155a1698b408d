"""95 % intervals of means, by a bootstrap with a given generator: the same episodes, the same interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
_RESAMPLES = 2000


def resampled_means(
    reward: NDArray[np.float64], cost: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """[B, 2] means (reward, cost of the worst constraint) of resampled runs and, within each, resampled episodes.

    Both levels count: a table's uncertainty comes from training seeds as much as from episodes.
    """
    runs, episodes = reward.shape
    means = np.empty((_RESAMPLES, 2))
    chunk = max(1, 2_000_000 // reward.size)  # a piece at a time, so that memory stays bounded
    for start in range(0, _RESAMPLES, chunk):
        size = min(chunk, _RESAMPLES - start)
        run = rng.integers(runs, size=(size, runs, 1))
        episode = rng.integers(episodes, size=(size, runs, episodes))
        means[start : start + size, 0] = reward[run, episode].mean(axis=(1, 2))
        means[start : start + size, 1] = cost[run, episode].mean(axis=(1, 2)).max(axis=1, initial=0.0)
    return means


def interval_of(means: NDArray[np.float64]) -> Interval:
    """The 95 % interval of resampled means [B]."""
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
