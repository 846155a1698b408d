"""Statements on tails: coverage measured on long-tailed costs, plans that are exact, verdicts that follow bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from pdocrl.errors import PdocrlError
from pdocrl.evaluation.audit import mean_upper
from pdocrl.evaluation.tails import cvar_lower, cvar_upper, log_capital, plan_audit, score_limit
from pdocrl.limits import Limit

Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]
MOST, REPEATS, CONFIDENCE = 100.0, 400, 0.9
FAMILIES: dict[str, Draw] = {
    "Pareto": lambda rng, shape: np.minimum(rng.pareto(1.2, shape), MOST),
    "lognormal": lambda rng, shape: np.minimum(rng.lognormal(0, 2, shape), MOST),
    "rare disasters": lambda rng, shape: np.where(rng.uniform(size=shape) < 0.02, MOST, 1.0),
    "zero inflated": lambda rng, shape: rng.poisson(5, shape) * (rng.uniform(size=shape) < 0.2) * 1.0,
}
LIMITS = [Limit.parse(text) for text in ("P(cost>10)<=0.5", "CVaR90(cost)<=1", "CVaR50(cost)<=1", "cost<=1")]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_on_long_tails(family: str, limit: Limit) -> None:
    rng = np.random.default_rng(0)
    truth = limit.of(FAMILIES[family](rng, (2_000_000,)))
    for n in (20, 120):
        scores = [score_limit(limit, own, CONFIDENCE, MOST) for own in FAMILIES[family](rng, (REPEATS // 4, n))]
        lower = np.array([score.lower for score in scores])
        upper = np.array([score.upper for score in scores])
        # Two standard errors of a share that is 0.9 at least.
        slack = 2 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / len(scores))
        assert (lower <= truth * 1.01).mean() >= CONFIDENCE - slack
        assert (upper >= truth * 0.99).mean() >= CONFIDENCE - slack


def test_the_cvar_bound_holds_at_every_look() -> None:
    """The capital against the true CVaR reaches 1/(1 − confidence) at any of 300 looks in at most one of ten audits."""
    rng = np.random.default_rng(1)
    draw = FAMILIES["rare disasters"]
    truth = (0.02 * MOST + 0.08) / 0.1  # of level 0.9: all disasters, and ordinary episodes
    stopped = 0
    for costs in draw(rng, (100, 300)) / MOST:
        looks = (log_capital(costs[:n], np.ones(n), truth / MOST, 0.9) for n in range(5, 301, 10))
        stopped += max(looks) >= -np.log(1 - CONFIDENCE)
    assert stopped <= 10 + 2 * 3


def test_bounds_tighten_to_the_truth() -> None:
    costs = np.random.default_rng(2).uniform(0, 10, 10_000)
    assert cvar_lower(costs, 0.9) == pytest.approx(9.5, abs=0.2)
    assert cvar_upper(costs, 20.0, 0.9) == pytest.approx(9.5, abs=0.3)
    assert cvar_lower(costs, 0.9) <= 9.5 <= cvar_upper(costs, 20.0, 0.9)


def test_without_a_level_the_capital_is_that_of_the_mean() -> None:
    costs = np.random.default_rng(3).exponential(3, 80).clip(0, 20)
    bound = mean_upper(costs, 20.0, 0.9)
    assert log_capital(costs / 20, np.ones(80), bound / 20, None) == pytest.approx(np.log(10), abs=1e-5)


def test_verdicts() -> None:
    few = np.r_[np.zeros(58), 30.0]
    limit = Limit.parse("P(cost>20)<=0.05")
    assert score_limit(limit, np.zeros(59)).verdict == "within"
    assert score_limit(limit, np.zeros(58)).verdict == "not shown"
    assert score_limit(limit, few).satisfied
    assert score_limit(limit, few).verdict == "not shown"
    assert score_limit(limit, np.full(5, 30.0)).verdict == "over"
    assert score_limit(Limit.parse("max(cost)<=1"), np.ones(10_000)).verdict == "not shown"
    assert score_limit(Limit.parse("max(cost)<=1"), [0.0, 2.0]).verdict == "over"
    assert score_limit(Limit.parse("cost>=1"), np.full(200, 3.0), cost_max=4.0).verdict == "within"
    assert score_limit(Limit.parse("cost>=3"), np.full(200, 1.0), cost_max=4.0).verdict == "over"
    assert score_limit(Limit.parse("CVaR90(cost)<=9"), np.ones(5)).upper is None


@pytest.mark.parametrize("expected", [0.0, 0.01, 0.025])
def test_an_exceedance_plan_is_the_least_that_shows_it(expected: float) -> None:
    limit = Limit.parse("P(cost>20)<=0.05")
    plan = plan_audit(limit, expected)
    over = np.r_[np.full(plan.allowed, 30.0), np.zeros(plan.episodes - plan.allowed)]
    assert score_limit(limit, over).verdict == "within"
    assert score_limit(limit, over[:-1]).verdict == "not shown"
    assert binom.cdf(plan.allowed, plan.episodes, expected) >= 0.9
    assert plan.episodes == {0.0: 59, 0.01: 153, 0.025: 506}[expected]


@pytest.mark.parametrize("text", ["cost<=20", "CVaR50(cost)<=30", "P(cost>20)<=0.2"])
def test_planned_episodes_suffice_as_often_as_planned(text: str) -> None:
    """Costs of 0 or the most, at half of the limit: the verdict is "within" in nine of ten audits, and not in all."""
    limit, rng = Limit.parse(text), np.random.default_rng(4)
    plan = plan_audit(limit, cost_max=MOST)
    share = plan.expected if limit.threshold else plan.expected / MOST * (1 - (limit.level or 0.0))
    audits = MOST * (rng.uniform(size=(100, plan.episodes)) < share)
    shown = np.mean([score_limit(limit, costs, cost_max=MOST).verdict == "within" for costs in audits])
    assert 0.84 <= shown <= 0.98


@pytest.mark.parametrize(
    ("text", "expected", "most", "message"),
    [
        ("max(cost)<=1", 0.5, None, "no number of episodes shows it"),
        ("P(cost>20)<=0.05", 0.05, None, "only a policy below the limit"),
        ("cost<=20", 10.0, None, "give the largest cost"),
        ("P(cost>20)<=0.0000001", None, None, "more than 10,000,000 episodes"),
    ],
)
def test_plans_that_cannot_be(text: str, expected: float | None, most: float | None, message: str) -> None:
    with pytest.raises(PdocrlError, match=message):
        plan_audit(Limit.parse(text), expected, cost_max=most)
