"""What n real episodes prove about a policy: bounds that hold at any n, without a model and without a log.

    costs of n episodes ─▶ share over the limit, exactly (Clopper–Pearson)
                        ─▶ mean cost, at any time (capital of bets against it) ─▶ `audit`: within, over, not shown

The exact binomial bound is for an n fixed beforehand. The bets hold however the number of episodes came about: one may
look after every episode and stop when the verdict is there (Waudby-Smith & Ramdas, 2024, "Estimating means of bounded
random variables by betting"). Both need episodes that are drawn alike and independently, as the policy will be used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from pdocrl.errors import PdocrlError

Floats = NDArray[np.float64]
Verdict = Literal["within", "over", "not shown"]

# Stakes: the share of what may be lost that is put at risk in every episode. A large one wins where episodes are alike,
# a small one where they differ; capital is spread over all, so that none need be chosen from the data.
STAKES: Floats = 2.0 ** -np.arange(11.0)
WEIGHTS: Floats = (np.arange(11.0) + 1.5) ** -1.3
WEIGHTS /= WEIGHTS.sum()


@dataclasses.dataclass(frozen=True)
class Audit:
    """What the episodes say of one cost. Bounds are one-sided, each at `confidence`."""

    episodes: int
    limit: float
    confidence: float
    cost_max: float | None  # what an episode can cost at most; None if nothing is known
    over: int  # episodes over the limit
    share_over_upper: float  # exact, for a number of episodes fixed beforehand
    share_over_upper_anytime: float  # however many episodes came about
    mean_cost: float
    mean_cost_lower: float  # anytime
    mean_cost_upper: float | None  # anytime; None where costs have no known bound: no finite sample excludes disasters
    verdict: Verdict  # on the mean cost: its upper bound is within the limit, or its lower bound over it
    episodes_needed: int | None  # in all, to show it within, if further ones are like these; None if they would not


def audit(cost: ArrayLike, limit: float, confidence: float = 0.95, cost_max: float | None = None) -> Audit:
    """Judge the costs [n] of n whole episodes against a limit on their mean.

    Several costs are judged one by one at the same confidence: to call all of them within is wrong only if the bound
    of one that is over fails.
    """
    costs = checked(cost, cost_max)
    if not (math.isfinite(limit) and limit >= 0):
        raise PdocrlError(f"audit: the limit is {limit}; a cost limit is a number of at least 0.")
    over = int((costs > limit).sum())
    lower = mean_lower(costs, confidence)
    upper = None if cost_max is None else mean_upper(costs, cost_max, confidence)
    verdict: Verdict = "not shown"
    if upper is not None and upper <= limit:
        verdict = "within"
    elif lower > limit:
        verdict = "over"
    return Audit(
        episodes=len(costs),
        limit=float(limit),
        confidence=confidence,
        cost_max=cost_max,
        over=over,
        share_over_upper=share_upper(over, len(costs), confidence),
        share_over_upper_anytime=mean_upper((costs > limit).astype(np.float64), 1.0, confidence),
        mean_cost=float(costs.mean()) if len(costs) else math.nan,
        mean_cost_lower=lower,
        mean_cost_upper=upper,
        verdict=verdict,
        episodes_needed=None if cost_max is None else episodes_needed(costs, limit, cost_max, confidence),
    )


def share_upper(over: int, episodes: int, confidence: float = 0.95) -> float:
    """Clopper–Pearson: the largest p with P(Binomial(n, p) ≤ k) ≥ 1 − confidence. 0 of 59 gives .0495 at .95."""
    check_confidence(confidence)
    if not 0 <= over <= episodes:
        raise PdocrlError(f"audit: {over} of {episodes} episodes over the limit is not possible.")
    return 1.0 if over == episodes else float(beta.ppf(confidence, over + 1, episodes - over))


def mean_upper(cost: ArrayLike, cost_max: float, confidence: float = 0.95) -> float:
    """The upper end of a confidence sequence for the mean of costs in [0, cost_max]; holds at any stopping time.

    With x = cost/cost_max, whoever claims a mean of at least m gives fair odds, or better, to

        K(m) = Σ_θ weight(θ) Π_t (1 + θ (m − x_t)/(1 − m)),    0 < θ ≤ 1,

    a capital that starts at 1 and stays ≥ 0. It exceeds 1/(1−confidence) at some time with probability at most
    1 − confidence (Ville), so that such m can be excluded. K grows in m and does not depend on the order of episodes.
    """
    check_confidence(confidence)
    x = checked(cost, cost_max) / cost_max
    return cost_max * _least(lambda m: (m - x) / (1 - m), confidence)


def verdict_of(cost: ArrayLike, limit: float, cost_max: float, confidence: float = 0.95) -> Verdict:
    """What `audit` says of the mean, from the capital at the limit alone: quick enough to ask after every episode."""
    check_confidence(confidence)
    costs = checked(cost, cost_max)
    goal, m, largest = -math.log1p(-confidence), limit / cost_max, costs.max(initial=0.0)
    if m >= 1 or _mixed(_log_growth((m - costs / cost_max) / (1 - m))) >= goal:
        return "within"
    if largest > limit and (limit == 0 or _mixed(_log_growth((costs - limit) / limit)) >= goal):
        return "over"
    return "not shown"


def mean_lower(cost: ArrayLike, confidence: float = 0.95) -> float:
    """The lower end, for costs ≥ 0 of any size: bets Π (1 + θ (x_t − m)/m) against a mean of at most m."""
    check_confidence(confidence)
    costs = checked(cost, None)
    largest = costs.max(initial=0.0)
    if largest == 0:
        return 0.0
    x = costs / largest
    # From above: the largest m that is excluded is one minus the least excluded 1 − m.
    return float(largest) * (1 - _least(lambda u: (x - (1 - u)) / (1 - u), confidence))


def episodes_needed(cost: ArrayLike, limit: float, cost_max: float, confidence: float = 0.95) -> int | None:
    """Episodes in all until `mean_upper` is within the limit, if the further ones are like these; None if never.

    k copies of the sample multiply each stake's log-capital by k, so that the capital at m = limit is known for any k.
    """
    check_confidence(confidence)
    x = checked(cost, cost_max) / cost_max
    m = limit / cost_max
    if m >= 1:
        return 0
    growth = _log_growth((m - x) / (1 - m))
    if not len(x) or growth.max() <= 0:
        return None
    goal, low, high = -math.log1p(-confidence), 0.0, 1.0
    while _mixed(growth * high) < goal:
        high *= 2
    while high - low > 0.25 / len(x):
        middle = (low + high) / 2
        low, high = (low, middle) if _mixed(growth * middle) >= goal else (middle, high)
    return math.ceil(high * len(x))


def _log_growth(win: Floats) -> Floats:
    """[stakes] Σ_t log(1 + θ win_t) of each stake θ, [n] → −∞ where it lost everything."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(np.maximum(STAKES[:, None] * win, -1.0)).sum(axis=1))


def _mixed(growth: Floats) -> Floats:
    """log Σ_θ weight(θ) e^growth(θ), [stakes, ...] → [...]."""
    return np.asarray(np.logaddexp.reduce(np.log(WEIGHTS) + growth.T, axis=-1).T)


def _least(win: Callable[[float], Floats], confidence: float) -> float:
    """The least m in (0, 1) whose capital, from wins [n] that grow in m, reaches 1/(1−confidence); 1 if none does."""
    goal, low, high = -math.log1p(-confidence), 0.0, 1.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _mixed(_log_growth(win(middle))) >= goal else (middle, high)
    return high


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise PdocrlError(f"audit: the confidence is {confidence}; give a number between 0 and 1, such as 0.95.")


def checked(cost: ArrayLike, cost_max: float | None) -> Floats:
    """Costs as [n] finite numbers in [0, cost_max], or an error that names the episode."""
    costs = np.asarray(cost, np.float64)
    if costs.ndim != 1:
        raise PdocrlError(f"audit: costs have shape {costs.shape}; give one number for each episode.")
    if cost_max is not None and not (math.isfinite(cost_max) and cost_max > 0):
        raise PdocrlError(f"audit: an episode's largest cost is given as {cost_max}; it must be positive.")
    wrong = ~(costs >= 0) | ~np.isfinite(costs)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise PdocrlError(f"audit: the cost of episode {at} is {costs[at]}; costs are finite and at least 0.")
    if cost_max is not None and (costs > cost_max).any():
        at = int(np.flatnonzero(costs > cost_max)[0])
        raise PdocrlError(
            f"audit: episode {at} cost {costs[at]:g}, more than the largest cost {cost_max:g} that was said to be "
            "possible; give the largest cost an episode can have."
        )
    return costs
