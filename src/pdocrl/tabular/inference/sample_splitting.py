"""A log cut in two, by whole episodes where it names them: what chooses a policy must not be what tests it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError
from pdocrl.tabular.counts import Counts

Array = NDArray[Any]


def split(counts: Counts, rng: np.random.Generator) -> tuple[Counts, Counts]:
    """Two halves that together are the log: half of its groups of episodes each, or each row by the toss of a coin.

    Of a transition's signals only mean and variance are known; for rows, the halves' means are drawn as two samples
    without replacement would have them. d₀ stays whole where it was known beforehand.
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
    other = (counts.mean * counts.count - mean * n) / np.maximum(rest, 1)
    starts = counts.starts
    begun = rng.binomial(np.round(starts).astype(np.int64), 0.5) if starts.sum() >= 2 else starts
    left = starts - begun if starts.sum() >= 2 else starts
    return _part(counts, n, mean, _some(begun, starts)), _part(counts, rest, other, _some(left, starts))


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
    return dataclasses.replace(
        counts,
        pair=counts.pair[hit],
        to=counts.to[hit],
        count=n[hit],
        mean=mean[:, hit],
        variance=counts.variance[:, hit],
        starts=starts,
        groups=None,
    )
