"""Doubly robust: a Q function says most, importance weights correct what it misses.

    v = mean_e [ V(s_e0) + Σ_t γ^t w_{e,t} ( x_et + γ V(s_e,t+1) − Q(s_et, a_et) ) ],   V(s) = Σ_a π(a|s) Q(s, a)

Jiang and Li, 2016. Right if either the propensities or Q are, and of small variance if both nearly are. `weighted`
divides the weights of each step by their mean (Thomas and Brunskill, 2016). Q is cross-fitted. Where a record was cut
the last, unknown transition is left to Q.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, self_normalised, summarise

ASSUMED = "either the propensities or the Q function are right"


def doubly_robust(problem: Problem, signal: str, q: Floats, weighted: bool = True) -> Estimate:
    """`q` [N, A] is cross-fitted (see `fqe.q_values`)."""
    v = (problem.target * q).sum(1)
    rest = problem.discounted(residuals(problem, signal, q))
    weights = problem.weights
    first = v[problem.starts]
    if weighted:
        # V(s') has the weight of the step that led to it, as in the paper's sum over V(s_t) with w_{t-1}.
        correction = self_normalised(weights, rest)
    else:
        correction = (weights * rest).sum(1) if weights[:, -1].any() else None
    influence = None if correction is None else first + correction
    name = f"{'weighted ' if weighted else ''}doubly robust"
    return summarise(problem, name, signal, influence, weights[:, -1], ASSUMED)


def residuals(problem: Problem, signal: str, q: Floats) -> Floats:
    """[N] x + γ V(s') − Q(s, a), 0 where the record was cut."""
    v = (problem.target * q).sum(1)
    following = problem.following
    after = np.where(following >= 0, v[following], 0.0)
    logged = np.take_along_axis(q, problem.log.action[:, None], 1)[:, 0]
    found = problem.log.signals[signal] + problem.discount * after - logged
    return np.asarray(np.where(following > -2, found, 0.0), np.float64)
