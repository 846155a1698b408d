"""The pieces estimates are made of: regressions, features, neighbours, verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.data import make_dataset
from pdocrl.ope import regression
from pdocrl.ope.features import RandomFeatures
from pdocrl.ope.log import Log
from pdocrl.ope.model import middle, without_luck
from pdocrl.ope.result import Estimate
from pdocrl.ope.support import NEARLY, Recorded, doubts


def random_log(seed: int = 0, episodes: int = 12) -> Log:
    """Episodes of 1 to 9 random rows, S = 3, A = 2, K = 1."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 10, episodes)
    n, ends = int(lengths.sum()), np.zeros(lengths.sum())
    ends[np.cumsum(lengths) - 1] = 1
    arrays = (rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=n), rng.random((n, 1)))
    return Log.of(make_dataset(*arrays, rng.normal(size=(n, 3)), np.zeros(n), ends))


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(20, 60), separable=st.booleans())
@settings(max_examples=25, deadline=None)
def test_logistic_regression_ends_where_its_gradient_is_zero(seed: int, rows: int, separable: bool) -> None:
    """Also where the classes can be told apart without error, and a plain Newton step would run away."""
    rng = np.random.default_rng(seed)
    phi = np.concatenate([np.ones((rows, 1)), rng.normal(size=(rows, 3))], axis=1)
    target = (phi[:, 1] > 0) * 1.0 if separable else (rng.random(rows) < 0.5) * 1.0
    theta = regression.logistic(phi, target, 1e-2, steps=100)
    gradient = phi.T @ (1 / (1 + np.exp(-phi @ theta)) - target) / rows + 1e-2 * theta
    assert np.abs(gradient).max() < 2e-3


def test_the_smoother_is_least_squares_when_the_ridge_is_nothing() -> None:
    rng = np.random.default_rng(0)
    phi, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 2))
    factor = regression.gram(phi, 1e-13)
    expected = np.linalg.lstsq(phi, y, rcond=None)[0]
    np.testing.assert_allclose(regression.smoother(factor, phi) @ y, expected, atol=1e-9)
    np.testing.assert_allclose(regression.solve(factor, phi, y), expected, atol=1e-9)


def test_stacked_features_are_the_features_one_by_one() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 7, 4)).astype(np.float32)
    several = [RandomFeatures.draw(own, 5, (1.0, 2.0), rng) for own in x]
    np.testing.assert_allclose(RandomFeatures.stack(several)(x), [f(own) for f, own in zip(several, x, strict=True)])


def test_an_input_that_never_varies_is_left_out() -> None:
    """Otherwise rounding noise in a constant column would be blown up to full size."""
    rng = np.random.default_rng(2)
    x = np.stack([rng.normal(size=100), np.full(100, 0.7)], axis=1)
    features = RandomFeatures.draw(x, 6, (1.0, 1.0), rng)
    np.testing.assert_array_equal(features(x), features(x + np.array([0, 5])))


@given(seed=st.integers(0, 1000), count=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_nearest_pairs_are_those_of_a_search_through_all(seed: int, count: int) -> None:
    log = random_log(seed)
    rng = np.random.default_rng(seed)
    recorded = Recorded.of(log, rng)
    asked = rng.normal(size=(2, 3, log.pairs.shape[1]))
    distance, row = recorded.nearest(asked, count)
    every = np.linalg.norm((asked[..., None, :] - log.pairs) / recorded.scale, axis=-1)
    nearest = np.sort(every, axis=-1)[..., : row.shape[-1]]
    assert (distance >= nearest * (1 - 1e-6)).all()
    assert (distance <= nearest * (1 + NEARLY) + 1e-6).all()
    assert row.shape[-1] == min(count, len(log))


def test_a_redrawn_log_holds_the_drawn_episodes_only_each_as_often_as_drawn() -> None:
    log = random_log()
    rng = np.random.default_rng(0)
    episodes = log.draw_episodes(rng)
    again = log.redraw(episodes, 10**6, rng)
    lengths = np.bincount(log.episode)
    np.testing.assert_array_equal(
        np.bincount(again.episode, minlength=len(lengths)), lengths * np.bincount(episodes, minlength=len(lengths))
    )
    assert len(log.redraw(episodes, 7, rng)) == 7
    assert len(log.thin(5, rng)) == 5


def test_a_verdict_needs_95_of_100_redrawn_logs_and_the_estimate() -> None:
    def told(cost: float, share_below: float, limit: float = 1.0) -> bool | None:
        below = round(100 * share_below)
        resampled = np.stack([np.zeros(100), np.where(np.arange(100) < below, 0.5, 1.5)], axis=1)
        return Estimate(np.array([0.0, cost]), resampled).within([limit])

    assert told(0.5, 0.95) is True
    assert told(0.5, 0.94) is None
    assert told(1.5, 0.96) is None  # redrawn logs and estimate disagree
    assert told(1.5, 0.05) is False
    assert told(1.5, 0.06) is None


def test_the_interval_holds_the_estimate() -> None:
    rng = np.random.default_rng(0)
    estimate = Estimate(np.array([3.0, -3.0]), rng.normal(size=(200, 2)) * 0.1)
    low, high = estimate.interval.T
    assert (low <= estimate.value).all()
    assert (estimate.value <= high).all()
    assert high[1] == pytest.approx(0.2, abs=0.05)


def test_doubts_name_their_reason() -> None:
    assert doubts(0.01, 500) == []
    assert "60%" in doubts(0.6, 500)[0]
    assert "3.0 rows" in doubts(0.01, 3)[0]
    assert doubts(0.01, groups=19) == []
    assert "18 groups" in doubts(0.01, groups=18)[0]
    assert "99 are needed at 99%" in doubts(0.01, groups=98, level=0.99)[0]


@given(seed=st.integers(0, 1000), between=st.floats(0.0, 3.0))
@settings(max_examples=20, deadline=None)
def test_luck_of_few_episodes_is_taken_out_of_the_spread_of_models(seed: int, between: float) -> None:
    """What is left is V + v/(Mn) for model variance V and episode variance v = 1, whatever n was."""
    rng = np.random.default_rng(seed)
    models, episodes = 400, 4
    sums = between * rng.normal(size=(models, 1, 2)) + rng.normal(size=(models, episodes, 2))
    spread = without_luck(sums).var(axis=0, ddof=1)
    expected = between**2 + 1 / (models * episodes)
    assert spread == pytest.approx([expected] * 2, rel=0.4, abs=0.08)
    np.testing.assert_allclose(middle(without_luck(sums)), middle(sums.mean(axis=1)), atol=1e-9)


def test_a_model_that_runs_away_does_not_move_the_estimate() -> None:
    said = np.arange(20.0)[:, None]
    assert middle(said) == pytest.approx([9.5])
    assert middle(np.where(said == 19, 1e6, said)) == pytest.approx([9.5])
