"""Costs inflated by what few tries can hide: the plan where nothing can be shown.

    c′(s, a) = c(s, a) + share · (D/n + 0.3 √(v/n)),

D being the size of a surprise that could hide at a pair (`bounds.hidden`), v the variance of what it brings. The bounds
by which policies are judged average: a hundred pairs tried twice each look nearly sure together. They are not, if they
were picked for having gone well: their luck adds up. So each pair is charged by itself, and the sum is what a plan
that picks among lucky pairs can still count on.

If the limits can be kept at `SHARE`, the best policy that keeps them so inflated is the answer: first among pairs tried
often, then among all. If not, the limits can bear less than few tries may hide. Then share is what they can just bear,
and the plan is for the least bound (`robust`) on costs so inflated, hardly looking at reward: charged by itself, each
of two actions that look alike is as good; the bound spreads over both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.solvers.count_threshold import frequent_only
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units
from pdocrl.tabular.solvers.robust import plan_for_bounds
from pdocrl.tabular.solvers.saddle import TOLERANCE, Setup, best_policy, slater_margin, solve_saddle

SHARE = 0.45  # of a surprise that every pair is charged with over its n tries, if the limits can bear it
SPREADS = 0.3  # standard errors that go with a whole surprise
HIDES = 3.7  # −log .025: where the log has fewer tries than this over the rarest surprise's rate, one may hide
ROWS = (20, 10, 1)  # that a pair needs, of which the first that leaves a margin is taken
HALVINGS = 5  # of the share, to find what the limits can bear
PRICE = 100.0  # of bounds, in units of B


def inflate(counts: Counts, L: Lagrangian, limits: Sequence[Limit]) -> Floats:
    """[I, S, A] what a whole share adds to each limited column, in its own unit and for the worse."""
    estimate = PolicyEstimate(counts, L.gamma, L.behaviour)
    tried = np.maximum(counts.n, 1)
    found = []
    for limit in limits:
        row, high = 1 + limit.index(counts.cost_names), limit.sign < 0
        off, variance = estimate.surprise(high)
        size, spread = estimate.hidden(off, high, HIDES)[row], np.sqrt(variance[row].reshape(L.r.shape) / tried)
        found.append(np.where(L.seen, size / tried + SPREADS * spread, 0.0))
    return np.array(found)


def rows_with_margin(log: Counts, gamma: float, limits: Sequence[Limit], rows: Sequence[int]) -> int:
    """The first of `rows` with which inflated costs can be kept, or the last."""
    for asked in rows:
        counts = frequent_only(log, asked)
        L = Lagrangian.empirical(counts, gamma, limits)
        if _possible(_less(L, SHARE * inflate(counts, L, limits))):
            return asked
    return rows[-1]


def plan_for_inflated(counts: Counts, L: Lagrangian, limits: Sequence[Limit], z: float) -> Floats:
    """The policy [S, A]: the best within limits on inflated costs, or of the least bound on what limits can bear."""
    more = inflate(counts, L, limits)
    if _possible(_less(L, SHARE * more)):
        return best_policy(_less(L, SHARE * more), Setup(np.inf))
    low, high = 0.0, SHARE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _possible(_less(L, middle * more)) else (low, middle)
    return plan_for_bounds(counts, _less(L, high * more), limits, z, PRICE * solve_saddle(L, Setup(np.inf)).sets.B)


def _less(L: Lagrangian, more: Floats) -> Lagrangian:
    return dataclasses.replace(L, g=L.g - more)


def _possible(L: Lagrangian) -> bool:
    return slater_margin(Units.of(L).scale(L), np.inf) >= -TOLERANCE
