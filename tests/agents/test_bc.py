"""Behaviour cloning: which episodes it imitates, and that it finds the policy behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.training.trainer import Run, Trainer


def episodes_of(dataset: Dataset, rows: np.ndarray) -> set[int]:
    return set((np.searchsorted(dataset.episode_start, rows, "right") - 1).tolist())


def test_safe_episodes_are_those_that_keep_every_limit(make_random_dataset: Callable[..., Dataset]) -> None:
    dataset, bc = make_random_dataset(episodes=40, n_costs=2), find_agent("bc")
    rows = bc.rows(make_config(bc, episodes="safe", cost_limit=(1.0, 2.0)), dataset)
    assert rows is not None
    kept = {e for e in range(40) if dataset.cost_return[e, 0] <= 1 and dataset.cost_return[e, 1] <= 2}
    assert 0 < len(kept) < 40
    assert episodes_of(dataset, rows) == kept
    assert len(rows) == sum(dataset.episode_length[e] for e in kept)


def test_frontier_without_slack_is_the_pareto_frontier(make_random_dataset: Callable[..., Dataset]) -> None:
    dataset, bc = make_random_dataset(episodes=40), find_agent("bc")
    rows = bc.rows(make_config(bc, episodes="frontier", slack=0.0, cost_limit=(1.0,)), dataset)
    assert rows is not None
    cost, reward = dataset.cost_return[:, 0], dataset.reward_return
    beaten = [any(cost[i] <= cost[e] and reward[i] > reward[e] for i in range(40)) for e in range(40)]
    assert episodes_of(dataset, rows) == set(np.flatnonzero(~np.array(beaten)).tolist())


def test_no_safe_episode_is_refused_in_one_line(small_dataset: Dataset) -> None:
    bc = find_agent("bc")
    with pytest.raises(PdocrlError, match=r"random: no episode satisfies the cost limit \(-1.0,\); the lowest cost is"):
        bc.rows(make_config(bc, episodes="safe", cost_limit=(-1.0,)), small_dataset)


def test_the_policy_behind_the_data_is_recovered_from_its_safe_half() -> None:
    """Even episodes follow a = tanh(s₀ − s₁) at no cost, odd ones do the opposite and pay: BC-Safe finds the first."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(4000, 2)).astype(np.float32)
    odd = np.arange(4000) // 10 % 2 == 1
    action = np.tanh(obs[:, :1] - obs[:, 1:]) * np.where(odd, -1, 1)[:, None]
    timeout = np.arange(4000) % 10 == 9
    dataset = make_dataset(obs, action, np.zeros(4000), odd * 1.0, obs, np.zeros(4000), timeout)
    bc = find_agent("bc")
    settings = {"hidden": (32, 32), "batch_size": 64, "actor_rate": 3e-3, "horizon": 10.0, "episodes": "safe"}
    trainer = Trainer(bc, dataset, [Run(make_config(bc, cost_limit=(limit,), **settings), 0) for limit in (0.0, 10.0)])
    trainer.advance(1500)
    safe, everything = (policy(obs)[:, 0] for policy in trainer.policies())
    assert np.abs(safe - np.tanh(obs[:, 0] - obs[:, 1])).mean() < 0.03
    assert np.abs(everything).mean() < 0.2  # the two halves cancel: each run has its own limit
