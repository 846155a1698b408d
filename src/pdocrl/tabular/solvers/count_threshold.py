"""Rare pairs: an action tried once or twice in a state looks certain, and whoever optimises picks the luckiest of them.

A pair tried m times that never went wrong still goes wrong with a chance of up to 3/m (the rule of three). So pairs
tried fewer than `min_count` times are left out before solving, as if the log had never tried them. If nothing worth
having is left then, each state keeps its favourite, the action most often taken there: a log is followed at least where
it is most sure of itself, and one rare state does not cut off everything behind it. Where a world is deterministic one
try tells all: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts, Ints
from pdocrl.tabular.solvers.exact import slater_margin, solve
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units, pessimistic_model

BELIEVED = 10  # tries after which a pair is believed
ROOM = 1e-9  # by how much limits may be missed and still count as kept, in shares of the largest cost
LOST = 1e-3  # share of its steps that the best policy may spend beyond frequent pairs, for those to be enough
REPEATS = 100  # second tries that must all have gone like the first before a world counts as deterministic


def frequent(n: Ints, min_count: int, favourites: bool = True) -> NDArray[np.bool_]:
    """[S, A] pairs tried `min_count` times, or (favourites) as often as any in their state."""
    enough = np.minimum(min_count, n.max(axis=1, keepdims=True)) if favourites else min_count
    return np.asarray((n > 0) & (n >= enough))


def frequent_only(counts: Counts, min_count: int, favourites: bool = True) -> Counts:
    """The counts without rare pairs."""
    return counts.only(frequent(counts.n, min_count, favourites))


def choose(counts: Counts, gamma: float, limits: Sequence[Limit] = ()) -> tuple[Counts, int]:
    """The counts without rare pairs, and the rows asked of a pair, by what the log allows."""
    min_count = choose_min_count(counts, gamma, limits)
    if min_count == BELIEVED and (counts.n >= BELIEVED).any():
        strict = frequent_only(counts, BELIEVED, favourites=False)
        L = Lagrangian.empirical(strict, gamma, limits)
        model = pessimistic_model(Units.of(L).scale(L))
        best = solve(model)
        if best.status != "infeasible" and float(best.mu[~L.seen].sum()) <= LOST * float(best.mu.sum()):
            return strict, min_count
    return frequent_only(counts, min_count), min_count


def choose_min_count(counts: Counts, gamma: float, limits: Sequence[Limit] = ()) -> int:
    """1 where trying again always gave the same; else `BELIEVED`, or fewer if the limits cannot be kept otherwise."""
    repeats = int((counts.n - 1).clip(0).sum())
    if repeats >= REPEATS and deterministic(counts):
        return 1
    for min_count in (BELIEVED, 7, 5, 3, 2) if limits else ():
        L = Lagrangian.empirical(frequent_only(counts, min_count), gamma, limits)
        if slater_margin(pessimistic_model(Units.of(L).scale(L))) >= -ROOM:
            return min_count
    return BELIEVED


def deterministic(counts: Counts) -> bool:
    """Whether every pair tried again led to the same state and paid and cost the same."""
    one_way = len(np.unique(counts.pair)) == len(counts.pair)
    return one_way and not np.any(counts.variance > 0)
