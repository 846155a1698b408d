"""The density ratio of a policy: how much each row of the log weighs in an episode of H steps.

    m₀ = E_{s₀} φ(s₀, π(s₀)),   w_t = m_t A,   m_{t+1} = w_t Φ′

w_t·y is then the expected signal of step t, and w_t adds up to the share of episodes still going on. At actions the
data lacks, weights of either sign would grow at every step; so they are drawn towards equal weights as soon as fewer
than `FEWEST` rows would carry the estimate. The paper bounds w for the same reason: 0 ≤ w ≤ C.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.linear import Followed
from pdocrl.ope.log import Array

FEWEST = 10.0  # least effective sample size of a step's weights


def forward(followed: Followed, horizon: int) -> Array:
    """Weights w [H, n] of the log's rows at steps 0 … H − 1."""
    system, not_done = followed.system, followed.system.log.not_done
    mean, going = followed.phi_start.mean(axis=0), 1.0
    weights = np.zeros((horizon, len(system.log)), system.phi.dtype)
    for t in range(horizon):
        w = mean @ system.fit
        total = float(w.sum())
        if total <= 0 or going <= 0:  # the policy goes where no row is, or every episode has ended
            break
        weights[t] = going * _bounded(w / total)
        mean, going = weights[t] @ followed.phi_next, float(weights[t] @ not_done)
    return weights


def _bounded(w: Array) -> Array:
    """Weights that add up to one, as near to w as `FEWEST` allows."""
    equal = 1 / len(w)
    spread, allowed = float(((w - equal) ** 2).sum()), max(1 / FEWEST - equal, 0.0)
    return w if spread <= allowed else equal + (w - equal) * (allowed / spread) ** 0.5


def effective_sample_size(weights: Array) -> float:
    """(Σw)²/Σw² of the rows' weights summed over time: as many rows of equal weight would say as much.

    A density is not negative; what is below 0 does not count.
    """
    w = np.maximum(weights.sum(axis=0, dtype=np.float64), 0)
    squares = float((w * w).sum())
    return float(w.sum() ** 2 / squares) if squares > 0 else 0.0
