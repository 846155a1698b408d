"""Ridge regression on features, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from pdocrl.ope.log import Array


def gram(phi: Array, ridge: float) -> Any:
    """ΦᵀΦ/n + ρI as a Cholesky factor; ρ = ridge · mean of the diagonal."""
    wide = np.asarray(phi, np.float64)  # in float32 rounding would be larger than the ridge
    matrix = wide.T @ wide / len(wide)
    return cho_factor(matrix + ridge * np.trace(matrix) / len(matrix) * np.eye(len(matrix)))


def smoother(factor: Any, phi: Array) -> NDArray[np.float64]:
    """A [d, n] that turns any target [n] into its ridge fit's θ."""
    found: NDArray[np.float64] = cho_solve(factor, np.asarray(phi.T, np.float64)) / len(phi)
    return found
