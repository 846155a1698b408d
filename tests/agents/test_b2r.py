"""B2R: whom it imitates, what it is told of the budget, and what it asks for. Its loss: test_agent_oracles.py."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import DeviceTable, Problem, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import TransformerPolicy
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, bandit, play_bandit

SMALL = {"embedding": 8, "heads": 2, "layers": 1, "context": 3}


def test_every_safe_episode_begins_with_the_whole_budget_and_none_ends_beyond_it(
    make_random_dataset: Callable[..., Dataset],
) -> None:
    """Costs to go raised by κ − C are what is left of κ; with the scales of the best episodes, for two costs."""
    dataset, b2r = make_random_dataset(episodes=40, n_costs=2), find_agent("b2r")
    limit = np.quantile(dataset.cost_return, 0.6, axis=0)
    config = make_config(b2r, cost_limit=tuple(limit.tolist()), **SMALL)
    rows = b2r.rows(config, dataset)
    assert rows is not None
    kept = np.flatnonzero((dataset.cost_return <= limit).all(1))
    assert 0 < len(kept) < 40
    np.testing.assert_array_equal(rows, dataset.rows_of(kept))

    windows, costly = b2r.batch(
        config, DeviceTable.of(b2r.columns(config, dataset)), jnp.asarray(rows), jax.random.key(0)
    )
    best = np.asarray(b2r.problem(dataset).frontier)
    scale = np.abs(best).max(0)
    for place, row in enumerate(rows):
        episode = np.searchsorted(dataset.episode_start, row, "right") - 1
        first, length = dataset.episode_start[episode], dataset.episode_length[episode]
        to_come = dataset.cost[row : first + length].sum(0) + limit - dataset.cost_return[episode]
        np.testing.assert_allclose(windows.costs[place, -1] * scale[1:], to_come, atol=1e-4)
        earned = dataset.reward[row : first + length].sum()
        np.testing.assert_allclose(windows.returns[place, -1] * scale[0], earned, atol=1e-4)
        np.testing.assert_array_equal(windows.mask[place], np.arange(row - 2, row + 1) >= first)
        assert (costly[place, -1] == (dataset.cost[row] > 0)).all()
        if row == first:
            np.testing.assert_allclose(windows.costs[place, -1] * scale[1:], limit, rtol=1e-5)


def test_a_limit_that_no_episode_keeps_is_refused_in_one_line(small_dataset: Dataset) -> None:
    b2r = find_agent("b2r")
    with pytest.raises(PdocrlError, match=r"no episode satisfies the cost limit \(-1.0,\); the lowest cost is"):
        b2r.rows(make_config(b2r, cost_limit=(-1.0,), **SMALL), small_dataset)
    with pytest.raises(PdocrlError, match="embedding 6 / heads 2 must be even"):
        b2r.columns(make_config(b2r, embedding=6, heads=2), small_dataset)


def test_acting_it_is_told_what_is_left_of_the_budget_and_never_less_than_nothing() -> None:
    b2r, rng = find_agent("b2r"), np.random.default_rng(0)
    config = make_config(b2r, cost_limit=(1.0,), horizon=9.0, **SMALL)
    problem = Problem(2, 1, 1, frontier=((5.0, 0.5), (7.0, 4.0)))
    policy = b2r.policy(config, jax.jit(lambda key: b2r.init(config, problem, key))(jax.random.key(0)))
    assert policy.target_return == 5.0  # the best logged within the limit
    obs, reward, cost = rng.normal(size=(6, 2)).astype(np.float32), rng.normal(size=6), rng.random((6, 1))
    step, actions = policy.begin(0), []
    for t in range(6):
        actions.append(step(obs[t], reward[t - 1] if t else 0.0, cost[t - 1] if t else np.zeros(1)))
        past = np.arange(t - 2, t + 1)
        seen, mask = np.maximum(past, 0), (past >= 0).astype(np.float32)
        taken = np.stack([actions[i] if 0 <= i < t else np.zeros(1, np.float32) for i in past])
        wanted = np.array([5.0 - reward[:i].sum() for i in seen])
        left = np.array([np.maximum(1.0 - cost[:i].sum(0), 0) for i in seen])
        expected = policy.act(wanted[None], left[None], obs[seen][None], taken[None], seen[None], mask[None])[0]
        np.testing.assert_allclose(actions[t], expected, atol=1e-6)
    assert cost[:5].sum() > 1.0, "or nothing was cut off"
    assert len(np.unique(actions)) == 6


def test_on_the_bandit_it_earns_most_of_what_it_asks_for_and_keeps_the_limit() -> None:
    """Not all of it: places in the window are not times, and in the bandit's one state there is no other clock."""
    b2r, probe = find_agent("b2r"), bandit()
    settings = {"embedding": 16, "heads": 2, "layers": 1, "context": 2, "batch_size": 32, "dropout": 0.0}
    numbers = {"learning_rate": 5e-3, "warmup": 50.0}
    config = make_config(b2r, cost_limit=probe.cost_limit, horizon=float(HORIZON), **settings, **numbers)
    trainer = Trainer(b2r, probe.dataset, [Run(config, 0)])
    trainer.advance(500)
    policy = trainer.policies()[0].network
    assert isinstance(policy, TransformerPolicy)
    earned, spent = play_bandit(policy)
    assert policy.target_return < probe.reward * HORIZON
    safe = (probe.dataset.cost_return <= probe.cost_limit).all(1)
    assert policy.target_return == pytest.approx(probe.dataset.reward_return[safe].max(), rel=1e-6)
    assert 0.6 * policy.target_return < earned < 1.1 * policy.target_return
    assert spent <= probe.cost_limit[0]
