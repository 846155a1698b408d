"""Few rows: an action tried once or twice looks certain, and whoever optimises picks the luckiest. Three remedies.

**A threshold.** A pair tried m times that never went wrong still goes wrong with a chance of up to 3/m (the rule of
three). Pairs tried fewer than `min_count` times are left out before solving, as if never tried; where nothing worth
having is left then, each state keeps its favourite, the action most often taken there. Where a world is deterministic
one try tells all: nothing is left out.

**Bounds on costs in place of costs** (`plan_for_bounds`):

    min_μ  price · Σ_i f_i(μ) − ⟨μ, r⟩,   f_i(μ) = ⟨μ, c_i⟩ + h + √(z² Σ μ²v/n + h²),   h = z² D Σ(μ²/n) / 2Σμ

f is the upper end of `bounds.score` for a policy with occupancy μ, with v and D, the variance and the size of
surprises, as they are under the log's own policy. Σμ²/n is least where the log has most rows, so a plan for f avoids
what has cost much and what has hardly been tried. f is convex: each round of Frank and Wolfe's method is one plan.

**Inflated costs** (`plan_for_inflated`), where nothing can be shown:

    c′(s, a) = c(s, a) + share · (D/n + 0.3 √(v/n)),

Bounds average: a hundred pairs tried twice each look nearly sure together, and are not if they were picked for having
gone well. So each pair is charged by itself. If the limits can be satisfied at `SHARE`, the best policy within them so
inflated is the answer, first among pairs tried often, then among all. If not, share is what the limits can just bear,
and the plan is for the least bound on costs so inflated, hardly looking at reward.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import as_matrix, extract, occupancy, plan
from pdocrl.tabular.counts import Counts, Floats, Ints
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units, pessimistic_model
from pdocrl.tabular.solvers.saddle import TOLERANCE, Setup, best_policy, complete_policy, slater_margin, solve_saddle

BELIEVED = 10  # tries after which a pair is believed
ROOM = 1e-9  # by how much limits may be missed and still count as satisfied, in shares of the largest cost
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
        best = exact.solve(model)
        if best.status != "infeasible" and float(best.mu[~L.seen].sum()) <= LOST * float(best.mu.sum()):
            return strict, min_count
    return frequent_only(counts, min_count), min_count


def choose_min_count(counts: Counts, gamma: float, limits: Sequence[Limit] = ()) -> int:
    """1 where trying again always gave the same; else `BELIEVED`, or fewer if none satisfies the limits otherwise."""
    repeats = int((counts.n - 1).clip(0).sum())
    if repeats >= REPEATS and deterministic(counts):
        return 1
    for min_count in (BELIEVED, 7, 5, 3, 2) if limits else ():
        L = Lagrangian.empirical(frequent_only(counts, min_count), gamma, limits)
        if slater_margin(Units.of(L).scale(L), np.inf) >= -ROOM:
            return min_count
    return BELIEVED


def deterministic(counts: Counts) -> bool:
    """Whether every pair tried again led to the same state, reward and cost."""
    one_way = len(np.unique(counts.pair)) == len(counts.pair)
    return one_way and not np.any(counts.variance > 0)


ROUNDS = 30
STEPS = np.append(0.7 ** np.arange(24), 0.0)  # of a round towards its plan, of which the best is taken
ACCURACY = 1e-7


def plan_for_bounds(counts: Counts, L: Lagrangian, limits: Sequence[Limit], z: float, price: float = np.inf) -> Floats:
    """[S, A] for counts and their L; at an infinite price reward does not count."""
    units = Units.of(L)
    scaled = units.scale(L)
    model = pessimistic_model(scaled)
    worth = 0.0 if np.isinf(price) else 1 / price
    bounds = [_Bound(counts, L, limit, z, float(unit)) for limit, unit in zip(limits, units.constraints, strict=True)]
    gains = model.g.sum(axis=0) + worth * model.r
    mu, V = occupancy(model, scaled.behaviour), None
    for _ in range(ROUNDS):
        slope = sum((bound.slope(mu) for bound in bounds), np.zeros_like(mu))
        best = plan(model, gains - slope, start=V, accuracy=ACCURACY)
        V = best.V
        towards = occupancy(model, as_matrix(best.actions, model.n_actions))
        change = towards - mu
        losses = sum((bound.along(mu, change) for bound in bounds), -STEPS * float(np.vdot(change, gains)))
        best_step = int(np.argmin(losses))
        if not STEPS[best_step]:
            break
        mu = mu + STEPS[best_step] * change
    return complete_policy(scaled, mu.sum(axis=1), extract(mu), 1.0 if np.isinf(price) else price)


class _Bound:
    """h + √(z² Σ μ²v/n + h²) of one limit, in units of its largest signal."""

    def __init__(self, counts: Counts, L: Lagrangian, limit: Limit, z: float, unit: float) -> None:
        row, high = 1 + limit.index(counts.cost_names), limit.sign < 0
        estimate = PolicyEstimate(counts, L.gamma, L.behaviour)
        off, variance = estimate.surprise(high)
        tried = np.maximum(counts.n, 1)
        self.z2 = z**2
        self.variance = np.where(L.seen, variance[row].reshape(L.r.shape) / unit**2 / tried, 0.0)  # v/n
        self.size = np.where(L.seen, estimate.hidden(off, high)[row] / unit / tried, 0.0)  # D/n

    def along(self, mu: Floats, change: Floats) -> Floats:
        """The bound after each of `STEPS` from μ by a change of it."""
        half, variance = (_squares(weight, mu, change) for weight in (self.size, self.variance))
        half *= self.z2 / 2 / (mu.sum() + STEPS * change.sum())
        return np.asarray(half + np.sqrt(self.z2 * variance + half**2))

    def slope(self, mu: Floats) -> Floats:
        """∂/∂μ, with Σμ held."""
        total = float(mu.sum())
        half = self.z2 * float(np.vdot(mu**2, self.size)) / 2 / total
        root = float(np.sqrt(self.z2 * np.vdot(mu**2, self.variance) + half**2))
        by_half = self.z2 * mu * self.size / total
        return np.asarray(by_half + (self.z2 * mu * self.variance + half * by_half) / max(root, 1e-300))


def _squares(weight: Floats, mu: Floats, change: Floats) -> Floats:
    """Σ weight (μ + step · change)² for each of `STEPS`."""
    at, mixed, beyond = (float(np.vdot(weight, x)) for x in (mu**2, 2 * mu * change, change**2))
    return np.asarray(np.maximum(at + STEPS * mixed + STEPS**2 * beyond, 0))


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
    """The first of `rows` with which inflated costs can be satisfied, or the last."""
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
