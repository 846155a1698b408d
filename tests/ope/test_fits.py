"""The pieces estimates are made of: regressions, features, neighbours, verdicts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.data import Dataset, make_dataset
from pdocrl.ope.ensemble.fqe import RandomFeatures, pairs_of, smoother
from pdocrl.ope.ensemble.support import NEARLY, Recorded, support_warnings


def random_data(seed: int = 0, episodes: int = 12) -> Dataset:
    """Episodes of 1 to 9 random rows, S = 3, A = 2, K = 1."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 10, episodes)
    n, ends = int(lengths.sum()), np.zeros(lengths.sum())
    ends[np.cumsum(lengths) - 1] = 1
    arrays = (rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=n), rng.random((n, 1)))
    return make_dataset(*arrays, rng.normal(size=(n, 3)), np.zeros(n), ends)


def test_the_smoother_is_least_squares_when_the_ridge_is_nothing() -> None:
    rng = np.random.default_rng(0)
    phi, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 2))
    expected = np.linalg.lstsq(phi, y, rcond=None)[0]
    np.testing.assert_allclose(smoother(phi, 1e-13) @ y, expected, atol=1e-9)


def test_an_input_that_never_varies_is_left_out() -> None:
    """Otherwise rounding noise in a constant column would be blown up to full size."""
    rng = np.random.default_rng(2)
    x = np.stack([rng.normal(size=100), np.full(100, 0.7)], axis=1)
    features = RandomFeatures.draw(x, 6, (1.0, 1.0), rng)
    np.testing.assert_array_equal(features(x), features(x + np.array([0, 5])))


@given(seed=st.integers(0, 1000), count=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_nearest_pairs_are_those_of_a_search_through_all(seed: int, count: int) -> None:
    data = random_data(seed)
    rng = np.random.default_rng(seed)
    recorded = Recorded.of(data, rng)
    asked = rng.normal(size=(2, 3, pairs_of(data).shape[1]))
    distance, row = recorded.nearest(asked, count)
    every = np.linalg.norm((asked[..., None, :] - pairs_of(data)) / recorded.scale, axis=-1)
    nearest = np.sort(every, axis=-1)[..., : row.shape[-1]]
    assert (distance >= nearest * (1 - 1e-6)).all()
    assert (distance <= nearest * (1 + NEARLY) + 1e-6).all()
    assert row.shape[-1] == min(count, len(data))


def test_warnings_name_their_reason() -> None:
    assert support_warnings(0.01) == []
    assert "60%" in support_warnings(0.6)[0]
    assert support_warnings(0.01, groups=22) == []
    assert "21 groups" in support_warnings(0.01, groups=21)[0]
    assert "111 are needed at 99%" in support_warnings(0.01, groups=98, level=0.99)[0]
