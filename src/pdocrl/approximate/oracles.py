"""The oracles of Algorithm 1 for classes with a basis, as players on coefficients. Small and interchangeable.

OLO    online linear optimisation for w     gradient ascent on a box, Hedge on a simplex; optimistic ones
PO     policy optimisation over softmax π   SoftmaxPolicies: logits are sums of past Q_t, so linear in Q's basis
LMO    linear minimisation for Q            the better end of each coefficient, the best member
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdocrl.approximate.classes import Basis, Box, FunctionClass, Simplex
from pdocrl.tabular.solvers.algorithms import (
    GreedyBox,
    Hedge,
    OptimisticBox,
    OptimisticSimplex,
    Oracle,
    ProjectedGradient,
    Steps,
)

Floats = NDArray[np.float64]
Algorithm = Literal["pdocrl", "optimistic"]


class GreedySimplex:
    """The linear oracle of a finite class: all weight on the best member."""

    def __init__(self, size: int) -> None:
        self.play = np.full(size, 1 / size)

    def respond(self, utility: Floats) -> Floats:
        self.play = np.zeros_like(utility)
        self.play[utility.argmax()] = 1.0
        return self.play


class SoftmaxPolicies:
    """π_t(a|x) ∝ exp Σ_{τ<t} α Q_τ(x, a): the paper's PO, natural policy gradient, at every state at once.

    Q_τ is linear in a basis, and so are the logits: `theta` holds them for states outside the log too. `optimistic`
    counts the last Q twice, and lets α fall with the variation of Q that this did not foresee.
    """

    def __init__(self, basis: Basis, n_states: int, n_actions: int, step: Steps | None, scale: float = 1.0) -> None:
        self.basis, self.step, self.scale = basis, step, scale
        self.total = self.last = self.theta = np.zeros(basis.size)
        self.last_Q = np.zeros((n_states, n_actions))
        self.surprise, self.t = 0.0, 0
        self.play = np.full((n_states, n_actions), 1 / n_actions)

    def respond(self, theta_Q: Floats) -> Floats:
        self.t += 1
        if self.step is not None:
            self.theta = self.theta + self.step(self.t) * theta_Q
        else:
            Q = self.basis.values(theta_Q)
            self.surprise += float(np.abs(Q - self.last_Q).max()) ** 2
            self.total, self.last_Q = self.total + theta_Q, Q
            alpha = self.scale / np.sqrt(self.surprise) if self.surprise else 0.0
            self.theta = alpha * (self.total + theta_Q)
        self.play = softmax(self.basis.values(self.theta))
        return self.play


def ascent(F: FunctionClass, step: Steps, start: Floats) -> Oracle:
    """The paper's OLO_W: projected gradient on a box (Appendix D.2), Hedge on a simplex."""
    match F.coefficients:
        case Box(low, high):
            return ProjectedGradient(np.clip(start, low, high), low, high, step)
        case Simplex(size):
            return Hedge((size,), step)


def optimistic(F: FunctionClass) -> Oracle:
    """Optimistic gradient ascent, nothing to tune."""
    match F.coefficients:
        case Box(low, high):
            return OptimisticBox((F.size,), low, high)
        case Simplex(size):
            return OptimisticSimplex((size,))


def greedy(F: FunctionClass) -> Oracle:
    """LMO_Q."""
    match F.coefficients:
        case Box(low, high):
            return GreedyBox((F.size,), low, high)
        case Simplex(size):
            return GreedySimplex(size)


def softmax(logits: Floats) -> Floats:
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=-1, keepdims=True))
