"""Bounds for a given policy: textbook formulas, Monte Carlo where there are none, and coverage at the level."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdocrl.tabular.cmdp import evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import resample, split
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered, delta, group_influence, score
from pdocrl.tabular.io.episodes import MOST, group_of
from pdocrl.tabular.solvers import exact
from research.bounds_worst import chi2_ball, pessimistic
from research.redrawn_bounds import episode_bootstrap, model_bootstrap, resample_outcomes

BOUNDS = (delta, clustered, chi2_ball, pessimistic, lambda e: model_bootstrap(e, resamples=100))


def problem(seed: int, size: int):
    """A random CMDP, a log of it, and a policy that does not depend on the log."""
    cmdp = random_cmdp(8, 3, 1, 0.9, seed=seed)
    best = exact.solve(cmdp)
    mu_D = (best.mu + occupancy(cmdp, np.full((8, 3), 1 / 3))) / 2
    return cmdp, Counts.sample(cmdp, mu_D, size, seed), best.pi


def truth_of(cmdp, pi):
    earned = evaluate(cmdp, pi)
    return np.array([earned.value, *-earned.constraints])


def bandit(n=900, seed=0):
    """One step, then the end: an arm, a reward, a cost."""
    rng = np.random.default_rng(seed)
    arm, zeros = rng.integers(3, size=n), np.zeros(n, int)
    return Counts.from_arrays(
        zeros, arm, zeros, rng.normal(arm, 1), (rng.random(n) < 0.2).astype(float), np.ones(n), d0=[1.0]
    )


def patients(seed, people=100, steps=50):
    """Three in ten are frail and pay with probability .3 a visit, the others .02; the state does not say who is who."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), steps)
    frail = (rng.random(people) < 0.3)[person]
    cost = (rng.random(len(person)) < np.where(frail, 0.3, 0.02)).astype(float)
    state, action, then = rng.integers(2, size=(3, len(person)))
    first = np.tile(np.arange(steps) == 0, people)
    return Counts.from_arrays(state, action, then, action + 0.0, cost, initial=first, episode=person)


def test_in_a_bandit_the_delta_method_is_the_textbook_standard_error():
    counts, pi = bandit(), np.array([[0.2, 0.5, 0.3]])
    estimate = PolicyEstimate(counts, 0.5, pi)
    off, variance = estimate.surprise(high=False)
    by_hand = np.array([counts.variance[0][counts.pair == a].item() for a in range(3)])
    np.testing.assert_allclose(variance[0], by_hand, rtol=0.02)  # the prior's one row of 300
    error = 0.5 * np.sqrt((pi[0] ** 2 * by_hand / counts.n[0]).sum())  # (1−γ)J of one step
    low, high = delta(estimate)[0]
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.06)  # the score interval is wider by O(1/n)
    assert np.allclose(off, 0)  # a bandit's transitions differ only in what they pay


def test_the_delta_methods_variance_is_that_of_the_estimate_over_logs():
    cmdp, _, pi = problem(1, 1)
    mu_D = (exact.solve(cmdp).mu + occupancy(cmdp, np.full((8, 3), 1 / 3))) / 2
    logs = [Counts.sample(cmdp, mu_D, 3000, seed) for seed in range(200)]
    found = [PolicyEstimate(counts, 0.9, pi) for counts in logs]
    spread = np.std([one.estimate[:, 0] for one in found], axis=0)
    claimed = [np.ptp(delta(one), axis=1) / (2 * 1.96) for one in found[:20]]
    np.testing.assert_allclose(np.mean(claimed, axis=0), spread, rtol=0.2)


@pytest.mark.parametrize("bound", BOUNDS)
def test_intervals_of_a_given_policy_hold_at_their_level(bound):
    """60 random problems: 95 % coverage allows 7 misses with probability .99."""
    held = []
    for seed in range(60):
        cmdp, counts, pi = problem(seed, 1000)
        found, truth = bound(PolicyEstimate(counts, 0.9, pi)), truth_of(cmdp, pi)
        held.append((found[:, 0] <= truth) & (truth <= found[:, 1]))
    assert np.all(np.sum(held, axis=0) >= 53)


def test_the_ball_agrees_with_the_delta_method_as_the_log_grows_and_hoeffding_is_wider():
    _, counts, pi = problem(2, 10**6)
    estimate = PolicyEstimate(counts, 0.9, pi)
    np.testing.assert_allclose(chi2_ball(estimate), delta(estimate), atol=2e-5)
    assert np.all(np.ptp(pessimistic(estimate), axis=1) > np.ptp(delta(estimate), axis=1))


@pytest.mark.parametrize("bound", BOUNDS)
def test_no_interval_leaves_what_is_possible_and_each_holds_the_estimate(bound):
    for seed in range(5):
        _, counts, pi = problem(seed, 60)
        counts = dataclasses.replace(counts, mean=np.abs(counts.mean))
        estimate = PolicyEstimate(counts, 0.9, pi)
        low, high = bound(estimate).T
        assert np.all(low >= 0)
        assert np.all(high <= counts.mean.max(axis=1) + 1e-12)
        assert np.all(low <= estimate.estimate[:, 0] + 1e-12)
        assert np.all(high >= estimate.estimate[:, 1] - 1e-12)


@pytest.mark.parametrize("bound", BOUNDS)
def test_units_do_not_matter(bound):
    _, counts, pi = problem(3, 500)
    scaled = dataclasses.replace(counts, mean=counts.mean * 1e5, variance=counts.variance * 1e10)
    one, other = (bound(PolicyEstimate(c, 0.9, pi)) for c in (counts, scaled))
    np.testing.assert_allclose(other, 1e5 * one, rtol=1e-4)


def test_the_score_interval_of_rare_events_is_wilsons():
    """k events in n rows: k/n ± …, with 0 events z²/n, where a plain interval would claim certainty."""
    n, z = 100, 1.96
    for k in (0, 1, 4):
        high = score(np.array([k / n]), np.array([k / n**2]), np.array([1 / n]), z, high=True)
        assert high[0] == pytest.approx((k + z**2 / 2 + z * np.sqrt(k + z**2 / 4)) / n)


def test_with_frail_patients_episodes_hold_the_cost_and_rows_do_not():
    truth, rows, episodes = 0.3 * 0.3 + 0.7 * 0.02, [], []
    pi = np.array([[0.1, 0.9], [0.1, 0.9]])
    for seed in range(100):
        estimate = PolicyEstimate(patients(seed), 0.9, pi)
        (a, b), (c, d) = delta(estimate)[1], clustered(estimate)[1]
        rows.append(a <= truth <= b)
        episodes.append(c <= truth <= d)
    assert np.mean(rows) < 0.75
    assert np.mean(episodes) >= 0.9


def test_what_groups_add_sums_to_nothing_and_predicts_what_leaving_one_out_does():
    counts = patients(0, people=60)
    pi = np.array([[0.3, 0.7], [0.6, 0.4]])
    estimate = PolicyEstimate(counts, 0.9, pi)
    part, groups = group_influence(estimate, high=False), counts.groups
    assert groups is not None
    assert len(groups) == 60
    np.testing.assert_allclose(part.sum(axis=1), 0, atol=1e-12)
    for g in range(3):
        weight = np.ones(60)
        weight[g] = 0
        count, mean, starts = groups.weighted(weight, len(counts.count))
        without = dataclasses.replace(counts, count=count.astype(int), mean=mean, starts=starts, groups=None)
        change = PolicyEstimate(without, 0.9, pi).estimate[:, 0] - estimate.estimate[:, 0]
        np.testing.assert_allclose(change, -part[:, g] * 60 / 59, atol=3e-4)


def test_all_groups_once_are_the_log():
    counts = patients(1)
    assert counts.groups is not None
    count, mean, starts = counts.groups.weighted(np.ones(len(counts.groups)), len(counts.count))
    np.testing.assert_array_equal(count, counts.count)
    np.testing.assert_allclose(mean, counts.mean, atol=1e-12)
    np.testing.assert_array_equal(starts, counts.starts)


def test_episodes_beyond_the_most_share_groups_and_none_is_torn():
    episode = np.repeat(np.arange(3 * MOST), 4)
    group = group_of(episode)
    assert group.max() + 1 == MOST
    assert all(len(set(group[episode == e])) == 1 for e in (0, 7, 3 * MOST - 1))
    assert set(np.bincount(group)) == {12}


def test_an_untried_pair_counts_between_the_best_and_the_worst_the_log_knows():
    """Half of the time an untried action: one end of the interval has it pay nothing, the other as the best."""
    counts = Counts.from_arrays([0] * 50, [0] * 50, [0] * 50, [1.0] * 50, [0.5] * 50, n_actions=2)
    low, high = PolicyEstimate(counts, 0.9, np.array([[0.5, 0.5]])).estimate.T
    # Before the untried action: Σ (.45)ᵗ · .5 · (1−γ) = .0909; beyond it the least is 0, the most 1 (or .5) for ever.
    np.testing.assert_allclose(low, [0.0909, 0.04545], atol=1e-4)
    np.testing.assert_allclose(high, [1.0, 0.5], atol=1e-9)


def test_redrawn_outcomes_keep_every_pairs_tries_and_redrawn_episodes_keep_their_number():
    counts = patients(2)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(resample_outcomes(counts, rng).n, counts.n)
    again = resample(counts, rng)
    assert again.size == counts.size  # 100 episodes of 50 rows
    assert again.starts.sum() == 100
    assert not np.array_equal(again.n, counts.n)


def test_redrawn_episodes_spread_as_the_clustered_formula_says():
    estimate = PolicyEstimate(patients(3), 0.9, np.array([[0.1, 0.9], [0.1, 0.9]]))
    resampled = np.ptp(episode_bootstrap(estimate, resamples=300)[1])
    assert resampled == pytest.approx(np.ptp(clustered(estimate)[1]), rel=0.25)
    assert resampled > 1.5 * np.ptp(model_bootstrap(estimate)[1])


@pytest.mark.parametrize("grouped", [True, False])
def test_two_halves_are_the_log_and_share_no_episode(grouped):
    counts = patients(4)
    counts = counts if grouped else dataclasses.replace(counts, groups=None)
    first, second = split(counts, np.random.default_rng(0))
    np.testing.assert_array_equal(first.n + second.n, counts.n)
    np.testing.assert_allclose(first.n * first.costs[0] + second.n * second.costs[0], counts.n * counts.costs[0])
    np.testing.assert_allclose(first.starts + second.starts, counts.starts)
    if grouped:
        assert (len(first.groups), len(second.groups)) == (50, 50)
        count, mean, _ = first.groups.weighted(np.ones(50), len(first.count))
        np.testing.assert_array_equal(count, first.count)
        np.testing.assert_allclose(mean, first.mean)
        assert first.size == 50 * 50
