"""From counts to a policy: `solve`, the one door to the tabular half.

counts → without rare pairs → C (chosen or given) → B (the price of the limits) → saddle point
       → policy, certificate, coverage, intervals
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.tabular.counts import Counts, Ints, Label
from pdocrl.tabular.inference.bootstrap import Intervals, intervals, redraw
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.inference.candidates import LastWay, Way
from pdocrl.tabular.inference.confidence import Assurance, aim_inside
from pdocrl.tabular.inference.coverage import Coverage, cover
from pdocrl.tabular.inference.judges import CUTS, overrated
from pdocrl.tabular.inference.sensitivity import COARSE, GRID, Choice, sensitivity
from pdocrl.tabular.io.episodes import weighted
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.certificate import Certificate, Point
from pdocrl.tabular.solvers.cost_inflation import ROWS
from pdocrl.tabular.solvers.count_threshold import OFTEN, choose, trusted
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, Sets, careful, pessimistic_model
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO
from pdocrl.tabular.solvers.saddle import Method, Setup, Solution, Status, outcome, solve_saddle

NEAR = 3.0  # a bound on w that a confidence tries beside the chosen one
LP_UP_TO = 2000  # pairs; beyond, one linear program takes many seconds, and w is not bounded unless C is given


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A policy and what is known about it. Values and costs are (1−γ)J, or per episode where states have a step."""

    status: Status
    policy: Floats  # [S, A]
    value: float  # of the policy in the log's own model, where leaving the data is followed by the worst
    costs: Floats  # [I] likewise, of each limited column
    log_value: float  # the same of the policy that made the log
    log_costs: Floats  # [I]
    limits: tuple[Limit, ...]
    tightened: Floats  # [I] the limits that were solved for; other than `limits` only with a confidence
    multipliers: Floats  # [I] λ: what one unit of each limit is worth in reward
    certificate: Certificate
    margin: float  # how far inside all limits a covered policy can be; negative if none keeps them
    coverage: Coverage
    intervals: Intervals | None
    choices: tuple[Choice, ...]  # what other C would have given, if C was chosen
    mixture: Mixture | None  # of pdocrl and pdorl
    point: Point
    sets: Sets
    method: str
    gamma: float
    unit: Literal["step", "discounted", "episode"]  # of value and costs; see `solve`
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    n: Ints | None  # [S, A] rows of the log at each pair
    shown: Assurance | None  # with a confidence: what one half of the log said of the policies of the other
    min_count: int  # pairs with fewer rows were left out, but for each state's most frequent
    careful: Floats  # [A] what to do in states the log has nothing of: its mix of the actions that cost least

    def __repr__(self) -> str:
        S, A = self.policy.shape
        costs = ", ".join(f"{limit} (is {cost:.4g})" for limit, cost in zip(self.limits, self.costs, strict=True))
        return f"Result({self.status}: value {self.value:.4g}; {costs or 'no limits'}; {S} states, {A} actions)"

    @property
    def thin(self) -> float:
        """The share of the policy's steps at pairs with fewer than `OFTEN` rows: there its estimate is a guess."""
        enough = self.min_count == 1 if self.shown is None else self.shown.way.one_row_is_enough
        if self.n is None or enough:
            return 0.0
        mu = self.coverage.mu
        return float(mu[self.n < OFTEN].sum() / max(float(mu.sum()), 1e-300))


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
    relearned: int | None = None,
    level: float = 0.95,
    confidence: float | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """The best policy the data supports that keeps the limits.

    Values, costs and limits are (1−γ)J. Where nothing ends, that is a discounted average per step ("step"). Where
    episodes end it is what an episode pays, discounted, times 1−γ ("discounted"). If the counts tell steps apart (see
    `episodes`), they are totals per episode: of the reward discounted by γ, which may be 1, and of costs ("episode").

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
        resamples: redrawn logs for the intervals and the choice of C; 0 for none, and then C must be given. By default
            200, or 50 when the log has more than 2,000 pairs.
        relearned: redrawn logs to learn from again, for the optimism; each costs a linear program (times the number of
            candidates if C is chosen). By default 20, or 3 when the log has more than 1,000 pairs.
        level: of the intervals.
        confidence: plan more carefully until halves of the log clear each other's policies with this confidence: the
            status is "shown". If they never do it is "not_shown" (see `confidence`).
        seed: of the redrawn logs.
        progress: is told in words what is being done.
    """
    if method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    given, episodic = gamma, isinstance(data, Counts) and data.horizon is not None
    if isinstance(data, Counts) and data.horizon is not None:
        data, gamma = weighted(data, 1.0 if gamma is None else gamma)
    log, L, chosen = _problem(data, gamma, limits)
    counts, asked = log, min_count is not None
    if log is not None:
        if min_count is None:
            counts, min_count = choose(log, L.gamma, chosen)
        else:
            counts = trusted(log, min_count)
        L = Lagrangian.empirical(counts, L.gamma, chosen)
    pairs = int(L.seen.sum())
    if relearned is None:
        relearned = 20 if pairs <= SIMPLEX_UP_TO else 3
    if resamples is None:
        resamples = 200 if pairs <= LP_UP_TO else 50
    if not (0 < level < 1 and resamples >= 0 and relearned >= 0 and iterations > 0):
        raise PdocrlError(
            "level must lie between 0 and 1, and resamples, relearned and iterations must not be negative."
        )
    if (C is None or confidence is not None) and (counts is None or not resamples):
        raise PdocrlError("choosing C, or a confidence, takes counts and resamples: give C, and no confidence.")
    choices: tuple[Choice, ...] = ()
    if C is None and pairs > LP_UP_TO:
        C = np.inf
    elif C is None and counts is not None:
        choices = sensitivity(
            counts,
            L.gamma,
            chosen,
            grid=GRID if pairs <= SIMPLEX_UP_TO else COARSE,
            resamples=min(resamples, 100),
            relearned=relearned,
            seed=seed,
            progress=progress,
        )
    best = max(choices, key=lambda choice: (choice.limits == "kept", choice.score), default=None)
    setup = Setup(best.C if best else float(C or 0.0), B, method, iterations)
    shown = None
    if confidence is not None and log is not None and chosen:
        large = pairs > SIMPLEX_UP_TO
        ways = _ways(L, setup, choices, min_count or 1, fixed=asked, large=large)
        last = _last_way(setup, min_count or 1, fixed=asked)
        cuts = 1 if large else CUTS
        solution, shown = aim_inside(log, L.gamma, chosen, ways, last, confidence, cuts, seed, progress)
        min_count = shown.way.min_count
        counts = trusted(log, min_count)
    else:
        progress(f"solving with C = {setup.C:g}")
        solution = solve_saddle(L, setup)
    spread = None
    if log is not None and counts is not None and resamples:
        if best is not None and shown is None:
            optimism = best.optimism
        else:
            optimism = redraw(counts, chosen, [solution], 0, relearned, seed, progress).optimism[0]
        if relearned and log.size > 1:
            progress("learning from halves of the log")
            way = shown.way if shown else Way(Setup(setup.C, B), min_count or 1)
            cuts = CUTS if pairs <= SIMPLEX_UP_TO else 1
            halves = overrated(log, L.gamma, chosen, way, solution.L.tau - L.tau, cuts, seed)
            optimism = np.maximum(optimism, halves)
        spread = intervals(PolicyEstimate(log, L.gamma, solution.policy), optimism, chosen, level)
    result = make_result(log, chosen, solution, method, spread, choices, min_count or 1, shown)
    if episodic:
        return dataclasses.replace(result, gamma=1.0 if given is None else given, unit="episode")
    return result


def _ways(
    L: Lagrangian, setup: Setup, choices: tuple[Choice, ...], min_count: int, fixed: bool, large: bool
) -> list[Way]:
    """For a confidence: from near the log to as far as one likes, with more and fewer rows asked of a pair, by bounds.

    Limits moved inwards may need a larger C than the chosen one. Where programs take seconds, more rows alone have to
    do for nearness. What was given (`fixed`: the rows) stays.
    """
    bounds = [setup.C] if large or not choices else sorted({NEAR, setup.C, np.inf})
    ways = [Way(dataclasses.replace(setup, C=C), min_count) for C in bounds]
    if not fixed and min_count > 1:
        ways += [Way(ways[-1].setup, rows) for rows in (2 * min_count, 4 * min_count if large else min_count // 2)]
    free = dataclasses.replace(setup, C=np.inf, method="lp")
    price = solve_saddle(L, free).sets.B
    asked = [min_count] if fixed or min_count == 1 else [min_count, 2 * min_count]
    return [*ways, *(Way(free, rows, price) for rows in asked)]


def _last_way(setup: Setup, min_count: int, fixed: bool) -> LastWay:
    """For where nothing is shown. In a deterministic world one row is enough, and rows that were given stay."""
    either = (min_count,) if fixed or min_count == 1 else ROWS
    return LastWay(dataclasses.replace(setup, C=np.inf, method="lp"), either[-1], either=either)


def _problem(
    data: Counts | Lagrangian, gamma: float | None, limits: Limits
) -> tuple[Counts | None, Lagrangian, tuple[Limit, ...]]:
    chosen = as_limits(limits)
    if isinstance(data, Counts):
        if gamma is None:
            raise PdocrlError("gamma, the discount, must be given.")
        return data, Lagrangian.empirical(data, gamma, chosen), chosen
    if chosen or gamma not in {None, data.gamma}:
        raise PdocrlError("a Lagrangian has its own limits and discount; leave `limits` and `gamma` out.")
    return None, data, tuple(Limit(f"g_{i}", float(t), ">=") for i, t in enumerate(data.tau))


def make_result(
    counts: Counts | None,
    limits: tuple[Limit, ...],
    solution: Solution,
    method: str,
    spread: Intervals | None,
    choices: tuple[Choice, ...],
    min_count: int,
    shown: Assurance | None = None,
) -> Result:
    """All that is said about a solution."""
    L, signs = solution.L, np.array([limit.sign for limit in limits])
    everything = L if counts is None else Lagrangian.empirical(counts, L.gamma, limits)
    log = outcome(pessimistic_model(everything), everything.behaviour)
    states, actions = (counts.states, counts.actions) if counts else (tuple(range(n)) for n in L.r.shape)
    status = solution.status
    if shown is not None and shown.possible:
        status = "shown" if shown.reached else "not_shown"
    return Result(
        status=status,
        policy=solution.policy,
        value=float(solution.estimate[0]),
        costs=signs * solution.estimate[1:] + 0.0,  # no −0
        log_value=float(log[0]),
        log_costs=signs * log[1:] + 0.0,
        limits=limits,
        tightened=signs * L.tau,
        multipliers=solution.multipliers,
        certificate=solution.certificate,
        margin=solution.margin,
        coverage=cover(L, solution.policy, states),
        intervals=spread,
        choices=choices,
        mixture=solution.mixture,
        point=solution.point,
        sets=solution.sets,
        method=method,
        gamma=L.gamma,
        unit="step" if L.P[L.seen.ravel()].sum() > L.seen.sum() - 1e-6 else "discounted",
        states=states,
        actions=actions,
        n=None if counts is None else counts.n,
        min_count=min_count,
        careful=careful(everything.mu_D, everything.g),
        shown=shown,
    )
