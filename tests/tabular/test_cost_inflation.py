"""Where nothing is shown: costs inflated by what few tries can hide, pair by pair."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

from pdocrl.limits import as_limits
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import random_cmdp
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.result.report import notes
from pdocrl.tabular.result.tables import trust
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.few_rows import (
    SHARE,
    SPREADS,
    inflate,
    plan_for_bounds,
    plan_for_inflated,
    rows_with_margin,
)
from pdocrl.tabular.solvers.lagrangian import Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import outcome

LIMIT = as_limits(["cost<=0.05"])


def arms(rows: list[int], costs: list[float]) -> Counts:
    """One state; arm k was tried rows[k] times and cost 1 in costs[k] of them; later arms pay more."""
    a = np.repeat(np.arange(len(rows)), rows)
    cost = np.concatenate([1.0 * (np.arange(n) < k) for n, k in zip(rows, costs, strict=True)])
    zeros = np.zeros(len(a), int)
    return Counts.from_arrays(zeros, a, zeros, 1.0 * (a > 0), cost)


def plan(counts: Counts, limit: float = 0.05) -> Floats:
    limits = as_limits({"cost": limit})
    return plan_for_inflated(counts, Lagrangian.empirical(counts, 0.5, limits), limits, 1.645)


def test_each_pair_is_charged_with_a_surprise_over_its_tries_and_a_part_of_its_standard_error() -> None:
    counts = arms([200, 50], [4, 0])
    L = Lagrangian.empirical(counts, 0.5, LIMIT)
    _, variance = PolicyEstimate(counts, 0.5, L.behaviour).surprise(high=True)
    found = inflate(counts, L, LIMIT)[0, 0]
    # A cost of 1 surprises by .98 where its mean is .02; at that rate it may hide in 50 tries or in 185, not in 200.
    np.testing.assert_allclose(found, [0, 0.98 / 50] + SPREADS * np.sqrt(variance[1] / counts.n[0]), rtol=1e-9)


def test_a_limit_that_can_bear_it_is_satisfied_by_inflated_costs_and_no_policy_that_does_so_earns_more() -> None:
    cmdp = random_cmdp(5, 3, 1, 0.9, seed=4)
    counts = Counts.sample(cmdp, np.full((5, 3), 1 / 15), 6000, 0)
    limits = as_limits({"cost": float(-cmdp.tau[0])})
    L = Lagrangian.empirical(counts, 0.9, limits)
    model = pessimistic_model(dataclasses.replace(L, g=L.g - SHARE * inflate(counts, L, limits)))
    value, kept = outcome(model, plan_for_inflated(counts, L, limits, 1.645))
    assert kept >= model.tau[0] - 1e-7
    assert abs(value - exact.solve(model).value) < 1e-6


def test_the_luck_of_pairs_that_were_picked_for_it_adds_up() -> None:
    """Eighty arms, three tries each, none of which went wrong: together they look sure to a bound that averages."""
    counts = arms([300, *[3] * 80], [9, *[0] * 80])
    averaging = plan_for_bounds(counts, Lagrangian.empirical(counts, 0.5, LIMIT), LIMIT, 1.645)
    assert averaging[0, 0] < 0.5
    assert plan(counts)[0, 0] > 0.8


def test_actions_that_look_alike_share_what_a_limit_cannot_bear() -> None:
    """Neither of two arms has ever cost anything; a third shows that there is something to fear."""
    chances = plan(arms([20, 22, 24], [3, 0, 0]), limit=0.01)[0]
    assert chances[0] < 0.1
    assert chances[1:].min() > 0.3


def test_a_threshold_that_leaves_no_room_is_lowered() -> None:
    """What was done often costs too much, and little is known of the rest."""
    assert rows_with_margin(arms([300, 5], [60, 0]), 0.5, as_limits(["cost<=0.15"]), (20, 10, 1)) == 1
    assert rows_with_margin(arms([300, 5], [60, 0]), 0.5, as_limits(["cost<=0.3"]), (20, 10, 1)) == 20


def test_a_log_too_short_for_its_limit_is_answered_with_care_and_says_so() -> None:
    """CliffWalking with gusts: the plan with the smallest averaged bound broke this limit by 83 %."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from foreign_problems import cliff_walking
    finally:
        del sys.path[0]
    problem = cliff_walking()
    counts = problem.counts(200, 1015)
    result = solve(counts, 0.99, ["cost<=0.001"], C=np.inf, refits=0, confidence=0.95)
    value, cost = problem.evaluate(result.policy)
    assert cost <= 0.001
    assert value > 1.05 * exact.solve(problem.cmdp).value  # both are negative
    assert result.status == "not_shown"
    assert result.low_count_share > 0  # although one row lets a pair in, it is not believed as in a deterministic world
    said = result.record.confidence
    assert said is not None
    assert said.learned == "inflated"
    assert ["learned by", "planning for costs inflated by what few rows can hide"] in [
        [cell.text for cell in row] for row in trust(result.record).rows
    ]
    assert any("the most careful one the log allows" in note for note in notes(result, counts))
