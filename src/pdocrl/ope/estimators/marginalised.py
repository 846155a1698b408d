"""Marginalised importance sampling: rows, not episodes, are weighed, by how often the policy would be there.

    w(s, a) = Σ_t γ^t P_π(s_t = s, a_t = a) / (mean number of logged rows at (s, a) per episode)
    v = (1/E) Σ_i w_i x_i

This w is the dual variable of policy evaluation's linear program with the policy held fixed. Here it is linear in the
features and meets Bellman's flow equations against all linear functions, hence no propensity is needed; with the same
features v equals that of linear fitted Q, and with one-hot states both are exact for the counted MDP. Uehara, Huang and
Jiang, "Minimax weight and Q-function learning", 2020; Nachum and others, "DualDICE", 2019.

`double` (double reinforcement learning, Kallus and Uehara, 2020) cross-fits w and Q, and is right if either is:

    v = mean_e [ V(s_e0) + Σ_{i∈e} w_i ( x_i + γ V(s'_i) − Q(s_i, a_i) ) ]
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.doubly_robust import residuals
from pdocrl.ope.estimators.linear import RIDGE, LinearSystem, values
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, summarise

MARKOV = "the columns tell all that matters of the past (Markov)"


def marginalised(problem: Problem, signal: str, ridge: float = RIDGE) -> Estimate:
    """One fit on all rows, with the interval of its influence values (the sandwich of LSTDQ)."""
    system = LinearSystem.of(problem, ridge=ridge)
    weights = logged(problem, values(problem, system.w(problem.starts)))
    q = values(problem, system.q(signal))
    influence = _influence(problem, signal, weights, q)
    assumed = (MARKOV, "w or Q is near the linear class")
    return summarise(
        problem, "marginalised importance sampling", signal, influence, _by_episode(problem, weights), *assumed
    )


def ratios(problem: Problem, ridge: float = RIDGE) -> Floats:
    """[N] cross-fitted w of the logged rows; the weights of a fold come from the other, scaled to one episode."""
    found = np.zeros(len(problem.log))
    for fold in (0, 1):
        rows = np.flatnonzero(problem.folds != fold)
        starts = rows[problem.log.step[rows] == 0]
        here = problem.folds == fold
        found[here] = logged(problem, values(problem, LinearSystem.of(problem, rows, ridge).w(starts)))[here]
    return found


def double(problem: Problem, signal: str, q: Floats, weights: Floats) -> Estimate:
    """`q` [N, A] from `fqe.q_values`, `weights` [N] from `ratios`, both cross-fitted."""
    influence = _influence(problem, signal, weights, q)
    assumed = (MARKOV, "w is near the linear class, or Q near its own")
    return summarise(
        problem, "double reinforcement learning", signal, influence, _by_episode(problem, weights), *assumed
    )


def logged(problem: Problem, table: Floats) -> Floats:
    """[N] the entries [N, A] of the logged actions."""
    return np.asarray(np.take_along_axis(table, problem.log.action[:, None], 1)[:, 0], np.float64)


def _influence(problem: Problem, signal: str, weights: Floats, q: Floats) -> Floats:
    """[E]"""
    correction = np.bincount(problem.log.episode, weights * residuals(problem, signal, q))
    return np.asarray((problem.target * q).sum(1)[problem.starts] + correction, np.float64)


def _by_episode(problem: Problem, weights: Floats) -> Floats:
    """[E] the mean of |w| over an episode's rows."""
    rows = np.bincount(problem.log.episode)
    return np.bincount(problem.log.episode, np.abs(weights)) / rows
