"""How the two linear estimates vary from log to log, to first order and without a single refit.

Counting an episode n_e times instead of once changes the estimate by Σ_e (n_e − 1) ψ_e, where

    ψ_e = (V(s₀) − J)/E + Σ_{i ∈ e} Σ_t w_t(i) (y_i + Q_{H−t−1}(s′_i, π) − Q_{H−t}(s_i, a_i))

is the episode's influence: its start, and how much its rows weigh times how badly the value fits them.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope import fqe, ratio
from pdocrl.ope.linear import Followed
from pdocrl.ope.log import Array
from pdocrl.ope.result import Estimate, Floats

REDRAWS = 1000


def estimates(followed: Followed, horizon: int, rng: np.random.Generator) -> tuple[dict[str, Estimate], float]:
    """Both estimates of one policy with their redrawn values, and the effective sample size in rows."""
    value, theta, following = fqe.backward(followed, horizon)
    weights = ratio.forward(followed, horizon)
    y = followed.system.log.signal.astype(np.float64)
    psi = influence(followed, value, theta, following, weights)
    episodes = len(psi)
    times = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=REDRAWS) - 1.0
    change = times @ psi  # [B, 1 + K]
    found = {"fqe": value.mean(axis=0), "ratio": weights.sum(axis=0, dtype=np.float64) @ y}
    return {name: Estimate(own, own + change) for name, own in found.items()}, ratio.effective_sample_size(weights)


def influence(followed: Followed, value: Floats, theta: Array, following: Array, weights: Array) -> Floats:
    """ψ [E, 1 + K]."""
    system = followed.system
    log, (horizon, features, signals) = system.log, theta.shape
    flat = theta.transpose(1, 0, 2).reshape(features, horizon * signals)
    fitted = (system.phi @ flat).reshape(len(log), horizon, signals)
    residual = log.signal[:, None] + following.transpose(1, 0, 2) - fitted  # of 1 … H steps to go
    weighted = np.einsum("ti,itk->ik", weights[::-1], residual)
    start = (value - value.mean(axis=0)) / len(value)
    psi: Floats = start + np.stack(
        [np.bincount(log.episode, weighted[:, k], minlength=len(value)) for k in range(signals)], axis=1
    )
    return psi
