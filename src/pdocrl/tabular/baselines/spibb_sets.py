"""The best policy near the log's own, by policy iteration: each step answers Q in every state within the set.

    Bootstrapped   π(a|s) = π_b(a|s) wherever n(s, a) < N
    Budgeted       Σ_a e(s, a)|π(a|s) − π_b(a|s)| ≤ ε in every state

With limits, such plans for priced rewards are mixed (Dantzig–Wolfe, `tabular/solvers/exact.py`); the mixture of two
occupancies is one of the set, because the set is convex in every state.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.cmdp import CMDP
from pdocrl.tabular.solvers.exact import Columns, generate
from pdocrl.tabular.solvers.lagrangian import Floats

DELTA = 0.1  # the probability with which the bounds may fail
TOLERANCE = 1e-11  # of values, relative to their size


class Near(Protocol):
    """A convex set of policies, given state by state."""

    def answer(self, Q: Floats) -> Floats:
        """π [S, A] of the set with the largest Σ_a π(a|s) Q(s, a) in every state."""


class Bootstrapped:
    """SPIBB's set: the log's own policy on pairs tried fewer than `min_count` times."""

    def __init__(self, problem: LogModel, min_count: int) -> None:
        self.min_count = min_count
        self.often = problem.L.seen & (problem.n >= min_count)
        self.rest = np.where(self.often, 0.0, problem.L.behaviour)

    def answer(self, Q: Floats) -> Floats:
        """What is left of the log's policy goes to the best of the pairs tried often."""
        best = np.where(self.often, Q, -np.inf).argmax(axis=1)
        pi = self.rest.copy()
        pi[np.arange(len(Q)), best] += 1 - self.rest.sum(axis=1)
        return pi


class Budgeted:
    """Soft-SPIBB's set: e(s, a) is paid for every change, and ε is all there is to pay."""

    def __init__(self, problem: LogModel, epsilon: float) -> None:
        self.epsilon = epsilon
        self.seen, self.base, self.e = problem.L.seen, problem.L.behaviour, errors(problem)
        self.acted = np.asarray(problem.L.seen.any(axis=1))

    def answer(self, Q: Floats) -> Floats:
        """At a price η of the budget all mass goes to argmax Q − ηe from where Q + ηe is less than that.

        Less is spent as η rises. Where it passes ε, the answers on both sides are equally good, and the mixture of them
        that spends ε is the best.
        """
        Q = np.where(self.seen, Q, np.where(self.seen, Q, np.inf).min(axis=1, keepdims=True))
        Q = np.where(self.acted[:, None], Q, 0.0)
        low, high = np.zeros(len(Q)), np.ptp(Q, axis=1) / self.e.min(axis=1)  # at `high` nothing moves
        for _ in range(80):
            middle = (low + high) / 2
            over = self._spent(self._at(Q, middle)) > self.epsilon
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        dear, cheap = self._at(Q, low), self._at(Q, high)
        spent, left = self._spent(dear), self.epsilon - self._spent(cheap)
        between = spent > self.epsilon
        share = np.where(between, left / np.where(between, spent - self._spent(cheap), 1.0), 1.0)
        free = self._at(Q, np.zeros(len(Q)))
        pi = share[:, None] * dear + (1 - share[:, None]) * cheap
        return np.where((self._spent(free) <= self.epsilon)[:, None], free, pi)

    def _at(self, Q: Floats, price: Floats) -> Floats:
        paid = price[:, None] * self.e
        sink = np.where(self.seen, Q - paid, -np.inf).argmax(axis=1)
        states = np.arange(len(Q))
        moves = self.seen & (Q + paid < (Q - paid)[states, sink][:, None])
        moves[states, sink] = False
        pi = np.where(moves, 0.0, self.base)
        pi[states, sink] += (self.base * moves).sum(axis=1)
        return np.where(self.acted[:, None], pi, self.base)

    def _spent(self, pi: Floats) -> Floats:
        return np.asarray((self.e * np.abs(pi - self.base)).sum(axis=1))


def errors(problem: LogModel) -> Floats:
    """e(s, a) [S, A] of Soft-SPIBB."""
    return np.asarray(np.sqrt(2 * np.log(2 * problem.n.size / DELTA) / np.maximum(problem.n, 1)))


def best_near(problem: LogModel, near: Near, model: CMDP | None = None) -> Floats:
    """μ [m] of the pairs tried: the best policy of the set that keeps the limits, or misses them by the least.

    The signals and limits are those of a model that moves as the log's own does, by default of that one itself.
    """
    columns = NearColumns(problem, near, model or problem.model)
    columns.price(np.zeros(len(problem.L.tau)), reward=True)
    if not len(problem.L.tau):
        return np.asarray(columns.occupancies[0].ravel()[problem.pairs])
    kept = generate(columns, reward=False, tolerance=1e-9, enough=1e-9)
    best = generate(columns, reward=True, tolerance=1e-9, slack=min(kept.value - 1e-9, 0.0))
    mu = np.tensordot(best.weights, np.array(columns.occupancies), axes=1)
    return np.asarray(mu.ravel()[problem.pairs])


class NearColumns(Columns):
    """Plans within the set."""

    def __init__(self, problem: LogModel, near: Near, model: CMDP) -> None:
        super().__init__(model)
        self.problem, self.near = problem, near
        self.pi = problem.L.behaviour
        self.occupancies: list[Floats] = []  # [S, A] each

    def best(self, reward: Floats) -> tuple[Floats, float]:
        """Policy iteration from the last plan."""
        while True:
            under = self.problem.under(self.pi)
            Q = under.Q(reward)
            self.V = (self.pi * Q).sum(axis=1)
            answer = self.near.answer(Q)
            gain = (answer * Q).sum(axis=1) - self.V
            if gain.max() <= TOLERANCE * (1 + np.abs(self.V).max()):
                self.occupancies.append(under.visits)
                return under.visits, max(float(gain.max()), 0.0)
            self.pi = answer
