"""How much of a policy's estimated value is luck: the log is drawn again, from its own episodes or rows.

Two kinds of luck, two uses of a resampled log:

    spread     the same policy, evaluated in the resampled log: how the estimate varies
    optimism   a policy learned from the resampled log, evaluated there and in the log it was drawn from: by how much a
               learner overestimates what it learns, since it prefers what happened to go well

A pair that a resampled log lacks is followed by the worst of every signal for ever, as an unknown pair is. That is hard
on policies that live on pairs tried once or twice, and meant to be: each such pair, taken alone, looks certain. Judged
by what the log itself says of the pair, lucky ones would be chosen again (`theory.lucky`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from pdocrl.errors import DataError
from pdocrl.limits import Limit, limit_names
from pdocrl.records import Part
from pdocrl.tabular.counts import Counts, Ints
from pdocrl.tabular.inference.bounds import (
    PolicyEstimate,
    clustered,
    unknown_size,
)
from pdocrl.tabular.inference.markov import MarkovTest
from pdocrl.tabular.io.episodes import Groups
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import Setup, Solution, outcome, solve_saddle


class Intervals(Part, frozen=True, kw_only=True):
    """Two-sided intervals of (1−γ)J of a policy learned from the same log."""

    level: float
    value: tuple[float, float]
    costs: dict[str, tuple[float, float | None]]  # None: the column is 0 in every row, and no upper end is known
    optimism: float  # optimism bias: by how much the value is probably too high; the lower end is moved by it


class BootstrapOutcomes(NamedTuple):
    """Value and constraint rewards of c candidates, in and after learning from resampled logs."""

    outcomes: Floats  # [c, resamples, 1+I] the candidate's policy in a resampled log
    there: Floats  # [c, refits, 1+I] a policy learned as the candidate was, in the resampled log it was learned from
    here: Floats  # [c, refits, 1+I] the same policy in the log itself

    @property
    def optimism(self) -> Floats:
        """[c, 1+I] the median of there − here, as a policy that leaves the log would drag a mean along; 0 if none."""
        difference = self.there - self.here
        return np.asarray(np.median(difference, axis=1) if difference.shape[1] else difference.sum(axis=1))


def resample(counts: Counts, rng: np.random.Generator) -> Counts:
    """A log of the same size drawn from this one, with replacement: groups of episodes where it has them, else rows.

    Starts are resampled too, unless d₀ was known beforehand.
    """
    if counts.groups is not None:
        return _resample_groups(counts, counts.groups, rng)
    return with_counts(counts, rng.multinomial(counts.size, counts.count / counts.size), rng)


def with_counts(counts: Counts, drawn: Ints, rng: np.random.Generator) -> Counts:
    """The log with each transition drawn [M] times; signals are resampled within it, and starts."""
    hit = np.flatnonzero(drawn)
    count = drawn[hit].astype(np.int64)
    # Within a cell only mean and variance are known; the mean of resampled signals is normal by the central limit.
    noise = rng.standard_normal((len(counts.mean), len(hit))) * np.sqrt(counts.variance[:, hit] / count)
    starts, episodes = counts.starts, counts.starts.sum()
    if episodes >= 2:
        starts = rng.multinomial(round(episodes), counts.d0).astype(np.float64)
    return dataclasses.replace(
        counts,
        pair=counts.pair[hit],
        to=counts.to[hit],
        count=count,
        mean=counts.mean[:, hit] + noise,
        variance=counts.variance[:, hit],
        starts=starts,
        groups=None,
    )


def _resample_groups(counts: Counts, groups: Groups, rng: np.random.Generator) -> Counts:
    weight = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups))).astype(np.float64)
    count, mean, starts = groups.weighted(weight, len(counts.count))
    hit = np.flatnonzero(count)
    return dataclasses.replace(
        counts,
        pair=counts.pair[hit],
        to=counts.to[hit],
        count=count[hit].astype(np.int64),
        mean=mean[:, hit],
        variance=counts.variance[:, hit],
        starts=starts if starts.sum() > 0 else counts.starts,
        groups=None,
    )


def bootstrap(
    counts: Counts,
    limits: Sequence[Limit],
    candidates: Sequence[Solution],
    resamples: int,
    refits: int,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> BootstrapOutcomes:
    """Resample the log, evaluate every candidate in it and, the first `refits` times, learn again with its sets.

    All candidates see the same resampled logs, and the k-th depends on (seed, k) alone. Learning again is by linear
    program whatever the candidate's method, and for the limits it was learned for.
    """
    size = 1 + len(limits)
    log = BootstrapOutcomes(*(np.empty((len(candidates), times, size)) for times in (resamples, refits, refits)))
    for k in range(max(resamples, refits)):
        progress(f"resampling the log: {k + 1} of {max(resamples, refits)}")
        drawn = resample(counts, np.random.default_rng([seed, k]))
        resampled = Lagrangian.empirical(drawn, candidates[0].L.gamma, limits)
        model = pessimistic_model(resampled, worst=candidates[0].L)
        for index, candidate in enumerate(candidates):
            if k < resamples:
                log.outcomes[index, k] = outcome(model, candidate.policy)
            if k < refits:
                problem = dataclasses.replace(resampled, tau=candidate.L.tau)
                learned = solve_saddle(problem, Setup(candidate.sets.C, candidate.sets.B))
                log.there[index, k] = learned.estimate
                log.here[index, k] = outcome(pessimistic_model(candidate.L), learned.policy)
    return log


def widened(spread: Intervals, test: MarkovTest) -> Intervals:
    """Intervals moved out by what states that fail the Markov test hide: a policy may always meet the worse part."""
    shift = {one.signal: one.shift for one in test.failed}
    if not shift:
        return spread
    costs = {}
    for name, (low, high) in spread.costs.items():
        by = next((size for signal, size in shift.items() if name == signal or name.startswith(f"{signal} ")), 0.0)
        costs[name] = (max(low - by, min(low, 0.0)), None if high is None else high + by)
    low, high = spread.value
    moved = shift.get("reward", 0.0)
    return structs.replace(spread, value=(low - moved, high + moved), costs=costs)


def intervals(estimate: PolicyEstimate, optimism: Floats, limits: Sequence[Limit], level: float) -> Intervals:
    """The policy's `clustered` bounds; the worse end of each is moved out by the optimism [1+I] of learning from it.

    Costs reckon with what the log has seen elsewhere. Of a cost that it has never seen it knows no upper end.
    """
    bound = clustered(estimate, level)
    bound[1:] = clustered(estimate, level, anywhere=True)[1:]
    bound[0, 0] -= max(float(optimism[0]), 0.0)
    rows = [1 + limit.index(estimate.counts.cost_names) for limit in limits]
    for row, limit, bias in zip(rows, limits, optimism[1:], strict=True):
        bound[row, int(limit.sign < 0)] -= limit.sign * max(float(bias), 0.0)
    bound = estimate.possible(bound)
    never = unknown_size(estimate.counts, limits)
    costs = {
        name: (float(bound[row, 0]), None if limit.name in never else float(bound[row, 1]))
        for name, row, limit in zip(limit_names(limits), rows, limits, strict=True)
    }
    value = (float(bound[0, 0]), float(bound[0, 1]))
    return Intervals(level=level, value=value, costs=costs, optimism=float(optimism[0]))


Array = NDArray[Any]
RARE = 10  # events: with fewer, the sum of a half is not normal


def split(counts: Counts, rng: np.random.Generator) -> tuple[Counts, Counts]:
    """Two halves that together are the log: half of its groups of episodes each, or each row by the toss of a coin.

    Of a transition's signals only mean and variance are known; for rows, the halves' means are drawn as two samples
    without replacement would have them: a cost that is rare as events of one size, which is exact for a cost of 0 or
    some other number, all else as normal. d₀ stays whole where it was known beforehand.
    """
    if counts.groups is not None and len(counts.groups) >= 2:
        first = rng.permutation(len(counts.groups)) < len(counts.groups) // 2
        return _of_groups(counts, first), _of_groups(counts, ~first)
    if counts.size < 2:
        raise DataError("a log of one row cannot be cut in two; a confidence needs more of it.")
    n = rng.binomial(counts.count, 0.5)
    n[0] = np.clip(n[0], n.sum() == 0, counts.count[0] - (n.sum() == counts.size))  # neither half is empty
    rest = counts.count - n
    spread = np.sqrt(counts.variance * rest / np.maximum(n * counts.count, 1))
    mean = counts.mean + spread * rng.standard_normal(counts.mean.shape)
    events = _costs(counts)
    mean[events] = _share_of_events(counts, n, mean[events], events, rng)
    other = (counts.mean * counts.count - mean * n) / np.maximum(rest, 1)
    starts = counts.starts
    begun = rng.binomial(np.round(starts).astype(np.int64), 0.5) if starts.sum() >= 2 else starts
    left = starts - begun if starts.sum() >= 2 else starts
    return _part(counts, n, mean, _some(begun, starts)), _part(counts, rest, other, _some(left, starts))


def _costs(counts: Counts) -> Array:
    """The signals that are costs, which are at least 0; of a known model they may be rewards with another sign."""
    return 1 + np.flatnonzero((counts.mean[1:] >= 0).all(axis=1))


def _event_size(counts: Counts, signals: Array) -> Array:
    """[k, M] E[x²]/E[x]: how large a cost is when it comes, if it is rare; exact for a cost of 0 or some number."""
    mean = counts.mean[signals]
    return mean + np.divide(counts.variance[signals], mean, out=np.zeros_like(mean), where=mean > 0)


def _share_of_events(counts: Counts, n: Array, normal: Array, signals: Array, rng: np.random.Generator) -> Array:
    """[k, M] mean costs of the first n [M] rows of each transition, drawn without replacement from all."""
    mean, size, total = counts.mean[signals], _event_size(counts, signals), counts.count
    events = mean * total / np.where(size > 0, size, 1.0)  # of that size; all rows where the cost is always the same
    whole = np.rint(events)
    rare = (np.abs(events - whole) < 1e-6 * total) | (events < RARE)
    times = np.clip(np.maximum(whole, mean > 0), 0, total).astype(np.int64)
    mine = rng.hypergeometric(times, total - times, np.broadcast_to(n, mean.shape))
    drawn = mine / np.maximum(times, 1) * mean * total / np.maximum(n, 1)
    return np.where(rare, drawn, np.clip(normal, 0, mean * total / np.maximum(n, 1)))


def _of_groups(counts: Counts, chosen: Array) -> Counts:
    groups = counts.groups
    assert groups is not None
    count, mean, starts = groups.weighted(chosen.astype(np.float64), len(counts.count))
    part = _part(counts, count.astype(np.int64), mean, _some(starts, counts.starts))
    mine = chosen[groups.group]
    number = np.cumsum(chosen) - 1
    hit = np.flatnonzero(count)
    own = dataclasses.replace(
        groups,
        group=number[groups.group[mine]],
        cell=np.searchsorted(hit, groups.cell[mine]),
        count=groups.count[mine],
        mean=groups.mean[:, mine],
        starts=groups.starts[chosen],
    )
    return dataclasses.replace(part, groups=own)


def _some(starts: Array, whole: Array) -> Array:
    """A half's starts, or the whole log's where the half has none."""
    return np.asarray(starts if starts.sum() > 0 else whole, np.float64)


def _part(counts: Counts, n: Array, mean: Array, starts: Array) -> Counts:
    hit = np.flatnonzero(n)
    variance = counts.variance.copy()
    costs = _costs(counts)  # have their own variance, for events of the same size
    variance[costs] = np.maximum(mean[costs] * (_event_size(counts, costs) - mean[costs]), 0)
    return dataclasses.replace(
        counts,
        pair=counts.pair[hit],
        to=counts.to[hit],
        count=n[hit],
        mean=mean[:, hit],
        variance=variance[:, hit],
        starts=starts,
        groups=None,
        trajectories=None,
    )
