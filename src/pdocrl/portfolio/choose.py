"""Which candidate is returned, and what may be said of it.

    p_c = max_k max( P( T_ν ≤ g((v̂_k − τ_k)/e_k) ),  P( Beta(j+1, n−j) > τ_k/E[C_k | C_k > 0] ) )

g corrects for skewness (`ope.estimators.intervals`). The second is asked of a cost that only j < 10 of n effective
episodes had, of which a mean and its standard error tell too little; the size of such a cost is the mean of those in
the log, or of the policy's own where that is larger (`ope.verdicts` takes the largest there is).
With a confidence 1 − α, candidates for which there are enough importance-weighted episodes, and deciders by their own
episodes, are tested in an order that the learning part set, from careful to bold, each at
level α, until the first that fails (fixed-sequence testing: Maurer, Hothorn and Lehmacher, 1995). Those before it are
"shown"; the chance that any of them is over a limit is at most α, as far as errors are what they are said to be. Only
they are eligible. Without a confidence those estimated to be one standard error within are, and nothing is tested.
Among the eligible the largest reward is taken, less its standard error where it is nobody's in the log: a decider is
left for what is clearly better. Before one is, a second opinion is asked, of
another function class: who is not within every limit by it, at the same level, is eligible no more, and its reward
counts if it is lower. If nobody is left: the best decider whose own episodes satisfy the limits, else whoever is
nearest to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from pdocrl.limits import Limit
from pdocrl.ope.estimators import intervals
from pdocrl.portfolio.candidates import Candidate
from pdocrl.portfolio.record import HeldOut, Status

ONE_ERROR = float(stats.norm.sf(1.0))
MOST_ASKED = 6  # second opinions
Verdict = Literal["shown", "within", "unclear", "over"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is returned, and what may be said of it."""

    name: str
    status: Status
    why: str
    shown: set[str]
    second: dict[str, Mapping[str, HeldOut] | None]  # of those that were about to be chosen


def p_value(one: HeldOut, limit: Limit) -> float:
    """Of "over the limit"; 1 without overlap."""
    if not one.overlap:
        return 1.0
    distance = limit.sign * (one.value - limit.value)
    if one.error <= 0:
        found = 0.0 if distance >= 0 else 1.0
    else:
        t, kappa = -distance / one.error, -limit.sign * one.skewness
        found = float(stats.t.cdf(intervals.unskewed(t, kappa), one.freedom))
    if one.seldom is None or limit.sense != "<=":
        return found
    k, n, size = one.seldom
    return max(found, float(stats.beta.sf(limit.value / size, k + 1, max(n - k, 1e-9))))


def testable(
    candidates: Sequence[Candidate], tested: Mapping[str, Mapping[str, HeldOut]], limits: Sequence[Limit]
) -> list[Candidate]:
    """Those with overlap for every limit: weights alone decide, nothing that was earned or paid."""
    return [one for one in candidates if all(tested[one.name][limit.name].overlap for limit in limits)]


def first_failure(p_values: Mapping[str, float], order: Sequence[str], alpha: float) -> set[str]:
    """Names before the first in the order that is not rejected at level alpha."""
    found: set[str] = set()
    for name in order:
        if p_values[name] > alpha:
            break
        found.add(name)
    return found


def worst(held: Mapping[str, HeldOut], limits: Sequence[Limit]) -> float:
    """The largest p-value: all limits must hold."""
    return max((p_value(held[one.name], one) for one in limits), default=0.0)


def verdict(held: HeldOut, limit: Limit, shown: bool) -> Verdict:
    """Of one limit."""
    if shown:
        return "shown"
    p = p_value(held, limit)
    return "within" if p <= ONE_ERROR else "over" if held.overlap and p >= 1 - ONE_ERROR else "unclear"


def choose(
    candidates: Sequence[Candidate],
    held: Mapping[str, Mapping[str, HeldOut]],
    limits: Sequence[Limit],
    confidence: float | None,
    order: Sequence[str] = (),
    second: Callable[[str], Mapping[str, HeldOut] | None] = lambda _: None,
    tested: Mapping[str, Mapping[str, HeldOut]] | None = None,
) -> Choice:
    """Choose a candidate.

    Args:
        candidates: all of them.
        held: name → signal → held-out estimate.
        limits: on totals.
        confidence: None: nothing is tested.
        order: of the tests.
        second: name → signal → estimate of another function class; None where there is nothing to ask.
        tested: estimates that the learning part has no share in, for the tests; by default `held`.
    """
    asks = confidence is not None and bool(limits)
    judged = held if tested is None or not asks else tested
    p_values = {one.name: worst(judged[one.name], limits) for one in candidates}
    shown: set[str] = set()
    if confidence is not None and asks:
        shown = first_failure(p_values, order, 1 - confidence)
        eligible = [one.name for one in candidates if one.name in shown]
        why = f"shown within every limit with confidence {confidence:g}"
    else:
        eligible = [x.name for x in candidates if p_values[x.name] <= ONE_ERROR and held[x.name]["reward"].overlap]
        why = "estimated to be a standard error within every limit; not tested" if limits else "not tested"
    number = len(eligible)
    score = {one.name: _cautious(one, held[one.name]["reward"]) for one in candidates if one.name in eligible}
    asked: dict[str, Mapping[str, HeldOut] | None] = {}
    level = 1 - confidence if confidence is not None and asks else ONE_ERROR
    while score:
        best = max(score, key=lambda name: score[name])
        if best in asked:
            why = f"the best of {number} {why}, of {len(candidates)} candidates"
            return Choice(best, "shown" if asks else "estimated", why, shown, asked)
        asked[best] = second(best) if len(asked) < MOST_ASKED else None
        values = asked[best]
        if values is not None and any(p_value(values[x.name], x) > level for x in limits if x.name in values):
            shown.discard(best)
            del score[best]
        elif values is not None and "reward" in values:
            score[best] = min(score[best], values["reward"].value)
    lead = "no candidate is shown within every limit" if asks else "no candidate is clearly within every limit"
    deciders = [one for one in candidates if one.decider is not None and _kept(held[one.name], limits)]
    if deciders:
        name = max(deciders, key=lambda one: held[one.name]["reward"].value).name
        why = f"{lead}; {name} is the best decider whose episodes kept them"
        return Choice(name, "best decider", why, shown, asked)
    name = min(candidates, key=lambda one: _excess(held[one.name], limits, held)).name
    return Choice(name, "none", f"{lead}, and no decider kept them; this one comes nearest", shown, asked)


def _cautious(one: Candidate, reward: HeldOut) -> float:
    """A decider is left for what is a standard error better."""
    return reward.value - (reward.error if one.decider is None else 0.0)


def _kept(held: Mapping[str, HeldOut], limits: Sequence[Limit]) -> bool:
    return all(one.sign * (held[one.name].value - one.value) >= 0 for one in limits)


def _excess(one: Mapping[str, HeldOut], limits: Sequence[Limit], held: Mapping[str, Mapping[str, HeldOut]]) -> float:
    """One standard error more than it is over a limit, as a share of the worst candidate's excess."""
    found = -np.inf
    for limit in limits:
        over = {name: limit.sign * (limit.value - each[limit.name].value) for name, each in held.items()}
        worst = max(max(over.values()), 1e-9)
        own = limit.sign * (limit.value - one[limit.name].value) + one[limit.name].error
        found = max(found, own / worst)
    return found
