"""Marginalised importance sampling: rows, not episodes, are weighted, by how often the policy would be there.

    w(s, a) = d_π(s, a)/d_D(s, a),   d_π(s, a) = Σ_t γ^t P_π(s_t = s, a_t = a),   d_D = logged rows at (s, a) an episode
    v = Σ_{s,a} d_π x = Σ_{s,a} d_D w x = (1/E) Σ_i w_i x_i

This is the paper's density ratio w with the policy held fixed. There, a constrained problem is the linear program over
occupancies d = d_D w with Bellman's flow equations as constraints and Q as their multipliers; its Lagrangian is

    L(w, π; Q) = (1/E) Σ_i w_i ( x_i + γ V_π(s'_i) − Q(s_i, a_i) ) + mean_e V_π(s_e0),   V_π(s) = Σ_a π(a|s) Q(s, a).

With π given nothing is left to choose: ∂L/∂Q = 0, the flow equations

    Σ_i w_i φ(s_i, a_i) = γ Σ_i w_i Σ_a π(a|s'_i) φ(s'_i, a) + Σ_e Σ_a π(a|s_e0) φ(s_e0, a)    for all test functions φ,

determine w, and ∂L/∂w = 0, Bellman's equation, determines Q; the saddle value is v, from either side. Here w and φ are
linear in the features (`linear`), hence no propensity is needed; with one-hot states both sides are exact for the
counted MDP. Uehara, Huang and Jiang, "Minimax weight and Q-function learning", 2020; Nachum and others, "DualDICE",
2019.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.double_reinforcement import MARKOV, by_episode, influence_of
from pdocrl.ope.estimators.linear import RIDGE, LinearSystem, fitted_without, values
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, summarise


def marginalised(problem: Problem, signal: str, ridge: float = RIDGE) -> Estimate:
    """One fit on all rows, with the interval of its influence values (the sandwich of LSTDQ)."""
    system = LinearSystem.of(problem, ridge=ridge)
    weights = logged(problem, values(problem, system.w(problem.starts)))
    q = values(problem, system.q(signal))
    influence = influence_of(problem, signal, weights, q)
    assumed = (MARKOV, "the density ratio or Q is near the linear class")
    return summarise(
        problem, "marginalised importance sampling", signal, influence, by_episode(problem, weights), *assumed
    )


def ratios(problem: Problem) -> Floats:
    """[N] cross-fitted w of the logged rows; the weights of a fold come from the other, scaled to one episode."""
    found = np.zeros(len(problem.log))
    for fold in (0, 1):
        rows = np.flatnonzero(problem.folds != fold)
        starts = rows[problem.log.step[rows] == 0]
        here = problem.folds == fold
        found[here] = logged(problem, values(problem, fitted_without(problem, fold).w(starts)))[here]
    return found


def logged(problem: Problem, table: Floats) -> Floats:
    """[N] the entries [N, A] of the logged actions."""
    return np.asarray(np.take_along_axis(table, problem.log.action[:, None], 1)[:, 0], np.float64)
