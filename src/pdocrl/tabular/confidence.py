"""Limits kept with confidence: aim inside them until policies learned on one half of the log are cleared by the other.

A policy learned from a log looks better in that log than it is, since learning prefers what happened to go well; no
interval from the same rows sees this. So the log is cut in two (whole episodes, where it names them): each half learns,
and the other half, which had no say, judges what it learned (`bounds.clustered`). The aim is moved into the limits,
never further than some policy of the log can go, until the judges agree; then the whole log learns with that aim, from
twice the rows. If no aim is cleared the limits are *not shown* to be kept, and the answer says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from pdocrl.errors import PdocrlError
from pdocrl.tabular.bounds import PolicyEstimate, score, spread_of_episodes
from pdocrl.tabular.cmdp import extract
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.lagrangian import Lagrangian, Units
from pdocrl.tabular.limits import Limit
from pdocrl.tabular.rare import trusted
from pdocrl.tabular.solution import Setup, Solution, best_policy, room, solve_saddle
from pdocrl.tabular.split import split

AIMS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)  # shares of the room inside the limits
KNOWN = 5  # tries of some action after which a half knows a state
CUTS = 3  # ways to cut the log in two, each with two policies and two judges; all have to agree


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to learn from a log: a bound on w, and how many rows a pair needs."""

    setup: Setup
    min_count: int

    def problem(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> Lagrangian:
        """What is learned from: the log without its rare pairs."""
        return Lagrangian.empirical(trusted(log, self.min_count), gamma, limits)

    def solve(self, L: Lagrangian, inward: Floats) -> Solution:
        """The best policy that keeps every limit by `inward` [I], in the limits' own units."""
        return solve_saddle(dataclasses.replace(L, tau=L.tau + inward), self.setup)

    def policy(self, L: Lagrangian, inward: Floats) -> Floats:
        """Its policy [S, A] alone, which takes a fraction of the time."""
        return best_policy(dataclasses.replace(L, tau=L.tau + inward), self.setup)

    def room(self, L: Lagrangian) -> Floats:
        """[I] how far inside each limit a policy of the log can be, in the limits' own units; 0 if outside."""
        units = Units.of(L)
        return np.asarray(max(room(units.scale(L), self.setup.C), 0.0) * units.constraints)


@dataclasses.dataclass(frozen=True, eq=False)
class Assurance:
    """What the halves said of the policies learned at the chosen aim. Columns are in their own sign."""

    confidence: float
    reached: bool  # whether every limit is kept by the bound
    bound: Floats  # [I] the worst end, at the confidence, of each limited column
    estimate: Floats  # [I] the middle of it
    option: int  # which of the ways to learn it was


@dataclasses.dataclass(frozen=True, eq=False)
class _Trial:
    option: int
    inward: Floats  # [I]
    value: float  # of the halves' policies, according to the other halves
    bound: Floats  # [I] of each limited column, in its own sign
    estimate: Floats  # [I]
    short: float  # by how much the bound misses the limits, in shares of their room; ≤ 0 if it keeps them
    likely: float  # the same of a bound that does not reckon with rare events the log has not seen


def aim_inside(
    counts: Counts,
    gamma: float,
    limits: Sequence[Limit],
    options: Sequence[Way],
    confidence: float,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Solution, Assurance]:
    """The solution of the whole log with the best aim the halves clear; failing that, the one most likely within.

    Of the ways to learn that are cleared the one that earns most is taken. With several limits each gets its part of
    the risk.
    """
    if not 0.5 <= confidence < 1:
        raise PdocrlError(f"the confidence is {confidence}; it must be at least 0.5 and below 1.")
    halves = [split(counts, np.random.default_rng([seed, cut])) for cut in range(CUTS)]
    pairs = [pair for first, second in halves for pair in ((first, second), (second, first))]
    trials: list[_Trial] = []
    for number, way in enumerate(options):
        progress(f"aiming inside the limits: way {number + 1} of {len(options)}")
        trials += _tried(counts, pairs, gamma, limits, (number, way), confidence)
    if not trials:  # nothing keeps the limits even in the log itself
        nothing, way = np.zeros(len(limits)), options[0]
        L = way.problem(counts, gamma, limits)
        benches = [_Bench(counts, counts, L, nothing)]
        own = _judge(benches, gamma, limits, (0, way), nothing, np.ones(len(limits)), confidence)
        return way.solve(L, nothing), _shown(own, confidence, reached=False)
    cleared = [trial for trial in trials if trial.short <= 0]
    best = max(cleared, key=lambda t: t.value) if cleared else min(reversed(trials), key=lambda t: t.likely)
    way = options[best.option]
    return way.solve(way.problem(counts, gamma, limits), best.inward), _shown(best, confidence, reached=bool(cleared))


def _tried(
    counts: Counts,
    pairs: Sequence[tuple[Counts, Counts]],
    gamma: float,
    limits: Sequence[Limit],
    way: tuple[int, Way],
    confidence: float,
) -> list[_Trial]:
    """One way to learn, at every aim up to the first that is cleared, and halfway back; none if it has no room."""
    trials: list[_Trial] = []
    failed, room = 0.0, way[1].room(way[1].problem(counts, gamma, limits))
    if not room.all():
        return []
    problems = [way[1].problem(learner, gamma, limits) for learner, _ in pairs]
    benches = [_Bench(*pair, L, way[1].room(L)) for pair, L in zip(pairs, problems, strict=True)]
    for aim in AIMS:
        trials.append(_judge(benches, gamma, limits, way, aim * room, room, confidence))
        if trials[-1].short <= 0:  # going further in only earns less
            back = _judge(benches, gamma, limits, way, (failed + aim) / 2 * room, room, confidence)
            return [*trials, back]
        failed = aim
    return trials


def overrated(
    counts: Counts, gamma: float, limits: Sequence[Limit], way: Way, inward: Floats, cuts: int = CUTS, seed: int = 0
) -> Floats:
    """[1+I] by how much value and constraint rewards look better to the half that learned than to the other.

    A redrawn log cannot have what the log has not seen, so learning again from those misses one kind of optimism: a way
    round the cliff looks safe where no gust blew in ten tries, and is chosen for it. The other half may have seen one.
    Where the other half has nothing, the word of the one that learned stands: what nobody tried is no optimism.
    """
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in limits)]
    signs = np.array([1.0, *(limit.sign for limit in limits)])
    end = (signs < 0).astype(int)  # pairs the log lacks count at their worst
    behaviour = extract(counts.n.astype(np.float64))
    found = []
    for cut in range(cuts):
        first, second = split(counts, np.random.default_rng([seed, cut]))
        for learner, judge in ((first, second), (second, first)):
            L = way.problem(learner, gamma, limits)
            aim = np.minimum(inward, 0.99 * way.room(L)) if inward.any() else inward
            policy = _known(learner, way.policy(L, aim), behaviour)
            sides = (learner, _filled(judge, learner))
            own, other = (PolicyEstimate(half, gamma, policy).estimate[rows, end] for half in sides)
            found.append(signs * (own - other))
    return np.asarray(np.mean(found, axis=0))


def _filled(judge: Counts, learner: Counts) -> Counts:
    """The judge's counts with the learner's at pairs where the judge has none."""
    lacks = (judge.n == 0) & (learner.n > 0)
    if not lacks.any():
        return judge
    more = learner.only(lacks)
    names = ("pair", "to", "count", "mean", "variance")
    both = {name: np.concatenate([getattr(judge, name), getattr(more, name)], axis=-1) for name in names}
    order = np.lexsort((both["to"], both["pair"]))
    changes: dict[str, Any] = {name: both[name][..., order] for name in names}
    return dataclasses.replace(judge, **changes, groups=None)


def _known(learner: Counts, policy: Floats, behaviour: Floats) -> Floats:
    """Where a half has hardly been, the whole log will know better what to do: it does at least as the log did."""
    return np.where(learner.n.max(axis=1, keepdims=True) >= KNOWN, policy, behaviour)


@dataclasses.dataclass(frozen=True, eq=False)
class _Bench:
    """One half that learns, the other that judges, and how far inside the limits the first can go."""

    learner: Counts
    judge: Counts
    problem: Lagrangian  # of the learner
    room: Floats  # [I]


def _judge(
    benches: Sequence[_Bench],
    gamma: float,
    limits: Sequence[Limit],
    way: tuple[int, Way],
    inward: Floats,
    room: Floats,
    confidence: float,
) -> _Trial:
    """Learn on each half, judge by the other, and take the mean of the two judges, who share no row.

    Choosing the first aim that is cleared makes them a little too kind; that the whole log learns better than the half
    they judge makes up for it. Each limit has its part of the risk.
    """
    judges = min(len(benches), 2)
    each = 1 - 2 * (1 - confidence) / len(limits)  # two-sided, of which one end is used
    z = float(norm.ppf((1 + each) / 2))
    signs = np.array([limit.sign for limit in limits])
    tau = np.array([limit.sign * limit.value for limit in limits])
    rows = [1 + limit.index(benches[0].judge.cost_names) for limit in limits]
    end = (signs < 0).astype(int)  # the upper end of a cost, the lower end of what must be at least so much
    tries = sum(bench.judge.n + bench.learner.n for bench in benches)
    behaviour = extract(np.asarray(tries, np.float64))
    found, spreads, values = [], [], []
    for bench in benches:
        policy = way[1].policy(bench.problem, np.minimum(inward, 0.99 * bench.room))
        policy = _known(bench.learner, policy, behaviour)
        estimate = PolicyEstimate(bench.judge, gamma, policy)
        both = [spread_of_episodes(estimate, high, each) for high in (False, True)]
        values.append(estimate.estimate[0, 0])
        found.append(estimate.estimate[rows, end])
        spreads.append([(both[e].variance[k], both[e].jump[k]) for k, e in zip(rows, end, strict=True)])
    # The two judges of a cut share no row: their mean has half the variance, and one event moves it half as far. One
    # who has seen no disaster is told by the other how large they come.
    middle = np.reshape(found, (-1, judges, len(limits))).mean(axis=1)
    parts = np.reshape(spreads, (-1, judges, len(limits), 2))
    variance, jump = parts[..., 0].mean(axis=1) / judges, parts[..., 1].max(axis=1) / judges
    upper, lower = (score(middle, variance, jump, z, high) for high in (True, False))
    spans = np.array([PolicyEstimate(bench.judge, gamma, behaviour).span[rows] for bench in benches])
    bound = np.clip(np.where(end, upper, lower), spans[..., 0].min(axis=0), spans[..., 1].max(axis=0))
    short = (tau - signs * bound) / room
    likely = (tau - signs * middle + z * np.sqrt(variance)) / room
    worst = int(short.max(axis=1).argmax())  # every cut has to clear it: one alone may be lucky
    return _Trial(
        way[0], inward, float(np.mean(values)), bound[worst], middle[worst], float(short.max()), float(likely.max())
    )


def _shown(trial: _Trial, confidence: float, reached: bool) -> Assurance:
    return Assurance(confidence, reached, trial.bound, trial.estimate, trial.option)
