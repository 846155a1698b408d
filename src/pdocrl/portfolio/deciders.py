"""The log by decision maker: reward, costs, and the share of episodes within each limit, with 95 % intervals.

This is what any learned policy has to beat. Totals of episodes whose record was cut short are completed by what was
predicted to follow, Σ_{t<T} x_t + Q_b(s_T, a_T); shares are of complete episodes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.special
from scipy import stats

from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Flags, Floats
from pdocrl.limits import Limit
from pdocrl.ope.estimators.fqe import q_values
from pdocrl.ope.estimators.problem import LEVEL, Problem
from pdocrl.portfolio.candidates import decided_by
from pdocrl.portfolio.record import EVERYONE, Decider, Measured


def completed_totals(rows: Rows, features: Floats, seed: int) -> Floats:
    """[1 + K, E] totals of episodes; what a cut record does not show is predicted by a linear Q of who decided."""
    found = rows.totals.copy()
    cut = ~rows.complete
    if not cut.any():
        return found
    logged = np.eye(rows.actions)[rows.log.action]
    problem = Problem(rows.log, logged, np.ones(len(rows)), False, features, rows.discount, seed)
    last = np.r_[rows.starts[1:], len(rows)][cut] - 1
    weight = rows.discount ** rows.log.step[last]
    names = ["reward", *rows.names]
    for j, name in enumerate(names):
        q = q_values(problem, name)[last, rows.log.action[last]]
        found[j, cut] += weight * (rows.sense[j] * q - rows.signals[j][last])
    return found


def view(rows: Rows, totals: Floats, limits: Sequence[Limit], factor: float) -> list[Decider]:
    """All episodes together, then each decider."""
    every = np.ones(len(rows.starts), bool)
    found = [_decider(EVERYONE, rows, totals, every, limits, factor)]
    for place, name in enumerate(rows.log.deciders):
        own = decided_by(rows, place)
        if own.any():
            found.append(_decider(name, rows, totals, own, limits, factor))
    return found


def _decider(name: str, rows: Rows, totals: Floats, own: Flags, limits: Sequence[Limit], factor: float) -> Decider:
    names = ["reward", *rows.names]
    means = {signal: mean_of(factor * rows.sense[j] * totals[j][own]) for j, signal in enumerate(names)}
    whole = own & rows.complete
    inside = rows.totals[1:, whole] <= rows.limits[:, None]
    verdicts = [_within(means[one.name], one) for one in limits]
    satisfied = "no" if "no" in verdicts else "unclear" if "unclear" in verdicts else "yes"
    return Decider(
        name=name,
        episodes=int(own.sum()),
        cut_short=int((own & ~rows.complete).sum()),
        means=means,
        within={str(one): share_of(row) for one, row in zip(limits, inside, strict=True)},
        satisfied=satisfied,  # type: ignore[arg-type]  # one of the three words
    )


def _within(mean: Measured, limit: Limit) -> str:
    if mean.interval is None:
        return "unclear"
    low, high = sorted(limit.sign * x for x in mean.interval)
    bound = limit.sign * limit.value
    return "yes" if low >= bound else "no" if high < bound else "unclear"


def mean_of(values: Floats) -> Measured:
    """With Student's interval."""
    if len(values) < 2:
        return Measured(value=float(values.mean()), interval=None)
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Measured(value=float(values.mean()), interval=(float(values.mean()) - half, float(values.mean()) + half))


def share_of(inside: Flags) -> Measured:
    """With the exact interval of Clopper and Pearson."""
    n, k = len(inside), int(inside.sum())
    if n == 0:
        return Measured(value=0.0, interval=None)
    tail = (1 - LEVEL) / 2
    low = float(scipy.special.betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(scipy.special.betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return Measured(value=k / n, interval=(low, high))
