"""The distribution of episode totals under a policy, by weighted episodes: shares, quantiles, CVaR.

    F̂(t) = Σ_e w_e 1{C_e ≤ t}/Σ_e w_e,   w_e = Π_t π/b,   C_e the undiscounted total of the episode

Chandak and others, "Universal off-policy evaluation", 2021. Influence values, by the delta method:

    share    p = F̂ mean of 1{C > t}            ψ_e = p + (w_e/w̄)(1{C_e > t} − p)
    CVaR     v = t + E[(C − t)₊]/(1 − α)        ψ_e = v + (w_e/w̄)(t + (C_e − t)₊/(1 − α) − v),   t the α-quantile

Long episodes have the largest weights and the largest costs. Where a log happens to lack them, the interval of these
values is too low and too narrow; but then the weights' own mean, which is 1 in expectation, falls short of it:

    E_π[y] = ȳ − E_b[w (ȳ − y)] ≤ ȳ − L,   ȳ the largest y, L a lower bound of the mean of w (ȳ − y) ≥ 0

and a lower bound of nonnegative values with a long right tail errs on the safe side (`complement`).
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from pdocrl.limits import Limit
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, effective_size, self_normalised, summarise
from pdocrl.ope.result import CostDistribution

NAME = "weighted episodes"


def totals(problem: Problem, cost: str) -> Floats:
    """[E] undiscounted."""
    return problem.log.totals(problem.log.signals[cost])


def contributions(problem: Problem, limit: Limit) -> Floats:
    """[E] y whose weighted mean is what is limited; of a CVaR at the quantile as it is estimated."""
    if limit.measure == "mean":
        return problem.log.totals(problem.log.signals[limit.name], problem.discount)
    c = totals(problem, limit.name)
    if limit.threshold is not None:
        return np.asarray(c > limit.threshold, np.float64)
    if limit.level is not None:
        t = quantile(c, problem.weights[:, -1], limit.level)
        return np.asarray(t + np.maximum(c - t, 0) / (1 - limit.level), np.float64)
    largest = np.zeros(problem.episodes)
    np.maximum.at(largest, problem.log.episode, problem.log.signals[limit.name])
    return largest


def tail(problem: Problem, limit: Limit) -> Estimate:
    """What an exceedance or CVaR limit is on."""
    weights = problem.weights[:, -1]
    influence = self_normalised(weights[:, None], contributions(problem, limit)[:, None]) if weights.any() else None
    return summarise(problem, NAME, limit.left, influence, weights)


def complement(problem: Problem, limit: Limit) -> tuple[float, float]:
    """A one-sided bound of a tail at the problem's level, on the side of the limit, and its p-value.

    The largest y of a share is 1; of a CVaR it is that of the largest logged total.
    """
    y, w = contributions(problem, limit), problem.weights[:, -1]
    upper = limit.sense == "<="
    share = limit.measure == "exceedance"
    end = (1.0 if share else float(y.max())) if upper else (0.0 if share else float(y.min()))
    gain = w * np.abs(end - y)
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    freedom = max(effective_size(w) - 1, 1.0)
    least = max(float(gain.mean()) - float(stats.t.ppf(problem.level, freedom)) * error, 0.0)
    needed = end - limit.value if upper else limit.value - end
    room = float(gain.mean()) - needed
    p = float(stats.t.sf(room / error, freedom)) if error > 0 else float(room < 0)
    return float(end - least if upper else end + least), 0.0 if needed <= 0 else p


def quantile(c: Floats, weights: Floats, level: float) -> float:
    """The least total at which the weighted distribution reaches `level`."""
    order = np.argsort(c)
    share = np.cumsum(weights[order])
    return float(c[order][min(int(np.searchsorted(share, level * share[-1] * (1 - 1e-12))), len(c) - 1)])


def distribution(problem: Problem, cost: str) -> CostDistribution | None:
    """Median, quantiles and CVaR of a cost; None without overlap."""
    c, weights = totals(problem, cost), problem.weights[:, -1]
    if not weights.any():
        return None
    return CostDistribution(
        cost=cost,
        median=quantile(c, weights, 0.5),
        q90=quantile(c, weights, 0.9),
        q95=quantile(c, weights, 0.95),
        cvar90=Limit(cost, 0.0, "<=", "cvar", level=0.9).of(c, weights),
    )
