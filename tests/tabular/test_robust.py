"""Plans for bounds on costs, plans from everywhere in the log, and no gamble where nothing is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from pdocrl.limits import as_limits
from pdocrl.tabular import Result, solve
from pdocrl.tabular.cmdp import as_matrix, evaluate, plan, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered
from pdocrl.tabular.result.record import read_solved
from pdocrl.tabular.result.report import notes, save
from pdocrl.tabular.result.tables import outcome
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.few_rows import plan_for_bounds
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units, pessimistic_model
from pdocrl.tabular.solvers.saddle import plan_off_support

LIMIT = as_limits(["cost<=0.1"])


def arms(rows: list[int], costs: list[int], size: float = 1.0) -> Counts:
    """One state; arm k was tried rows[k] times, and cost `size` in costs[k] of them."""
    a = np.repeat(np.arange(len(rows)), rows)
    cost = np.concatenate([size * (np.arange(n) < k) for n, k in zip(rows, costs, strict=True)])
    zeros = np.zeros(len(a), int)
    return Counts.from_arrays(zeros, a, zeros, a * 1.0, cost)


def test_a_plan_for_bounds_is_the_least_of_the_convex_function_it_names() -> None:
    """In one state μ is the policy, so the least bound can be found by any other optimiser."""
    counts = arms([400, 100, 30], [8, 1, 0])
    L = Lagrangian.empirical(counts, 0.9, LIMIT)
    estimate = PolicyEstimate(counts, 0.9, L.behaviour)
    off, variance = estimate.surprise(high=True)
    hidden = estimate.hidden(off, high=True)[1, 0]
    z, n, c = 1.645, counts.n[0], counts.costs[0, 0]

    def bound(mu: np.ndarray) -> float:
        half = z**2 * float(mu**2 @ (hidden / n)) / 2
        return float(mu @ c + half + np.sqrt(z**2 * mu**2 @ (variance[1] / n) + half**2))

    simplex = {"type": "eq", "fun": lambda mu: mu.sum() - 1}
    best = minimize(bound, np.full(3, 1 / 3), bounds=[(0, 1)] * 3, constraints=[simplex], tol=1e-12)
    found = plan_for_bounds(counts, L, LIMIT, z)[0]
    assert bound(found) <= best.fun * (1 + 1e-3)
    assert bound(found) < 0.9 * min(bound(corner) for corner in np.eye(3))  # spread over arms, none of them alone


def test_a_plan_for_bounds_at_a_small_price_is_the_plan_for_reward() -> None:
    cmdp = random_cmdp(5, 3, 1, 0.9, seed=3)
    counts = Counts.sample(cmdp, np.full((5, 3), 1 / 15), 3000, 0)
    L = Lagrangian.empirical(counts, 0.9, LIMIT)
    model = pessimistic_model(Units.of(L).scale(L))
    greedy = as_matrix(plan(model, model.r).actions, 3)
    np.testing.assert_allclose(plan_for_bounds(counts, L, LIMIT, 1.645, price=1e-9), greedy, atol=1e-9)


def test_more_is_paid_for_bounds_the_higher_their_price() -> None:
    cmdp = random_cmdp(6, 3, 1, 0.9, seed=1)
    counts = Counts.sample(cmdp, np.full((6, 3), 1 / 18), 2000, 0)
    L = Lagrangian.empirical(counts, 0.9, LIMIT)
    earned = [evaluate(cmdp, plan_for_bounds(counts, L, LIMIT, 1.645, price)) for price in (0.01, 1.0, 100.0)]
    assert earned[0].value > earned[1].value > earned[2].value
    assert earned[0].constraints[0] < earned[1].constraints[0] < earned[2].constraints[0]


@pytest.mark.parametrize(("events", "hides"), [(300, False), (3, True)])
def test_a_disaster_hides_only_where_it_is_rare(events: int, hides: bool) -> None:
    """One in three that never happened in fifty tries cannot be there; three in a thousand can."""
    counts = arms([1000, 50], [events, 0], size=20.0)
    estimate = PolicyEstimate(counts, 0.9, np.array([[0.0, 1.0]]))
    off, _ = estimate.surprise(high=True)
    assert bool(estimate.hidden(off, high=True)[1, 0, 1] > 10) is hides


def test_one_large_cost_among_rows_that_cost_nothing_counts_at_its_size() -> None:
    """Of a transition only mean and variance are known: 50 once in a hundred rows is not a spread of 5."""
    counts = arms([100], [1], size=50.0)
    estimate = PolicyEstimate(counts, 0.9, np.ones((1, 1)))
    off, _ = estimate.surprise(high=True)
    assert abs(estimate.sizes(off, high=True)[1, 0] - 49.5) < 1e-9


def test_where_the_plan_never_comes_it_does_not_do_what_the_log_did() -> None:
    """State 1 is entered from nowhere. The log mostly did there what costs; one tried action costs nothing."""
    state, action = np.array([0] * 20 + [1] * 20), np.array([0] * 20 + [1] * 15 + [0] * 5)
    counts = Counts.from_arrays(state, action, np.zeros(40, int), np.ones(40), (action == 1) * 1.0, d0=[1.0, 0.0])
    result = solve(counts, 0.9, ["cost<=0.05"], C=np.inf, min_count=1, resamples=0)
    np.testing.assert_array_equal(result.policy, [[1, 0], [1, 0]])


def test_a_state_without_rows_is_no_worse_than_the_log_for_choosing_a_way_out() -> None:
    """In state 1 one tried action costs and stays, the other leads where the log has never acted."""
    states, actions, then = [0] * 10 + [1] * 6, [0] * 10 + [0, 1] * 3, [0] * 10 + [1, 2] * 3
    cost = [0.0] * 10 + [1.0, 0.0] * 3
    counts = Counts.from_arrays(states, actions, then, np.ones(16), cost, d0=[1.0, 0.0, 0.0], n_states=3)
    scaled = Lagrangian.empirical(counts, 0.9, as_limits(["cost<=0.05"]))
    np.testing.assert_array_equal(plan_off_support(scaled, price=5.0)[:2], [[1, 0], [0, 1]])


def test_a_cost_that_never_occurred_cannot_be_bounded_and_the_log_is_followed() -> None:
    counts = arms([30, 70], [0, 0])
    result = solve(counts, 0.9, ["cost<=0.1"], C=np.inf, refits=0, confidence=0.95)
    assert result.status == "not_shown"
    np.testing.assert_allclose(result.policy, [[0.3, 0.7]])
    assert any("`cost` is 0 in every row" in note for note in notes(result, counts))
    said = result.record.confidence
    assert said is not None
    assert (said.bounds, said.learned) == ({"cost": None}, "behaviour")


def test_a_cost_that_never_occurred_has_no_upper_end(tmp_path: Path) -> None:
    counts = arms([30, 70], [0, 0])
    result = solve(counts, 0.9, ["cost<=0.1"], C=np.inf, refits=0)
    assert result.intervals is not None
    assert result.intervals.costs == {"cost": (0, None)}
    assert any("`cost` is 0 in every row" in note for note in notes(result, counts))
    save(result, tmp_path)
    read = read_solved(tmp_path)
    assert read.intervals is not None
    assert read.intervals.costs == {"cost": (0, None)}
    assert outcome(read).rows[1][3].text == "0 … unknown"
    assert solve(arms([30, 70], [1, 0]), 0.9, ["cost<=0.1"], C=np.inf, refits=0).intervals.costs["cost"][1] < 1


def test_an_interval_reckons_with_what_happened_elsewhere() -> None:
    """Arm 0 broke something once in forty tries; arm 1, in as many, never did, and may all the same."""
    result = solve(arms([40, 40], [1, 0], size=20.0), 0.9, ["cost<=0.1"], C=np.inf, refits=0)
    assert result.policy[0, 1] == 1
    assert result.intervals is not None
    assert result.intervals.costs["cost"][1] > 1.0  # 20 times 3/40 would be 1.5
    own = PolicyEstimate(arms([40, 40], [1, 0], size=20.0), 0.9, np.array([[0.0, 1.0]]))
    assert clustered(own)[1, 1] < 0.1 < clustered(own, anywhere=True)[1, 1]


def disaster(seed: int) -> Result:
    """Three loads that come and go; fast work pays twice and breaks something of 50 one time in 200; 1,200 steps."""
    rng = np.random.default_rng(seed)
    load, fast = rng.integers(3, size=1201), rng.integers(2, size=1200)
    cost = 50.0 * (fast * rng.random(1200) < 0.005) * fast
    episode = np.repeat(np.arange(12), 100)
    counts = Counts.from_arrays(load[:-1], fast, load[1:], 0.5 + 0.5 * fast, cost, episode=episode)
    return solve(counts, 0.9, ["cost<=0.15"], C=np.inf, min_count=10, refits=0, confidence=0.95)


def test_what_is_not_shown_is_no_gamble() -> None:
    """The true cost is .25 times the share of fast steps. A best estimate works fast wherever nothing broke yet."""
    results = [disaster(seed) for seed in range(6)]
    fast = np.array([result.policy[:, 1].mean() for result in results])
    assert sum(result.status == "not_shown" for result in results) >= 2
    assert (0.25 * fast <= 0.15).all()


def test_what_is_shown_is_not_called_optimal_and_its_certificate_is_its_distance_from_the_best() -> None:
    cmdp = random_cmdp(5, 3, 1, 0.9, seed=2)
    counts = Counts.sample(cmdp, np.full((5, 3), 1 / 15), 4000, 0)
    limit = {"cost": float(-cmdp.tau[0])}
    result = solve(counts, 0.9, limit, C=np.inf, min_count=10, refits=0, confidence=0.95)
    assert result.status == "shown"
    model = pessimistic_model(Lagrangian.empirical(counts, 0.9, as_limits(limit)))
    assert abs(result.certificate.gap - (exact.solve(model).value - evaluate(model, result.policy).value)) < 1e-6
    assert result.certificate.gap > 0
    assert evaluate(cmdp, result.policy).constraints[0] >= cmdp.tau[0]
