"""Which recorded pairs are near a pair (s, a), and whether the data can carry an estimate at all: the flag `trusted`.

`outside` is the share of a policy's steps, in the fitted models, whose pair lies farther from every recorded pair than
99 % of recorded pairs lie from the other ones (nearest neighbour, every coordinate in its standard deviations). There
the models extrapolate, and so would any other estimate. A policy that does what the data does has about 1 % of its
steps outside; an estimate with more than half of them outside is not trusted.

A statement at 95 % takes 22 groups of episodes to calibrate on: of fewer, the largest error may be exceeded more often.

A cost that no logged step had may be of any size, so that no limit on it is shown to be satisfied.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pdocrl.data.dataset import Dataset, varies
from pdocrl.ope.ensemble.fqe import Array, pairs_of, some_rows

MOST_OUTSIDE = 0.5
COORDINATES = 600_000  # most rows × dimensions of the recorded pairs to be near to: many dimensions make a search long
NEARLY = 1.0  # a neighbour may be twice as far as the nearest; in 21 dimensions it was 0.1 to 0.7 % farther on average
PROBES = 2_000  # recorded pairs the radius is measured with


@dataclasses.dataclass(frozen=True, eq=False)
class Recorded:
    """The recorded pairs, to be asked for the nearest ones."""

    scale: NDArray[np.float64]  # [S + A]
    tree: cKDTree
    radius: float  # 99 % of recorded pairs have another one as near as this

    @staticmethod
    def of(data: Dataset, rng: np.random.Generator) -> Recorded:
        pairs = pairs_of(data, some_rows(data, max(1, COORDINATES // (data.obs_dim + data.action_dim)), rng))
        scale = spread(pairs)
        points = pairs / scale
        tree = cKDTree(points)
        probes = points[rng.integers(len(points), size=min(PROBES, len(points)))]
        others = tree.query(probes, k=min(2, len(points)))[0].reshape(len(probes), -1)[:, -1]
        return Recorded(scale, tree, float(np.quantile(others, 0.99)))

    def nearest(self, pairs: Array, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Distances and rows [..., count] of the pairs nearest to pairs [..., S + A]; fewer when the log has fewer."""
        count = min(count, self.tree.n)
        distance, row = self.tree.query(pairs / self.scale, k=count, workers=-1, eps=NEARLY)
        shape = (*pairs.shape[:-1], count)
        return distance.reshape(shape), row.reshape(shape)


def spread(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """[D] standard deviations of columns [N, D] in whatever unit; of one that is rounding its size, 1 at least."""
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    return np.asarray(np.where(varies(mean, deviation), deviation, np.maximum(np.abs(mean), 1.0)))


def split_level(level: float) -> tuple[float, float]:
    """Levels of the models' calibration and of the mean of their rollouts, whose errors add up to 1 − level.

    Nine tenths go to the calibration: groups are what a log has few of, rollouts cost only time.
    """
    return 1 - 0.9 * (1 - level), 1 - 0.1 * (1 - level)


def groups_needed(level: float) -> int:
    """The fewest groups of which the conformal quantile is not beyond the largest: 22 for a statement at 95 %."""
    of_models, _ = split_level(level)
    return math.ceil(round(of_models / (1 - of_models), 9))


def support_warnings(outside: float, groups: int | None = None, level: float = 0.95) -> list[str]:
    """Why the data cannot carry the estimate; nothing when it can. `groups`: how many there are to calibrate on."""
    found = []
    if outside > MOST_OUTSIDE:
        found.append(f"{outside:.0%} of its steps are outside the data")
    if groups is not None and groups < groups_needed(level):
        found.append(f"{groups} groups of episodes to calibrate on, {groups_needed(level)} are needed at {level:.0%}")
    return found


def never_seen(dataset: Dataset) -> list[str | None]:
    """[K] why a log cannot show that a cost is within any limit: no step of it had that cost. None: one had."""
    names = zip(dataset.cost_names, np.asarray(dataset.cost > 0).T, strict=True)
    return [None if had.any() else f"`{name}` never occurred in the log, so its size is unknown" for name, had in names]
