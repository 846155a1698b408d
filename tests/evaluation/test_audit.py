"""Audit bounds: exact where they claim to be, at their level at every n, and at every stopping time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from pdocrl.errors import PdocrlError
from pdocrl.evaluation.audit import (
    STAKES,
    _mixed,
    audit,
    episodes_needed,
    mean_lower,
    mean_upper,
    share_upper,
    verdict_of,
)


def log_capital(cost, mean, cost_max):
    """[..., n] log K(mean) after each of the episodes of costs [..., n], in their order: the bets of `mean_upper`."""
    x, m = np.asarray(cost) / cost_max, mean / cost_max
    with np.errstate(divide="ignore"):
        return _mixed(np.array([np.log1p(np.maximum(s * (m - x) / (1 - m), -1.0)).cumsum(-1) for s in STAKES]))


def test_fifty_nine_safe_episodes_of_fifty_nine_show_five_percent_and_fifty_eight_do_not():
    assert share_upper(0, 59) <= 0.05 < share_upper(0, 58)
    assert share_upper(0, 299) <= 0.01 < share_upper(0, 298)


@pytest.mark.parametrize("n", [20, 59, 200])
def test_the_share_is_covered_at_its_level_at_every_share_and_number_of_episodes(n):
    """Exactly, by summing over all outcomes: coverage of the upper and of the lower bound is at least .95."""
    upper = np.array([share_upper(k, n) for k in range(n + 1)])
    lower = np.array([1 - share_upper(n - k, n) for k in range(n + 1)])
    for p in np.linspace(0.001, 0.999, 200):
        chance = binom.pmf(np.arange(n + 1), n, p)
        assert chance[upper >= p].sum() >= 0.95 - 1e-9
        assert chance[lower <= p].sum() >= 0.95 - 1e-9
    k = n // 10
    assert binom.cdf(k, n, share_upper(k, n)) == pytest.approx(0.05)  # and no wider than that


def _rare(rng, size):  # one episode in fifty is a disaster
    return np.where(rng.random(size) < 0.02, 100.0, 1.0)


def _spread(rng, size):
    return 100 * rng.beta(1, 4, size)


def _coin(rng, size):
    return 100.0 * (rng.random(size) < 0.3)


MEAN = {_rare: 2.98, _spread: 20.0, _coin: 30.0}


@pytest.mark.parametrize("draw", MEAN)
@pytest.mark.parametrize("n", [20, 59, 200])
def test_the_mean_is_covered_at_its_level(draw, n):
    """150 audits; at a true miss rate of 5 % more than 15 misses happen once in 200 times."""
    costs = draw(np.random.default_rng(n), (150, n))
    assert sum(mean_upper(row, 100.0) < MEAN[draw] for row in costs) <= 15
    assert sum(mean_lower(row) > MEAN[draw] for row in costs) <= 15


@pytest.mark.parametrize("draw", MEAN)
def test_looking_after_every_episode_and_stopping_when_the_limit_seems_kept_keeps_the_level(draw):
    """The limit is the true mean: of 2,000 audits of up to 500 episodes at most 5 % are ever cleared."""
    capital = log_capital(draw(np.random.default_rng(3), (2000, 500)), MEAN[draw], 100.0)
    assert (capital.max(axis=1) >= np.log(20)).mean() <= 0.05


def test_a_binomial_bound_looked_at_after_every_episode_loses_its_level_and_the_bets_do_not():
    """Why there are two bounds: a share of 10 % over the limit, and one stops when the bound is below 10 %."""
    over = (np.random.default_rng(0).random((2000, 300)) < 0.1).astype(float)
    n, k = np.arange(30, 301, 10), np.arange(25)
    seems = np.array([[share_upper(int(i), int(m)) < 0.1 for i in k] for m in n])  # [n, k]
    so_far = over.cumsum(axis=1)[:, n - 1].astype(int)
    assert seems[np.arange(len(n)), np.minimum(so_far, 24)].any(axis=1).mean() > 0.1
    assert (log_capital(over, 0.1, 1.0).max(axis=1) >= np.log(20)).mean() <= 0.05


def test_the_bound_is_where_the_capital_reaches_its_goal_and_order_does_not_matter():
    costs = _spread(np.random.default_rng(1), 80)
    upper = mean_upper(costs, 100.0)
    assert costs.mean() < upper < 100
    assert upper == pytest.approx(mean_upper(costs[::-1], 100.0), rel=1e-12)
    assert log_capital(costs, upper, 100.0)[-1] == pytest.approx(np.log(20), abs=1e-6)
    assert episodes_needed(costs, upper * 1.0001, 100.0) <= 80 < episodes_needed(costs, upper * 0.98, 100.0)


def test_bounds_scale_with_the_cost_and_shrink_towards_the_mean():
    rng = np.random.default_rng(2)
    costs = rng.beta(2, 20, 20_000)
    assert mean_upper(5 * costs, 5.0) == pytest.approx(5 * mean_upper(costs, 1.0))
    assert mean_lower(5 * costs) == pytest.approx(5 * mean_lower(costs))
    assert costs.mean() < mean_upper(costs, 1.0) < costs.mean() + 0.003
    assert costs.mean() - 0.003 < mean_lower(costs) < costs.mean()


def test_no_episode_shows_nothing_and_no_cost_is_bounded_where_the_largest_is_unknown():
    nothing = audit([], limit=1.0, cost_max=10.0)
    assert (nothing.mean_cost_upper, nothing.mean_cost_lower, nothing.share_over_upper) == (10.0, 0.0, 1.0)
    assert nothing.verdict == "not shown"
    unknown = audit(np.zeros(10_000), limit=1.0)
    assert unknown.mean_cost_upper is None
    assert unknown.verdict == "not shown"
    assert unknown.share_over_upper < 0.001


def test_the_quick_verdict_is_the_audits():
    rng = np.random.default_rng(4)
    said = []
    for _ in range(60):
        costs = rng.choice([0.0, 3.0, 12.0, 40.0], size=rng.integers(1, 80), p=rng.dirichlet(np.ones(4)))
        limit = rng.choice([0.0, 5.0, 10.0, 20.0])
        said.append(verdict_of(costs, limit, 40.0))
        assert said[-1] == audit(costs, limit, cost_max=40.0).verdict
    assert {"within", "over", "not shown"} == set(said)


def test_verdicts_say_within_over_and_not_shown():
    rng = np.random.default_rng(4)
    assert audit(rng.uniform(0, 4, 200), limit=10, cost_max=50).verdict == "within"
    assert audit(rng.uniform(20, 40, 50), limit=10, cost_max=50).verdict == "over"
    assert audit(rng.uniform(20, 40, 50), limit=10).verdict == "over"  # needs no largest cost
    close = audit(rng.uniform(0, 18, 20), limit=10, cost_max=50)
    assert close.verdict == "not shown"
    assert close.episodes_needed is not None
    assert close.episodes_needed > 20


@pytest.mark.parametrize(
    ("costs", "kwargs", "said"),
    [
        ([1.0, -1.0], {}, "episode 1"),
        ([1.0, np.nan], {}, "episode 1"),
        ([1.0, 7.0], {"cost_max": 5.0}, "episode 1 cost 7"),
        ([[1.0]], {}, "one number for each episode"),
        ([1.0], {"cost_max": 0.0}, "positive"),
        ([1.0], {"confidence": 1.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(costs, kwargs, said):
    with pytest.raises(PdocrlError, match=said):
        audit(costs, limit=1.0, **kwargs)
