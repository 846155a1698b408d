"""Which candidate is returned: tested with multiplicity paid, else the best decider who kept the limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from pdocrl.limits import Limit
from pdocrl.portfolio.choose import choose, first_failure, p_value
from pdocrl.portfolio.record import HeldOut

LIMITS = (Limit("cost", 4.0), Limit("served", 0.9, ">="))


def held(reward: float, cost: float, served: float, error: float = 0.1, overlap: bool = True) -> dict[str, HeldOut]:
    made = {"reward": reward, "cost": cost, "served": served}
    return {
        name: HeldOut(value=value, error=error, freedom=200.0, estimator="own episodes", overlap=overlap)
        for name, value in made.items()
    }


def one(name: str, decider: str | None = None) -> Any:
    return SimpleNamespace(name=name, decider=decider)


def test_p_values() -> None:
    inside = held(1, 3.8, 1.1)
    assert p_value(inside["cost"], LIMITS[0]) == pytest.approx(0.0234, abs=2e-3)  # two standard errors inside
    assert p_value(inside["served"], LIMITS[1]) == pytest.approx(0.0234, abs=2e-3)
    assert p_value(held(1, 4.2, 1)["cost"], LIMITS[0]) > 0.9
    assert p_value(held(1, 1.0, 1, overlap=False)["cost"], LIMITS[0]) == 1.0


def test_tests_end_at_the_first_failure() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.06, "d": 0.0}
    assert first_failure(p_values, ["a", "b", "c", "d"], 0.05) == {"a", "b"}
    assert first_failure(p_values, ["c", "a"], 0.05) == set()


def test_a_wrong_statement_is_as_rare_as_said() -> None:
    """Five candidates of true costs from 3.8 to 4.6 at a limit of 4, estimates with normal errors: 5 % of 2,000."""
    rng = np.random.default_rng(0)
    true = np.array([3.8, 3.9, 4.0, 4.2, 4.6])
    wrong = 0
    for _ in range(2000):
        drawn = true + 0.15 * rng.normal(size=5)
        table = {str(i): held(i, x, 2.0, 0.15) for i, x in enumerate(drawn)}
        shown = choose([one(name) for name in table], table, LIMITS, 0.95, list(table)).shown
        wrong += any(true[int(name)] >= 4.0 for name in shown)
    assert wrong / 2000 < 0.06


def test_the_best_shown_is_returned_and_else_the_best_decider() -> None:
    table = {"bold": held(9, 5, 2), "wise": held(5, 3, 2), "plain": held(4, 3.9, 1.5), "shy": held(2, 3, 2)}
    people = [one("bold", "bold"), one("wise"), one("plain", "plain"), one("shy", "shy")]
    order = ["shy", "wise", "plain", "bold"]
    assert choose(people, table, LIMITS, 0.95, order).name == "wise"
    free = choose(people, table, LIMITS, None)
    assert (free.name, free.status) == ("wise", "estimated")
    unsure = {name: held(*(x.value for x in own.values()), error=2.0) for name, own in table.items()}
    found = choose(people, unsure, LIMITS, 0.95, order)
    assert (found.name, found.status) == ("plain", "best decider")
    assert "no candidate is shown" in found.why


def test_without_a_limit_reward_alone_counts() -> None:
    table = {"a": held(1, 9, 0), "b": held(2, 9, 0, error=3.0)}
    assert choose([one("a"), one("b")], table, (), None).name == "a"


def test_a_second_opinion_can_only_take_away() -> None:
    table = {"far": held(9, 3, 2), "near": held(6, 3, 2), "plain": held(4, 3, 2)}
    people = [one("far"), one("near"), one("plain", "plain")]
    over = {"far": held(9, 4.5, 2), "near": held(5, 3, 2)}
    found = choose(people, table, LIMITS, None, second=over.get)
    assert found.name == "near"
    poor = {"far": held(9, 3.88, 2), "near": held(3, 3, 2)}  # one error within is enough only where nothing is tested
    assert choose(people, table, LIMITS, None, second=poor.get).name == "far"
    found = choose(people, table, LIMITS, 0.95, ["plain", "near", "far"], poor.get)
    assert (found.name, found.status) == ("plain", "shown")
    assert found.shown == {"plain", "near"}


def test_a_cost_that_few_episodes_had_is_not_shown_by_its_mean() -> None:
    """None of 40 episodes had a cost of 10: its mean is 0 ± 0, and may well be .2 (2 % of episodes)."""
    limit = Limit("cost", 0.2)
    never = HeldOut(
        value=0.0, error=0.0, freedom=39.0, estimator="own episodes", overlap=True, seldom=(0.0, 40.0, 10.0)
    )
    assert p_value(never, limit) == pytest.approx(0.98**41, abs=0.02)
    assert p_value(never, Limit("cost", 1.0)) < 0.05


def test_rare_costs_are_shown_wrongly_as_rarely_as_said() -> None:
    """A cost of 10 in 2 % of episodes, limit .19; without `seldom` half of the logs would be shown."""
    rng = np.random.default_rng(1)
    limit, wrong, plain = Limit("cost", 0.19), 0, 0
    for _ in range(400):
        costs = 10.0 * (rng.random(60) < 0.02)
        error = float(costs.std(ddof=1) / np.sqrt(60))
        own = HeldOut(value=float(costs.mean()), error=error, freedom=59.0, estimator="own episodes", overlap=True)
        seldom = (float((costs > 0).sum()), 60.0, 10.0)
        plain += p_value(own, limit) <= 0.05
        wrong += p_value(msgspec.structs.replace(own, seldom=seldom), limit) <= 0.05
    assert wrong / 400 < 0.07
    assert plain / 400 > 0.2


def test_a_long_tail_is_known_of() -> None:
    """Exponential costs, 25 episodes, the limit their mean: a symmetric interval is wrong more often than it says."""
    rng = np.random.default_rng(2)
    limit, skewed, plain = Limit("cost", 1.0), 0, 0
    for _ in range(2000):
        costs = rng.exponential(size=25)
        kappa = float(stats.skew(costs) / 5)
        error = float(costs.std(ddof=1) / 5)
        own = HeldOut(value=float(costs.mean()), error=error, freedom=24.0, estimator="own episodes", overlap=True)
        plain += p_value(own, limit) <= 0.05
        skewed += p_value(msgspec.structs.replace(own, skewness=kappa), limit) <= 0.05
    assert plain / 2000 > 0.09
    assert skewed / 2000 < 0.08
