"""What each filter keeps, and what it never loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.data import Dataset, filters, make_dataset
from pdocrl.errors import PdocrlError


def one_step_episodes(costs: Any, rewards: Any) -> Dataset:
    """Episodes of one step: returns are what is given."""
    costs = np.asarray(costs, np.float32).reshape(len(rewards), -1)
    n = len(rewards)
    zeros = np.zeros((n, 1))
    return make_dataset(zeros, zeros, rewards, costs, zeros, np.ones(n), np.zeros(n))


@st.composite
def clouds(draw: st.DrawFn, max_costs: int = 2) -> Dataset:
    """Episodes anywhere in (cost, reward) space, many of them tied."""
    n, k = draw(st.integers(1, 40)), draw(st.integers(0, max_costs))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return one_step_episodes(rng.integers(0, 12, (n, k)), rng.integers(-5, 20, n).astype(float))


def pairs(dataset: Dataset) -> set[tuple[float, ...]]:
    return {(r, *c) for r, c in zip(dataset.reward_return.tolist(), dataset.cost_return.tolist(), strict=True)}


def test_safe_keeps_what_keeps_every_limit() -> None:
    data = one_step_episodes([[0, 5], [3, 3], [9, 0]], [1.0, 2.0, 3.0])
    assert filters.safe(data, 5).reward_return.tolist() == [1, 2]
    assert filters.safe(data, [10, 0]).reward_return.tolist() == [3]
    with pytest.raises(PdocrlError, match="no episode satisfies the limit"):
        filters.safe(data, [0, 0])
    with pytest.raises(PdocrlError, match="3 limits for 2 costs"):
        filters.safe(data, [1, 2, 3])


@given(clouds())
def test_best_within_is_its_definition(data: Dataset) -> None:
    best = filters.best_within(data)
    for e in range(data.n_episodes):
        within = (data.cost_return <= data.cost_return[e]).all(axis=1)
        assert best[e] == data.reward_return[within].max()


@given(clouds(max_costs=1), st.integers(0, 12))
def test_the_best_safe_episode_is_on_the_frontier_at_every_limit(data: Dataset, limit: int) -> None:
    within = (data.cost_return <= limit).all(axis=1)
    kept = filters.frontier(data, slack=0)
    if within.any():
        within_kept = (kept.cost_return <= limit).all(axis=1)
        assert kept.reward_return[within_kept].max() == data.reward_return[within].max()


@given(clouds(), st.floats(0, 1))
def test_a_larger_slack_keeps_more(data: Dataset, slack: float) -> None:
    assert pairs(filters.frontier(data, slack / 2)) <= pairs(filters.frontier(data, slack))
    assert filters.frontier(data, 1.0).n_episodes == data.n_episodes


@given(clouds(), st.integers(1, 45), st.integers(0, 3))
def test_density_meets_its_target_and_never_drops_the_best(data: Dataset, target: int, seed: int) -> None:
    thinned = filters.density(data, target, seed=seed)
    best = int(filters.on_frontier(data).sum())
    assert thinned.n_episodes == min(data.n_episodes, max(target, best))
    for limit in range(12):
        within = (data.cost_return <= limit).all(axis=1)
        if within.any():
            still = (thinned.cost_return <= limit).all(axis=1)
            assert thinned.reward_return[still].max() == data.reward_return[within].max()


def test_density_thins_crowded_cells_first() -> None:
    """1,000 episodes in one place and 60 spread out: all the lonely ones stay, the crowd shrinks."""
    rng = np.random.default_rng(0)
    lonely = np.stack([np.linspace(1, 60, 60), np.linspace(1, 50, 60)], axis=1)
    crowd = np.stack([rng.uniform(30, 30.5, 1000), rng.uniform(5, 5.5, 1000)], axis=1)
    cloud = np.concatenate([lonely, crowd])
    thinned = filters.density(one_step_episodes(cloud[:, 0], cloud[:, 1]), 70)
    assert thinned.n_episodes == 70
    crowded = (np.abs(thinned.cost_return[:, 0] - 30.25) < 0.3) & (np.abs(thinned.reward_return - 5.25) < 0.3)
    assert crowded.sum() == 10


def test_no_cell_keeps_two_more_than_another_could_give() -> None:
    """Cells take turns, so a cell that gave up an episode never has fewer than any other has, minus one."""
    rng = np.random.default_rng(1)
    data = one_step_episodes(rng.integers(0, 6, 400), rng.integers(0, 5, 400).astype(float))
    thinned = filters.density(data, 150, bins=(6, 5))
    before, after = ({p: 0 for p in pairs(data)} for _ in range(2))
    for source, count in ((data, before), (thinned, after)):
        for r, c in zip(source.reward_return.tolist(), source.cost_return[:, 0].tolist(), strict=True):
            count[r, c] += 1
    frontier = pairs(data.episodes(np.flatnonzero(filters.on_frontier(data))))
    cut = [after[p] for p in before if after[p] < before[p]]
    assert max(after[p] for p in before if p not in frontier) - min(cut) <= 1


@pytest.mark.parametrize(
    "apply",
    [
        lambda d, seed: filters.density(d, 30, seed=seed),
        lambda d, seed: filters.fraction(d, 0.4, seed=seed),
        lambda d, seed: filters.noise(d, 0.1, seed=seed),
        lambda d, seed: filters.outliers(d, 0.05, 3, seed=seed),
    ],
)
def test_a_seed_decides_everything(make_random_dataset: Any, apply: Any) -> None:
    data = make_random_dataset(episodes=200)
    assert apply(data, 1).digest == apply(data, 1).digest
    assert apply(data, 1).digest != apply(data, 2).digest


def test_a_fraction_is_that_share_of_whole_episodes(make_random_dataset: Any) -> None:
    data = make_random_dataset(episodes=50)
    half = filters.fraction(data, 0.5)
    assert half.n_episodes == 25
    assert pairs(half) <= pairs(data)
    assert filters.fraction(data, 0).n_episodes == 1
    with pytest.raises(PdocrlError, match="between 0 and 1"):
        filters.fraction(data, 1.5)


def test_outliers_look_safe_and_better_than_they_were(make_random_dataset: Any) -> None:
    data = make_random_dataset(episodes=300, max_length=30)
    spoilt = filters.outliers(data, share=0.03, limit=4, seed=0)
    changed = np.flatnonzero(spoilt.reward_return != data.reward_return)
    assert len(changed) == 9
    assert np.allclose(spoilt.reward_return[changed], 1.5 * data.reward_return[changed], rtol=1e-5)
    assert (spoilt.cost_return[changed] < 4).all()
    assert (spoilt.obs == data.obs).all()
    with pytest.raises(PdocrlError, match="Ask for a smaller share"):
        filters.outliers(data, share=0.9, limit=4)


def test_noise_reads_a_state_once(make_random_dataset: Any) -> None:
    """The next observation of a row and the observation of the following row stay equal inside an episode."""
    data = make_random_dataset(episodes=100)
    noisy = filters.noise(data, 0.5, seed=0)
    inside = np.setdiff1d(np.arange(len(data)), data.episode_start + data.episode_length - 1)
    assert np.allclose(noisy.next_obs[inside], noisy.obs[inside + 1], atol=1e-6)
    ratio = (noisy.obs - data.obs).std(axis=0) / data.obs.std(axis=0)
    assert np.allclose(ratio, 0.5, atol=0.06)
    assert (noisy.reward == data.reward).all()
    assert filters.noise(data, 0).digest == data.digest


@settings(max_examples=30)
@given(clouds(max_costs=1))
def test_one_cost_takes_the_fast_way_to_the_same_frontier(data: Dataset) -> None:
    """The sorted pass for one cost and the general definition for several agree when a cost is doubled."""
    doubled = one_step_episodes(np.repeat(data.cost, 2, axis=1), data.reward)
    assert (filters.best_within(data) == filters.best_within(doubled)).all()


def test_several_filters_apply_in_their_order(make_random_dataset: Any) -> None:
    data = make_random_dataset(episodes=200)
    limit = float(np.median(data.cost_return))
    assert filters.apply(data) is data
    found = filters.apply(data, safe_limit=limit, slack=0.8, target=40, share=0.5, noise_scale=0.1, seed=4)
    expected = filters.density(filters.frontier(filters.safe(data, limit), 0.8), 40, seed=4)
    assert found.digest == filters.noise(filters.fraction(expected, 0.5, seed=4), 0.1, seed=4).digest
    lying = filters.apply(data, lying_share=0.02, outlier_limit=2, seed=1)
    assert lying.digest == filters.outliers(data, 0.02, 2, seed=1).digest
