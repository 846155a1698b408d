"""Choosing among policies: multiplicity is paid, the same episodes are compared, and regret is bounded."""

from __future__ import annotations

import numpy as np
import pytest

import pdocrl
from pdocrl.ope.choice import LOGGED, Candidate, choose, holm
from pdocrl.ope.estimators.problem import Estimate
from tests.ope.estimators.worlds import World

WORLD = World.random(0)
LOG = WORLD.log(800, seed=1)


def test_holm_by_hand() -> None:
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(p, 0.05) == ["a", "d"]  # .005 ≤ .05/4, .01 ≤ .05/3, .03 > .05/2
    assert holm({"a": 0.02, "b": 0.03}, 0.05) == ["a", "b"]
    assert holm({}, 0.05) == []


def test_among_policies_over_their_limit_one_is_called_safe_in_at_most_5_percent() -> None:
    """Twenty at exactly their limit: uncorrected, two in five families would have a false member."""
    rng = np.random.default_rng(0)
    wrong = sum(bool(holm({str(i): u for i, u in enumerate(rng.random(20))}, 0.05)) for _ in range(1000))
    assert wrong / 1000 <= 0.065


def test_the_better_policy_is_ranked_first_and_pairs_are_narrower_than_single_estimates() -> None:
    target = WORLD.target_rows(LOG)
    near = 0.97 * target + 0.03 * 0.5
    truth = WORLD.value(WORLD.cost, WORLD.target)
    report = pdocrl.ope({"target": target, "near": near, "worse": 1 - target}, LOG, {"cost": 2 * truth})
    assert "target" in repr(report)
    assert "<table" in report._repr_html_()
    assert f"{report.policy('target').limits[0].why}" in report.summary()
    assert report.choice is not None
    assert report.choice.ranking[0] == report.choice.best == "target"
    assert set(report.choice.safe) >= {"target", "near"}
    assert report.choice.regret_upper is not None
    assert 0 <= report.choice.regret_upper < 0.2
    (pair,) = [c for c in report.choice.comparisons if (c.policy, c.other, c.signal) == ("near", "target", "reward")]
    single = report.policy("near").of("weighted doubly robust").reward_interval
    assert single is not None
    assert pair.interval[1] - pair.interval[0] < 0.2 * (single[1] - single[0])
    beside = [c for c in report.choice.comparisons if (c.policy, c.other, c.signal) == ("target", LOGGED, "reward")]
    gain = WORLD.value(WORLD.reward, WORLD.target) - WORLD.value(WORLD.reward, WORLD.behaviour)
    assert beside[0].interval[0] <= gain <= beside[0].interval[1]
    assert report.policy("target").of("weighted doubly robust").reward == pytest.approx(
        report.logged.reward + beside[0].difference
    )


def candidate(name: str, mean: float, noise: np.ndarray) -> Candidate:
    values = mean + noise
    return Candidate(name, {"reward": summarise_values(values)}, [])


def summarise_values(values: np.ndarray) -> Estimate:
    return Estimate("e", "reward", float(values.mean()), None, float(len(values)), influence=values)


def test_the_regret_of_the_first_k_is_that_of_the_best_among_them() -> None:
    """Rewards 1, .99 and 0 with independent noise: the first two hold the best, either alone may not."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(3, 400))
    noise -= noise.mean(1, keepdims=True)
    three = [candidate(n, m, 0.5 * e) for n, m, e in zip("abc", (1.0, 0.99, 0.0), noise, strict=True)]
    found = choose(three, {"reward": noise[0]}, 0.95)
    assert found.ranking == ["a", "b", "c"]
    assert [one.k for one in found.top] == [1, 2, 3]
    assert found.top[0].regret_upper == found.regret_upper > 0.05
    assert [one.regret_upper for one in found.top[1:]] == [0.0, 0.0]


def test_the_bounds_of_all_k_hold_together() -> None:
    """Six policies of nearly one value: few of 100 draws have any bound below the true regret."""
    rng = np.random.default_rng(1)
    means = np.array([0.3, 0.25, 0.2, 0.1, 0.05, 0.0])
    wrong = 0
    for _ in range(100):
        found = choose(
            [candidate(str(k), m, rng.normal(size=60)) for k, m in enumerate(means)], {"reward": np.zeros(60)}, 0.95
        )
        order = means[[int(name) for name in found.ranking]]
        regret = means.max() - np.maximum.accumulate(order)
        wrong += any(one.regret_upper < r - 1e-12 for one, r in zip(found.top, regret, strict=True))
    assert wrong <= 9


def test_where_one_cannot_be_estimated_no_regret_is_stated() -> None:
    rng = np.random.default_rng(2)
    known, unknown = candidate("a", 1.0, rng.normal(size=50)), Candidate("b", {"reward": None}, [])
    found = choose([known, unknown], {"reward": np.zeros(50)}, 0.95)
    assert (found.best, found.regret_upper, found.top) == ("a", None, [])
