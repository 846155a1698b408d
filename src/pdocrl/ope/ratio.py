"""The density ratio of a policy: how much each row of the log weighs in an episode of H steps.

    m₀ = E_{s₀} φ(s₀, π(s₀)),   w_t = [m_t A]₊ / Σ,   m_{t+1} = w_t Φ′

w_t·y is then the expected signal of step t. Weights are kept at 0 or above (a density is), and add up to the share of
episodes that are still going on; so no estimate leaves the range of what was recorded.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.linear import Followed
from pdocrl.ope.log import Array


def forward(followed: Followed, horizon: int) -> Array:
    """Weights w [H, n] of the log's rows at steps 0 … H − 1."""
    system, alive = followed.system, followed.system.log.alive
    mean, going = followed.phi_start.mean(axis=0), 1.0
    weights = np.zeros((horizon, len(system.log)), system.phi.dtype)
    for t in range(horizon):
        w = np.maximum(mean @ system.fit, 0)
        total = w.sum()
        if total <= 0 or going <= 0:  # the policy goes where no row is: nothing is known from here on
            break
        weights[t] = w * (going / total)
        mean, going = weights[t] @ followed.phi_next, float(weights[t] @ alive)
    return weights


def effective_sample_size(weights: Array) -> float:
    """(Σw)²/Σw² of the rows' weights summed over time: as many rows of equal weight would say as much."""
    w = weights.sum(axis=0, dtype=np.float64)
    squares = float((w * w).sum())
    return float(w.sum() ** 2 / squares) if squares > 0 else 0.0
