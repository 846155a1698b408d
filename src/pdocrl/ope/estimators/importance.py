"""Importance sampling: logged episodes weighed by how much likelier the target policy makes them.

    trajectory      v = mean_e  w_{e,T} Σ_t γ^t x_et                 (weighted: divided by mean_e w_{e,T})
    per decision    v = mean_e  Σ_t γ^t w_{e,t} x_et                 (weighted: step by step, divided by mean_e w_{e,t})

with w_{e,t} = Π_{u≤t} π(a_u|s_u)/b(a_u|s_u). Plain versions are unbiased, weighted ones consistent and of far smaller
variance. Precup, Sutton and Singh, "Eligibility traces for off-policy policy evaluation", 2000. Nothing is assumed of
the dynamics, states need not be Markov; but the weights' variance grows exponentially with the episode's length.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, self_normalised, summarise


def trajectory(problem: Problem, signal: str, weighted: bool = True, clip: float | None = None) -> Estimate:
    """Whole episodes are weighed; `clip` bounds the weights, at the price of a bias."""
    weights = _clipped(problem.weights, clip)[:, -1:]
    totals = problem.discounted(problem.log.signals[signal]).sum(1, keepdims=True)
    influence = self_normalised(weights, totals) if weighted else _plain(weights, totals)
    name = f"{'weighted ' if weighted else ''}trajectory importance sampling"
    return summarise(problem, name, signal, influence, weights[:, 0], *_assumed(clip))


def per_decision(problem: Problem, signal: str, weighted: bool = True, clip: float | None = None) -> Estimate:
    """Each reward or cost is weighed by the decisions before it."""
    weights = _clipped(problem.weights, clip)
    values = problem.discounted(problem.log.signals[signal])
    influence = self_normalised(weights, values) if weighted else _plain(weights, values)
    name = f"{'weighted ' if weighted else ''}per-decision importance sampling"
    return summarise(problem, name, signal, influence, weights[:, -1], *_assumed(clip))


def _plain(weights: Floats, values: Floats) -> Floats | None:
    """[E] Σ_t w y; None where no episode has any weight."""
    return np.asarray((weights * values).sum(1), np.float64) if weights[:, -1].any() else None


def _clipped(weights: Floats, clip: float | None) -> Floats:
    return weights if clip is None else np.minimum(weights, clip)


def _assumed(clip: float | None) -> tuple[str, ...]:
    overlap = "every action the policy may take was possible for who decided"
    return (overlap,) if clip is None else (overlap, f"weights above {clip:g} are clipped, which biases the estimate")
