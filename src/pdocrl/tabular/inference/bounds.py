"""Between what and what do a given policy's value and costs lie? Intervals from counts, one short function a method.

    counts, γ, π ─▶ `PolicyEstimate` (occupancy, V, Q, what every transition adds) ─▶ a bound [1+K, 2]

All are in (1−γ)J units, reward first, then each cost of the log. All hold for a policy that does not depend on the log
it is judged by: one chosen elsewhere, or on the other half (see `split`). To a policy learned from the same rows they
are too kind, by what `bootstrap.BootstrapOutcomes.optimism` measures.

What the log never saw, no bound can know. A pair that was never tried is taken to be no worse than the worst step the
log has followed by the worst state it knows (`beyond`); a disaster that never happened in n rows is bounded by its
share 3/n (`jump`), at the size of the largest surprise that did happen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.stats import norm, t

from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import CMDP, occupancy, solve_linear, transition_matrix
from pdocrl.tabular.counts import Counts, Floats

RULE_OF_THREE = 3.0  # −log .05: a rate of 3/n stays unseen in n tries once in twenty logs
PRIOR_ROWS = 1.0  # rows' worth of the log's typical variance that a pair's own is mixed with: one row has none


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyEstimate:
    """A policy in the log's own model; what lies beyond the log is taken at its least and at its most."""

    counts: Counts
    gamma: float
    pi: Floats  # [S, A]

    @cached_property
    def model(self) -> CMDP:
        """P̂ and r̂, without constraints."""
        c = self.counts
        return CMDP(c.P, c.r, np.zeros((0, *c.shape)), np.zeros(0), c.d0, self.gamma)

    @cached_property
    def mu(self) -> Floats:
        """[S, A] μ^π of tried pairs: the (1−γ)-share of time there, before the log is left."""
        return np.where(self.counts.n > 0, occupancy(self.model, self.pi), 0.0)

    @cached_property
    def span(self) -> Floats:
        """[1+K, 2] the least and the largest signal of a step, 0 included (that of an ended episode); costs are ≥ 0.

        Of a transition's signals only mean and variance are known: for costs, variance/mean + mean is the size of what
        happens rarely (1 for a cost of 0 or 1), for rewards two standard deviations have to do.
        """
        mean, variance = self.counts.mean, self.counts.variance
        rare = mean + np.divide(variance, mean, out=np.zeros_like(mean), where=(mean > 0) & (variance > 0))
        spread = 2 * np.sqrt(variance)
        low, high = (mean - spread).min(axis=1), np.where(np.arange(len(mean))[:, None] > 0, rare, mean + spread)
        low[1:] = mean[1:].min(axis=1)
        return np.stack([np.minimum(low, 0), np.maximum(high.max(axis=1), 0)], axis=1)

    @cached_property
    def _inside(self) -> tuple[Floats, Floats]:
        """[1+K, S] V of what is earned before the log is left, and [S] E γ^t of the time t when it is."""
        known, going = self.pi * (self.counts.n > 0), transition_matrix(self.model, self.pi)
        signals = (self.counts.r, *self.counts.costs)
        earned = [solve_linear(going, (known * x).sum(axis=1), self.gamma) for x in signals]
        return np.array(earned), solve_linear(going, np.maximum(1 - known.sum(axis=1), 0), self.gamma)

    @cached_property
    def beyond(self) -> Floats:
        """[1+K, 2] what a pair the log lacks leads to: the worst step the log has, then the worst state it knows.

        u = x + γ max_s [V(s) + left(s) u], over states all of whose actions under π were tried; likewise the best.
        """
        earned, left = self._inside
        sure = (self.pi * (self.counts.n > 0)).sum(axis=1) > 1 - 1e-9
        ends = (self.span[:, :, None] + self.gamma * earned[:, None, sure]) / (1 - self.gamma * left[sure])
        if not sure.any():
            return self.span / (1 - self.gamma)
        return np.stack([ends[:, 0].min(axis=1), ends[:, 1].max(axis=1)], axis=1)

    @cached_property
    def values(self) -> tuple[Floats, Floats]:
        """V [1+K, S], with the least and with the most beyond the log."""
        earned, left = self._inside
        low, high = (earned + self.beyond[:, end, None] * left for end in (0, 1))
        return low, high

    @property
    def estimate(self) -> Floats:
        """[1+K, 2] (1−γ)J with the least and with the most beyond the log; equal where the policy stays inside."""
        return np.stack([(1 - self.gamma) * V @ self.counts.d0 for V in self.values], axis=1)

    def possible(self, bound: Floats) -> Floats:
        """A bound [1+K, 2] cut to what is possible: no more than the largest signal in every step."""
        return np.clip(bound, self.span[:, :1], self.span[:, 1:])

    def surprise(self, high: bool) -> tuple[Floats, Floats]:
        """[1+K, M] x + γV(s′) − Q(s, a) of each transition, and [1+K, S·A] its variance at each pair.

        A pair's variance is mixed with the typical one where the policy goes: few rows that agree are no proof that all
        would.
        """
        c, V = self.counts, self.values[int(high)]
        n = np.maximum(c.n.ravel(), 1)
        after = c.mean + self.gamma * c.ahead(V)
        Q = np.array([np.bincount(c.pair, weights=c.count * row, minlength=len(n)) / n for row in after])
        off = after - Q[:, c.pair]
        squares = np.array(
            [np.bincount(c.pair, weights=c.count * row, minlength=len(n)) for row in off**2 + c.variance]
        )
        # Typical where the policy goes, as far as pairs tried more than once tell; with a trace of the whole log.
        telling = self.mu.ravel() * (1 - 1 / n) + 0.01 * c.mu.ravel()
        typical = (squares / n * telling).sum(axis=1, keepdims=True) / telling.sum()
        return off, (squares + PRIOR_ROWS * typical) / np.maximum(n - 1 + PRIOR_ROWS, 1)

    def sizes(self, off: Floats, high: bool) -> Floats:
        """[1+K, M] the surprise of each transition at its worst.

        Rows of one transition differ too, in their signals: a cost that is rare there by E[x²]/E[x] − E[x].
        """
        mean, variance = self.counts.mean, self.counts.variance
        within = np.sqrt(variance)
        if high:
            rare = np.divide(variance, mean, out=np.zeros_like(mean), where=(mean > 0) & (variance > 0))
            within[1:] = np.maximum(within, rare)[1:]
        return np.asarray(off + within if high else within - off)

    def jump(self, off: Floats, high: bool) -> Floats:
        """[1+K] by how much one more occurrence of the largest surprise, where the policy goes, moves the estimate."""
        goes = self.mu.ravel()[self.counts.pair] > 0
        largest = np.where(goes, self.sizes(off, high), 0.0).max(axis=1, initial=0)
        return np.asarray(largest * self.weight_of_a_row)

    def hidden(self, off: Floats, high: bool, tries: float = RULE_OF_THREE) -> Floats:
        """[1+K, S, A] the size of the surprises that could be hiding at each pair, from all that the log has seen.

        A disaster seen only where the policy does not go may be one that has not happened yet where it does. In n tries
        a rate of up to `tries`/n can hide (the rule of three), so only where n is small enough for the smallest rate at
        which the log has seen large surprises anywhere.
        """
        c, sizes = self.counts, self.sizes(off, high)
        largest = sizes.max(axis=1, initial=0)
        square = c.mean**2 + c.variance
        share = np.where(c.variance > 0, c.mean**2 / np.where(square > 0, square, 1.0), 1.0)  # of its rows, if rare
        share[0] = 1.0
        tried = np.maximum(c.n, 1)
        found = np.zeros((len(largest), *c.shape))
        for k, (size, most) in enumerate(zip(sizes, largest, strict=True)):
            events = np.bincount(c.pair, weights=c.count * share[k] * (size >= most / 2), minlength=tried.size)
            rates = events / tried.ravel()
            least = rates[events > 0].min(initial=1.0)
            found[k] = np.where(tried <= tries / least, most, 0.0)
        return found

    def hidden_jump(self, off: Floats, high: bool) -> Floats:
        """[1+K] `jump` for surprises that could be hiding where the policy goes."""
        weight = self.mu**2 / np.maximum(self.counts.n, 1)
        return np.asarray((weight * self.hidden(off, high)).sum(axis=(1, 2)) / max(float(self.mu.sum()), 1e-300))

    @cached_property
    def begun(self) -> float:
        """How much of the time an episode begins: at first, 1−γ, and wherever one ends if another begins there."""
        again = float(self.mu.ravel() @ self.counts.ending) if self.counts.restarts else 0.0
        return 1 - self.gamma + self.gamma * again

    @cached_property
    def weight_of_a_row(self) -> float:
        """Σ μ²/n / Σ μ: what a row of the log weighs on average where the policy goes; 1/n for the log's own policy."""
        mu, n = self.mu.ravel(), np.maximum(self.counts.n.ravel(), 1)
        return float((mu**2 / n).sum() / max(mu.sum(), 1e-300))


def unknown_size(counts: Counts, limits: Sequence[Limit]) -> list[str]:
    """Columns to be kept below something that are 0 in every row: how large one would be, the log cannot say."""
    signals = counts.mean + counts.variance
    names = [limit.name for limit in limits if limit.sign < 0]
    return [name for name in names if not signals[1 + counts.cost_names.index(name)].any()]


def delta(estimate: PolicyEstimate, level: float = 0.95) -> Floats:
    """Ĵ ± z √Var, Var Ĵ = Σ (μ^π)²/n · Var[x + γV(s′)] + (1−γ)² Var[V(s₀)]/episodes, as a score interval (`score`).

    (In J units the first term has the factor (1−γ)⁻².) Rows are independent given their pair.
    """
    return _interval(estimate, [spread_of_rows(estimate, high) for high in (False, True)], level)


def clustered(estimate: PolicyEstimate, level: float = 0.95, anywhere: bool = False) -> Floats:
    """The same with whole episodes as the independent parts, wherever they differ more than their rows say.

    Under a true Markov state both estimate the same. Without groups of episodes in the counts it is `delta`. With
    `anywhere` it reckons with surprises that the log has seen elsewhere.
    """
    return _interval(estimate, [spread_of_episodes(estimate, high, level, anywhere) for high in (False, True)], level)


class Uncertainty(NamedTuple):
    """Of an estimate over logs."""

    variance: Floats  # [1+K]
    jump: Floats  # [1+K] what one more rare event would add


def spread_of_rows(estimate: PolicyEstimate, high: bool, anywhere: bool = False) -> Uncertainty:
    """With rows independent given their pair; `anywhere` reckons with surprises the log has seen elsewhere."""
    off, variance = estimate.surprise(high)
    weight = estimate.mu.ravel() ** 2 / np.maximum(estimate.counts.n.ravel(), 1)
    jump = estimate.jump(off, high)
    if anywhere:
        jump = np.maximum(jump, estimate.hidden_jump(off, high))
    return Uncertainty((weight * variance).sum(axis=1) + _start_variance(estimate, high), jump)


def spread_of_episodes(estimate: PolicyEstimate, high: bool, level: float, anywhere: bool = False) -> Uncertainty:
    """Var Ĵ = G/(G−1) Σ_g (Σ_{rows of g} μ^π/n · surprise)², or that of rows if larger.

    With G groups the quantile should be Student's; the variance is inflated accordingly.
    """
    rows, groups = spread_of_rows(estimate, high, anywhere), estimate.counts.groups
    if groups is None or len(groups) < 2:
        return rows
    part = group_influence(estimate, high)
    squares = (part**2).sum(axis=1)
    skew = (part**3).sum(axis=1) / np.maximum(squares, 1e-300)
    student = t.ppf((1 + level) / 2, len(groups) - 1) / norm.ppf((1 + level) / 2)
    total = squares * len(groups) / (len(groups) - 1) * student**2
    return Uncertainty(np.maximum(rows.variance, total), np.maximum(rows.jump, skew if high else -skew))


def _interval(estimate: PolicyEstimate, spreads: Sequence[Uncertainty], level: float) -> Floats:
    z = float(norm.ppf((1 + level) / 2))
    ends = [score(estimate.estimate[:, end], *spreads[end], z, high=bool(end)) for end in (0, 1)]
    return estimate.possible(np.stack(ends, axis=1))


def group_influence(estimate: PolicyEstimate, high: bool) -> Floats:
    """[1+K, G] what each group of episodes adds to Ĵ − J, to first order; sums to 0."""
    c, V = estimate.counts, estimate.values[int(high)]
    groups = c.groups
    assert groups is not None
    off, _ = estimate.surprise(high)
    weight = (estimate.mu.ravel() / np.maximum(c.n.ravel(), 1))[c.pair]
    each = weight[groups.cell] * groups.count * (off[:, groups.cell] + groups.mean - c.mean[:, groups.cell])
    part = np.array([np.bincount(groups.group, weights=row, minlength=len(groups)) for row in each])
    begun = groups.starts.sum()
    if begun > 0:
        centred = V - (V @ c.d0)[:, None]
        part += estimate.begun * (centred @ groups.starts.T) / begun
    return part


def lead(first: PolicyEstimate, other: PolicyEstimate, high: bool, level: float = 0.95) -> Floats:
    """[1+K, 2] by how much `other` is above `first` in the same log: what both owe to the same rows cancels.

    J of either is, to first order, a sum over episodes (or rows), so the difference is the sum of their differences. It
    varies no less than one spread does more than the other: few rows that agree are no proof, see `surprise`.
    """
    c, groups = first.counts, first.counts.groups
    between = other.estimate[:, int(high)] - first.estimate[:, int(high)]
    spreads = [np.sqrt(spread_of_episodes(one, high, level).variance) for one in (first, other)]
    if groups is not None and len(groups) >= 2:
        squares = ((group_influence(other, high) - group_influence(first, high)) ** 2).sum(axis=1)
        squares *= len(groups) / (len(groups) - 1)
    else:
        weights = [(one.mu.ravel() / np.maximum(c.n.ravel(), 1))[c.pair] for one in (first, other)]
        off = weights[1] * other.surprise(high)[0] - weights[0] * first.surprise(high)[0]
        squares = (c.count * (off**2 + (weights[1] - weights[0]) ** 2 * c.variance)).sum(axis=1)
    width = float(norm.ppf((1 + level) / 2)) * np.maximum(np.sqrt(squares), np.abs(spreads[1] - spreads[0]))
    return np.stack([between - width, between + width], axis=1)


def _start_variance(estimate: PolicyEstimate, high: bool) -> Floats:
    """[1+K] from where episodes begin; 0 where that is known beforehand."""
    c, V = estimate.counts, estimate.values[int(high)]
    begun = c.starts.sum()
    if begun < 2:
        return np.zeros(len(V))
    spread = (V - (V @ c.d0)[:, None]) ** 2 @ c.d0
    return np.asarray(estimate.begun**2 * spread / (begun - 1))


def score(centre: Floats, variance: Floats, jump: Floats, z: float, high: bool) -> Floats:
    """The end of {J: (J − Ĵ)² ≤ z² (Var + jump·|J − Ĵ|)}: a variance that grows with J, as that of rare events does.

    For k events in n rows, jump = 1/n, it is Wilson's interval, z²/n when k = 0; the correction vanishes as 1/n.
    """
    half = z**2 * jump / 2
    width = half + np.sqrt(z**2 * variance + half**2)
    return np.asarray(centre + width if high else centre - width)
