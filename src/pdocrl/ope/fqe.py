"""Fitted Q evaluation over a finite horizon: the value of h + 1 steps to go is fitted to one signal and h steps' value.

    Q₀ = 0,   Q_{h+1}(s, a) = ridge fit of  y + Q_h(s′, π(s′)),   J = E_{s₀} Q_H(s₀, π(s₀))

Neither the world nor the policy knows the time, so the steps to go are an index, not an input: one factorised system,
H cheap fits, nothing discounted. Values are kept within h times the signal's range in the data: a linear fit at
actions the data lacks may grow at every step, and does.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.linear import Followed
from pdocrl.ope.log import Array
from pdocrl.ope.result import Floats


def backward(followed: Followed, horizon: int) -> tuple[Floats, Array, Array]:
    """Value of every start [E, 1 + K], θ of 1 … H steps to go [H, d, 1 + K], Q_h(s′, π(s′)) of 0 … H − 1 [H, n, 1 + K].

    The last two are what the residuals of the fits are made of.
    """
    system = followed.system
    y = system.log.signal.astype(system.phi.dtype)
    low, high = np.minimum(y.min(axis=0), 0), np.maximum(y.max(axis=0), 0)
    thetas, nexts = [], []
    theta = np.zeros((system.phi.shape[1], y.shape[1]), y.dtype)
    for h in range(horizon):
        following = np.clip(followed.phi_next @ theta, h * low, h * high)
        theta = system.fit @ (y + following)
        thetas.append(theta)
        nexts.append(following)
    value = np.clip(followed.phi_start @ theta, horizon * low, horizon * high)
    return value.astype(np.float64), np.stack(thetas), np.stack(nexts)
