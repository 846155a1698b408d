"""POCC, CORAL, PRO-RL, Xie's pessimism and DPDL: an occupancy μ = w·μ̂_D of the log, and its policy.

    POCC     max_{0 ≤ w ≤ C} ⟨w, r⟩_μ̂   s.t.  ‖flow(w)‖₁ ≤ ζ,  ⟨w, c⟩_μ̂ ≤ τ + κ          (Zhang, Peng et al., 2024)
    CORAL    the same with ζ = κ = 0: its augmentation −E(d_w/d^{π_w} − 1)² is 0 when the flow is exact
                                                             (Rashidinejad, Zhu, Yang, Russell and Jiao, 2022)
    PRO-RL   max_{0 ≤ w ≤ C} ⟨w, r⟩_μ̂ − α/2 ⟨w²⟩_μ̂   with exact flow       (Zhan, Huang, Huang, Jiang and Lee, 2022)
    Xie      max_π min_f (1−γ) f(s₀, π)   s.t.   ‖f − r̂ − γP̂f(·, π)‖²_μ̂ ≤ ε                   (Xie et al., 2021)
    DPDL     max ⟨μ, r̂ − b⟩   s.t.  0 ≤ μ ≤ Cμ̂_D,  ⟨μ, ĝ_i − b⟩ ≥ τ_i + κ,
             b(s, a) = bonus · V_max √(log(2SA/δ) / (2n(s, a)))                     (Chen, Zhang and Wen, 2022)

    π(a|s) ∝ w(s, a) π_D(a|s)

The first three need the policy that made the data, π_D; here it is estimated from the log, as it must be. Xie's inner
minimum is ⟨μ^π, r̂⟩ − √ε·√Σ (μ^π)²/μ̂ for tables, so that the whole is one second-order cone program; a limit holds for
every cost function the log does not rule out. At its solution the occupancy is also PRO-RL's for α = √ε/‖w‖.

Differences from the papers: POCC bounds the flow by sign functions x_w from a class of their own, over all of which the
bound is ‖·‖₁; CORAL solves its augmented Lagrangian by a minimax over restricted classes, where the term is needed (its
bandit is in `research/field.py`); PRO-RL and Xie have no limits, which are further rows here. DPDL controls deviations
inside a primal-dual method; here is the program such a method solves, with Hoeffding's deviation pair by pair. What it
promises, single-policy coverage and no violation, holds and is tested.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limits
from pdocrl.tabular.baselines.problem import LogModel, best_occupancy, occupancy_cone
from pdocrl.tabular.baselines.spibb import Bootstrapped, best_near
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.highs import maximise
from pdocrl.tabular.solvers.lagrangian import Floats
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO


def pocc(
    counts: Counts, gamma: float, limits: Limits = (), C: float = 10.0, zeta: float = 0.0, kappa: float = 0.0
) -> Floats:
    """POCC's policy [S, A], one linear program; CORAL's at ζ = κ = 0.

    Where no w is within ζ of a flow, or of the limits within κ, the least ζ and then the least κ for which one is.
    """
    problem = LogModel.of(counts, gamma, limits)
    return problem.policy(near_flow(problem, C, zeta, kappa))


def coral(counts: Counts, gamma: float, limits: Limits = (), C: float = 10.0) -> Floats:
    """CORAL's policy [S, A]."""
    return pocc(counts, gamma, limits, C)


def near_flow(problem: LogModel, C: float, zeta: float, kappa: float) -> Floats:
    """POCC's program: μ = w·μ̂_D [m] of the pairs tried."""
    L, m, S, I = problem.L, len(problem.pairs), len(problem.L.d0), len(problem.L.tau)
    # Columns: μ, the flow's residual as missing − surplus, its total, the largest miss of a limit.
    identity = sp.eye_array(S)
    ones = sp.csr_array(np.ones((1, S)))
    blocks = [
        [problem.flow, identity, -identity, None, sp.csr_array((S, 1))],
        [None, ones, ones, np.array([[-1.0]]), None],
    ]
    if I:
        blocks.append([sp.csr_array(problem.signals()[1:]), None, None, None, np.ones((I, 1))])
    matrix = sp.block_array(blocks, format="csc")
    reward = np.r_[problem.signals()[0], np.zeros(2 * S + 2)]

    planned = problem.planned(matrix.shape)

    def optimise(objective: Floats, total: float, miss: float) -> Floats | None:
        found = maximise(
            objective=objective,
            matrix=matrix,
            row_lower=np.r_[problem.start, -np.inf, L.tau],
            row_upper=np.r_[problem.start, 0.0, np.full(I, np.inf)],
            column_lower=np.zeros(m + 2 * S + 2),
            column_upper=np.r_[C * L.mu_D.ravel()[problem.pairs], np.full(2 * S, np.inf), total, miss],
            method="simplex" if m <= SIMPLEX_UP_TO else "ipm",
            start=planned if objective is reward else None,
        )
        return found.x if found.optimal else None

    x = optimise(reward, zeta, kappa)
    if x is None:
        least = optimise(-np.eye(1, len(reward), m + 2 * S)[0], np.inf, np.inf)
        total = zeta if least is None else max(zeta, float(least[-2]) * (1 + 1e-9) + 1e-9)
        least = optimise(-np.eye(1, len(reward), m + 2 * S + 1)[0], total, np.inf)
        miss = kappa if least is None else max(kappa, float(least[-1]) * (1 + 1e-9) + 1e-9)
        x = optimise(reward, total, miss)
    if x is None:
        raise PdocrlError("HiGHS found no density ratio; try a larger C.")
    return np.asarray(x[:m])


def pro_rl(counts: Counts, gamma: float, limits: Limits = (), C: float = 10.0, alpha: float = 0.01) -> Floats:
    """PRO-RL's policy [S, A]: a quadratic program; needs the extra `cone`. Limits are further rows."""
    problem = LogModel.of(counts, gamma, limits)
    return problem.policy(occupancy_cone(problem, C, alpha=alpha))


DELTA = 0.1  # the probability with which the bounds may fail


def dpdl(
    counts: Counts, gamma: float, limits: Limits = (), C: float = np.inf, bonus: float = 0.1, kappa: float = 0.0
) -> Floats:
    """The policy [S, A], one linear program; bonus 1 is Hoeffding's deviation."""
    problem = LogModel.of(counts, gamma, limits)
    b, tau = deviation(problem, bonus), problem.L.tau + kappa
    if np.isinf(C) and len(problem.pairs) > SIMPLEX_UP_TO:  # a plan with limits, in a model made worse
        worse, model = np.where(problem.L.seen, b, 0.0), problem.model
        model = model.replace(r=model.r - worse, g=model.g - worse, tau=tau)
        return problem.policy(best_near(problem, Bootstrapped(problem, min_count=0), model))
    return problem.policy(best_occupancy(problem, C, b, tau))


def deviation(problem: LogModel, bonus: float) -> Floats:
    """b [S, A], in the units of a reward: (1−γ)J units times the 1/(1−γ) steps an error lasts."""
    n = np.maximum(problem.n, 1)
    return np.asarray(bonus * problem.span * np.sqrt(np.log(2 * n.size / DELTA) / (2 * n)))


def pessimistic(counts: Counts, gamma: float, limits: Limits = (), epsilon: float = 0.01) -> Floats:
    """The policy [S, A]; needs the extra `cone`."""
    problem = LogModel.of(counts, gamma, limits)
    return problem.policy(occupancy_cone(problem, radius=float(np.sqrt(epsilon))))
