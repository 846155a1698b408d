"""Bootstrapped logs: the same for the same seed, faithful to what varies, honest about what a log cannot know."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdocrl.limits import as_limits
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import bootstrap, resample
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.lagrangian import Lagrangian
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle


def log(n: int = 4000, seed: int = 0) -> Counts:
    """Noisy rewards, so that cells have a variance; episodes that begin in several states."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(5, size=n), rng.integers(2, size=n)
    then = (s + a + rng.integers(2, size=n)) % 5
    return Counts.from_arrays(s, a, then, rng.normal(s, 2), rng.random(n), initial=rng.random(n) < 0.05)


def test_the_same_seed_gives_the_same_intervals_and_another_does_not() -> None:
    counts, limits = log(), ["cost<=0.48"]
    first, again, other = (solve(counts, 0.9, limits, C=2, resamples=30, refits=3, seed=s) for s in (1, 1, 2))
    assert first.intervals is not None
    assert again.intervals is not None
    assert other.intervals is not None
    assert first.intervals.value == again.intervals.value
    assert first.intervals.costs == again.intervals.costs
    assert first.intervals.value != other.intervals.value


def test_a_redrawn_log_has_the_size_and_on_average_the_contents_of_the_log() -> None:
    counts = log()
    resampled = [resample(counts, np.random.default_rng(k)) for k in range(300)]
    assert all(r.size == counts.size for r in resampled)
    np.testing.assert_allclose(np.mean([r.mu for r in resampled], axis=0), counts.mu, atol=1e-3)
    np.testing.assert_allclose(np.mean([r.r for r in resampled], axis=0), counts.r, atol=0.03)
    np.testing.assert_allclose(np.mean([r.d0 for r in resampled], axis=0), counts.d0, atol=0.01)
    # A mean reward varies as the standard error of its rows says.
    rows = np.random.default_rng(0)
    s, a = rows.integers(5, size=4000), rows.integers(2, size=4000)
    error = 2 / np.sqrt([[((s == i) & (a == j)).sum() for j in range(2)] for i in range(5)])
    np.testing.assert_allclose(np.std([r.r for r in resampled], axis=0), error, rtol=0.25)


def test_a_start_distribution_known_beforehand_is_not_redrawn() -> None:
    """Its weights sum to 1 only to rounding, which must not be taken for one episode."""
    d0 = np.random.default_rng(1).dirichlet(np.ones(5))
    for starts in (d0, d0 * (1 + 1e-15)):
        counts = dataclasses.replace(log(), starts=starts)
        np.testing.assert_array_equal(resample(counts, np.random.default_rng(0)).starts, starts)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of 40 random problems with 1,500 rows each, 95 % intervals may miss value or cost in a few."""
    held = []
    for seed in range(40):
        cmdp = random_cmdp(8, 3, 1, 0.9, seed=seed)
        best = exact.solve(cmdp)
        mu_D = (best.mu + occupancy(cmdp, np.full((8, 3), 1 / 3))) / 2
        counts = Counts.sample(cmdp, mu_D, 1_500, seed)
        limits = {"cost": -float(cmdp.tau[0])}
        result = solve(counts, 0.9, limits, C=2.5, resamples=80, refits=6, seed=seed)
        truth = evaluate(cmdp, result.policy)
        assert result.intervals is not None
        low, high = result.intervals.value
        cost_low, cost_high = result.intervals.costs["cost"]
        held.append((low <= truth.value <= high, cost_low <= -truth.constraints[0] <= cost_high))
    assert np.all(np.mean(held, axis=0) >= 0.85)


def test_optimism_measures_the_bias_of_learning() -> None:
    """Many equal arms with noisy rewards: the best-looking one looks better than all are; the truth is 0."""
    rng = np.random.default_rng(0)
    bias, measured = [], []
    for seed in range(10):
        a = rng.integers(20, size=2000)
        counts = Counts.from_arrays(np.zeros(2000, int), a, np.zeros(2000, int), rng.normal(size=2000))
        result = solve(counts, 0.9, C=50, resamples=20, refits=30, seed=seed)
        assert result.intervals is not None
        bias.append(result.value)
        measured.append(result.intervals.optimism)
    assert np.mean(bias) > 0.1
    assert 0.5 < np.mean(measured) / np.mean(bias) < 1.5


def test_a_pair_tried_once_in_a_noisy_world_makes_a_wide_interval() -> None:
    """Taken alone a single try looks certain; that others vary tells that it would too."""
    rng = np.random.default_rng(0)
    a = np.zeros(500, int)
    a[0] = 1
    reward = np.where(a == 1, 2.0, rng.normal(0.5, 0.5, 500))
    counts = Counts.from_arrays(np.zeros(500, int), a, np.zeros(500, int), reward)
    careless = solve(counts, 0.9, C=1000, min_count=1, refits=0)
    careful = solve(counts, 0.9, C=1000, refits=0)
    assert careless.value == pytest.approx(2)
    assert careless.intervals is not None
    assert careful.intervals is not None
    assert np.ptp(careless.intervals.value) > 0.9
    assert np.ptp(careful.intervals.value) < 0.2
    assert careful.intervals.value[0] < 0.5 < careful.intervals.value[1]


def test_redrawn_logs_of_all_candidates_are_the_same() -> None:
    counts, limits = log(), as_limits(["cost<=0.48"])
    L = Lagrangian.empirical(counts, 0.9, limits)
    near, far = (solve_saddle(L, Setup(C)) for C in (1.2, 3.0))
    both = bootstrap(counts, limits, [near, far], resamples=12, refits=4, seed=3)
    alone = bootstrap(counts, limits, [far], resamples=12, refits=4, seed=3)
    np.testing.assert_array_equal(both.outcomes[1], alone.outcomes[0])
    np.testing.assert_array_equal(both.there[1], alone.there[0])
    np.testing.assert_array_equal(both.optimism[1], alone.optimism[0])
