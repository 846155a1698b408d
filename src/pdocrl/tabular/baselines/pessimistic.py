"""Xie's pessimism, solved exactly: max over policies of the least value among models the log does not rule out.

    max_π min_f (1−γ) f(s₀, π)   s.t.   ‖f − r̂ − γP̂f(·, π)‖²_μ̂ ≤ ε                   (Xie et al., NeurIPS 2021)

For tables the inner minimum is ⟨μ^π, r̂⟩ − √ε·√Σ (μ^π)²/μ̂, so that the whole is one second-order cone program over
occupancies. A limit is kept for every cost function the log does not rule out: ⟨μ, g⟩ − √ε‖w‖ ≥ τ. At its solution the
occupancy is also PRO-RL's for the penalty α = √ε/‖w‖: the two are one family, with parameters of different meaning.

Differences from the paper: it has no limits, and its error of f is a minimax, in complete tables this norm.
"""

from __future__ import annotations

import numpy as np

from pdocrl.limits import Limits
from pdocrl.tabular.baselines.cone import occupancy_cone
from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.cmdp import occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.lagrangian import Floats


def pessimistic(counts: Counts, gamma: float, limits: Limits = (), epsilon: float = 0.01) -> Floats:
    """The policy [S, A]; needs the extra `cone`."""
    problem = LogModel.of(counts, gamma, limits)
    return problem.policy(occupancy_cone(problem, radius=float(np.sqrt(epsilon))))


def least_values(problem: LogModel, pi: Floats, epsilon: float) -> Floats:
    """[1+I] min_f (1−γ)f(s₀, π) over ‖δ‖²_μ̂ ≤ ε, for the reward and each constraint reward."""
    mu, L = occupancy(problem.model, pi), problem.L
    size = float(np.sqrt((mu[L.seen] ** 2 / L.mu_D[L.seen]).sum()))
    earned = np.r_[np.vdot(mu, problem.model.r), np.tensordot(problem.model.g, mu, axes=2)]
    return np.asarray(earned - np.sqrt(epsilon) * size)
