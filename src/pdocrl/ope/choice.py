"""Choosing among policies judged from one log: ranking, a safe subset, paired differences, regret.

safe      those shown within all limits with the multiplicity paid: Holm's step-down on the largest p-value of each,
          so that with the stated confidence none of them is over any limit
paired    v_a − v_b = mean_e (ψ_a,e − ψ_b,e): the same episodes judge both, so what they share cancels
regret    max_b (v_b − v_best), bounded by the largest upper end of the paired intervals, at Bonferroni's level
top k     max_b (v_b − max_{a in S} v_a) of the first k of the ranking, S, is at most max_b min_{a in S} of the upper
          ends; it fails only where that of the truly best b with some a does, so M − 1 pairs are paid for, for all k
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.ope.estimators.intervals import interval
from pdocrl.ope.estimators.problem import Estimate, Floats
from pdocrl.ope.result import Choice, Comparison, LimitVerdict, TopK

LOGGED = "logged decisions"


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A policy with what was found of it."""

    name: str
    means: dict[str, Estimate | None]  # signal → the estimator that decides
    limits: list[LimitVerdict]

    @property
    def p_value(self) -> float:
        """Of "within all limits": all must hold, so the largest."""
        return max((one.p_value for one in self.limits), default=0.0)

    @property
    def reward(self) -> Estimate | None:
        return self.means["reward"]


def choose(candidates: Sequence[Candidate], logged: dict[str, Floats], confidence: float) -> Choice:
    """`logged` {signal: [E]} are the totals of the logged episodes."""
    safe = holm({one.name: one.p_value for one in candidates if one.limits}, 1 - confidence)
    limited = any(one.limits for one in candidates)
    allowed = [one for one in candidates if (one.name in safe or not limited) and one.reward is not None]
    best = max(allowed, key=_value, default=None)
    ranking = sorted(candidates, key=lambda one: (limited and one.name not in safe, -_value(one)))
    comparisons = []
    regret: float | None = None
    for one in candidates:
        for signal, own in one.means.items():
            baseline = _paired(own, logged[signal], confidence)
            if baseline is not None:
                comparisons.append(_comparison(one.name, LOGGED, signal, baseline))
    if best is not None:
        others = [one for one in candidates if one is not best and one.reward is not None]
        level = 1 - (1 - confidence) / max(len(others), 1)
        ends: list[float] | None = [0.0] if len(others) == len(candidates) - 1 else None  # one that is not estimated
        for other in others:
            for signal, own in other.means.items():
                theirs = best.means[signal]
                pair = None if theirs is None else _paired(own, theirs.influence, confidence, theirs)
                if pair is not None:
                    comparisons.append(_comparison(other.name, best.name, signal, pair))
            mine = best.reward
            wide = None if mine is None else _paired(other.reward, mine.influence, level, mine)
            if ends is not None and wide is not None:
                ends.append(wide[2])
        regret = None if ends is None else max(ends)
    return Choice(
        ranking=[one.name for one in ranking],
        safe=safe,
        best=None if best is None else best.name,
        regret_upper=regret,
        comparisons=comparisons,
        top=[] if any(one.reward is None for one in ranking) else _top(ranking, confidence),
    )


def _top(ranking: list[Candidate], confidence: float) -> list[TopK]:
    """Of the first 1, 2, … candidates, all of which are estimated; none where a pair cannot be compared."""
    level = 1 - (1 - confidence) / max(len(ranking) - 1, 1)
    upper = np.zeros((len(ranking), len(ranking)))  # of v_b − v_a
    for b, other in enumerate(ranking):
        for a, own in enumerate(ranking):
            if a == b or own.reward is None:
                continue
            pair = _paired(other.reward, own.reward.influence, level, own.reward)
            if pair is None:
                return []
            upper[b, a] = pair[2]
    regret = [float(np.maximum(upper[:, :k].min(1), 0).max()) for k in range(1, len(ranking) + 1)]
    return [TopK(k=k, regret_upper=regret[k - 1]) for k in range(1, len(ranking) + 1)]


def holm(p_values: dict[str, float], alpha: float) -> list[str]:
    """Names whose hypotheses are rejected with a family-wise error of at most alpha, in the order given."""
    rejected: set[str] = set()
    for k, name in enumerate(sorted(p_values, key=lambda n: p_values[n])):
        if p_values[name] > alpha / (len(p_values) - k):
            break
        rejected.add(name)
    return [name for name in p_values if name in rejected]


def _value(one: Candidate) -> float:
    return -np.inf if one.reward is None or one.reward.value is None else one.reward.value


def _paired(
    own: Estimate | None, other: Floats | None, level: float, theirs: Estimate | None = None
) -> tuple[float, float, float] | None:
    """Difference, lower and upper end."""
    if own is None or own.influence is None or other is None:
        return None
    difference = own.influence - other
    sizes = [e.effective_sample_size or np.inf for e in (own, theirs) if e is not None]
    found = interval(difference, min(*sizes, float(len(other))), level)
    return None if found is None else (float(difference.mean()), *found)


def _comparison(name: str, other: str, signal: str, pair: tuple[float, float, float]) -> Comparison:
    return Comparison(policy=name, other=other, signal=signal, difference=pair[0], interval=pair[1:])
