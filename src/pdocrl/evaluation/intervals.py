"""95 % intervals over trainings: what would another set of trainings, with other seeds, have given?

An estimate is a sum of contributions, one of each training. Trainings of one kind (that play the same limits) differ by
chance alone, so the spread of their contributions is what the estimate owes to chance:

    error² = Σ_kinds n · var(contributions of the kind's n trainings)

and (estimate − truth)/error follows a t distribution, with the degrees of freedom of Welch and Satterthwaite. A
training that plays several limits is one contribution, not several. With normal contributions the coverage is 95 % for
one kind, and 94 to 97 % for several kinds of three trainings; a percentile bootstrap of three would cover 74 %.

One training of a kind tells nothing about how trainings differ. Then the spread is that of the episodes, each start
counted once over all runs that met it, and the interval says so: `over` is "episodes". All runs of a table meet the
same starts, so what is said over trainings is said for these starts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Over = Literal["trainings", "episodes"]
LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Measured:
    """An estimate and what it owes to chance."""

    value: float
    error: float | None  # standard error; None: nothing varied that could tell
    freedom: float  # degrees of freedom behind the error
    over: Over  # what varied

    def interval(self, least: float = -math.inf, most: float = math.inf) -> Interval | None:
        """The 95 % interval, cut at the lowest and highest value there can be; None where nothing varied."""
        if self.error is None:
            return None
        reach = self.error * float(scipy.special.stdtrit(self.freedom, (1 + LEVEL) / 2)) if self.error else 0.0
        return (max(self.value - reach, min(least, self.value)), min(self.value + reach, max(most, self.value)))

    def draws(self, size: int, rng: np.random.Generator) -> Floats:
        """[size] values it might as well have had."""
        return self.value + (self.error or 0.0) * rng.standard_t(self.freedom, size)


def measured(value: float, kinds: Sequence[Floats], over: Over) -> Measured:
    """An estimate from the contributions of every kind, [n] each; without an error where a kind has only one."""
    if not kinds or min(len(kind) for kind in kinds) < 2:
        return Measured(value, None, 1.0, over)
    parts = [(len(kind) * float(kind.var(ddof=1)), len(kind) - 1) for kind in kinds]
    variance = sum(part for part, _ in parts)
    weight = sum(part**2 / freedom for part, freedom in parts)
    return Measured(value, math.sqrt(variance), variance**2 / weight if weight else float(parts[0][1]), over)


def mean_over_limits(values: Sequence[Floats], trainings: Sequence[Sequence[Hashable]]) -> Measured:
    """The mean over limits of the mean over runs and episodes.

    Args:
        values: per limit [R, E], of R runs and E episodes; the same column is the same start.
        trainings: per limit [R], which training a run belongs to; limits may share trainings.
    """
    value = float(np.mean([own.mean() for own in values]))
    kinds = contributions([own.mean(axis=1) for own in values], trainings)
    found = measured(value, kinds, "trainings")
    return over_episodes(values) if found.error is None else found


def contributions(values: Sequence[Floats], trainings: Sequence[Sequence[Hashable]]) -> list[Floats]:
    """Per limit [R] as what each training adds to the mean over limits, by kind: those that play the same limits."""
    shares: dict[Hashable, float] = {}  # training → its contribution
    plays: dict[Hashable, tuple[int, ...]] = {}  # training → limits
    for limit, (own, names) in enumerate(zip(values, trainings, strict=True)):
        for name, value in zip(names, own, strict=True):
            shares[name] = shares.get(name, 0.0) + float(value) / (len(own) * len(values))
            plays[name] = (*plays.get(name, ()), limit)
    kinds: dict[tuple[int, ...], list[float]] = {}
    for name, share in shares.items():
        kinds.setdefault(plays[name], []).append(share)
    return [np.array(kind) for kind in kinds.values()]


def over_episodes(values: Sequence[Floats]) -> Measured:
    """The same mean, with the spread of its episodes alone: per limit [R, E]."""
    value = float(np.mean([own.mean() for own in values]))
    starts = [own.mean(axis=0) / (own.shape[1] * len(values)) for own in values]  # contributions [E] of each limit
    same = len({len(start) for start in starts}) == 1
    return measured(value, [np.sum(starts, axis=0)] if same else starts, "episodes")


def share_interval(share: float, parts: Sequence[tuple[float, int, int]]) -> Interval | None:
    """95 % interval of a weighted mean of shares of won pairs: parts (weight, m, n) of m runs against n others each.

    All θ with |share − θ| ≤ t · √Σ weight² V(θ), V Hanley and McNeil's variance of a share θ among m × n pairs. It
    depends on θ, not on what varied, so that three runs which beat three others all leave a doubt; a t interval has
    none there. None: of a single run nothing is known.
    """
    freedom = sum(m + n - 2 for _, m, n in parts)
    if not parts or min(min(m, n) for _, m, n in parts) < 2:
        return None
    theta = np.linspace(0, 1, 2001)
    variance = np.zeros_like(theta)
    for weight, m, n in parts:
        same = (m + n) / 2 - 1  # pairs share a run with so many others
        again = same * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance += weight**2 * theta * (1 - theta) / (m * n) * (1 + again)
    reach = float(scipy.special.stdtrit(freedom, (1 + LEVEL) / 2))
    within = theta[np.abs(share - theta) <= reach * np.sqrt(variance)]
    return (float(min(share, *within)), float(max(share, *within)))


def binomial_interval(count: int, total: int) -> Interval:
    """95 % interval (Clopper–Pearson) of a probability of which `count` of `total` ≥ 1 independent draws were hits."""
    tail = (1 - LEVEL) / 2
    low = float(scipy.stats.beta.ppf(tail, count, total - count + 1)) if count else 0.0
    high = float(scipy.stats.beta.ppf(1 - tail, count + 1, total - count)) if count < total else 1.0
    return low, high


def interquartile_mean(values: Floats) -> float:
    """The mean of the middle half: less moved by a few runs than the mean, and by more of them than the median."""
    return float(scipy.stats.trim_mean(np.ravel(values), 0.25))


def interval_words(pair: Interval | None) -> str:
    """ "[0.10, 0.20]"."""
    return "–" if pair is None else f"[{number(pair[0])}, {number(pair[1])}]"


def number(value: float, digits: int = 2) -> str:
    """Without a minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"
