"""Density ratios of states by regression forward in time, with the propensities.

    w_0 = 1,   w_{t+1}(s') = E_b[ w_t(s_t) π(a_t|s_t)/b(a_t|s_t) | s_{t+1} = s' ]

Xie, Ma and Wang, "Towards optimal off-policy evaluation with marginalized importance sampling", 2019, who count states;
here boosted trees regress, with a Poisson loss since weights are positive. It mirrors fitted Q evaluation, which runs
backward. The weight of a row is γ^t w_t(s_t) π/b, with the mean weight of all episodes, ended ones included, set to 1
at every step. w is clipped at √E of its E episodes (Ionides, "Truncated importance sampling", 2008). Cross-fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdocrl.ope.estimators import regressors
from pdocrl.ope.estimators.problem import Floats, Problem

ITERATIONS = 30  # at most


def forward_ratios(problem: Problem) -> Floats:
    """[N] γ^t w_t(s) π/b of the logged rows."""
    ratio = problem.ratio
    later = problem.log.step > 0
    state = np.ones(len(problem.log))
    for fold in (0, 1):
        fitted = np.flatnonzero((problem.folds != fold) & later)
        here = np.flatnonzero((problem.folds == fold) & later)
        if not fitted.size or not here.size:
            continue
        weight = np.ones(len(problem.log))
        model, most = None, np.sqrt(problem.episodes)
        for _ in range(min(problem.longest - 1, ITERATIONS)):
            y = weight[fitted - 1] * ratio[fitted - 1]
            if not y.sum() > 0:
                break
            model = regressors.regressor(loss="poisson", seed=problem.seed).fit(problem.inputs[fitted], y)
            weight[fitted] = _predicted(model, problem.inputs[fitted], most)
        state[here] = 0.0 if model is None else _predicted(model, problem.inputs[here], most)
    found = state * ratio
    mean = carried(problem, found).mean(0)
    scaled = found / np.where(mean > 0, mean, 1.0)[problem.log.step]
    return np.asarray(scaled * problem.discount**problem.log.step, np.float64)


def _predicted(model: Any, inputs: Floats, most: float) -> Floats:
    with np.errstate(over="ignore"):  # the exponential of a leaf may be infinite
        return np.asarray(np.minimum(model.predict(inputs), most), np.float64)


def carried(problem: Problem, weights: Floats) -> Floats:
    """[E, T] weights [N] of rows; after the end of an episode its last one."""
    table = problem.padded(weights)
    last = np.bincount(problem.log.episode) - 1
    ended = np.arange(table.shape[1]) > last[:, None]
    return np.where(ended, table[np.arange(len(table)), last][:, None], table)
