"""Which candidate is returned, and what may be said of it.

    p_c = max_k P( T_ν ≥ (τ_k − v̂_k)/e_k )

With a confidence 1 − α, candidates are tested in an order that the learning part set, from careful to bold, each at
level α, until the first that fails (fixed-sequence testing: Maurer, Hothorn and Lehmacher, 1995). Those before it are
"shown"; the chance that any of them is over a limit is at most α, as far as errors are what they are said to be. Only
they are eligible. Without a confidence those estimated to be one standard error within are, and nothing is tested.
Among the eligible the largest reward less its standard error is taken, else the best decider whose own episodes kept
the limits, else whoever is nearest to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from pdocrl.limits import Limit
from pdocrl.portfolio.candidates import Candidate
from pdocrl.portfolio.record import HeldOut, Status

ONE_ERROR = float(stats.norm.sf(1.0))
Verdict = Literal["shown", "within", "unclear", "over"]


def p_value(one: HeldOut, limit: Limit) -> float:
    """Of "over the limit"; 1 without overlap."""
    if not one.overlap:
        return 1.0
    distance = limit.sign * (one.value - limit.value)
    if one.error <= 0:
        return 0.0 if distance >= 0 else 1.0
    return float(stats.t.sf(distance / one.error, one.freedom))


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
) -> tuple[str, Status, str, set[str]]:
    """The name, the status, why in words, and all that are shown; `order` is that of the tests."""
    p_values = {one.name: worst(held[one.name], limits) for one in candidates}
    shown: set[str] = set()
    if confidence is not None:
        shown = first_failure(p_values, order, 1 - confidence)
    if confidence is not None and limits:
        eligible = [one for one in candidates if one.name in shown]
        status: Status = "shown"
        why = f"the best of {len(eligible)} shown within every limit with confidence {confidence:g}"
    else:
        eligible = [one for one in candidates if p_values[one.name] <= ONE_ERROR and held[one.name]["reward"].overlap]
        status = "estimated"
        why = f"the best of {len(eligible)} estimated to be a standard error within every limit; not tested"
        if not limits:
            why = f"the best of {len(eligible)} by held-out estimates; not tested"
    if eligible:
        best = max(eligible, key=lambda one: _cautious(held[one.name]["reward"]))
        return best.name, status, why + f", of {len(candidates)} candidates", shown
    lead = "no candidate is shown within every limit" if confidence is not None else "no candidate is clearly within"
    deciders = [one for one in candidates if one.decider is not None and _kept(held[one.name], limits)]
    if deciders:
        best = max(deciders, key=lambda one: held[one.name]["reward"].value)
        return best.name, "best decider", f"{lead}; {best.name} is the best decider whose episodes kept them", shown
    best = min(candidates, key=lambda one: (p_values[one.name], _excess(held[one.name], limits)))
    return best.name, "none", f"{lead}, and no decider kept them; this one comes nearest", shown


def _cautious(reward: HeldOut) -> float:
    return reward.value - reward.error


def _kept(held: Mapping[str, HeldOut], limits: Sequence[Limit]) -> bool:
    return all(one.sign * (held[one.name].value - one.value) >= 0 for one in limits)


def _excess(held: Mapping[str, HeldOut], limits: Sequence[Limit]) -> float:
    """In standard errors."""
    return max(
        (one.sign * (one.value - held[one.name].value) / max(held[one.name].error, 1e-9) for one in limits),
        default=-np.inf,
    )
