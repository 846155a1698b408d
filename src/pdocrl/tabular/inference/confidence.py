"""Limits shown to be satisfied: candidates are learned from one part of a log, and tested on the other.

    log ─▶ learning part ─▶ candidates, from careful to bold ─▶ safety test on the test part ─▶ the boldest that passed

A policy learned from a log looks better in that log than it is, since learning prefers what happened to go well; no
interval from the same rows sees this. So the log is split in two, by whole episodes where it names them. The order of
the tests is fixed by the learning part alone, which is split once more for this (cross-validation). Testing goes on to
the first failure: in a fixed sequence no correction for several tests is needed (the first hypothesis that is wrongly
rejected is rejected with probability α at most, and later ones count only after it). The policy that passed is
returned as it was tested; it is not learned again.

What the test assumes: the state tells all that matters for what follows (see `markov`), whoever acted knew no more than
the state, the world stays as it was, episodes (or rows, where no episodes are named) are independent, and no single
surprise is larger than the largest the log has seen. If nothing passes the limits are *not shown*: the answer is then
learned from the whole log for costs inflated by what few rows can hide. A cost that never occurred has no size, and so
no bound: the behaviour policy, of which the log knows most, is then the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import structs
from scipy.stats import norm

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, limit_names
from pdocrl.records import Part
from pdocrl.tabular.cmdp import extract
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bootstrap import split
from pdocrl.tabular.inference.bounds import PolicyEstimate, score, spread_of_episodes, unknown_size
from pdocrl.tabular.solvers.few_rows import frequent_only, plan_for_bounds, plan_for_inflated, rows_with_margin
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units
from pdocrl.tabular.solvers.saddle import Setup, Solution, best_policy, slater_margin, solve_saddle, with_policy

TIGHTENINGS = (0.0, 0.08, 0.2, 0.4, 0.65, 0.9)  # shares of the Slater margin
PRICES = (0.5, 1.0, 2.0, 4.0, 10.0, 30.0, np.inf)  # of bounds, in units of B
LONGEST = 12  # tests in a sequence


class SafetyTest(Part, frozen=True, kw_only=True):
    """What the test part says of the policy. Columns are in their own sign."""

    asked: float  # the confidence
    reached: bool  # whether every limit is satisfied by its bound
    by: str  # "held-out episodes", "held-out rows"; "nothing" for a policy that was not tested; "halves" in 0.2
    learned: Objective = "costs"  # what was planned for; "behaviour": it is the behaviour policy
    bounds: dict[str, float | None]  # the worst end of each limited column; None if it never occurred
    estimates: dict[str, float]  # by the test part
    min_count: int = 1  # rows that a pair needed
    one_row_is_enough: bool = False  # as in a deterministic world
    tests: int = 0  # in the sequence, the first failure included
    possible: bool = True  # whether any policy of the log's own model satisfies the limits


@dataclasses.dataclass(frozen=True, eq=False)
class Tested:
    """The policy to return, with its test."""

    policy: Floats | None  # [S, A]; None: nothing passed
    test: SafetyTest
    inward: Floats  # [I] by how much limits were tightened in learning


def split_log(counts: Counts, confidence: float, seed: int = 0) -> tuple[Counts, Counts]:
    """The learning part and the held-out part of a log, each of about half of its episodes or rows."""
    if not 0.5 <= confidence < 1:
        raise PdocrlError(f"the confidence is {confidence}; it must be at least 0.5 and below 1.")
    return split(counts, np.random.default_rng([seed, 0]))


def untested(confidence: float, limits: Sequence[Limit]) -> SafetyTest:
    """That nothing is shown, since nothing could be tested."""
    bounds: dict[str, float | None] = dict.fromkeys(limit_names(limits))
    return SafetyTest(asked=confidence, reached=False, by="nothing", bounds=bounds, estimates={})


def named(limits: Sequence[Limit], values: Floats) -> dict[str, Any]:
    """By limits' names."""
    return dict(zip(limit_names(limits), values.tolist(), strict=True))


def run_safety_tests(
    learning: Counts,
    held_out: Counts,
    gamma: float,
    limits: Sequence[Limit],
    candidates: Sequence[Candidate],
    confidence: float,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Tested:
    """The boldest candidate learned on one part that passes on the other; each limit has its share of α.

    Args:
        learning: the part candidates are learned from, ordered by, and nothing else.
        held_out: the part they are tested on, see `split_log`.
        gamma: the discount.
        limits: of which each is tested.
        candidates: ways to learn (tightenings and prices are tried here).
        confidence: 1 − α.
        seed: of the cross-validation.
        progress: is told in words what is being done.
    """
    on = "held-out rows" if held_out.groups is None else "held-out episodes"
    nothing = np.zeros(len(limits))
    if unknown_size(learning, limits) and unknown_size(held_out, limits):
        test = structs.replace(untested(confidence, limits), learned="behaviour")
        return Tested(None, test, nothing)
    sequence = _sequence(learning, gamma, limits, candidates, confidence, seed, progress)
    passed = None
    first = None
    for number, candidate in enumerate(sequence):
        progress(f"testing candidate {number + 1} of {len(sequence)}")
        policy, inward = candidate.learn(learning, gamma, limits)
        bound, estimate = upper_bounds([held_out], [policy], gamma, limits, confidence, seen_by=learning)
        kept = _short(bound, limits, np.ones(len(limits))) <= 0
        test = SafetyTest(
            asked=confidence,
            reached=kept,
            by=on,
            learned=candidate.objective,
            bounds=named(limits, bound),
            estimates=named(limits, estimate),
            min_count=candidate.min_count,
            one_row_is_enough=candidate.one_row_is_enough,
            tests=number + 1,
        )
        found = Tested(policy, test, inward)
        first = first or found
        if not kept:
            break
        passed = found
    if passed is not None:
        return passed
    assert first is not None
    return dataclasses.replace(first, policy=None)


def _sequence(
    learning: Counts,
    gamma: float,
    limits: Sequence[Limit],
    candidates: Sequence[Candidate],
    confidence: float,
    seed: int,
    progress: Callable[[str], None],
) -> list[Candidate]:
    """Candidates in the order of their tests, from careful to bold, by cross-validation within the learning part."""
    parts = split(learning, np.random.default_rng([seed, 1]))
    found: list[tuple[float, float, Candidate]] = []
    scale = np.ones(len(limits))
    margins = [candidate.problem(learning, gamma, limits).margin for candidate in candidates]
    if margins:
        scale = np.maximum(np.max(margins, axis=0), 1e-12)
    for number, candidate in enumerate(candidates):
        progress(f"cross-validating candidates: {number + 1} of {len(candidates)}")
        halved = dataclasses.replace(candidate, min_count=(candidate.min_count + 1) // 2)
        problems = [halved.problem(part, gamma, limits) for part in parts]
        for bolder in _from_bold_to_careful(candidate):
            inward = bolder.tightening * margins[number]
            own = dataclasses.replace(bolder, min_count=halved.min_count)
            policies = [own.policy(p, np.minimum(inward, 0.99 * p.margin)) for p in problems]
            bound, _ = upper_bounds(parts[::-1], policies, gamma, limits, confidence)
            short = _short(bound, limits, scale)
            judged = zip(parts[::-1], policies, strict=True)
            value = float(np.mean([PolicyEstimate(part, gamma, pi).estimate[0, 0] for part, pi in judged]))
            found.append((short, value, bolder))
            if short <= -CLEAR:  # more careful ones only have less reward
                break
    found.sort(key=lambda one: one[0])
    sequence: list[tuple[float, float, Candidate]] = []
    for one in found:  # a bolder one has to promise more
        if not sequence or one[1] > sequence[-1][1]:
            sequence.append(one)
    while len(sequence) > LONGEST:  # steps that promise least more go first
        gains = np.diff([value for _, value, _ in sequence])
        del sequence[1 + int(gains.argmin())]
    return [candidate for _, _, candidate in sequence]


CLEAR = 0.1  # of the margin by which cross-validation has to satisfy the limits before nothing more careful is tried


def _from_bold_to_careful(candidate: Candidate) -> list[Candidate]:
    if candidate.inflated:
        return [candidate]
    if candidate.price is None:
        return [dataclasses.replace(candidate, tightening=share) for share in TIGHTENINGS]
    return [dataclasses.replace(candidate, price=factor * candidate.price) for factor in PRICES]


def upper_bounds(
    parts: Sequence[Counts],
    policies: Sequence[Floats],
    gamma: float,
    limits: Sequence[Limit],
    confidence: float,
    seen_by: Counts | None = None,
) -> tuple[Floats, Floats]:
    """[I] the worst end of each limited column, and its estimate, for policies [S, A] that their part had no say in.

    With several parts, of the mean over the policies. What `seen_by` has seen tells how large surprises come.
    """
    each = 1 - 2 * (1 - confidence) / len(limits)  # two-sided, of which one end is used
    z = float(norm.ppf((1 + each) / 2))
    rows = [1 + limit.index(parts[0].cost_names) for limit in limits]
    end = np.array([int(limit.sign < 0) for limit in limits])  # the upper end of a cost
    middles, variances, jumps, spans = [], [], [], []
    for part, policy in zip(parts, policies, strict=True):
        estimate = PolicyEstimate(part, gamma, policy)
        ends = [spread_of_episodes(estimate, high, each, anywhere=True) for high in (False, True)]
        middles.append(estimate.estimate[rows, end])
        variances.append([ends[e].variance[k] for k, e in zip(rows, end, strict=True)])
        jumps.append([ends[e].jump[k] for k, e in zip(rows, end, strict=True)])
        spans.append(estimate.span[rows])
        if seen_by is not None:
            other = PolicyEstimate(seen_by, gamma, policy)
            more = [spread_of_episodes(other, high, each, anywhere=True).jump for high in (False, True)]
            jumps.append([more[e][k] for k, e in zip(rows, end, strict=True)])
            spans.append(other.span[rows])
    middle, variance = np.mean(middles, axis=0), np.mean(variances, axis=0) / len(parts)
    jump = np.max(jumps, axis=0) / len(parts)
    upper, lower = (score(middle, variance, jump, z, high) for high in (True, False))
    least, most = np.min(spans, axis=0)[:, 0], np.max(spans, axis=0)[:, 1]
    bound = np.clip(np.where(end, upper, lower), least, most)
    return np.where(end, np.maximum(bound, middle), np.minimum(bound, middle)), middle


def _short(bound: Floats, limits: Sequence[Limit], scale: Floats) -> float:
    """By how much bounds [I] miss the limits, in shares of `scale` [I]; ≤ 0 where they satisfy all of them."""
    missed = [limit.sign * (limit.value - end) for limit, end in zip(limits, bound, strict=True)]
    return float((np.array(missed) / scale).max())


def nothing_keeps(counts: Counts, gamma: float, limits: Sequence[Limit], candidates: Sequence[Candidate]) -> bool:
    """Whether no policy of the log's own model satisfies all limits."""
    return not any(candidate.problem(counts, gamma, limits).margin.all() for candidate in candidates)


def behaviour_of(counts: Counts, gamma: float, limits: Sequence[Limit]) -> tuple[Floats, Floats]:
    """The policy [S, A] that made the log, and [I] the estimate of each limited column."""
    policy = Lagrangian.empirical(counts, gamma, limits).behaviour
    rows = [1 + limit.index(counts.cost_names) for limit in limits]
    return policy, PolicyEstimate(counts, gamma, policy).estimate[rows, 1]


Objective = Literal["costs", "bounds", "inflated", "behaviour"]  # what was planned for, or the log's own policy
Z = 1.645  # of the bounds that are planned for


class Problem(NamedTuple):
    """What a candidate is learned from."""

    counts: Counts  # of pairs above the count threshold
    L: Lagrangian
    limits: tuple[Limit, ...]
    margin: Floats  # [I] how far inside each limit a covered policy can be, in the limits' own units; 0 if outside


@dataclasses.dataclass(frozen=True)
class Candidate:
    """How one is learned."""

    setup: Setup
    min_count: int
    tightening: float = 0.0  # of the limits, in shares of the Slater margin
    price: float | None = None  # of bounds on costs (see `robust`); None: reward within limits on the costs themselves
    inflated: bool = False  # plan for costs inflated by what few rows can hide (see `cost_inflation`)
    thresholds: tuple[int, ...] = ()  # of an inflated one: rows a pair needs, the first that leaves a margin

    @property
    def objective(self) -> Objective:
        """What is planned for."""
        if self.inflated:
            return "inflated"
        return "costs" if self.price is None else "bounds"

    @property
    def one_row_is_enough(self) -> bool:
        """Whether a pair is believed after one row, as in a deterministic world."""
        return self.thresholds == (1,) if self.inflated else self.min_count == 1

    def problem(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> Problem:
        """The log without pairs below the count threshold."""
        counts = frequent_only(log, self.rows(log, gamma, limits))
        L = Lagrangian.empirical(counts, gamma, limits)
        units = Units.of(L)
        inside = np.asarray(max(slater_margin(units.scale(L), self.setup.C), 0.0) * units.constraints)
        return Problem(counts, L, tuple(limits), inside)

    def rows(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> int:
        """That a pair of this log needs."""
        return rows_with_margin(log, gamma, limits, self.thresholds) if self.inflated else self.min_count

    def solve(self, problem: Problem, inward: Floats) -> Solution:
        """The best policy that satisfies every limit by `inward` [I], in the limits' own units."""
        L = problem.L
        found = solve_saddle(dataclasses.replace(L, tau=L.tau + inward), self.setup)
        return with_policy(found, self.policy(problem, inward)) if self.objective != "costs" else found

    def policy(self, problem: Problem, inward: Floats) -> Floats:
        """Its policy [S, A] alone, which takes a fraction of the time."""
        L = problem.L
        if self.inflated:
            return plan_for_inflated(problem.counts, L, problem.limits, Z)
        if self.price is not None:
            return plan_for_bounds(problem.counts, L, problem.limits, Z, self.price)
        return best_policy(dataclasses.replace(L, tau=L.tau + inward), self.setup)

    def learn(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> tuple[Floats, Floats]:
        """The policy [S, A] learned from a log, and by how much [I] its limits were tightened."""
        problem = self.problem(log, gamma, limits)
        inward = self.tightening * problem.margin
        return self.policy(problem, inward), inward


KNOWN = 5  # tries of some action after which a half knows a state
SPLITS = 3  # of a log in two, over which the bias is averaged


def optimism_bias(
    counts: Counts,
    gamma: float,
    limits: Sequence[Limit],
    candidate: Candidate,
    inward: Floats,
    splits: int = SPLITS,
    seed: int = 0,
) -> Floats:
    """[1+I] by how much value and constraint rewards look better to the half that learned than to the other.

    A bootstrap resample cannot have what the log has not seen, so refits miss one kind of optimism: a way round the
    cliff looks safe where no gust blew in ten tries, and is chosen for it. The other half may have seen one. Where one
    half has nothing, the word of the other stands: what nobody tried is no optimism. Halves have half of the rows, and
    are asked for half as many of a pair: they have as much to pick from as the log has.
    """
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in limits)]
    signs = np.array([1.0, *(limit.sign for limit in limits)])
    end = (signs < 0).astype(int)  # pairs the log lacks count at their worst
    behaviour = extract(counts.n.astype(np.float64))
    candidate = dataclasses.replace(candidate, min_count=(candidate.min_count + 1) // 2)
    found = []
    for number in range(splits):
        first, second = split(counts, np.random.default_rng([seed, number]))
        for learner, other_half in ((first, second), (second, first)):
            problem = candidate.problem(learner, gamma, limits)
            aim = np.minimum(inward, 0.99 * problem.margin) if inward.any() else inward
            policy = _known(learner, candidate.policy(problem, aim), behaviour)
            sides = (_filled(learner, other_half), _filled(other_half, learner))
            own, other = (PolicyEstimate(half, gamma, policy).estimate[rows, end] for half in sides)
            found.append(signs * (own - other))
    return np.asarray(np.mean(found, axis=0))


def _filled(other_half: Counts, learner: Counts) -> Counts:
    """The other_half's counts with the learner's at pairs where the other_half has none."""
    lacks = (other_half.n == 0) & (learner.n > 0)
    if not lacks.any():
        return other_half
    more = learner.only(lacks)
    names = ("pair", "to", "count", "mean", "variance")
    both = {name: np.concatenate([getattr(other_half, name), getattr(more, name)], axis=-1) for name in names}
    order = np.lexsort((both["to"], both["pair"]))
    changes: dict[str, Any] = {name: both[name][..., order] for name in names}
    return dataclasses.replace(other_half, **changes, groups=None)


def _known(learner: Counts, policy: Floats, behaviour: Floats) -> Floats:
    """Where a half has hardly been, the whole log will know better what to do: it does at least as the log did."""
    return np.where(learner.n.max(axis=1, keepdims=True) >= KNOWN, policy, behaviour)
