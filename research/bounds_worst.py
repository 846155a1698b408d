"""The worst a log leaves possible for a given policy: over all models near it, or over none (distribution-free).

Both stand beside `bounds.delta`, which they agree with as the log grows: the ball keeps what the straight line of the
delta method loses in short logs, the closed form needs no variance and is the widest.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from pdocrl.tabular.cmdp import occupancy, solve_linear, transition_matrix
from pdocrl.tabular.counts import Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate, score, spread_of_episodes

ROUNDS = 25
SETTLED = 1e-6  # of the change that the first round made
LARGEST_RADIUS = 100.0  # of the ball, where χ² would have 2


def chi2_ball(estimate: PolicyEstimate, level: float = 0.95) -> Floats:
    """[1+K, 2] min and max of J over logs reweighted by q: Σ_rows (q − 1)² ≤ ρ², Σ_{rows of (s,a)} q = n(s,a).

    The paper's Lagrangian once more, with nature choosing the log (CoinDICE, Dai et al., 2020). J's slope in q is
    (μ^π/n)(x + γV(s′) − Q), so that the worst q for a straight J is 1 ± ρ·slope/|slope|; going there, taking the slope
    anew and going again ends at a stationary point of the true, curved J. q is at least 0.

    ρ² = χ²₁(level) holds for long logs alone: few rows of a pair hide its variance, rows of an episode are not
    independent, and what never happened has no row to weigh. So ρ is such that a straight J would move as far as the
    interval of `bounds.clustered` goes, for the χ² quantile and more.
    """
    z = float(norm.ppf((1 + level) / 2))
    ends = np.empty((len(estimate.counts.mean), 2))
    for high in (False, True):
        variance, jump = spread_of_episodes(estimate, high, level)
        reach = np.abs(score(np.zeros_like(jump), variance, jump, z, high))
        ends[:, int(high)] = [_tilted(estimate, k, float(far), high) for k, far in enumerate(reach)]
    return estimate.possible(ends)


def _tilted(estimate: PolicyEstimate, k: int, reach: float, high: bool) -> float:
    """J of signal k in the worst (or best) model of the ball that would move a straight J by `reach`."""
    c, gamma = estimate.counts, estimate.gamma
    n = np.maximum(c.n.ravel(), 1)
    sign = 1.0 if high else -1.0
    beyond = estimate.beyond[k, int(high)] * (estimate.pi * (c.n == 0)).sum(axis=1)
    q, x, values = np.ones(len(c.count)), c.mean[k], [float(estimate.estimate[k, int(high)])]
    radius = 0.0
    for _ in range(ROUNDS):
        model = estimate.model.replace(P=c.chances(c.count * q / n[c.pair]))
        step = np.bincount(c.pair, weights=c.count * q * x / n[c.pair], minlength=len(n)).reshape(c.shape)
        V = solve_linear(transition_matrix(model, estimate.pi), (estimate.pi * step).sum(axis=1) + beyond, gamma)
        values.append(float((1 - gamma) * V @ c.d0))
        if len(values) > 3 and abs(values[-1] - values[-2]) <= SETTLED * abs(values[2] - values[1]):
            break
        row = (occupancy(model, estimate.pi).ravel() / n)[c.pair]
        after = c.mean[k] + gamma * c.ahead(V)
        slope = row * (after - (np.bincount(c.pair, weights=c.count * after, minlength=len(n)) / n)[c.pair])
        within = row * np.sqrt(c.variance[k])  # rows of one transition differ too, by what it paid
        size = np.sqrt((c.count * (slope**2 + within**2)).sum())
        if size * LARGEST_RADIUS <= reach:  # rows hardly differ: no weights move J so far
            return values[0] + sign * reach
        radius = radius or reach / size
        q = np.maximum(1 + sign * radius * slope / size, 0)
        q *= (n / np.maximum(np.bincount(c.pair, weights=c.count * q, minlength=len(n)), 1e-300))[c.pair]
        x = c.mean[k] + sign * radius * row * c.variance[k] / size
    return values[-1]


def pessimistic(estimate: PolicyEstimate, level: float = 0.95) -> Floats:
    """⟨μ^π, x̂⟩ ± √ε √(Σ (μ^π)²/n), √ε = H √(½ log(2/(1−level))): Hoeffding's inequality over rows, no variance needed.

    H is the range of x + γV(s′), from the largest signals and the values of the log's states. It is the penalty under
    which a pessimistic program maximises over policies; here the policy is given.
    """
    ends = []
    mu, n = estimate.mu.ravel(), np.maximum(estimate.counts.n.ravel(), 1)
    weight = np.sqrt(0.5 * np.log(2 / (1 - level)) * (mu**2 / n).sum())
    for high in (False, True):
        V = np.pad(estimate.values[int(high)], ((0, 0), (0, 1)))
        reach = np.ptp(estimate.span, axis=1) + estimate.gamma * np.ptp(V, axis=1)
        begun = estimate.counts.starts.sum()
        start = (1 - estimate.gamma) ** 2 * np.ptp(V[:, :-1], axis=1) ** 2 / begun if begun >= 2 else 0.0
        width = np.sqrt((reach * weight) ** 2 + 0.5 * np.log(2 / (1 - level)) * start)
        ends.append(estimate.estimate[:, int(high)] + (width if high else -width))
    return estimate.possible(np.stack(ends, axis=1))
