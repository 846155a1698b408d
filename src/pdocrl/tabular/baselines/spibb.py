"""SPIBB, Soft-SPIBB and MO-SPIBB: improve on the log's own policy π_b, and stay with it where the log tried little.

    SPIBB        π(a|s) = π_b(a|s) wherever n(s, a) < N                    (Laroche, Trichelair and Tachet, ICML 2019)
    Soft-SPIBB   Σ_a e(s, a)|π(a|s) − π_b(a|s)| ≤ ε in every state,  e = √(2 log(2SA/δ)/n(s, a))
                                                                           (Nadjahi, Laroche and Tachet, ECML 2019)
    MO-SPIBB     either, with limits                              (Satija, Thomas, Pineau and Laroche, NeurIPS 2021)

The best such policy of the empirical model is a linear program over occupancies, because both sets are given state by
state: μ(s, a) − π_b(a|s) Σ_a μ(s, a) is 0, or its weighted sum is at most εΣ_a μ(s, a). With thousands of pairs it is
found by policy iteration, as the papers do, each step the best answer to Q in every state (`spibb_sets.py`).

Differences from the papers: π_b is estimated from the log; Soft-SPIBB's answer to Q is exact. MO-SPIBB, as its
authors' code has it, asks in every state that no signal be worse than under π_b, Σ_a π(a|s) A_i^{π_b}(s, a) ≥ 0, and
weighs the signals; here the limits are the given ones, on the whole policy.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from pdocrl.limits import Limits
from pdocrl.tabular.baselines.problem import LogModel, best_occupancy
from pdocrl.tabular.baselines.spibb_sets import Bootstrapped, Budgeted, best_near, errors
from pdocrl.tabular.counts import Counts
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
