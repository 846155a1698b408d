"""Rare pairs: an action tried once or twice in a state looks certain, and whoever optimises picks the luckiest of them.

A pair tried m times that never went wrong still goes wrong with a chance of up to 3/m (the rule of three). So pairs
tried fewer than `min_count` times are left out before solving, as if the log had never tried them. Each state keeps the
action it was most often left with: a log is followed at least where it is most sure of itself, and without that one
rare state would cut off everything behind it. Where a world is deterministic one try tells all: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pdocrl.tabular.counts import Counts, Ints
from pdocrl.tabular.exact import slater_margin
from pdocrl.tabular.lagrangian import Lagrangian, Units, pessimistic_model
from pdocrl.tabular.limits import Limit

OFTEN = 10  # tries after which a pair is believed
ROOM = 1e-9  # by how much limits may be missed and still count as kept, in shares of the largest cost
REPEATS = 100  # second tries that must all have gone like the first before a world counts as deterministic


def kept(n: Ints, min_count: int) -> NDArray[np.bool_]:
    """[S, A] pairs tried `min_count` times, or as often as any in their state."""
    return np.asarray((n > 0) & (n >= np.minimum(min_count, n.max(axis=1, keepdims=True))))


def trusted(counts: Counts, min_count: int) -> Counts:
    """The counts without rare pairs."""
    return counts.only(kept(counts.n, min_count))


def choose_min_count(counts: Counts, gamma: float, limits: Sequence[Limit] = ()) -> int:
    """1 where trying again always gave the same; else `OFTEN`, or fewer if the limits cannot be kept otherwise."""
    repeats = int((counts.n - 1).clip(0).sum())
    if repeats >= REPEATS and deterministic(counts):
        return 1
    for min_count in (OFTEN, 7, 5, 3, 2) if limits else ():
        L = Lagrangian.empirical(trusted(counts, min_count), gamma, limits)
        if slater_margin(pessimistic_model(Units.of(L).scale(L))) >= -ROOM:
            return min_count
    return OFTEN


def deterministic(counts: Counts) -> bool:
    """Whether every pair tried again led to the same state and paid and cost the same."""
    one_way = len(np.unique(counts.pair)) == len(counts.pair)
    return one_way and not np.any(counts.variance > 0)
