"""The empirical saddle problem over function classes, max_{w ∈ W, π} min_{Q ∈ 𝒬, λ ∈ BΔ} L̂(w, π; Q, λ).

A log of vectors is a table of its distinct states: L̂ needs f(x, a) only there. So the Lagrangian is the tabular one,
with X distinct states in place of S, and what makes the problem another is that w and Q are not free at each of them.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.approximate.classes import FunctionClass
from pdocrl.errors import PdocrlError
from pdocrl.tabular.solvers.lagrangian import Lagrangian

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """Who plays where. π is any policy, or one of finitely many."""

    L: Lagrangian
    W: FunctionClass
    Q: FunctionClass
    B: float  # λ ≥ 0, Σλ ≤ B
    policies: Floats | None = None  # [K, X, A] Π, if not all policies

    def __post_init__(self) -> None:
        if not self.W.nonnegative:
            raise PdocrlError("the class of w has negative members: take features ≥ 0 and coefficients ≥ 0.")

    def mu(self, theta_w: Floats) -> Floats:
        """w·μ_D [X, A]."""
        return self.W(theta_w) * self.L.mu_D

    def nu(self, mu: Floats, pi: Floats) -> Floats:
        """π·inflow(μ) [X, A]."""
        return np.asarray(pi * self.L.inflow(mu)[:, None])


class Saddle(NamedTuple):
    """A pair of points, or averages of plays."""

    theta_w: Floats  # [D_w]
    nu: Floats  # [X, A] π·inflow(w·μ_D)
    theta_Q: Floats  # [D_Q]
    lam: Floats  # [I]
