"""From counts to a policy: `solve`, the one door to the tabular half.

counts → without rare pairs → C (chosen or given) → B (the price of the limits) → saddle point
       → policy, certificate, coverage, intervals
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import get_args

import numpy as np
from msgspec import structs

from pdocrl import deprecations
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import Intervals, bootstrap, intervals
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.inference.confidence import (
    SPLITS,
    Candidate,
    Tested,
    behaviour_of,
    named,
    nothing_keeps,
    optimism_bias,
    run_safety_tests,
    split_log,
    untested,
)
from pdocrl.tabular.inference.sensitivity import COARSE, GRID, Choice, try_bounds
from pdocrl.tabular.result.result import Result, make_result
from pdocrl.tabular.solvers.few_rows import ROWS, choose, frequent_only
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO
from pdocrl.tabular.solvers.saddle import Method, Setup, Solution, solve_saddle, with_policy

NEAR = (2.0, 5.0, np.inf)  # bounds on w that a confidence tries
Progress = Callable[[str], None]
LP_UP_TO = 2000  # pairs; beyond, one linear program takes many seconds, and w is not bounded unless C is given


def solve(
    data: Counts | Lagrangian,
    gamma: float | None = None,
    limits: Limits = (),
    method: Method = "lp",
    C: float | None = None,
    B: float | None = None,
    min_count: int | None = None,
    iterations: int = 10_000,
    resamples: int | None = None,
    refits: int | None = None,
    level: float = 0.95,
    confidence: float | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    **renamed: int | None,
) -> Result:
    """The best policy the data supports that satisfies the limits.

    Values, costs and limits are (1−γ)J. Where nothing ends, that is a discounted average per step ("step"). Where
    episodes end it is the discounted total of an episode times 1−γ ("discounted"). If the counts tell steps apart (see
    `Counts.stationary`), they are totals per episode: of the reward discounted by γ, which may be 1, and of costs
    ("episode").

    Args:
        data: counts of a log, or a Lagrangian made by hand (then there are no intervals, and C must be given).
        gamma: the discount, strictly between 0 and 1; a Lagrangian has its own.
        limits: such as ["cost<=0.1"] or {"cost": 0.1}, on (1−γ)J; a Lagrangian has its own.
        method: "lp" is exact. "pdocrl" and "pdorl" are the paper's Algorithms 1 and 2; "regret_matching" and
            "optimistic" converge much faster. All but "lp" take `iterations`.
        C: the bound on w = μ^π/μ_D, how far the policy may go from the data; chosen by `sensitivity` if not given (and
            larger, if that is what a confidence takes).
        B: the bound on the multipliers, in units in which the largest reward and cost are 1; by default from the data
            (see `lp.choose_B`).
        min_count: pairs with fewer rows are left out (see `rare`); by default 10, 1 in a deterministic world, or what
            the limits need.
        iterations: T.
        resamples: logs for the intervals and the choice of C; 0 for none, and then C must be given. By default 200,
            or 50 when the log has more than 2,000 pairs.
        refits: resampled logs to learn from again, for the optimism; each costs a linear program (times the number of
            candidates if C is chosen). By default 20, or 3 when the log has more than 1,000 pairs.
        level: of the intervals.
        confidence: such as 0.95: learn candidates from one part of the log and test them on the other; the boldest that
            passes is returned, with status "shown". If none does it is "not_shown" (see `inference.confidence`).
        seed: of the resampled logs.
        progress: is told in words what is being done.
        renamed: settings under their names of 0.2, see `deprecations`.
    """
    for name, value in deprecations.settings("solve", renamed).items():
        if name != "refits":
            raise TypeError(f"solve() got an unexpected keyword argument {name!r}")
        refits = value
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    counts, given = (data if isinstance(data, Counts) else None), gamma
    if isinstance(data, Counts):
        data, gamma = data.stationary(gamma)
    log, L, chosen = _problem(data, gamma, limits)
    options = _Options(method, C, B, min_count, iterations, resamples, refits, level, seed)
    if confidence is not None and (log is None or resamples == 0):
        raise PdocrlError("a confidence takes counts and resamples.")
    if confidence is not None and log is not None and chosen:
        result = _solve_tested(log, L, chosen, options, confidence, progress)
    else:
        result = _solve_once(log, L, chosen, options, progress)
    return result if counts is None else result.of_log(counts, given)


@dataclasses.dataclass(frozen=True)
class _Options:
    """How to solve, as it was asked for; see `solve`."""

    method: Method
    C: float | None
    B: float | None
    min_count: int | None
    iterations: int
    resamples: int | None
    refits: int | None
    level: float
    seed: int

    def sized(self, pairs: int) -> tuple[int, int]:
        """Resamples and refits for a log of so many pairs."""
        refits = (20 if pairs <= SIMPLEX_UP_TO else 3) if self.refits is None else self.refits
        resamples = (200 if pairs <= LP_UP_TO else 50) if self.resamples is None else self.resamples
        if not (0 < self.level < 1 and resamples >= 0 and refits >= 0 and self.iterations > 0):
            raise PdocrlError(
                "level must lie between 0 and 1, and resamples, refits and iterations must not be negative."
            )
        return resamples, refits


def _solve_once(
    log: Counts | None, L: Lagrangian, limits: tuple[Limit, ...], options: _Options, progress: Progress
) -> Result:
    """The optimum of the log's own model, with intervals moved out by the optimism of learning from the same log."""
    counts, min_count, whole = log, options.min_count, L
    if log is not None:
        counts, min_count = _frequent(log, L.gamma, limits, min_count)
        L = whole if counts is log else Lagrangian.empirical(counts, L.gamma, limits)
    pairs = int(L.seen.sum())
    resamples, refits = options.sized(pairs)
    C = options.C
    if C is None and (counts is None or not resamples):
        raise PdocrlError("choosing C takes counts and resamples: give C.")
    choices: tuple[Choice, ...] = ()
    solved: list[Solution] = []
    if C is None and pairs > LP_UP_TO:
        C = np.inf
    elif C is None and counts is not None:
        grid = GRID if pairs <= SIMPLEX_UP_TO else COARSE
        choices, solved = try_bounds(counts, L, limits, grid, min(resamples, 100), refits, options.seed, progress)
    best = max(choices, key=lambda choice: (choice.limits == "satisfied", choice.score), default=None)
    if best is not None:
        C = np.inf if best.C is None else best.C
    setup = Setup(float(C or 0.0), options.B, options.method, options.iterations)
    if best is not None and setup == Setup(setup.C):  # it was solved to be chosen
        solution = solved[choices.index(best)]
    else:
        progress(f"solving with C = {setup.C:g}")
        solution = solve_saddle(L, setup)
    spread = None
    if log is not None and counts is not None and resamples:
        optimism = None if best is None else np.array(best.optimism)
        learned_by = Candidate(Setup(setup.C, options.B), min_count or 1)
        spread = _intervals(log, counts, limits, solution, learned_by, optimism, L.tau, options, progress)
    return make_result(log, limits, solution, options.method, spread, choices, min_count or 1, whole)


def _intervals(
    log: Counts,
    counts: Counts,
    limits: tuple[Limit, ...],
    solution: Solution,
    learned_by: Candidate,
    optimism: Floats | None,
    tau: Floats,
    options: _Options,
    progress: Progress,
) -> Intervals:
    """Of a policy learned from the same log."""
    pairs = int((counts.n > 0).sum())
    _, refits = options.sized(pairs)
    gamma, seed = solution.L.gamma, options.seed
    if optimism is None:
        optimism = bootstrap(counts, limits, [solution], 0, refits, seed, progress).optimism[0]
    if refits and log.size > 1:
        progress("sample splitting: learning from both parts of the log")
        splits = SPLITS if pairs <= SIMPLEX_UP_TO else 1
        split_bias = optimism_bias(log, gamma, limits, learned_by, solution.L.tau - tau, splits, seed)
        optimism = np.maximum(optimism, split_bias)
    return intervals(PolicyEstimate(log, gamma, solution.policy), optimism, limits, options.level)


def _frequent(log: Counts, gamma: float, limits: tuple[Limit, ...], min_count: int | None) -> tuple[Counts, int]:
    """The counts of pairs above the count threshold, which is chosen if not given."""
    return choose(log, gamma, limits) if min_count is None else (frequent_only(log, min_count), min_count)


def _solve_tested(
    log: Counts,
    L: Lagrangian,
    limits: tuple[Limit, ...],
    options: _Options,
    confidence: float,
    progress: Progress,
) -> Result:
    """A policy learned from one part of the log that passes a safety test on the other; or one that is not shown."""
    learning, held_out = split_log(log, confidence, options.seed)
    counts, min_count = _frequent(learning, L.gamma, limits, options.min_count)
    part = Lagrangian.empirical(counts, L.gamma, limits)
    candidates = _candidates(part, options, min_count)
    if nothing_keeps(log, L.gamma, limits, candidates):
        result = _solve_once(log, L, limits, options, progress)
        estimates = named(limits, result.costs)
        test = structs.replace(untested(confidence, limits), possible=False, estimates=estimates)
        return result.telling(confidence=test)
    tested = run_safety_tests(learning, held_out, L.gamma, limits, candidates, confidence, options.seed, progress)
    if tested.policy is not None:
        return _held_out_result(log, L, limits, options, tested, held_out)
    last, test = candidates[-1], tested.test
    if test.learned == "behaviour":
        policy, estimate = behaviour_of(log, L.gamma, limits)
        solution = with_policy(solve_saddle(L, Setup(np.inf)), policy)
        test = structs.replace(test, estimates=named(limits, estimate))
    else:
        progress("planning for costs inflated by what few rows can hide")
        min_count = last.rows(log, L.gamma, limits)
        solution = last.solve(last.problem(log, L.gamma, limits), np.zeros(len(limits)))
        one_row = last.one_row_is_enough
        test = structs.replace(test, learned="inflated", min_count=min_count, one_row_is_enough=one_row)
    counts = frequent_only(log, min_count)
    spread = _intervals(log, counts, limits, solution, last, None, solution.L.tau, options, progress)
    return make_result(log, limits, solution, options.method, spread, (), min_count, L, test)


def _held_out_result(
    log: Counts,
    L: Lagrangian,
    limits: tuple[Limit, ...],
    options: _Options,
    tested: Tested,
    held_out: Counts,
) -> Result:
    """Of a policy that passed: value and costs are those of the held-out part, since the other flatters what it chose.

    Certificate and coverage are in the whole log's model.
    """
    assert tested.policy is not None
    solution = with_policy(solve_saddle(L, Setup(np.inf)), tested.policy)
    estimate = PolicyEstimate(held_out, L.gamma, tested.policy)
    spread = intervals(estimate, np.zeros(1 + len(limits)), limits, options.level)
    result = make_result(log, limits, solution, options.method, spread, (), tested.test.min_count, L, tested.test)
    rows = [1 + limit.index(log.cost_names) for limit in limits]
    ends = [int(limit.sign < 0) for limit in limits]
    signs = np.array([limit.sign for limit in limits])
    return result.telling(
        value=float(estimate.estimate[0, 0]),
        costs=named(limits, estimate.estimate[rows, ends]),
        tightened=named(limits, np.array([limit.value for limit in limits]) + signs * tested.inward),
    )


def _candidates(part: Lagrangian, options: _Options, min_count: int) -> list[Candidate]:
    """For a confidence: from near the log to as far as one likes, with more and fewer rows asked of a pair, by bounds.

    Where programs take seconds, more rows alone have to do for nearness. What was given (C, the rows) stays. The last
    one is for costs inflated by what few rows can hide.
    """
    fixed, large = options.min_count is not None, int(part.seen.sum()) > SIMPLEX_UP_TO
    bounds = [options.C] if options.C is not None else [np.inf] if large else list(NEAR)
    free = Setup(np.inf, options.B)
    found = [Candidate(Setup(C, options.B, options.method, options.iterations), min_count) for C in bounds]
    if not fixed and min_count > 1:
        more = (2 * min_count, 4 * min_count if large else min_count // 2)
        found += [Candidate(found[-1].setup, rows) for rows in more]
    price = solve_saddle(part, free).sets.B
    asked = [min_count] if fixed or min_count == 1 else [min_count, 2 * min_count]
    # In a deterministic world one row is enough, and rows that were given stay.
    thresholds = (min_count,) if fixed or min_count == 1 else ROWS
    inflated = Candidate(free, thresholds[-1], inflated=True, thresholds=thresholds)
    return [*found, *(Candidate(free, rows, price=price) for rows in asked), inflated]


def _problem(
    data: Counts | Lagrangian, gamma: float | None, limits: Limits
) -> tuple[Counts | None, Lagrangian, tuple[Limit, ...]]:
    chosen = as_limits(limits)
    if isinstance(data, Counts):
        assert gamma is not None, "`solve` saw to it"
        return data, Lagrangian.empirical(data, gamma, chosen), chosen
    if chosen or gamma not in {None, data.gamma}:
        raise PdocrlError("a Lagrangian has its own limits and discount; leave `limits` and `gamma` out.")
    return None, data, tuple(Limit(f"g_{i}", float(t), ">=") for i, t in enumerate(data.tau))
