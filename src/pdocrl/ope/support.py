"""Whether the data can carry an estimate at all: the one flag `trusted`, and the two numbers that decide it.

`outside` is the share of the policy's steps, in the fitted models, whose pair (s, a) lies farther from every recorded
pair than 99 % of recorded pairs lie from the other ones (nearest neighbour, every coordinate in its standard
deviations). There the models extrapolate, and so would any other estimate. A policy that stays where the data is has
about 1 % of its steps outside; an estimate with more than half of them outside is not trusted.

`effective_sample_size` is the number of rows of equal weight that would say as much as the density ratio's; with fewer
than ten a handful of rows decides the estimate, and it is not trusted either.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pdocrl.ope.log import Array, Log

MOST_OUTSIDE = 0.5
FEWEST_ROWS = 10.0
ROWS = 20_000  # recorded pairs to be near to
PROBES = 2_000  # pairs looked at, of the log and of each policy


@dataclasses.dataclass(frozen=True, eq=False)
class Support:
    """The recorded pairs, to be asked how near another one is."""

    tree: cKDTree
    scale: NDArray[np.float64]  # [S + A]
    radius: float  # 99 % of recorded pairs have another one as near as this

    @staticmethod
    def of(log: Log, rng: np.random.Generator) -> Support:
        pairs = log.thin(ROWS + PROBES, rng).pairs
        deviation = pairs.std(axis=0, dtype=np.float64)
        scale = np.where(deviation > 1e-6, deviation, 1.0)
        order = rng.permutation(len(pairs))
        probes = max(1, min(PROBES, len(pairs) // 2))
        tree = cKDTree(pairs[order[probes:]] / scale) if len(pairs) > 1 else cKDTree(pairs / scale)
        distance, _ = tree.query(pairs[order[:probes]] / scale)
        return Support(tree, scale, float(np.quantile(distance, 0.99)))

    def outside(self, pairs: Array, rng: np.random.Generator) -> float:
        """The share of pairs [B, S + A] beyond the radius, from a sample of them."""
        sample = pairs[rng.integers(len(pairs), size=min(PROBES, len(pairs)))]
        distance, _ = self.tree.query(sample / self.scale)
        return float((distance > self.radius + 1e-9).mean())


def doubts(outside: float, effective_rows: float) -> list[str]:
    """Why the data cannot carry the estimate; nothing when it can."""
    found = []
    if outside > MOST_OUTSIDE:
        found.append(f"{outside:.0%} of its steps are outside the data")
    if effective_rows < FEWEST_ROWS:
        found.append(f"effective sample size of {effective_rows:.1f} rows")
    return found
