"""Choosing among policies: multiplicity is paid, the same episodes are compared, and regret is bounded."""

from __future__ import annotations

import numpy as np
import pytest

import pdocrl
from pdocrl.ope.choice import LOGGED, holm
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
