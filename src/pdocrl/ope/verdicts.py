"""Which estimator decides on a limit, and what it says: within, over, or not shown.

    mean          weighted doubly robust, if usable; else the dynamics model; else double reinforcement learning with
                  forward density ratios (those linear in the features are too often biased)
    share, CVaR   weighted episodes, and what weights that the log lacks may hide (`distribution.complement`)
    max           never shown within: no finite sample excludes a larger step

Usable is an estimator with at least `FEWEST` effective episodes of which none has more than `LARGEST` of the weight;
by propensities, on a mean, also unless the weights of episodes average below half (`problem.falls_short`).
Within: the estimator's whole two-sided interval is; over: it lies beyond. Not shown: neither, or a usable estimator
that makes no further assumption contradicts it. Where fewer than a quarter of the episodes are effective, the largest
weights are often still to come and the interval of the weighted ones is too narrow: it is `HEAVY` times as wide, and
`ESTIMATED` times where the propensities are (`widened`). A cost that is rare has a bound that knows what few episodes
may have missed: with k of n effective episodes that cost anything, and k < `RARE`,

    E[C] ≤ max C · P(C > 0),   P(C > 0) ≤ Clopper–Pearson(k, n),   max C the largest logged total.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import beta

from pdocrl.limits import Limit
from pdocrl.ope import sensitivity
from pdocrl.ope.estimators import distribution, dynamics
from pdocrl.ope.estimators.intervals import interval, p_value
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, falls_short
from pdocrl.ope.result import LimitVerdict, Verdict

FEWEST = 50.0  # effective episodes of an estimator that may decide
LARGEST = 0.1  # share of one episode in all weights
APART = 1.5  # joint half-widths by which estimates must differ to contradict each other: three standard errors
RARE = 10.0  # effective episodes with a cost, below which its size is bounded by the largest
WEIGHTED = "weighted doubly robust"
TRAJECTORY = "weighted trajectory importance sampling"  # decides where nothing but weights of episodes is known
FORWARD = "double reinforcement learning (forward)"
WIDER = 2.0  # factor of its interval where it decides: that of the influence values leaves out the error of the ratio
FEW, HEAVY = 0.25, 1.5  # share of effective episodes, below which weighted intervals count so many times
ESTIMATED = 1.25  # factor where propensities are estimated, whose error no influence value has
DECIDERS = (WEIGHTED, dynamics.NAME, FORWARD)  # in order of preference
BY_PROPENSITY = (  # rest on propensities alone, as the first decider does: only these may contradict it
    "weighted trajectory importance sampling",
    "weighted per-decision importance sampling",
    "doubly robust",
    WEIGHTED,
)
MARKOV = (*DECIDERS, "double reinforcement learning (linear)", "marginalised importance sampling")
Estimates = Mapping[tuple[str, str], Estimate]  # (estimator, signal) → estimate


def usable(estimate: Estimate, fewest: float = FEWEST, largest: float = LARGEST) -> bool:
    """Whether its diagnostics let it decide, or contradict what does."""
    size, share = estimate.effective_sample_size or 0.0, estimate.largest_weight or 0.0
    return estimate.sound and estimate.interval is not None and size >= fewest and share <= largest


def decider(estimates: Estimates, signal: str, order: Sequence[str] = DECIDERS) -> Estimate | None:
    """The estimator that speaks for the mean of a signal."""
    ready = [estimates[name, signal] for name in order if (name, signal) in estimates]
    return next((one for one in ready if usable(one)), None)


def verdict(problem: Problem, limit: Limit, estimates: Estimates) -> LimitVerdict:
    """On one limit."""
    if limit.measure == "max":
        return _on_every_step(problem, limit)
    order = DECIDERS if (WEIGHTED, limit.name) in estimates else (TRAJECTORY,)
    chosen = decider(estimates, limit.name, order) if limit.measure == "mean" else tail(problem, limit)
    if chosen is None or not usable(chosen) or chosen.interval is None or chosen.influence is None:
        asked = [estimates[name, limit.name] for name in order if (name, limit.name) in estimates]
        why = _unusable(asked if chosen is None else [chosen])
        return _nothing(limit, why)
    paths = problem.weights[:, -1]
    largest = float(np.max(distribution.totals(problem, limit.name), initial=0.0))
    sized = limit.sense == "<=" and limit.measure != "exceedance"
    if sized and largest <= 0 and bool((problem.log.signals[limit.name] == 0).all()):
        return _nothing(limit, f"`{limit.name}` never occurred in the log, so its size is unknown", chosen)
    size = chosen.effective_sample_size or 1.0
    low, high = chosen.interval
    p = p_value(chosen.influence, size, limit.value, limit.sense)
    rare = _rare(problem, limit, chosen, paths) if limit.sense == "<=" else None
    if rare is not None:
        high = max(high, rare.upper)
        p = max(p, rare.p_value(limit.value))
    if limit.measure != "mean":
        bound, more = distribution.complement(problem, limit)
        low, high = (low, max(high, bound)) if limit.sense == "<=" else (min(low, bound), high)
        p = max(p, more)
    if limit.measure == "exceedance":
        low, high = max(low, 0.0), min(high, 1.0)
    apart = _contradiction(chosen, estimates, limit) if limit.measure == "mean" else None
    words = f"{limit.left} in [{low:.4g}, {high:.4g}] by {chosen.estimator}, limit {limit.value:g}"
    within, over = (
        (high <= limit.value, low > limit.value)
        if limit.sense == "<="
        else (
            low >= limit.value,
            high < limit.value,
        )
    )
    told: Verdict = "within" if within else "over" if over else "not shown"
    if apart is not None:
        told, p, words = "not shown", 1.0, f"{words}; but {apart} contradicts it"
    elif rare is not None and rare.k < RARE:
        words += f" (only {rare.k:.1f} of {rare.n:.0f} effective episodes had the cost)"
    gamma = None
    if told != "not shown" and chosen.estimator in (WEIGHTED, distribution.NAME) and not problem.whole_episodes:
        room = min(abs(high - limit.value), abs(low - limit.value))
        up = (told == "within") == (limit.sense == "<=")
        gamma = sensitivity.overturned_at(problem, distribution.contributions(problem, limit), room, up)
    return LimitVerdict(
        limit=str(limit),
        verdict=told,
        estimator=chosen.estimator,
        value=chosen.value,
        lower=low,
        upper=high,
        p_value=p,
        confounding=gamma,
        why=words,
    )


def tail(problem: Problem, limit: Limit) -> Estimate:
    """What decides on a share or CVaR."""
    return widened(distribution.tail(problem, limit), problem)


def widened(estimate: Estimate, problem: Problem, decides: str = WEIGHTED) -> Estimate:
    """With an interval that was measured to cover: influence values are scaled about their mean."""
    few = (estimate.effective_sample_size or 0.0) < FEW * problem.episodes
    factor = WIDER if estimate.estimator == FORWARD else 1.0
    if estimate.estimator in BY_PROPENSITY and falls_short(problem.weights[:, -1]):
        estimate = dataclasses.replace(estimate, sound=False)
    if estimate.estimator in (decides, distribution.NAME):
        factor = (HEAVY if few else 1.0) * (ESTIMATED if problem.estimated else 1.0)
    if factor == 1 or estimate.influence is None:
        return estimate
    value = estimate.influence.mean()
    influence = value + factor * (estimate.influence - value)
    size = estimate.effective_sample_size or float(len(influence))
    return dataclasses.replace(estimate, influence=influence, interval=interval(influence, size, problem.level))


def _unusable(asked: Sequence[Estimate]) -> str:
    """Why none of these may decide."""
    best = max(asked, key=lambda e: e.effective_sample_size or 0.0, default=None)
    size = 0.0 if best is None else best.effective_sample_size or 0.0
    if best is None or size == 0:
        return "no overlap: no logged episode follows the policy to its end"
    if size < FEWEST:
        return f"too few decisions like the policy's: {size:.3g} effective episodes, {FEWEST:g} are needed"
    if (best.largest_weight or 0.0) > LARGEST:
        return f"one episode has {100 * (best.largest_weight or 0):.0f} % of all weight, more than {100 * LARGEST:g} %"
    if not all(one.sound for one in asked):
        return "the weights of episodes average less than half of 1: most of the policy's are not in the log"
    if best.value is not None:
        return f"{best.estimator} has no interval here: {'; '.join(best.assumptions)}"
    return f"{best.estimator} has no value here: {'; '.join(best.assumptions)}"


def _nothing(limit: Limit, why: str, chosen: Estimate | None = None) -> LimitVerdict:
    return LimitVerdict(
        limit=str(limit),
        verdict="not shown",
        estimator=None if chosen is None else chosen.estimator,
        value=None if chosen is None else chosen.value,
        lower=None,
        upper=None,
        p_value=1.0,
        confounding=None,
        why=why,
    )


@dataclasses.dataclass(frozen=True)
class _Rare:
    """k of n effective episodes had the cost, of at most `largest`."""

    k: float
    n: float
    largest: float
    level: float

    @property
    def upper(self) -> float:
        return self.largest * float(beta.ppf((1 + self.level) / 2, self.k + 1, max(self.n - self.k, 1e-9)))

    def p_value(self, limit: float) -> float:
        if limit >= self.largest:
            return 0.0
        return min(1.0, 2 * float(beta.sf(limit / self.largest, self.k + 1, max(self.n - self.k, 1e-9))))


def _rare(problem: Problem, limit: Limit, chosen: Estimate, weights: Floats) -> _Rare | None:
    """Where few effective episodes had the cost, or none; of a share always."""
    n = chosen.effective_sample_size or 1.0
    if chosen.estimator not in (WEIGHTED, TRAJECTORY, distribution.NAME):
        weights = np.ones(problem.episodes)  # weights of rows: whole episodes are not weighted
    y = distribution.contributions(problem, limit)
    if float(y.min()) < 0:
        return None
    k = n * float(weights @ (y > 0) / weights.sum())
    largest = 1.0 if limit.measure == "exceedance" else float(y.max())
    return _Rare(k, n, largest, problem.level) if k < RARE or limit.measure == "exceedance" else None


def _contradiction(chosen: Estimate, estimates: Estimates, limit: Limit) -> str | None:
    """A usable estimator farther from the one that decides than their intervals explain."""
    for (name, signal), other in estimates.items():
        if signal != limit.name or not usable(other) or other.interval is None:
            continue
        if name not in (MARKOV if chosen.estimator in MARKOV[1:] else BY_PROPENSITY):
            continue
        if distance(chosen, other) > APART:
            return name
    return None


def _on_every_step(problem: Problem, limit: Limit) -> LimitVerdict:
    possible = problem.weights[:, -1] > 0
    seen = distribution.contributions(problem, limit)[possible]
    worst = float(seen.max()) if len(seen) else None
    over = worst is not None and worst > limit.value
    return LimitVerdict(
        limit=str(limit),
        verdict="over" if over else "not shown",
        estimator="logged steps",
        value=worst,
        lower=worst,
        upper=None,
        p_value=1.0,
        confounding=None,
        why=(
            f"a logged step of an episode that the policy may have had cost {worst:g}"
            if over
            else "no finite sample excludes a larger step; limit the share of episodes: P(…>…)<=…"
        ),
    )


def together(verdicts: list[LimitVerdict]) -> Verdict | None:
    """Of all limits: over if one is, within if all are."""
    told = {one.verdict for one in verdicts}
    if not told:
        return None
    return "over" if "over" in told else "within" if told == {"within"} else "not shown"


def distance(a: Estimate, b: Estimate) -> float:
    """|a − b| in the root of the sum of their squared half-widths."""
    if a.interval is None or b.interval is None or a.value is None or b.value is None or a.value == b.value:
        return 0.0
    halves = [(one[1] - one[0]) / 2 for one in (a.interval, b.interval)]
    return abs(a.value - b.value) / max(math.hypot(*halves), 1e-300)


def disagreement(signal: str, estimates: Estimates) -> float:
    """The largest distance of two usable estimates, in their joint half-widths."""
    ready = [e for (_, s), e in estimates.items() if s == signal and usable(e)]
    return max((distance(a, b) for i, a in enumerate(ready) for b in ready[:i]), default=0.0)
