"""Ridge and logistic regression on features, in closed form and by Newton's method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from pdocrl.ope.log import Array

FLAT = 1e-6  # least curvature p(1 − p) of a row, so that a separable problem keeps a Hessian
STEEPEST = 30.0  # logits beyond ± this are certain


def gram(phi: Array, ridge: float) -> Any:
    """ΦᵀΦ/n + ρI as a Cholesky factor; ρ = ridge · mean of the diagonal."""
    wide = np.asarray(phi, np.float64)  # in float32 rounding would be larger than the ridge
    matrix = wide.T @ wide / len(wide)
    return cho_factor(matrix + ridge * np.trace(matrix) / len(matrix) * np.eye(len(matrix)))


def solve(factor: Any, phi: Array, target: Array) -> NDArray[np.float64]:
    """θ [d, m] of the ridge fit of target [n, m]."""
    found: NDArray[np.float64] = cho_solve(factor, (phi.T @ target).astype(np.float64) / len(phi))
    return found


def smoother(factor: Any, phi: Array) -> NDArray[np.float64]:
    """A [d, n] that turns any target [n] into its ridge fit's θ."""
    found: NDArray[np.float64] = cho_solve(factor, np.asarray(phi.T, np.float64)) / len(phi)
    return found


def logistic(
    phi: Array, target: Array, ridge: float, start: Array | None = None, steps: int = 15
) -> NDArray[np.float64]:
    """θ [d] of P(target = 1) = σ(φ·θ) by Newton steps, halved while they make the loss worse."""
    phi = np.asarray(phi, np.float64)
    theta = np.zeros(phi.shape[1]) if start is None else np.asarray(start, np.float64)
    eye = np.eye(phi.shape[1])

    def look(theta: NDArray[np.float64]) -> tuple[float, Array]:
        logit = np.clip(phi @ theta, -STEEPEST, STEEPEST)
        loss = np.logaddexp(0, logit).mean() - (target * logit).mean() + ridge / 2 * theta @ theta
        return float(loss), 1 / (1 + np.exp(-logit))

    loss, p = look(theta)
    for _ in range(steps):
        curvature = np.maximum(p * (1 - p), FLAT)
        hessian = phi.T @ (phi * curvature[:, None]) / len(phi) + ridge * eye
        gradient = phi.T @ (p - target) / len(phi) + ridge * theta
        step = cho_solve(cho_factor(hessian), gradient)
        for halvings in range(6):
            trial = theta - step / 2**halvings
            better, p_trial = look(trial)
            if better < loss:
                break
        else:
            return theta
        improved = loss - better
        theta, loss, p = trial, better, p_trial
        if improved < 1e-5 * max(loss, 1e-3):
            break
    return theta
