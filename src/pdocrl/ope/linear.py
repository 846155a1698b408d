"""One linear system behind two estimators: fitted Q evaluation reads it backwards, the density ratio forwards.

With features φ(s, a), rows of the log Φ [n, d], and Φ′ the features of (s′, π(s′)), 0 after a terminal:

    A  = (ΦᵀΦ/n + ρI)⁻¹ Φᵀ/n           θ = A y is the ridge fit of y
    Q  θ_{h+1} = A (y + Φ′θ_h)           value of h + 1 steps to go, see `fqe`
    w  w_t = m_t A,  m_{t+1} = w_t Φ′     weights of the rows after t steps, see `ratio`

so that m₀·θ_H = Σ_t w_t·y: what the two estimate is the same number as long as neither has to be kept within bounds.
It is the paper's Lagrangian with μ = ν: Q is the multiplier of the flow constraint that w has to meet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from pdocrl.ope import regression
from pdocrl.ope.log import Array, Log

Act = Callable[[Array], Array]  # obs [B, S] → action [B, A]
Features = Callable[[Array], Array]  # pairs [B, S + A] → φ [B, d]

RIDGE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """What does not depend on the policy."""

    log: Log
    features: Features
    phi: Array  # [n, d] Φ
    fit: Array  # [d, n] A

    @staticmethod
    def of(log: Log, features: Features, ridge: float = RIDGE) -> System:
        phi = features(log.pairs)
        return System(log, features, phi, regression.smoother(regression.gram(phi, ridge), phi).astype(phi.dtype))


@dataclasses.dataclass(frozen=True, eq=False)
class Followed:
    """A system under one policy."""

    system: System
    phi_next: Array  # [n, d] Φ′
    phi_start: Array  # [E, d] of (s₀, π(s₀))

    @staticmethod
    def of(system: System, act: Act) -> Followed:
        log = system.log

        def phi(obs: Array) -> Array:
            return system.features(np.concatenate([obs, act(obs)], axis=1))

        return Followed(system, phi(log.next_obs) * log.not_done[:, None], phi(log.start))
