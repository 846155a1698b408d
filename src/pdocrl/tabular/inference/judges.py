"""One half of a log judges what the other half has learned: it had no say in it, so it is not flattered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import extract
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate, score, spread_of_episodes
from pdocrl.tabular.inference.candidates import Way
from pdocrl.tabular.inference.sample_splitting import split

KNOWN = 5  # tries of some action after which a half knows a state
CUTS = 3  # ways to cut the log in two, each with two policies and two judges; all have to agree


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """What the judges said of one way to learn and one aim. Columns are in their own sign."""

    way: Way
    inward: Floats  # [I] the aim
    value: float  # of the halves' policies, according to the other halves
    bound: Floats  # [I] the worst end, at the confidence, of each limited column
    estimate: Floats  # [I] the middle of it
    short: float  # by how much the bound misses the limits, in shares of the room inside them; ≤ 0 if it keeps them


@dataclasses.dataclass(frozen=True, eq=False)
class Court:
    """Halves that learn and the halves that judge them. The two judges of a cut share no row."""

    pairs: Sequence[tuple[Counts, Counts]]  # (learner, judge)
    gamma: float
    limits: tuple[Limit, ...]
    scale: Floats  # [I] in which a miss of each limit is measured
    confidence: float

    def judge(self, way: Way, inward: Floats, policies: Sequence[Floats]) -> Verdict:
        """What the judges say of one policy from each learner.

        To clear it, every cut has to: one alone may be lucky. Choosing the first aim that is cleared makes them a
        little too kind; that the whole log learns better than the half they judge makes up for it.
        """
        tries = np.asarray(sum(learner.n + judge.n for learner, judge in self.pairs), np.float64)
        behaviour = extract(tries)
        known = [_known(learner, pi, behaviour) for (learner, _), pi in zip(self.pairs, policies, strict=True)]
        value, bound, middle = self._bounds([judge for _, judge in self.pairs], known)
        short = self._short(bound)
        worst = int(short.argmax())
        return Verdict(way, inward, value, bound[worst], middle[worst], float(short.max()))

    def _short(self, bound: Floats) -> Floats:
        """[cuts] by how much bounds [cuts, I] miss the limits."""
        sides = np.array([limit.sign * (limit.value - end) for limit, end in zip(self.limits, bound.T, strict=True)])
        return np.asarray((sides / self.scale[:, None]).max(axis=0))

    def _bounds(self, judges: Sequence[Counts], policies: Sequence[Floats]) -> tuple[float, Floats, Floats]:
        """The mean value, and [cuts, I] the worst end and the middle of each limited column; each has its risk."""
        both = min(len(judges), 2)
        each = 1 - 2 * (1 - self.confidence) / len(self.limits)  # two-sided, of which one end is used
        z = float(norm.ppf((1 + each) / 2))
        rows = [1 + limit.index(judges[0].cost_names) for limit in self.limits]
        end = np.array([int(limit.sign < 0) for limit in self.limits])  # the upper end of a cost
        found, spreads, values, spans = [], [], [], []
        for judge, policy in zip(judges, policies, strict=True):
            estimate = PolicyEstimate(judge, self.gamma, policy)
            ends = [spread_of_episodes(estimate, high, each, anywhere=True) for high in (False, True)]
            values.append(estimate.estimate[0, 0])
            found.append(estimate.estimate[rows, end])
            spans.append(estimate.span[rows])
            spreads.append([(ends[e].variance[k], ends[e].jump[k]) for k, e in zip(rows, end, strict=True)])
        # The mean of two judges has half the variance, and one event moves it half as far. One who has seen no disaster
        # is told by the other how large they come.
        middle = np.reshape(found, (-1, both, len(rows))).mean(axis=1)
        parts = np.reshape(spreads, (-1, both, len(rows), 2))
        variance, jump = parts[..., 0].mean(axis=1) / both, parts[..., 1].max(axis=1) / both
        upper, lower = (score(middle, variance, jump, z, high) for high in (True, False))
        least, most = np.min(spans, axis=0)[:, 0], np.max(spans, axis=0)[:, 1]
        return float(np.mean(values)), np.clip(np.where(end, upper, lower), least, most), middle


def overrated(
    counts: Counts, gamma: float, limits: Sequence[Limit], way: Way, inward: Floats, cuts: int = CUTS, seed: int = 0
) -> Floats:
    """[1+I] by how much value and constraint rewards look better to the half that learned than to the other.

    A redrawn log cannot have what the log has not seen, so learning again from those misses one kind of optimism: a way
    round the cliff looks safe where no gust blew in ten tries, and is chosen for it. The other half may have seen one.
    Where one half has nothing, the word of the other stands: what nobody tried is no optimism. Halves have half of the
    rows, and are asked for half as many of a pair: they have as much to pick from as the log has.
    """
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in limits)]
    signs = np.array([1.0, *(limit.sign for limit in limits)])
    end = (signs < 0).astype(int)  # pairs the log lacks count at their worst
    behaviour = extract(counts.n.astype(np.float64))
    way = dataclasses.replace(way, min_count=(way.min_count + 1) // 2)
    found = []
    for cut in range(cuts):
        first, second = split(counts, np.random.default_rng([seed, cut]))
        for learner, judge in ((first, second), (second, first)):
            problem = way.problem(learner, gamma, limits)
            aim = np.minimum(inward, 0.99 * problem.room) if inward.any() else inward
            policy = _known(learner, way.policy(problem, aim), behaviour)
            sides = (_filled(learner, judge), _filled(judge, learner))
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
