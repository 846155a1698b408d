"""Double reinforcement learning: cross-fitted Q and density ratio w of rows, right if either is.

    v = mean_e [ V(s_e0) + Σ_{i∈e} w_i ( x_i + γ V(s'_i) − Q(s_i, a_i) ) ]

Kallus and Uehara, "Double reinforcement learning for efficient off-policy evaluation in Markov decision processes",
2020. It is doubly robust estimation with the weights of rows (`marginalised`, `forward`) in place of those of whole
episodes, so that its variance does not grow exponentially with the episode's length; states must be Markov.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.doubly_robust import residuals
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, summarise

MARKOV = "the columns tell all that matters of the past (Markov)"


def double(problem: Problem, signal: str, q: Floats, weights: Floats, ratio: str = "linear") -> Estimate:
    """`q` [N, A] from `fqe.q_values`; `weights` [N] from `marginalised.ratios` or `forward.forward_ratios`, as `ratio`
    says."""
    influence = influence_of(problem, signal, weights, q)
    assumed = (MARKOV, "either the density ratio or the Q function is near its class")
    return summarise(
        problem, f"double reinforcement learning ({ratio})", signal, influence, by_episode(problem, weights), *assumed
    )


def influence_of(problem: Problem, signal: str, weights: Floats, q: Floats) -> Floats:
    """[E] the terms of the mean."""
    correction = np.bincount(problem.log.episode, weights * residuals(problem, signal, q))
    return np.asarray((problem.target * q).sum(1)[problem.starts] + correction, np.float64)


def by_episode(problem: Problem, weights: Floats) -> Floats:
    """[E] the mean of |w| over an episode's rows."""
    rows = np.bincount(problem.log.episode)
    return np.bincount(problem.log.episode, np.abs(weights)) / rows
