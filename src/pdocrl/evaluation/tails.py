"""What n episodes show of a limit on their mean or tail, and how many episodes that takes.

    limit, costs [n] ─▶ score_limit ─▶ LimitScore: estimate, bounds, verdict
    limit, what is expected ─▶ plan_audit ─▶ AuditPlan: how many episodes to play, and how many may be over

Bounds are one-sided, each at the confidence, for episodes that are independent and drawn as the policy will be used:

    mean          confidence sequence by betting (`audit.mean_upper`); holds at any stopping time
    exceedance    Clopper–Pearson; exact for a number of episodes fixed beforehand
    CVaR, upper   betting on (C − t)₊ at a mixture of thresholds t (`cvar_upper`); holds at any stopping time
    CVaR, lower   Anderson's bound: the empirical CDF raised by the Dvoretzky–Kiefer–Wolfowitz margin; fixed n
    max           what was seen is a lower bound; no finite sample gives an upper one
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.audit import (
    STAKES,
    WEIGHTS,
    Floats,
    Verdict,
    check_confidence,
    checked,
    mean_lower,
    mean_upper,
    share_upper,
)
from pdocrl.limits import Limit
from pdocrl.records import Part

# Thresholds of `cvar_upper` over the largest cost, chosen without the data. CVaR is the minimum over t of a function
# that is flat near its minimiser, so that steps of 12 % lose little.
THRESHOLDS: Floats = np.r_[0.0, 2.0 ** (-np.arange(1, 61) / 6)]
MOST_EPISODES = 10_000_000


class LimitScore(Part, frozen=True, kw_only=True):
    """One limit and what the episodes say of it."""

    limit: str  # as `Limit.parse` reads it
    value: float  # of the sample
    satisfied: bool  # by the sample
    lower: float | None  # one-sided bounds on the policy's own value, each at `confidence`
    upper: float | None  # None: without a largest cost no finite sample excludes disasters
    verdict: Verdict  # "within": shown at the confidence; "over": its violation is
    confidence: float
    episodes: int


def score_limit(limit: Limit, costs: ArrayLike, confidence: float = 0.95, cost_max: float | None = None) -> LimitScore:
    """Estimate, bounds and verdict of one limit.

    Args:
        limit: such as `Limit.parse("P(cost>20)<=0.05")`, per episode.
        costs: [n] undiscounted costs of n ≥ 1 episodes; for `max` the largest step cost of each.
        confidence: of each bound.
        cost_max: the largest cost an episode can have; upper bounds on a mean and a CVaR rest on it.
    """
    check_confidence(confidence)
    x = checked(costs, None if limit.measure == "max" else cost_max)
    value, upper = limit.of(x), None
    if limit.threshold is not None:
        over, n = int((x > limit.threshold).sum()), len(x)
        lower = float(beta.ppf(1 - confidence, over, n - over + 1)) if over else 0.0
        upper = share_upper(over, n, confidence)
    elif limit.level is not None:
        lower = cvar_lower(x, limit.level, confidence)
        upper = None if cost_max is None else cvar_upper(x, cost_max, limit.level, confidence)
    elif limit.measure == "max":
        lower = value
    else:
        lower = mean_lower(x, confidence)
        upper = None if cost_max is None else mean_upper(x, cost_max, confidence)
    above = upper is not None and upper <= limit.value, lower > limit.value
    below = lower >= limit.value, upper is not None and upper < limit.value
    within, violated = above if limit.sense == "<=" else below
    return LimitScore(
        limit=str(limit),
        value=value,
        satisfied=limit.satisfied(x),
        lower=lower,
        upper=upper,
        verdict="within" if within else "over" if violated else "not shown",
        confidence=confidence,
        episodes=len(x),
    )


def cvar_upper(costs: ArrayLike, cost_max: float, level: float, confidence: float = 0.95) -> float:
    """The upper end of a confidence sequence for the CVaR of costs in [0, cost_max]; holds at any stopping time.

    A CVaR of at least b means, for every t, that y = (C − t)₊ has a mean of at least (b − t)(1 − level). So the capital
    of bets against that (see `audit.mean_upper`) is fair at every t, and so is its average over thresholds fixed
    beforehand: no threshold need be chosen and none is charged for beyond its share. It grows in b; the least b at
    which it reaches 1/(1 − confidence) is the bound. DKW alone would need ln(1/(1 − confidence))/(2 (1 − level)²)
    episodes before it says anything.
    """
    check_confidence(confidence)
    x = checked(costs, cost_max) / cost_max
    goal, low, high = -math.log1p(-confidence), 0.0, 1.0
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        reached = log_capital(x, np.ones(len(x)), middle, level) >= goal
        low, high = (low, middle) if reached else (middle, high)
    return cost_max * high


def log_capital(x: Floats, counts: Floats, bound: float, level: float | None) -> float:
    """log of the capital of bets against a CVaR (without a level: a mean) of at least `bound`.

    x [n] are costs over the largest cost, each seen `counts` [n] > 0 times.
    """
    t = np.zeros(1) if level is None else THRESHOLDS[bound > THRESHOLDS]
    m = (bound - t) * (1 - (level or 0.0)) / (1 - t)  # [T] the mean of y that is bet against, over its range
    if not len(t) or (m >= 1).any():
        return math.inf if len(t) else -math.inf
    y = np.maximum(x - t[:, None], 0) / (1 - t[:, None])  # [T, n]
    win = (m[:, None] - y) / (1 - m[:, None])
    with np.errstate(divide="ignore"):
        growth = np.log1p(np.maximum(STAKES[:, None, None] * win, -1.0)) @ counts  # [stakes, T]
    of_thresholds = np.logaddexp.reduce(np.log(WEIGHTS)[:, None] + growth, axis=0)
    return float(np.logaddexp.reduce(of_thresholds) - math.log(1 if level is None else len(THRESHOLDS)))


def cvar_lower(costs: ArrayLike, level: float, confidence: float = 0.95) -> float:
    """A lower bound on the CVaR of costs ≥ 0 for n fixed beforehand.

    With probability `confidence` ≥ 1/2 no point of the CDF lies more than ε = √(ln(1/(1−confidence))/2n) above the
    empirical one (Massart), so the CVaR is at least that of the sample with its top share ε moved to 0.
    """
    check_confidence(confidence)
    if confidence < 0.5:
        raise PdocrlError(f"the confidence is {confidence:g}; the bound on a CVaR takes at least 0.5.")
    x = np.sort(checked(costs, None))
    margin = math.sqrt(-math.log1p(-confidence) / (2 * len(x)))
    below = np.minimum(np.arange(1, len(x) + 1) / len(x), 1 - margin)  # CDF without its top
    weights = np.maximum(np.diff(below, prepend=0.0), 0)
    return Limit("cost", 0.0, "<=", "cvar", level=level).of(np.r_[0.0, x], np.r_[margin, weights])


class AuditPlan(Part, frozen=True, kw_only=True):
    """How many episodes show a limit, if the policy is as good as expected."""

    limit: str
    episodes: int
    allowed: int  # episodes over the threshold (exceedance), or at the largest cost, with which it is still shown
    expected: float  # what the policy's own value is taken to be
    confidence: float
    power: float  # probability that so many episodes show it, if the expectation is right
    cost_max: float | None
    sentence: str


def plan_audit(
    limit: Limit,
    expected: float | None = None,
    *,
    confidence: float = 0.95,
    power: float = 0.9,
    cost_max: float | None = None,
) -> AuditPlan:
    """The least number of episodes with which `score_limit` says "within" with probability `power`.

    For an exceedance this is exact. For a mean or a CVaR it is exact for costs that are 0 or `cost_max`, the widest
    spread with the expected value; other costs take fewer episodes.

    Args:
        limit: an upper one.
        expected: the policy's own value of what is limited; by default half of the limit.
        confidence: of the statement.
        power: probability that the statement is made.
        cost_max: the largest cost an episode can have; a mean and a CVaR need it.
    """
    check_confidence(confidence)
    check_confidence(power)
    value = limit.value / 2 if expected is None else float(expected)
    if limit.measure == "max" or limit.sense == ">=":
        raise PdocrlError(
            f"limit {limit}: no number of episodes shows it; plan for the share of episodes, as in "
            f"'P({limit.name}>{limit.value:g})<=0.01', or an upper limit on a mean."
        )
    if not 0 <= value < limit.value:
        raise PdocrlError(f"limit {limit}: expected is {value:g}; only a policy below the limit can be shown within.")
    if limit.measure == "exceedance":
        share, of = value, f"more than {limit.threshold:g}"
        count = _least_episodes(lambda k, n: share_upper(k, n, confidence) <= limit.value, share, power)
    else:
        if cost_max is None or not cost_max >= limit.value:
            raise PdocrlError(
                f"limit {limit}: give the largest cost of an episode, at least the limit ("
                + by_door("cost_max=…).", "--largest-cost).")
            )
        share, of = value / cost_max * (1 - (limit.level or 0.0)), f"{cost_max:g}, and the others nothing"
        goal, bound = -math.log1p(-confidence), limit.value / cost_max

        def shows(k: int, n: int) -> bool:
            counts = np.array([n - k, k], np.float64)
            held = counts > 0
            return log_capital(np.array([0.0, 1.0])[held], counts[held], bound, limit.level) >= goal

        count = _least_episodes(shows, share, power)
    if count is None:
        raise PdocrlError(f"limit {limit}: more than {MOST_EPISODES:,} episodes; expect less, or raise the limit.")
    episodes, allowed = count
    return AuditPlan(
        limit=str(limit),
        episodes=episodes,
        allowed=allowed,
        expected=value,
        confidence=confidence,
        power=power,
        cost_max=cost_max,
        sentence=(
            f"{episodes} episodes show {limit} at confidence {confidence:g}, with probability at least {power:g} if "
            f"{limit.left} is {value:g}; it is shown if at most {allowed} of them cost {of}."
        ),
    )


def _least_episodes(shows: Callable[[int, int], bool], share: float, power: float) -> tuple[int, int] | None:
    """(n, k): the least n over k such that k of n show it and at most k of n happen with probability `power`."""
    k, n = 0, 1
    while True:
        low, high = n - 1, n  # k of `low` do not show it
        while not shows(k, max(high, k)):
            low, high = high, 2 * high
            if low > MOST_EPISODES:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if middle >= k and shows(k, middle) else (middle, high)
        n = max(high, k)
        if binom.cdf(k, n, share) >= power:
            return n, k
        k += max(1, k // 50)  # beyond a hundred episodes a step of 2 % is near enough, and never too few


def score_limits(
    limits: Sequence[Limit],
    names: Sequence[str],
    cost: Floats,
    max_step_cost: Floats | None = None,
    confidence: float = 0.95,
    cost_max: float | None = None,
) -> list[LimitScore]:
    """`score_limit` of each limit on its own column of cost [n, K]; `max` on max_step_cost [n, K]."""
    scores = []
    for limit in limits:
        k = limit.index(names)
        if limit.measure == "max" and max_step_cost is None:
            raise PdocrlError(f"limit {limit}: these episodes hold no step costs; play them again, or limit the sum.")
        column = max_step_cost[:, k] if limit.measure == "max" and max_step_cost is not None else cost[:, k]
        scores.append(score_limit(limit, column, confidence, cost_max))
    return scores
