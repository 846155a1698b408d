"""Importance sampling: logged episodes weighted by how much likelier the target policy makes them.

    trajectory      v = mean_e  w_{e,T} Σ_t γ^t x_et                 (weighted: divided by mean_e w_{e,T})
    per decision    v = mean_e  Σ_t γ^t w_{e,t} x_et                 (weighted: step by step, divided by mean_e w_{e,t})

with w_{e,t} = Π_{u≤t} π(a_u|s_u)/b(a_u|s_u). Plain versions are unbiased, weighted ones consistent and of far smaller
variance. Precup, Sutton and Singh, "Eligibility traces for off-policy policy evaluation", 2000. `clipped` replaces w by
min(w, √E) of E episodes (Ionides, "Truncated importance sampling", 2008). Nothing is assumed of the dynamics, states
need not be Markov; but the variance of the weights grows exponentially with the episode's length.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, self_normalised, summarise

Kind = Literal["plain", "weighted", "clipped"]
KINDS: tuple[Kind, ...] = ("plain", "weighted", "clipped")
PREFIX = {"plain": "", "weighted": "weighted ", "clipped": "clipped "}
OVERLAP = "every action the policy may take was possible for who decided"


def trajectory(problem: Problem, signal: str, kind: Kind = "weighted") -> Estimate:
    """Whole episodes are weighted."""
    totals = problem.discounted(problem.log.signals[signal]).sum(1, keepdims=True)
    return _estimate(problem, "trajectory importance sampling", signal, kind, problem.weights[:, -1:], totals)


def per_decision(problem: Problem, signal: str, kind: Kind = "weighted") -> Estimate:
    """Each reward or cost is weighted by the decisions before it."""
    values = problem.discounted(problem.log.signals[signal])
    return _estimate(problem, "per-decision importance sampling", signal, kind, problem.weights, values)


def _estimate(problem: Problem, name: str, signal: str, kind: Kind, weights: Floats, values: Floats) -> Estimate:
    assumed: tuple[str, ...] = (OVERLAP,)
    if kind == "clipped":
        most = math.sqrt(len(weights))
        weights = np.minimum(weights, most)
        assumed = (OVERLAP, f"weights above {most:.3g} are clipped, which biases the estimate")
    if kind == "weighted":
        influence = self_normalised(weights, values)
    else:
        influence = np.asarray((weights * values).sum(1), np.float64) if weights[:, -1].any() else None
    return summarise(problem, PREFIX[kind] + name, signal, influence, weights[:, -1], *assumed)
