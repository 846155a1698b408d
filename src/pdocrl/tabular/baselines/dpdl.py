"""DPDL: a pessimistic plug-in that aims inside its limits (Chen, Zhang and Wen, NeurIPS 2022).

    max ⟨μ, r̂ − b⟩   s.t.  μ an occupancy of P̂,  0 ≤ μ ≤ Cμ̂_D,  ⟨μ, ĝ_i − b⟩ ≥ τ_i + κ
    b(s, a) = bonus · V_max √(log(2SA/δ) / (2n(s, a)))

The paper controls how far estimates deviate inside a primal-dual method, and tightens the limits so that none is
broken. Here is the program such a method solves.

Differences from the paper: its control of deviations is taken to be Hoeffding's, pair by pair; its stochastic
iterations, its estimate of an unknown C* and its constants are not reproduced. What it promises, single-policy coverage
and no violation, is what this keeps, and is tested.
"""

from __future__ import annotations

import numpy as np

from pdocrl.limits import Limits
from pdocrl.tabular.baselines.problem import LogModel, best_occupancy
from pdocrl.tabular.baselines.spibb_sets import Bootstrapped, best_near
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.lagrangian import Floats
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO

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
