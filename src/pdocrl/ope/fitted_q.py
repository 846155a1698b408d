"""Fitted Q evaluation for continuous actions over a finite horizon: the direct method, beside the dynamics ensemble.

    Q₀ = 0,   Q_{h+1}(s, a) = ridge fit of  y + Q_h(s′, π(s′)),   v = mean_e Q_H(s_e0, π(s_e0))

on random features φ(s, a). The steps to go are an index, not an input: one factorised system, H cheap fits, nothing
discounted. Values are kept within h times the signal's range in the data: a linear fit at actions the data lacks may
grow at every step. The error of the regression is in no interval, so none is given. Le, Voloshin and Yue, "Batch policy
learning under constraints", 2019.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pdocrl.ope import regression
from pdocrl.ope.features import RandomFeatures
from pdocrl.ope.log import Array, Log

Act = Callable[[Array], Array]  # obs [B, S] → action [B, A]

ROWS, FEATURES = 4_000, 200  # at most; the cost per policy is rows × features × horizon
LENGTHS = (2.0, 8.0)  # length scales
RIDGE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """What does not depend on the policy."""

    log: Log
    features: Callable[[Array], Array]  # pairs [B, S + A] → φ [B, d]
    fit: Array  # [d, n] (ΦᵀΦ/n + ρI)⁻¹ Φᵀ/n: θ of the ridge fit of any y [n]

    @staticmethod
    def of(log: Log, features: Callable[[Array], Array], ridge: float = RIDGE) -> System:
        phi = features(log.pairs)
        return System(log, features, regression.smoother(regression.gram(phi, ridge), phi).astype(phi.dtype))

    @staticmethod
    def drawn(log: Log, rng: np.random.Generator) -> System:
        """On some of the rows, with random features."""
        thinned = log.thin(ROWS, rng)
        return System.of(thinned, RandomFeatures.draw(thinned.pairs, FEATURES, LENGTHS, rng))

    def values(self, act: Act, horizon: int) -> NDArray[np.float64]:
        """[1 + K] of a policy over so many steps, from the starts of the log."""

        def phi(obs: Array) -> Array:
            return self.features(np.concatenate([obs, act(obs)], axis=1))

        after = phi(self.log.next_obs) * self.log.not_done[:, None]
        y = self.log.signal.astype(self.fit.dtype)
        low, high = np.minimum(y.min(axis=0), 0), np.maximum(y.max(axis=0), 0)
        theta = np.zeros((len(self.fit), y.shape[1]), y.dtype)
        for h in range(horizon):
            theta = self.fit @ (y + np.clip(after @ theta, h * low, h * high))
        starts = np.clip(phi(self.log.start) @ theta, horizon * low, horizon * high)
        return np.asarray(starts.mean(axis=0), np.float64)
