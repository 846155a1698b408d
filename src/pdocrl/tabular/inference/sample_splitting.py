"""A log cut in two, by whole episodes where it names them: what chooses a policy must not be what tests it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError
from pdocrl.tabular.counts import Counts

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
