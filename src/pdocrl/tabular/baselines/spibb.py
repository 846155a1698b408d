"""SPIBB, Soft-SPIBB and MO-SPIBB: improve on the log's own policy π_b, and stay with it where the log tried little.

    SPIBB        π(a|s) = π_b(a|s) wherever n(s, a) < N                    (Laroche, Trichelair and Tachet, ICML 2019)
    Soft-SPIBB   Σ_a e(s, a)|π(a|s) − π_b(a|s)| ≤ ε in every state,  e = √(2 log(2SA/δ)/n(s, a))
                                                                           (Nadjahi, Laroche and Tachet, ECML 2019)
    MO-SPIBB     either, with limits                              (Satija, Thomas, Pineau and Laroche, NeurIPS 2021)

The best such policy of the empirical model is a linear program over occupancies, because both sets are given state by
state: μ(s, a) − π_b(a|s) Σ_a μ(s, a) is 0, or its weighted sum is at most εΣ_a μ(s, a). With thousands of pairs it is
found by policy iteration, as the papers do, each step the best answer to Q in every state; with limits such plans for
priced rewards are mixed (`exact.generate`), and the mixture is one of the set, which is convex in every state.

Differences from the papers: π_b is estimated from the log; Soft-SPIBB's answer to Q is exact. MO-SPIBB, as its
authors' code has it, asks in every state that no signal be worse than under π_b, Σ_a π(a|s) A_i^{π_b}(s, a) ≥ 0, and
weighs the signals; here the limits are the given ones, on the whole policy.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp

from pdocrl.limits import Limits
from pdocrl.tabular.baselines.problem import LogModel, best_occupancy
from pdocrl.tabular.cmdp import CMDP
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import Columns, generate
from pdocrl.tabular.solvers.lagrangian import Floats
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO


def spibb(counts: Counts, gamma: float, limits: Limits = (), min_count: int = 10) -> Floats:
    """Π_b-SPIBB's policy [S, A], for problems without limits."""
    problem = LogModel.free(counts, gamma, limits, "spibb", "mo_spibb")
    return problem.policy(_best(problem, Bootstrapped(problem, min_count)))


def soft_spibb(counts: Counts, gamma: float, limits: Limits = (), epsilon: float = 1.0) -> Floats:
    """Soft-SPIBB's policy [S, A], for problems without limits."""
    problem = LogModel.free(counts, gamma, limits, "soft_spibb", "mo_spibb")
    return problem.policy(_best(problem, Budgeted(problem, epsilon)))


def mo_spibb(
    counts: Counts, gamma: float, limits: Limits = (), epsilon: float = 1.0, min_count: int | None = None
) -> Floats:
    """The same with limits: Soft-SPIBB's set, or with `min_count` SPIBB's."""
    problem = LogModel.of(counts, gamma, limits)
    near = Budgeted(problem, epsilon) if min_count is None else Bootstrapped(problem, min_count)
    return problem.policy(_best(problem, near))


def _best(problem: LogModel, near: Bootstrapped | Budgeted) -> Floats:
    """μ [m] of the pairs tried: of the best policy near the log's own."""
    if len(problem.pairs) > SIMPLEX_UP_TO:
        return best_near(problem, near)
    if isinstance(near, Bootstrapped):
        return best_occupancy(problem, extra=_hard(problem, near.min_count))
    return best_occupancy(problem, extra=_soft(problem, near.epsilon))


def _masses(problem: LogModel) -> tuple[sp.csr_array, sp.csr_array]:
    """[S, m] sums over a state's pairs tried, and [m, S] π_b of each such pair at its state.

    With the masses d [S] of states as columns of their own, μ(s, a) − π_b(a|s) d(s) has two entries a row, not one for
    every action.
    """
    state = problem.pairs // problem.L.r.shape[1]
    m, S = len(state), len(problem.L.d0)
    sums = sp.csr_array((np.ones(m), (state, np.arange(m))), shape=(S, m))
    baseline = sp.csr_array((problem.L.behaviour.ravel()[problem.pairs], (np.arange(m), state)), shape=(m, S))
    return sums, baseline


def _hard(problem: LogModel, min_count: int) -> tuple[sp.csr_array, Floats, Floats] | None:
    """Rows: d = Σ_a μ [S], and μ = π_b d for the pairs tried too seldom; columns μ and d."""
    few = np.flatnonzero(problem.n.ravel()[problem.pairs] < min_count)
    if not len(few):
        return None
    sums, baseline = _masses(problem)
    S, m = sums.shape
    matrix = sp.block_array([[sums, -sp.eye_array(S)], [sp.eye_array(m).tocsr()[few], -baseline[few]]], format="csr")
    return matrix, np.zeros(S + len(few)), np.zeros(S + len(few))


def _soft(problem: LogModel, epsilon: float) -> tuple[sp.csr_array, Floats, Floats]:
    """Rows: d = Σ_a μ [S], μ − π_b d = more − less [m], Σ_a e (more + less) ≤ ε d [S]; columns μ, d, more, less."""
    sums, baseline = _masses(problem)
    S, m = sums.shape
    weighted = sums @ sp.diags_array(errors(problem).ravel()[problem.pairs])
    I, J = sp.eye_array(m), sp.eye_array(S)
    matrix = sp.block_array(
        [[sums, -J, None, None], [I, -baseline, -I, I], [None, epsilon * J, -weighted, -weighted]], format="csr"
    )
    return matrix, np.zeros(2 * S + m), np.r_[np.zeros(S + m), np.full(S, np.inf)]


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
    """Soft-SPIBB's set: every change costs e(s, a), and ε is the budget."""

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
        costly, least = self._at(Q, low), self._at(Q, high)
        spent, left = self._spent(costly), self.epsilon - self._spent(least)
        between = spent > self.epsilon
        share = np.where(between, left / np.where(between, spent - self._spent(least), 1.0), 1.0)
        free = self._at(Q, np.zeros(len(Q)))
        pi = share[:, None] * costly + (1 - share[:, None]) * least
        return np.where((self._spent(free) <= self.epsilon)[:, None], free, pi)

    def _at(self, Q: Floats, price: Floats) -> Floats:
        penalty = price[:, None] * self.e
        target = np.where(self.seen, Q - penalty, -np.inf).argmax(axis=1)
        states = np.arange(len(Q))
        moves = self.seen & (Q + penalty < (Q - penalty)[states, target][:, None])
        moves[states, target] = False
        pi = np.where(moves, 0.0, self.base)
        pi[states, target] += (self.base * moves).sum(axis=1)
        return np.where(self.acted[:, None], pi, self.base)

    def _spent(self, pi: Floats) -> Floats:
        return np.asarray((self.e * np.abs(pi - self.base)).sum(axis=1))


def errors(problem: LogModel) -> Floats:
    """e(s, a) [S, A] of Soft-SPIBB."""
    return np.asarray(np.sqrt(2 * np.log(2 * problem.n.size / DELTA) / np.maximum(problem.n, 1)))


def best_near(problem: LogModel, near: Near, model: CMDP | None = None) -> Floats:
    """μ [m] of the pairs tried: the best policy of the set that satisfies the limits, or misses them by the least.

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
