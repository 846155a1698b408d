"""What a log says about a policy that someone else found: the report of `solve`, for any method.

    ξ = the best that any policy of the log's own model can earn within the limits
        − what this one earns there, less B times the largest limit it misses

The upper end is the optimum of the log's own CMDP with its proof, so ξ says how far the policy is from the best the log
could be made to promise. That is not always worth having: a careful method stays behind on purpose.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.api import Result, make_result
from pdocrl.tabular.cmdp import extract, occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import intervals
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle, with_policy


def assess(
    counts: Counts,
    found: Floats | Mixture,
    gamma: float,
    limits: Limits = (),
    method: str = "given",
    B: float | None = None,
    with_intervals: bool = True,
    level: float = 0.95,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """The result for a policy [S, A], or a mixture as one policy; intervals carry no optimism, since nothing is
    learned again."""
    chosen = as_limits(limits)
    L = Lagrangian.empirical(counts, gamma, chosen)
    mixture = found if isinstance(found, Mixture) else None
    policy = found if not isinstance(found, Mixture) else one_policy(L, found)
    progress("planning in the log's own model")
    best = solve_saddle(L, Setup(np.inf, B))
    assert best.planned is not None, "without a bound on w the problem is planned"
    solution = with_policy(best, policy, mixture)
    spread = None
    if with_intervals:
        spread = intervals(PolicyEstimate(counts, gamma, policy), np.zeros(1 + len(chosen)), chosen, level)
    return make_result(counts, chosen, solution, method, spread, (), 1, L)


def one_policy(L: Lagrangian, mixture: Mixture) -> Floats:
    """[S, A] the stationary policy whose occupancy in the log's own model is the mixture's.

    In a state that no policy of the mixture reaches there, their average stands.
    """
    model = pessimistic_model(L)
    mu = np.mean([occupancy(model, pi) for pi in mixture.policies], axis=0)
    reached = mu.sum(axis=1, keepdims=True) > 1e-12
    return np.asarray(np.where(reached, extract(mu), mixture.policies.mean(axis=0)))
