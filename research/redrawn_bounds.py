"""Bootstrap intervals of a given policy's value, which the score intervals of `bounds` are measured against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import norm

from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bootstrap import resample, with_counts
from pdocrl.tabular.inference.bounds import (
    PolicyEstimate,
    Uncertainty,
    score,
    spread_of_episodes,
    spread_of_rows,
)

DRAWN_AT_ONCE = 10**7  # numbers held while outcomes are redrawn


def resample_outcomes(counts: Counts, rng: np.random.Generator) -> Counts:
    """What might have followed the same n(s, a) tries of each pair: a multinomial of its own outcomes."""
    return next(_resample_outcomes(counts, rng, 1))


def _resample_outcomes(counts: Counts, rng: np.random.Generator, times: int) -> Iterator[Counts]:
    """The same so many times; a pair is drawn for many of them at once, since there may be thousands of pairs."""
    ends = np.flatnonzero(np.diff(counts.pair, append=-1)) + 1
    while times > 0:
        together = min(times, max(DRAWN_AT_ONCE // len(counts.count), 1))
        drawn = np.empty((together, len(counts.count)), np.int64)
        for first, last in zip(np.r_[0, ends[:-1]], ends, strict=True):
            own = counts.count[first:last]
            drawn[:, first:last] = rng.multinomial(own.sum(), own / own.sum(), size=together)
        yield from (with_counts(counts, one, rng) for one in drawn)
        times -= together


def model_bootstrap(estimate: PolicyEstimate, level: float = 0.95, resamples: int = 200, seed: int = 0) -> Floats:
    """[1+K, 2] quantiles of Ĵ over logs whose outcomes are redrawn given n(s, a): rows independent given their pair."""
    logs = _resample_outcomes(estimate.counts, np.random.default_rng(seed), resamples)
    return _quantiles(estimate, logs, [spread_of_rows(estimate, high) for high in (False, True)], level)


def episode_bootstrap(estimate: PolicyEstimate, level: float = 0.95, resamples: int = 200, seed: int = 0) -> Floats:
    """[1+K, 2] quantiles of Ĵ over logs whose episodes are redrawn; rows, where the log does not name episodes."""
    logs = (resample(estimate.counts, np.random.default_rng([seed, k])) for k in range(resamples))
    return _quantiles(estimate, logs, [spread_of_episodes(estimate, high, level) for high in (False, True)], level)


def _quantiles(
    estimate: PolicyEstimate, logs: Iterator[Counts], spreads: Sequence[Uncertainty], level: float
) -> Floats:
    """Quantiles round Ĵ; stretched where redrawn logs vary less than the score interval says.

    A pair with few rows is redrawn from those few, so that it varies by (n−1)/n of what it should, and one with a
    single row not at all: the shape is the bootstrap's, the scale at least that of `bounds.score`.
    """
    z = float(norm.ppf((1 + level) / 2))
    ends = np.array([dataclasses.replace(estimate, counts=log).estimate for log in logs])
    off = ends - estimate.estimate
    bound = np.empty_like(estimate.estimate)
    for end, (share, spread) in enumerate(zip(((1 - level) / 2, (1 + level) / 2), spreads, strict=True)):
        reach = score(np.zeros_like(spread.jump), *spread, z, high=bool(end))
        deviation = off[:, :, end].std(axis=0)
        varies = deviation > 1e-3 * np.abs(reach)
        stretch = np.maximum(np.abs(reach) / np.where(varies, z * deviation, np.inf), 1)
        bound[:, end] = np.where(varies, stretch * np.quantile(off[:, :, end], share, axis=0), reach)
    return estimate.possible(estimate.estimate + bound)
