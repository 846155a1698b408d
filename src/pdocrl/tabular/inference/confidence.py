"""Limits kept with confidence: aim inside them until policies learned on one half of the log are cleared by the other.

A policy learned from a log looks better in that log than it is, since learning prefers what happened to go well; no
interval from the same rows sees this. So the log is cut in two (whole episodes, where it names them): each half learns,
and the other half, which had no say, judges what it learned (`bounds.clustered`). The aim is moved into the limits,
never further than some policy of the log can go, until the judges agree; then the whole log learns with that aim, from
twice the rows.

Aiming inside alone is not being careful: the least cost a log promises is where it has hardly been. So each aim is
tried near the log and further away (C, rows a pair needs); the judges' bounds see the difference. If nothing is cleared
the limits are *not shown* to be kept, the answer says so, and is the plan for costs enlarged by what few tries can hide
(`enlarged`): whoever asks for confidence does not want a gamble. A cost that never occurred has no size, and so no
bound: the log's own policy, of which it knows most, is then the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate, unknown_size
from pdocrl.tabular.inference.candidates import LastWay, Learned, Lesson, Way
from pdocrl.tabular.inference.judges import CUTS, Court, Verdict
from pdocrl.tabular.inference.sample_splitting import split
from pdocrl.tabular.solvers.lagrangian import Lagrangian
from pdocrl.tabular.solvers.saddle import Solution, with_policy

AIMS = (0.0, 0.08, 0.2, 0.4, 0.65, 0.9)  # shares of the room inside the limits
PRICES = (0.5, 1.0, 2.0, 4.0, 10.0, 30.0, np.inf)  # of bounds, in units of B


@dataclasses.dataclass(frozen=True, eq=False)
class Assurance:
    """What the halves said of the policies learned the chosen way."""

    confidence: float
    reached: bool  # whether every limit is kept by the bound
    bound: Floats  # [I] the worst end, at the confidence, of each limited column; infinite if it never occurred
    estimate: Floats  # [I] the middle of it
    way: Way  # in which it was learned
    learned: Learned
    possible: bool = True  # whether any policy of the log's own model keeps the limits


def aim_inside(
    counts: Counts,
    gamma: float,
    limits: Sequence[Limit],
    options: Sequence[Way],
    last: LastWay,
    confidence: float,
    cuts: int = CUTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Solution, Assurance]:
    """The solution of the whole log with the best way and aim the halves clear; failing that, by the `last` way.

    Of those that are cleared the one that earns most is taken. With several limits each gets its part of the risk.
    """
    if not 0.5 <= confidence < 1:
        raise PdocrlError(f"the confidence is {confidence}; it must be at least 0.5 and below 1.")
    halves = [split(counts, np.random.default_rng([seed, cut])) for cut in range(cuts)]
    problems = [way.problem(counts, gamma, limits) for way in options]
    nothing = np.zeros(len(limits))
    if not any(problem.room.all() for problem in problems):  # nothing keeps the limits even in the log itself
        own = Court([(counts, counts)], gamma, tuple(limits), np.ones(len(limits)), confidence)
        solution = options[0].solve(problems[0], nothing)
        trial = own.judge(options[0], nothing, [solution.policy])
        return solution, Assurance(confidence, False, trial.bound, trial.estimate, options[0], "costs", possible=False)
    if unknown_size(counts, limits):
        return _own_policy(counts, problems[0], options[0], confidence)
    pairs = [pair for first, second in halves for pair in ((first, second), (second, first))]
    scale = np.max([problem.room for problem in problems], axis=0)
    court, trials = Court(pairs, gamma, tuple(limits), scale, confidence), list[Verdict]()
    for number, (way, problem) in enumerate(zip(options, problems, strict=True)):
        progress(f"aiming inside the limits: way {number + 1} of {len(options)}")
        if problem.room.all():  # what misses the limits by the log's own count need not be judged
            trials += _tried(court, way, problem.room)
    cleared = [trial for trial in trials if trial.short <= 0]
    if not cleared:
        progress("planning for what few rows can hide")
        known = dataclasses.replace(last, min_count=last.rows(counts, gamma, limits))
        trials = [court.judge(known, nothing, [last.policy(p, nothing) for p in _lessons(court, last)])]
    best = max(cleared or trials, key=lambda trial: trial.value)
    solution = best.way.solve(best.way.problem(counts, gamma, limits), best.inward)
    return solution, Assurance(confidence, best.short <= 0, best.bound, best.estimate, best.way, best.way.learns)


def _own_policy(counts: Counts, problem: Lesson, way: Way, confidence: float) -> tuple[Solution, Assurance]:
    """The policy that made the log."""
    solution = way.solve(problem, np.zeros(len(problem.limits)))
    policy = Lagrangian.empirical(counts, problem.L.gamma, problem.limits).behaviour
    rows = [1 + limit.index(counts.cost_names) for limit in problem.limits]
    estimate = PolicyEstimate(counts, problem.L.gamma, policy).estimate[rows, 1]
    bound = np.full(len(rows), np.inf)
    return with_policy(solution, policy), Assurance(confidence, False, bound, estimate, way, "log")


def _tried(court: Court, way: Way, room: Floats) -> list[Verdict]:
    """One way to learn, ever more carefully up to the first aim or price that is cleared, and halfway back."""
    problems = _lessons(court, way)

    def trial(way: Way, aim: float) -> Verdict:
        inward = aim * room
        return court.judge(way, inward, [way.policy(p, np.minimum(inward, 0.99 * p.room)) for p in problems])

    if way.price is None:
        steps = [(way, aim) for aim in AIMS]
    else:
        steps = [(dataclasses.replace(way, price=factor * way.price), 0.0) for factor in PRICES]
    trials: list[Verdict] = []
    for (before, from_aim), (now, aim) in zip([steps[0], *steps], steps, strict=False):
        trials.append(trial(now, aim))
        if trials[-1].short <= 0:  # going further only earns less
            if len(trials) == 1 or np.isinf(now.price or 0.0):
                return trials
            between = (
                now if now.price is None else dataclasses.replace(now, price=np.sqrt(now.price * (before.price or 0)))
            )
            return [*trials, trial(between, (from_aim + aim) / 2)]
    return trials


def _lessons(court: Court, way: Way) -> list[Lesson]:
    """What each half learns from."""
    return [way.problem(learner, court.gamma, court.limits) for learner, _ in court.pairs]
