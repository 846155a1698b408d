"""The problem whose states remember the cost spent so far: (state @ step, spent), reached from the log's starts.

What an episode's total C does beyond its mean is then a signal of single transitions from spent k to k + c:

    P(C > θ)       1{k ≤ θ < k + c}
    E[(C − t)₊]    (k + c − t)₊ − (k − t)₊
    max c > v      1{c > v}

Spent is kept in multiples of a unit and, above the largest number any limit compares it with, only as "over": there the
first is 0 and the second c. A unit that all costs are multiples of is exact; otherwise costs are rounded up, so that a
limit that holds for the rounded costs holds for the costs, and by how much they can differ is told.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import CMDP
from pdocrl.tabular.counts import Counts, Floats, Ints

LARGEST = 300_000  # pairs of an augmented problem
EXACT_LEVELS = 2000  # multiples of a unit up to the cap; a finer unit is replaced by a coarser one, rounding up
LEVELS = 100  # of the coarser unit
DECIMALS = 6  # of costs that can be multiples of a unit


class Column(NamedTuple):
    """How the spending on one cost is remembered."""

    name: str
    unit: float
    cap: int  # spent in units, 0 … cap; cap + 1 is over
    exact: bool  # whether all costs are multiples of the unit
    error: float  # by how much an episode's rounded total can exceed its total

    @property
    def limit(self) -> float:
        """The largest spending that is told apart."""
        return self.cap * self.unit


class Outcomes(NamedTuple):
    """What can follow each pair: next state and costs together, sorted by pair."""

    pair: Ints  # [O]
    to: Ints  # [O] S at an end
    chance: Floats  # [O] within its pair
    cost: Floats  # [T, O] of all columns with a limit on a tail
    known: (
        str  # where costs vary within a transition: "rows" of the log say how, a "sample" of them, or it is a "guess"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Augmented:
    """A layered problem; aug state x is base state `base[x]` with `spent[x]`."""

    counts: Counts
    columns: tuple[Column, ...]
    gamma: float  # of the reward
    delta: float  # of `weight`: signals of step t are divided by δᵗ(1−δ), so that (1−δ)J is a total
    base: Ints  # [X]
    spent: Ints  # [X, K] in units, cap + 1 is over
    P: sp.csr_array  # [X·A, X]
    tried: NDArray[np.bool_]  # [X, A]; an untried pair stands for a tried one of its state, if there is one
    edges: Edges
    outcomes: Outcomes
    tailed: tuple[str, ...]  # [T] the columns of `outcomes.cost`
    units: Ints  # [K, O] the same of the remembered columns, in units

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.base), self.counts.n_actions

    @property
    def weight(self) -> Floats:
        """[X] δ^−t/(1−δ)."""
        t = self.counts.steps[self.base]
        return np.asarray(self.delta ** -t.astype(np.float64) / (1 - self.delta))

    @property
    def start(self) -> Floats:
        """[X] the start distribution: nothing is spent."""
        found = np.zeros(len(self.base))
        fresh = ~self.spent.any(axis=1)
        found[fresh] = self.counts.d0[self.base[fresh]] * (self.counts.steps[self.base[fresh]] == 0)
        return found

    def index(self, name: str) -> int:
        return [column.name for column in self.columns].index(name)

    def model(self, signals: Sequence[Floats], tau: Floats, reward: Floats) -> CMDP:
        """The CMDP of expected signals [X, A] per pair, in totals: reward, and signals ≥ τ."""
        weight = self.weight[:, None]
        g = np.reshape([weight * signal for signal in signals], (-1, *self.shape))
        return CMDP(self.P, weight * reward, g, tau, self.start, self.delta)

    def expected(self, values: Floats) -> Floats:
        """[X, A] the mean of a signal of transitions, [E] per edge."""
        X, A = self.shape
        paid = np.bincount(self.edges.pair, weights=self.edges.chance * values, minlength=X * A).reshape(X, A)
        return np.asarray(np.take_along_axis(paid, self.stands_for, axis=1))

    @property
    def dead(self) -> NDArray[np.bool_]:
        """[X] states the log enters and never acts in: what follows is unknown."""
        return np.asarray(~self.tried.any(axis=1))

    @property
    def remaining(self) -> Ints:
        """[X] steps to the horizon."""
        assert self.counts.horizon is not None
        return np.asarray(self.counts.horizon - self.counts.steps[self.base])

    def totals(self, k: int) -> Ints:
        """The totals up to the cap with which an episode can end, in units."""
        ends = self.outcomes.to[self.edges.outcome] == self.counts.n_states
        pair, outcome = self.edges.pair[ends], self.edges.outcome[ends]
        found = np.unique(self.spent[pair // self.shape[1], k] + self.units[k][outcome])
        return np.asarray(found[found <= self.columns[k].cap])

    def spent_after(self, k: int) -> tuple[Floats, Floats]:
        """[E] the spending on a remembered column before and after each edge, in costs; over counts from the cap."""
        column = self.columns[k]
        before = self.spent[self.edges.pair // self.shape[1], k]
        after = before + self.units[k][self.edges.outcome]
        return before * column.unit, after * column.unit

    @property
    def stands_for(self) -> Ints:
        """[X, A] the action itself where tried, else the first tried of its state."""
        first = self.tried.argmax(axis=1)[:, None]
        return np.where(self.tried, np.arange(self.shape[1])[None], first)

    def merged(self, mass: Floats) -> Floats:
        """[X, A] the mass of untried pairs given to those they stand for."""
        X, A = self.shape
        at = np.arange(X)[:, None] * A + self.stands_for
        return np.asarray(np.bincount(at.ravel(), weights=mass.ravel(), minlength=X * A).reshape(X, A), np.float64)


class Edges(NamedTuple):
    """Transitions of the augmented problem."""

    pair: Ints  # [E] x·A + a
    outcome: Ints  # [E] into `Outcomes`
    chance: Floats  # [E]


def augment(counts: Counts, limits: Sequence[Limit], gamma: float, unit: float | None = None) -> Augmented:
    """The reachable part of the augmented problem of a log counted with a horizon.

    Args:
        counts: with `horizon`.
        limits: whose tails say what is remembered.
        gamma: of the reward.
        unit: of spending; by default one that is exact, or a hundredth of the largest number in a limit.
    """
    if counts.horizon is None:
        first = next(limit for limit in limits if limit.tail)
        raise PdocrlError(f"limit {first} is on an episode's total: say how long episodes are, horizon=… (--horizon).")
    tailed = tuple(dict.fromkeys(limit.name for limit in limits if limit.tail))
    outcomes = _outcomes(counts, [counts.cost_names.index(name) for name in tailed])
    columns, units = [], []
    for name, cost in zip(tailed, outcomes.cost, strict=True):
        totals = [limit for limit in limits if limit.name == name and limit.measure in {"exceedance", "cvar"}]
        if not totals:
            continue
        if cost.min(initial=0) < 0:
            raise PdocrlError(f"column `{name}` has negative costs: only the mean of its total can be limited here.")
        column = _column(name, cost, max(_compared_with(limit) for limit in totals), unit)
        whole = np.ceil(cost / column.unit - 1e-9).astype(np.int64)
        excess = _largest_total(counts, outcomes, np.maximum(whole * column.unit - cost, 0))
        columns.append(column._replace(error=0.0 if column.exact else excess))
        units.append(whole)
    whole = np.array(units, np.int64).reshape(len(columns), len(outcomes.pair))
    return _reach(counts, tuple(columns), outcomes, tailed, whole, gamma)


def _compared_with(limit: Limit) -> float:
    """The largest spending a limit tells apart: θ, or v, since a CVaR within v has its t within v."""
    return max(limit.threshold if limit.threshold is not None else limit.value, 0.0)


def _column(name: str, cost: Floats, cap: float, unit: float | None) -> Column:
    if unit is not None:
        if not unit > 0:
            raise PdocrlError(f"the unit of spending is {unit}; it must be positive.")
        multiple = np.abs(cost / unit - np.round(cost / unit)).max(initial=0) < 1e-9
        return Column(name, unit, math.floor(cap / unit + 1e-9), bool(multiple), 0.0)
    exact = common_unit(cost)
    if exact is not None and cap / exact <= EXACT_LEVELS:
        return Column(name, exact, math.floor(cap / exact + 1e-9), True, 0.0)
    coarse = cap / LEVELS if cap > 0 else float(cost.max(initial=1.0)) or 1.0
    return Column(name, coarse, math.floor(cap / coarse + 1e-9), False, 0.0)


def common_unit(cost: Floats) -> float | None:
    """The largest number that all costs are multiples of, among those of few decimals; None if there is none."""
    distinct = np.unique(cost[cost > 0])
    if not len(distinct):
        return 1.0
    for decimals in range(DECIMALS + 1):
        scaled = distinct * 10.0**decimals
        whole = np.round(scaled)
        if np.abs(scaled - whole).max() <= 1e-9 * max(1.0, float(scaled.max())) and whole.min() > 0:
            return float(np.gcd.reduce(whole.astype(np.int64))) / 10.0**decimals
    return None


def _outcomes(counts: Counts, which: Sequence[int]) -> Outcomes:
    """Next states and costs that follow each pair together: of the log's rows where kept, else 0 or one size."""
    rows = [1 + k for k in which]
    K = len(rows)
    key = counts.pair * (counts.n_states + 1) + counts.to
    paths = counts.trajectories
    per = counts.count / counts.n.ravel()[counts.pair]
    parts: list[tuple[Ints, Floats, Floats]] = []  # cell, share within it, costs [K, ·]
    known = np.zeros(len(key), bool)
    if paths is not None and K:
        own = paths.pair * (counts.n_states + 1) + paths.to
        at = np.minimum(np.searchsorted(key, own), len(key) - 1)
        kept = key[at] == own
        table = np.concatenate([at[kept][None], paths.signals[rows][:, kept]])
        distinct, times = np.unique(table, axis=1, return_counts=True)
        cell = distinct[0].astype(np.int64)
        known[cell] = True
        total = np.bincount(cell, weights=times, minlength=len(key))
        parts.append((cell, times / total[cell], distinct[1:]))
    rest = np.flatnonzero(~known)
    mean, variance = counts.mean[rows][:, rest], counts.variance[rows][:, rest]
    varies = variance > 1e-12 * mean**2
    size = np.where(varies, mean + np.divide(variance, mean, out=np.zeros_like(mean), where=mean > 0), mean)
    rare = np.divide(mean, size, out=np.ones_like(mean), where=varies & (size > 0))
    for pattern in np.ndindex(*(2,) * K):  # each column is 0 or its size
        happens = np.array(pattern).reshape(K, 1)
        chance = np.prod(np.where(happens == 1, rare, 1 - rare), axis=0)
        some = chance > 0
        parts.append((rest[some], chance[some], np.where(happens == 1, size, 0.0)[:, some]))
    cell, share, cost = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
    order = np.lexsort((np.arange(len(cell)), cell))
    cell = cell[order]
    all_rows = paths is not None and len(paths) >= counts.size
    told = "guess" if varies.any() else "rows" if all_rows or not np.any(counts.variance[rows]) else "sample"
    return Outcomes(counts.pair[cell], counts.to[cell], per[cell] * share[order], cost[:, order], told)


def _largest_total(counts: Counts, outcomes: Outcomes, each: Floats) -> float:
    """The largest Σ `each` [O] along any episode, back from the last step."""
    ahead = np.zeros(counts.n_states + 1)
    t = counts.steps
    from_state = outcomes.pair // counts.n_actions
    for step in range(int(t.max()), -1, -1):
        now = np.flatnonzero(t[from_state] == step)
        np.maximum.at(ahead, from_state[now], each[now] + ahead[outcomes.to[now]])
    return float(ahead[:-1][counts.d0 > 0].max(initial=0.0))


def _reach(
    counts: Counts,
    columns: tuple[Column, ...],
    outcomes: Outcomes,
    tailed: tuple[str, ...],
    units: Ints,
    gamma: float,
) -> Augmented:
    """Step by step from the starts."""
    A, S = counts.n_actions, counts.n_states
    over = np.array([column.cap + 1 for column in columns], np.int64)
    radix = np.cumprod(np.r_[1, over + 1])  # spent as one number
    assert counts.horizon is not None
    of_state = np.searchsorted(outcomes.pair // A, np.arange(S + 1))
    layer = np.flatnonzero((counts.d0 > 0) & (counts.steps == 0)) * radix[-1]
    layers, edges, size = [layer], [], 0
    for _ in range(counts.horizon):
        base, code = np.divmod(layer, radix[-1])
        spent = (code[:, None] // radix[:-1]) % (over + 1)
        many = of_state[base + 1] - of_state[base]
        begin = np.repeat(of_state[base] - np.cumsum(np.r_[0, many[:-1]]), many)
        outcome = begin + np.arange(many.sum())
        source = np.repeat(np.arange(len(layer)), many)
        then = np.minimum(spent[source] + units[:, outcome].T, over)
        ahead = outcomes.to[outcome] * radix[-1] + then @ radix[:-1]
        going_on = outcomes.to[outcome] < S
        following = np.unique(ahead[going_on])
        to = np.where(going_on, np.searchsorted(following, ahead), -1)
        edges.append((size + source, outcome, np.where(to < 0, -1, size + len(layer) + to)))
        size += len(layer)
        if (size + len(following)) * A > LARGEST:
            told = " and ".join(f"{column.cap + 2} levels of `{column.name}`" for column in columns)
            means = " ".join(f'"{column.name}<=…"' for column in columns)
            raise PdocrlError(
                f"limits on tails: states that remember {told} make more than {LARGEST:,} pairs; "
                f"give a coarser unit (unit=…, --cost-unit), or limit the mean, {means}."
            )
        if not len(following):
            break
        layers.append(following)
        layer = following
    base, code = np.divmod(np.concatenate(layers), radix[-1])
    spent = (code[:, None] // radix[:-1]) % (over + 1)
    source, outcome, to = (np.concatenate([edge[i] for edge in edges]) for i in range(3))
    pair = source * A + outcomes.pair[outcome] % A
    X = len(base)
    tried = (counts.n > 0)[base]
    going_on = to >= 0
    P = sp.csr_array((outcomes.chance[outcome[going_on]], (pair[going_on], to[going_on])), shape=(X * A, X))
    found = Augmented(
        counts=counts,
        columns=columns,
        gamma=gamma,
        delta=1 - 1 / (counts.horizon + 1),
        base=base,
        spent=spent,
        P=P,
        tried=tried,
        edges=Edges(pair, outcome, outcomes.chance[outcome]),
        outcomes=outcomes,
        tailed=tailed,
        units=units,
    )
    alias = np.arange(X)[:, None] * A + found.stands_for
    return dataclasses.replace(found, P=sp.csr_array(P[alias.ravel()]))
