"""Logs whose episodes end, in units of any size, with pairs tried once: what other people's logs are like."""

from __future__ import annotations

import numpy as np
import pytest

from pdocrl.errors import DataError
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import evaluate, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.io.rows import lookalikes
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.few_rows import BELIEVED, choose_min_count, frequent, frequent_only
from pdocrl.tabular.solvers.lagrangian import Lagrangian, behaviour_mass
from research.lucky import lucky2


def test_a_log_with_ends_gives_the_policy_of_its_equivalent_without() -> None:
    """γ = 0.9 without ends is γ = 0.999 where 11 of 111 transitions end: 0.999 · 100/111 = 0.9."""
    lucky = lucky2()
    log = {name: np.repeat(column, 111) for name, column in lucky.log(3000, seed=0).items()}
    costs, d0 = log.pop("cost"), lucky.cmdp.d0
    endless = Counts.from_arrays(**log, costs=costs, d0=d0, n_states=7)
    over = np.arange(len(costs)) % 111 >= 100
    ending = Counts.from_arrays(**log, costs=costs, d0=d0, n_states=7, terminal=over)
    mass = (1 - 0.999) / (1 - 0.9)
    assert behaviour_mass(endless, 0.9) == 1
    assert behaviour_mass(ending, 0.999) == pytest.approx(mass)
    first = solve(endless, 0.9, ["cost<=0.3"], C=2, resamples=0, min_count=1)
    second = solve(ending, 0.999, [f"cost<={0.3 * mass!r}"], C=2, resamples=0, min_count=1)
    assert second.value == pytest.approx(mass * first.value)
    np.testing.assert_allclose(second.policy, first.policy, atol=1e-6)
    assert second.coverage.concentrability == pytest.approx(first.coverage.concentrability)


def test_the_policy_that_made_the_log_has_concentrability_near_one_with_ends_too() -> None:
    rng = np.random.default_rng(0)
    s = rng.integers(3, size=30_000)
    counts = Counts.from_arrays(s, rng.integers(2, size=30_000), rng.integers(3, size=30_000), s, terminal=s == 0)
    L = Lagrangian.empirical(counts, 0.99)
    assert L.mu_D.sum() < 0.1
    loose = solve(counts, 0.99, C=1.1, resamples=0)
    assert loose.coverage.concentrability <= 1.1 + 1e-9
    assert loose.coverage.outside < 1e-9


@pytest.mark.parametrize(("reward", "cost"), [(1e5, 1.0), (1e-4, 100.0), (1e6, 1e-3)])
def test_results_do_not_depend_on_units(reward: float, cost: float) -> None:
    rng = np.random.default_rng(3)
    cmdp = random_cmdp(8, 3, 1, seed=3)
    counts = Counts.sample(cmdp, rng.dirichlet(np.ones(24)).reshape(8, 3), 3000, 3)
    limit = 0.5 * (counts.costs.min() + counts.costs.max())
    plain = solve(counts, 0.9, {"cost": limit}, resamples=20, refits=2)
    units = np.array([reward, cost])[:, None]
    other = Counts(**{**vars_of(counts), "mean": counts.mean * units, "variance": counts.variance * units**2})
    scaled = solve(other, 0.9, {"cost": cost * limit}, resamples=20, refits=2)
    assert scaled.C == plain.C
    assert scaled.status == plain.status
    np.testing.assert_allclose(scaled.policy, plain.policy, atol=1e-6)
    assert scaled.value == pytest.approx(reward * plain.value)
    np.testing.assert_allclose(scaled.costs, cost * plain.costs, rtol=1e-6)
    np.testing.assert_allclose(scaled.multipliers, plain.multipliers * reward / cost, rtol=1e-5, atol=1e-9)


def vars_of(counts: Counts) -> dict:
    names = ("pair", "to", "count", "mean", "variance", "starts", "states", "actions", "cost_names")
    return {name: getattr(counts, name) for name in names}


def test_a_lucky_try_is_not_believed() -> None:
    """An arm tried three times that never failed, and one tried a thousand times that nearly never does."""
    a = np.r_[np.zeros(1000, int), np.ones(3, int)]
    fails = np.r_[np.random.default_rng(0).random(1000) < 0.01, np.zeros(3, bool)]
    zeros = np.zeros(1003, int)
    counts = Counts.from_arrays(zeros, a, zeros, np.where(a == 1, 1.0, 0.9), fails)
    assert choose_min_count(counts, 0.9) == BELIEVED
    assert solve(counts, 0.9, ["cost<=0.02"], C=np.inf, resamples=0).policy[0, 0] == pytest.approx(1)
    assert solve(counts, 0.9, ["cost<=0.02"], C=np.inf, min_count=1, resamples=0).policy[0, 1] == pytest.approx(1)


def test_in_a_deterministic_world_one_try_is_enough() -> None:
    rng = np.random.default_rng(0)
    s, a = rng.integers(20, size=500), rng.integers(3, size=500)
    counts = Counts.from_arrays(s, a, (s + a) % 20, s * 0.1)
    assert choose_min_count(counts, 0.9) == 1
    noisy = Counts.from_arrays(s, a, (s + a + (rng.random(500) < 0.1)) % 20, s * 0.1)
    assert choose_min_count(noisy, 0.9) == BELIEVED


def test_every_state_keeps_its_most_frequent_action() -> None:
    n = np.array([[12, 3, 10], [4, 2, 4], [0, 0, 0]])
    assert frequent(n, 10).tolist() == [[True, False, True], [True, False, True], [False] * 3]
    counts = Counts.from_arrays(
        np.repeat([0, 1], [15, 6]), [0] * 12 + [1] * 3 + [0] * 4 + [1] * 2, [0, 1] * 10 + [0], [1] * 21
    )
    left = frequent_only(counts, 10)
    assert left.n.tolist() == [[12, 0], [4, 0]]
    assert left.size == 16


def test_the_threshold_steps_back_where_only_rare_pairs_keep_the_limit() -> None:
    a = np.r_[np.zeros(200, int), np.ones(5, int)]
    rng = np.random.default_rng(0)
    costs = np.where(a == 0, rng.random(205) < 0.5, 0.0)
    zeros = np.zeros(205, int)
    counts = Counts.from_arrays(zeros, a, zeros, np.ones(205), costs)
    result = solve(counts, 0.9, ["cost<=0.1"], resamples=0, C=np.inf)
    assert result.min_count == 5
    assert result.status == "optimal"
    assert result.low_count_share > 0.5  # and it is said that this rests on five rows


def test_without_a_bound_the_certificate_is_that_of_planning_and_much_larger_problems_are_solved() -> None:
    cmdp = random_cmdp(40, 4, 2, seed=1)
    counts = Counts.sample(cmdp, np.full((40, 4), 1 / 160), 200_000, 1)
    limits = dict(zip(counts.cost_names, -cmdp.tau, strict=True))
    result = solve(counts, 0.9, limits, C=np.inf, resamples=0)
    assert result.status == "optimal"
    assert 0 <= result.certificate.gap < 1e-7
    assert evaluate(cmdp, result.policy).error(cmdp, exact.solve(cmdp).value) < 0.01


def test_a_cost_that_is_avoided_is_zero_and_not_minus_zero() -> None:
    """Costs are held as negative rewards inside, and −0 was printed."""
    free = Counts.from_arrays([0] * 40, [0, 1] * 20, [0] * 40, [0.0] * 40, costs=[0.0, 1.0] * 20)
    found = solve(free, 0.9, ["cost<=0.2"], C=3, resamples=0)
    assert not np.signbit(found.costs).any()
    assert found.costs == pytest.approx(0, abs=0.2)


def test_a_result_prints_in_one_line() -> None:
    counts = Counts.from_arrays([0, 1] * 20, [0, 1] * 20, [1, 0] * 20, [1.0] * 40)
    assert len(repr(solve(counts, 0.9, C=2, resamples=0))) < 200


def test_text_is_no_truth_value() -> None:
    for values in (["False", "True"], [0, 2], [0.5, 1]):
        with pytest.raises(DataError, match="must be true or false"):
            Counts.from_arrays([0, 0], [0, 0], [0, 0], [1, 1], terminal=values)
    assert Counts.from_arrays([0, 0], [0, 0], [0, 0], [1, 1], terminal=[0, 1.0]).count.tolist() == [1, 1]


def test_labels_that_look_like_one_are_told() -> None:
    assert lookalikes(["3", "3.0", "calm", "calm ", "Calm", "x"]) == [("3", "3.0"), ("calm", "calm "), ("calm", "Calm")]
    assert lookalikes([3, 4]) == []


def test_states_never_acted_in_are_the_end_only_if_that_is_said() -> None:
    """From 0, action 0 leads to the goal 1 and pays; nothing is known of what follows there."""
    a = np.arange(100) % 2
    counts = Counts.from_arrays(np.zeros(100, int), a, np.where(a == 0, 1, 0), np.where(a == 0, 2.0, -1.0), d0=[1, 0])
    assert counts.dead_ends.tolist() == [1]
    unknown = solve(counts, 0.9, C=np.inf, resamples=0)
    assert unknown.coverage.outside > 0
    said = counts.ending_in(counts.dead_ends)
    assert said.to.tolist() == [2, 0]
    named = Counts.from_arrays(np.zeros(6, int), [0, 1] * 3, [1, 0, 2] * 2, range(6), episode=[0, 0, 1] * 2, n_states=3)
    merged = named.ending_in(named.dead_ends)
    assert merged.groups is not None
    count, mean, _ = merged.groups.weighted(np.ones(2), len(merged.count))
    np.testing.assert_array_equal(count, merged.count)
    np.testing.assert_allclose(mean, merged.mean)
    ends = solve(said, 0.9, C=np.inf, resamples=0)
    assert ends.policy[0, 0] == pytest.approx(1)
    assert ends.value == pytest.approx(0.1 * 2)


def test_a_policy_called_optimal_keeps_the_limits_in_the_logs_own_model() -> None:
    """Rare states behind every action: the price of leaving the log must not be paid in broken limits."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, S = 1500, 60
        s, a = rng.zipf(1.4, n) % S, rng.zipf(1.5, n) % 6
        then = (s * 7 + a * rng.integers(1, 4, n)) % S
        costs = rng.random(n) < 0.1 + 0.5 * ((s + a) % 3 == 0)
        counts = Counts.from_arrays(s, a, then, rng.random(n), costs, terminal=rng.random(n) < 0.2, n_states=S)
        for C in (3.0, 30.0, np.inf):
            result = solve(counts, 0.95, ["cost<=0.1"], C=C, resamples=0)
            if result.status == "optimal":
                assert result.costs[0] <= 0.1 + 1e-6


def test_where_the_log_never_was_it_does_what_cost_least_elsewhere() -> None:
    """Two of three actions never cost anything; state 2 is entered and never acted in, state 3 never seen at all."""
    rng = np.random.default_rng(0)
    s, a = rng.integers(2, size=400), rng.choice(3, size=400, p=[0.5, 0.3, 0.2])
    to = np.where(rng.random(400) < 0.05, 2, 1 - s)
    counts = Counts.from_arrays(s, a, to, (a == 2) * 1.0, (a == 2) * 0.1, n_states=4, n_actions=3)
    for C in (3.0, np.inf):
        result = solve(counts, 0.9, ["cost<=0.01"], C=C, resamples=0)
        often = counts.n.sum(axis=0)[:2]
        np.testing.assert_allclose(result.policy[2:], [[*(often / often.sum()), 0.0]] * 2)
        np.testing.assert_allclose(result.careful, result.policy[3])
    free = solve(counts, 0.9, C=3.0, resamples=0)
    np.testing.assert_allclose(free.careful, counts.n.sum(axis=0) / 400)
