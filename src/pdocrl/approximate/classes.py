"""Function classes for w and Q on the distinct states of a log: linear in a basis, coefficients in a convex set.

    F = {f_θ(x, a) = Σ_k θ_k b_k(x, a) : θ ∈ Θ}         Θ a box (features), or the simplex (the hull of finitely many)

L̂ is linear in f, so all the algorithm and its certificate ask of a class are f_θ, the adjoint of θ ↦ f_θ, and the
support function of Θ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pdocrl.approximate.features import Matrix
from pdocrl.errors import PdocrlError

Floats = NDArray[np.float64]


class Basis(Protocol):
    """b_1 … b_D on X states and A actions."""

    size: int

    def values(self, theta: Floats) -> Floats:
        """Σ_k θ_k b_k [X, A]."""
        ...

    def moments(self, mass: Floats) -> Floats:
        """⟨mass, b_k⟩ [D] for mass [X, A]: the adjoint of `values`."""
        ...

    def matrix(self) -> Matrix:
        """[X·A, D] sparse."""
        ...

    def expected(self, pi: Floats) -> Matrix:
        """Σ_a π(a|x) b_k(x, a) [X, D]."""
        ...

    def gram(self, mass: Floats) -> Floats:
        """Σ_{x,a} mass(x, a) b(x, a) b(x, a)ᵀ [D, D]."""
        ...


class StateBasis:
    """Features of states, with coefficients of their own for each action: b_{kA+a}(x, a′) = φ_k(x) 1{a = a′}."""

    def __init__(self, phi: Matrix, n_actions: int) -> None:
        self.phi, self.A = phi, n_actions
        self.size = phi.shape[1] * n_actions

    def values(self, theta: Floats) -> Floats:
        return np.asarray(self.phi @ theta.reshape(-1, self.A))

    def moments(self, mass: Floats) -> Floats:
        return np.asarray(self.phi.T @ mass).ravel()

    def matrix(self) -> Matrix:
        return sp.csr_array(sp.kron(sp.csr_array(self.phi), sp.eye_array(self.A), format="csr"))

    def expected(self, pi: Floats) -> Matrix:
        if sp.issparse(self.phi):
            return _spread(pi) @ self.matrix()
        return (self.phi[:, :, None] * pi[:, None, :]).reshape(len(pi), self.size)

    def gram(self, mass: Floats) -> Floats:
        d = self.phi.shape[1]
        found = np.zeros((d, self.A, d, self.A))
        for a in range(self.A):
            block = self.phi.T @ (mass[:, a, None] * self.phi)
            found[:, a, :, a] = block.toarray() if sp.issparse(block) else block
        return found.reshape(self.size, self.size)


class PairBasis:
    """Any functions of state and action, given by their values."""

    def __init__(self, functions: Matrix, n_actions: int) -> None:
        self.functions, self.A = functions, n_actions  # [X·A, D]
        self.size = functions.shape[1]

    @classmethod
    def of(cls, members: Sequence[Floats]) -> PairBasis:
        """Of D functions [X, A]."""
        return cls(np.stack([np.ravel(member) for member in members], axis=1), members[0].shape[1])

    def values(self, theta: Floats) -> Floats:
        return np.asarray(self.functions @ theta).reshape(-1, self.A)

    def moments(self, mass: Floats) -> Floats:
        return np.asarray(self.functions.T @ mass.ravel())

    def matrix(self) -> Matrix:
        return sp.csr_array(self.functions)

    def expected(self, pi: Floats) -> Matrix:
        return _spread(pi) @ self.functions

    def gram(self, mass: Floats) -> Floats:
        found = self.functions.T @ (mass.reshape(-1, 1) * self.functions)
        return np.asarray(found.toarray() if sp.issparse(found) else found)


@dataclasses.dataclass(frozen=True, eq=False)
class Box:
    """low ≤ θ ≤ high."""

    low: Floats  # [D]
    high: Floats  # [D]

    def __post_init__(self) -> None:
        if not np.all(self.low <= self.high):
            raise PdocrlError("a box of coefficients has a lower bound above its upper one.")

    def support(self, gradient: Floats) -> float:
        """max_θ ⟨gradient, θ⟩: the sign of each coordinate decides."""
        return float(np.where(gradient > 0, self.high, self.low) @ gradient)

    def violation(self, theta: Floats) -> float:
        """How far outside θ is."""
        return float(max((self.low - theta).max(initial=0), (theta - self.high).max(initial=0)))


@dataclasses.dataclass(frozen=True, eq=False)
class Simplex:
    """θ ≥ 0, Σθ = 1: mixtures of the members of a finite class, over which linear functions have the same extremes."""

    size: int

    def support(self, gradient: Floats) -> float:
        """max_θ ⟨gradient, θ⟩: the best member."""
        return float(gradient.max())

    def violation(self, theta: Floats) -> float:
        return float(max(-theta.min(), abs(theta.sum() - 1)))


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionClass:
    """{f_θ : θ ∈ Θ} on the distinct states of a log."""

    basis: Basis
    coefficients: Box | Simplex

    @classmethod
    def box(cls, basis: Basis, low: float | Floats, high: float | Floats) -> FunctionClass:
        """With the same bounds, or bounds of their own, for all coefficients."""
        return cls(basis, Box(*(np.broadcast_to(np.asarray(x, np.float64), (basis.size,)) for x in (low, high))))

    @classmethod
    def finite(cls, members: Sequence[Floats]) -> FunctionClass:
        """The hull of functions [X, A]."""
        return cls(PairBasis.of(members), Simplex(len(members)))

    @property
    def size(self) -> int:
        return self.basis.size

    def __call__(self, theta: Floats) -> Floats:
        """f_θ [X, A]."""
        return self.basis.values(theta)

    def maximum(self, mass: Floats) -> float:
        """max_f ⟨mass, f⟩ for mass [X, A]."""
        return self.coefficients.support(self.basis.moments(mass))

    def minimum(self, mass: Floats) -> float:
        return -self.coefficients.support(-self.basis.moments(mass))

    @cached_property
    def nonnegative(self) -> bool:
        """Whether every member is: b ≥ 0 and θ ≥ 0."""
        smallest = self.basis.phi if isinstance(self.basis, StateBasis) else self.basis.matrix()
        least = smallest.min() if smallest.shape[0] else 0.0
        positive = isinstance(self.coefficients, Simplex) or bool((self.coefficients.low >= 0).all())
        return bool(least >= 0) and positive


def _spread(pi: Floats) -> sp.csr_array:
    """[X, X·A] that takes functions of pairs to their means under π."""
    X, A = pi.shape
    return sp.csr_array((pi.ravel(), np.arange(X * A), np.arange(0, X * A + 1, A)), shape=(X, X * A))
