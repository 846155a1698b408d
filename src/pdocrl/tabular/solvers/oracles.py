"""The players' oracles. Each is told the utility of its last play, coordinate by coordinate, and answers with its next.

    OLO    online linear optimisation for w ∈ [0, C]    ProjectedGradient (the paper), RegretMatchingBox, OptimisticBox
    PO     policy optimisation, a simplex per state     Hedge (the paper), RegretMatching, OptimisticSimplex
    LMO    linear minimisation for Q and λ              GreedyBox, GreedyMultipliers (the paper)

Utilities are to be maximised; minimising players are told the negative gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pdocrl.tabular.solvers.lagrangian import Floats

Steps = Callable[[int], float]

TINY = np.finfo(np.float64).tiny


class Oracle(Protocol):
    """`play` is the current play; `respond` updates it."""

    play: Floats

    def respond(self, utility: Floats) -> Floats: ...


class ProjectedGradient:
    """x ← clip(x + η_t u, low, high): projected gradient ascent on a box, the paper's OLO for w (Appendix D.2)."""

    def __init__(self, start: Floats, low: float | Floats, high: float | Floats, step: Steps) -> None:
        self.play, self.low, self.high, self.step, self.t = start, low, high, step, 0

    def respond(self, utility: Floats) -> Floats:
        self.t += 1
        self.play = np.clip(self.play + self.step(self.t) * utility, self.low, self.high)
        return self.play


class Hedge:
    """π(a|s) ∝ exp(α Σ u(s, a)): mirror descent, which is natural policy gradient, the paper's PO (Section 3.4)."""

    def __init__(self, shape: tuple[int, ...], step: Steps) -> None:
        self.play = np.full(shape, 1 / shape[-1])
        self.logits, self.step, self.t = np.zeros(shape), step, 0

    def respond(self, utility: Floats) -> Floats:
        self.t += 1
        self.logits = self.logits + self.step(self.t) * utility
        self.play = _softmax(self.logits)
        return self.play


class RegretMatching:
    """Predictive regret matching⁺ on simplices [..., k] (Farina, Kroer and Sandholm, 2021).

    z ← [z + u − ⟨u, x⟩]₊, and x ∝ [z + û − ⟨û, x⟩]₊ where û, the prediction, is the last utility. It has no step size
    and is unmoved by the scale of the utilities.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.play = np.full(shape, 1 / shape[-1])
        self.regret = np.zeros(shape)

    def respond(self, utility: Floats) -> Floats:
        gain = utility - (utility * self.play).sum(axis=-1, keepdims=True)
        self.regret = np.maximum(self.regret + gain, 0)
        # The prediction's gain is measured against the play of the updated regrets, not the one just made.
        centre = _normalise(self.regret, self.play)
        ahead = utility - (utility * centre).sum(axis=-1, keepdims=True)
        self.play = _normalise(np.maximum(self.regret + ahead, 0), centre)
        return self.play


class RegretMatchingBox:
    """Predictive regret matching⁺ on a box: every coordinate is a simplex over its two ends."""

    def __init__(self, shape: tuple[int, ...], low: float, high: float) -> None:
        self.ends = np.array([low, high])
        self.matching = RegretMatching((*shape, 2))
        self.play: Floats = self.matching.play @ self.ends

    def respond(self, utility: Floats) -> Floats:
        self.play = self.matching.respond(utility[..., None] * self.ends) @ self.ends
        return self.play


class OptimisticBox:
    """Gradient ascent on a box that expects the last utility to come again (Rakhlin and Sridharan, 2013).

    y ← clip(y + ηu), play = clip(y + ηu), with η = (high − low) / √Σ(u_t − u_{t−1})² per coordinate: nothing to tune,
    and steps are small only where the expectation failed.
    """

    def __init__(self, shape: tuple[int, ...], low: float | Floats, high: float | Floats) -> None:
        self.play = self.anchor = np.full(shape, (low + high) / 2)
        self.low, self.high = low, high
        self.last = self.surprise = np.zeros(shape)

    def respond(self, utility: Floats) -> Floats:
        self.surprise = self.surprise + (utility - self.last) ** 2
        self.last = utility
        step = (self.high - self.low) * utility / np.sqrt(np.maximum(self.surprise, TINY))
        self.anchor = np.clip(self.anchor + step, self.low, self.high)
        self.play = np.clip(self.anchor + step, self.low, self.high)
        return self.play


class OptimisticSimplex:
    """The same on simplices [..., k], one step size each."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.play = self.anchor = np.full(shape, 1 / shape[-1])
        self.last, self.surprise = np.zeros(shape), np.zeros((*shape[:-1], 1))

    def respond(self, utility: Floats) -> Floats:
        self.surprise = self.surprise + ((utility - self.last) ** 2).sum(axis=-1, keepdims=True)
        self.last = utility
        step = utility / np.sqrt(np.maximum(self.surprise, TINY))
        self.anchor = project_to_simplex(self.anchor + step)
        self.play = project_to_simplex(self.anchor + step)
        return self.play


class Multipliers:
    """An oracle for simplices as one for BΔ, the simplex over 0, B e_1, …, B e_I."""

    def __init__(self, simplex: Oracle, B: float) -> None:
        self.simplex, self.B = simplex, B
        self.play = B * simplex.play[1:]

    def respond(self, utility: Floats) -> Floats:
        self.play = self.B * self.simplex.respond(np.concatenate([[0.0], self.B * utility]))[1:]
        return self.play


class GreedyBox:
    """The linear oracle of a box: the better end of every coordinate. LMO_Q of Algorithm 1."""

    def __init__(self, shape: tuple[int, ...], low: float | Floats, high: float | Floats) -> None:
        self.play, self.low, self.high = np.zeros(shape), low, high

    def respond(self, utility: Floats) -> Floats:
        self.play = np.where(utility > 0, self.high, self.low)
        return self.play


class GreedyMultipliers:
    """The linear oracle of BΔ: all of B on the best coordinate, or 0 if none helps. LMO_{BΔ} of Algorithm 1."""

    def __init__(self, n: int, B: float) -> None:
        self.play, self.B = np.zeros(n), B

    def respond(self, utility: Floats) -> Floats:
        self.play = np.zeros_like(utility)
        if utility.size and utility.max() > 0:
            self.play[utility.argmax()] = self.B
        return self.play


def _normalise(weights: Floats, otherwise: Floats) -> Floats:
    """Weights as a distribution along the last axis; where all are 0, `otherwise`."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), otherwise)


def project_to_simplex(x: Floats) -> Floats:
    """The nearest distribution to each row [..., k]: subtract what makes the positive part sum to one."""
    ordered = -np.sort(-x, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, x.shape[-1] + 1)
    kept = (ordered > excess).sum(axis=-1, keepdims=True)
    return np.maximum(x - np.take_along_axis(excess, kept - 1, axis=-1), 0)


def _softmax(logits: Floats) -> Floats:
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=-1, keepdims=True))
