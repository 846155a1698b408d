"""dial: one training for every limit, targets that are met, pieces of episodes joined, statements that hold."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from pdocrl.agents.base import Transitions, make_config
from pdocrl.agents.common.conditioning import NO_CAP, relative_returns, settings
from pdocrl.agents.common.dial_estimates import MEMBERS, STARTS, by_rollouts
from pdocrl.agents.dial import DialBatch, masks
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.policies.dial import prediction
from pdocrl.policies.policy import DialPolicy, load, save
from pdocrl.training.trainer import Run, Trainer

HORIZON, SLOW, FAST = 20, 0.2, 0.9


def road(episodes: int = 200, seed: int = 0) -> Dataset:
    """Fast (a > 0) pays .9 and costs 1 a step, slow pays .2. Every episode is all fast, all slow, or nearly so.

    What is seen is how far the day is, the same for all: after any step both ways of going on are in the data.
    """
    rng = np.random.default_rng(seed)
    chance = rng.choice([0.0, 0.05, 0.95, 1.0], episodes)
    fast = rng.random((episodes, HORIZON)) < chance[:, None]
    action = np.where(fast, 0.7, -0.7) + rng.normal(0, 0.05, fast.shape)
    day = np.tile(np.arange(HORIZON) / HORIZON, episodes)
    ends = np.arange(episodes * HORIZON) % HORIZON == HORIZON - 1
    return make_dataset(
        obs=np.stack([day, np.ones(ends.size)], -1),
        action=action.reshape(-1, 1),
        reward=np.where(fast, FAST, SLOW).ravel(),
        cost=fast.astype(np.float32).reshape(-1, 1),
        next_obs=np.stack([day + 1 / HORIZON, np.ones(ends.size)], -1),
        terminal=np.zeros(ends.size, bool),
        timeout=ends,
        name="road",
        cost_names=("cost",),
    )


def drive(policy: Any, limit: float, change: dict[int, float] | None = None) -> tuple[float, float]:
    """Reward and cost of an episode on the road."""
    step, earned, spent, last = policy.begin(0, limit=limit), 0.0, 0.0, (0.0, 0.0)
    for t in range(HORIZON):
        wish = {"limit": change[t]} if change and t in change else {}
        fast = float(step(np.asarray([t / HORIZON, 1.0]), last[0], np.asarray([last[1]]), **wish)[0]) > 0
        last = (FAST, 1.0) if fast else (SLOW, 0.0)
        earned, spent = earned + last[0], spent + last[1]
    return earned, spent


@lru_cache
def trained() -> Trainer:
    agent = find_agent("dial")
    small = {"hidden": (64, 64), "model_hidden": (64, 64), "batch_size": 128, "model_batch": 32}
    config = make_config(agent, cost_limit=(10.0,), horizon=float(HORIZON), **small)
    trainer = Trainer(agent, road(), [Run(config, 0)])
    trainer.advance(3000)
    return trainer


@lru_cache
def learned(margin: float = 0.95) -> Any:
    """The margin is the policy's: networks do not learn with it."""
    trainer = trained()
    (run,) = trainer.runs
    state = jax.tree.map(lambda leaf: np.asarray(leaf[0]), trainer.state)
    policy = trainer.agent.policy(dataclasses.replace(run.config, margin=margin), state)
    return dataclasses.replace(trainer.policies()[0], network=policy)


def test_pieces_of_different_episodes_are_joined() -> None:
    """At limit 15 the optimum is fifteen fast steps and five slow ones; no logged episode is like that."""
    data = road()
    within = data.cost_return[:, 0] <= 15
    optimum = 15 * FAST + 5 * SLOW
    assert data.reward_return[within].max() < 0.7 * optimum
    earned, spent = drive(learned(margin=1.0), 15.0)  # by default a twentieth of the limit is left unspent
    assert spent <= 15
    assert earned >= 0.9 * optimum


@pytest.mark.parametrize("limit", [0.0, 3.0, 7.0, 15.0, 20.0])
def test_one_training_keeps_limits_nobody_trained_for(limit: float) -> None:
    earned, spent = drive(learned(), limit)
    assert spent <= limit
    assert earned >= 0.8 * (limit * FAST + (HORIZON - limit) * SLOW)


def test_a_limit_lowered_on_the_way_is_kept_where_it_still_can_be() -> None:
    assert drive(learned(), 16.0)[1] > 9
    assert drive(learned(), 16.0, {4: 6.0})[1] <= 6


def test_the_margin_is_the_bound_s() -> None:
    """The same networks and predictions; the bound is divided by another share of the limit."""
    wide, narrow = learned(margin=1.0).network, learned().network
    np.testing.assert_array_equal(wide.weights[0], narrow.weights[0])
    np.testing.assert_allclose(wide.bound, 0.95 * narrow.bound, rtol=1e-5)
    assert wide.bound.max() > 0


def test_units_of_reward_and_cost_change_nothing() -> None:
    rng = np.random.default_rng(0)
    returns, costs = rng.normal(size=50), rng.integers(0, 9, (50, 2)).astype(float)
    starts = rng.normal(size=(50, 3))
    expected = relative_returns(returns, costs, starts)
    np.testing.assert_allclose(relative_returns(1e5 * returns + 7, costs / [100, 1e-3], starts), expected, atol=1e-6)
    shares = DialPolicy.features(costs, costs.max(0))
    np.testing.assert_allclose(DialPolicy.features(1e3 * costs, 1e3 * costs.max(0)), shares, rtol=1e-5)


def test_the_relative_return_is_one_for_the_best_at_their_cost_and_less_below() -> None:
    returns = np.asarray([1.0, 1.0, 1.0, 0.2, 3.0, 3.0, 3.0, 1.0])
    costs = np.asarray([[0.0]] * 4 + [[5.0]] * 4)
    found = relative_returns(returns, costs, np.zeros((8, 2)))
    np.testing.assert_allclose(found[[0, 1, 2, 4, 5, 6]], 1.0, atol=1e-9)
    assert (found[[3, 7]] < 0.5).all()


def test_a_difficult_first_state_does_not_count_against_an_episode() -> None:
    """From the difficult first states nobody earns more than 2; from the others 2 is half of what others do."""
    rng = np.random.default_rng(0)
    hard = np.arange(100) % 5 == 0  # as many as are compared
    returns = np.where(hard, 2.0, 4.0) * np.where(np.arange(100) // 5 % 2, 0.5, 1.0)
    starts = np.where(hard, 3.0, 0.0)[:, None] + rng.normal(0, 0.3, (100, 2))
    found = relative_returns(returns, np.zeros((100, 1)), starts)
    np.testing.assert_allclose(found[hard & (returns == 2.0)], 1.0, atol=1e-6)
    assert found[~hard & (returns == 2.0)].max() < 0.5


def constant(*values: float, inputs: int) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    return (np.zeros((inputs, len(values)), np.float32),), (np.asarray(values, np.float32),)


def table_policy(cost: list[float], reward: list[float]) -> DialPolicy:
    """A dial with given predictions over two states, whose network sees its inputs and answers 0."""
    target = np.asarray(cost, np.float32)[:, None]
    weights, biases = constant(0.0, inputs=2 + 2 + 8)
    return DialPolicy(
        weights,
        biases,
        10.0,
        np.ones(1, np.float32) * 100,
        (10.0,),
        np.ones(len(target), np.float32),
        target,
        np.full_like(target, NO_CAP),
        np.asarray(reward, np.float32),
        target,
        0.5 * target,
    )


def test_the_setting_of_largest_predicted_return_within_the_limit_acts() -> None:
    policy = table_policy([0.0, 10.0, 30.0], [1.0, 2.0, 3.0])
    chosen = policy.setting(np.asarray([[0.0], [10.0], [20.0], [30.0], [99.0]]))
    np.testing.assert_array_equal(chosen, [0, 1, 1, 2, 2])


def test_where_no_setting_is_within_the_limit_the_one_that_exceeds_it_least_acts_and_says_so() -> None:
    policy = table_policy([20.0, 10.0, 30.0], [3.0, 1.0, 2.0])
    np.testing.assert_array_equal(policy.setting(np.asarray([[5.0]])), [1])
    said = policy.predicted(5.0)
    assert (said.reward, said.cost, said.bound, said.within) == (1.0, [5.0], [10.0], False)
    assert policy.predicted(10.0).within
    with pytest.warns(UserWarning, match=r"cost limit 5 is not predicted to be satisfied.*bound is 10\."):
        policy.begin(0, limit=5.0)
    asked = prediction(policy.with_limit((25.0,)))
    assert asked is not None
    assert asked.within
    assert asked.reward == 3.0
    assert prediction(object()) is None


def test_files_of_version_0_2_are_read(tmp_path: Path) -> None:
    """They name the tables otherwise, and hold the bound alone."""
    policy = table_policy([20.0, 10.0, 30.0], [3.0, 1.0, 2.0])
    names = {new: old for old, new in DialPolicy.RENAMED.items()}

    class Older(DialPolicy):
        def arrays(self) -> dict[str, NDArray[np.float32]]:
            return {names.get(name, name): x for name, x in super().arrays().items() if name != "mean_cost"}

    save(tmp_path / "old.npz", [Older(**vars(policy))])
    found: Any = load(tmp_path / "old.npz")
    np.testing.assert_array_equal(found.target_cost, policy.target_cost)
    np.testing.assert_array_equal(found.bound, policy.bound)
    np.testing.assert_array_equal(found.mean_cost, policy.bound)


def test_a_limit_that_is_no_amount_of_cost_is_refused() -> None:
    policy = table_policy([0.0], [1.0])
    for bad in (-1.0, [1.0, 2.0], float("nan")):
        with pytest.raises(ValueError, match="limit"):
            policy.begin(0, limit=bad)


def test_no_model_learns_from_the_episodes_it_leaves_out() -> None:
    trainer, agent = trained(), find_agent("dial")
    state = jax.tree.map(lambda leaf: leaf[0], trainer.state)
    ones = jnp.ones((10, 1))
    rows = Transitions(ones[:, :1].repeat(2, 1), ones, ones[:, 0], ones, ones.repeat(2, 1), ones[:, 0], ones)
    batch = DialBatch(rows, jnp.ones((10, 2 + 8)), jnp.zeros((10, 1)), jnp.full(10, 2.0))  # all of the third fold
    state = eqx.tree_at(lambda s: s.models_opt, state, jax.tree.map(jnp.zeros_like, state.models_opt))
    config = dataclasses.replace(trainer.runs[0].config, model_batch=4)
    after, _ = jax.jit(agent.update)(config, state, batch, jax.random.key(0))
    before = jax.tree.leaves(state.models)
    moved = [
        max(float(jnp.abs(x - y)[m].max()) for x, y in zip(before, jax.tree.leaves(after.models), strict=True))
        for m in range(MEMBERS)
    ]
    assert moved[2] == 0
    assert min(moved[:2] + moved[3:]) > 0


def test_luck_is_not_copied_where_lower_relative_returns_are_predicted() -> None:
    """A sure choice pays .7, a gamble 2 in three of ten cases: the best returns are those of lucky gamblers."""
    rng, steps, count = np.random.default_rng(0), 3, 4000
    risky = rng.random((count, steps)) < rng.random((count, 1))
    reward = np.where(risky, 2.0 * (rng.random(risky.shape) < 0.3), 0.7)
    assert risky[reward.sum(1).argsort()[-20:]].all()
    obs = rng.normal(0, 1, (risky.size, 1))
    ends = np.tile(np.arange(steps) == steps - 1, count)
    data = make_dataset(
        obs, risky.ravel().astype(int), reward.ravel(), 0 * obs, obs, 0 * ends, ends, discrete_actions=2
    )
    policy = trained_on(data, steps, 1500)
    assert policy.network.predicted().reward == pytest.approx(0.7 * steps, abs=0.15)  # the gamble's is .6 a step
    step = policy.begin(0)
    assert [int(step(row)) for row in rng.normal(0, 1, (steps, 1))] == [0] * steps


def trained_on(data: Dataset, horizon: int, steps: int) -> Any:
    """A small dial."""
    agent = find_agent("dial")
    small = {"hidden": (32, 32), "model_hidden": (32, 32), "batch_size": 128, "model_batch": 64}
    trainer = Trainer(agent, data, [Run(make_config(agent, cost_limit=(1.0,), horizon=float(horizon), **small), 0)])
    trainer.advance(steps)
    return trainer.policies()[0]


def test_two_costs_have_targets_each() -> None:
    (wished, target, cap), uncapped = settings(np.asarray([10.0, 4.0], np.float32), (1.0, 0.9, 0.8), True)
    assert target.shape == cap.shape == (len(wished), 2)
    assert {0.0, 10.0} <= set(target[:, 0].tolist())
    assert {0.0, 4.0} <= set(target[:, 1].tolist())
    assert (cap[~uncapped] <= [10.0, 4.0]).all()
    assert (cap[uncapped] > 1e6).all()


def test_a_policy_with_two_costs_is_told_two_limits() -> None:
    data = road()
    both = dataclasses.replace(data, cost=np.repeat(data.cost, 2, 1) * [1.0, 3.0], cost_names=("contact", "wear"))
    agent = find_agent("dial")
    small = {"hidden": (16, 16), "model_hidden": (16, 16), "batch_size": 32, "model_batch": 32}
    config = make_config(agent, cost_limit=(10.0, 30.0), horizon=float(HORIZON), **small)
    trainer = Trainer(agent, both, [Run(config, 0)])
    trainer.advance(20)
    policy: Any = trainer.policies()[0]
    assert policy.network.bound.shape == policy.network.target_cost.shape == policy.network.mean_cost.shape
    assert policy.network.target_cost.shape[1] == 2
    step = policy.with_limit((5.0, 60.0)).begin(0)
    first = step(np.asarray([0.0, 1.0]))
    later = step(np.asarray([0.05, 1.0]), 0.9, np.asarray([1.0, 3.0]), limit=(1.0, 2.0))
    assert first.shape == later.shape == (1,)
    with pytest.raises(ValueError, match="limit"):
        policy.begin(0, limit=5.0)


def test_the_rollouts_of_few_episodes_are_bounded_by_how_many_there_are() -> None:
    """A log of six episodes has six first states, however often each is rolled out."""
    agent, data = find_agent("dial"), road(6)
    config = make_config(agent, cost_limit=(14.0,), horizon=20.0, hidden=(8,), model_hidden=(8,))
    problem: Any = agent.problem(data)
    assert len(problem.starts) == 6
    assert len(agent.problem(road(200)).starts) == STARTS  # type: ignore[attr-defined]
    few = agent.init(config, problem, jax.random.key(0))
    targets, uncapped = settings(np.asarray([20.0], np.float32), (1.0,), False)
    errors = [by_rollouts(config, few, targets, uncapped)[0].error]
    many = eqx.tree_at(lambda s: s.starts, few, jnp.resize(few.starts, (STARTS, 2)))  # the same six, called 120
    errors.append(by_rollouts(config, many, targets, uncapped)[0].error)
    assert (errors[0] > 1.5 * errors[1]).mean() > 0.9


def test_rows_that_share_a_mask_leave_out_the_same_units() -> None:
    thinned: dict[str, Any] = {"hidden": (500, 300), "dropout": 0.1, "rows_a_mask": 4}
    config = make_config(find_agent("dial"), cost_limit=(1.0,), horizon=1.0, **thinned)
    first, second = (np.asarray(part) for part in masks(jax.random.key(0), config, 10))
    assert first.shape == (10, 500)
    assert second.shape == (10, 300)
    np.testing.assert_array_equal(first[3:6], first[:3])  # ten rows have three masks
    assert len(np.unique(first, axis=0)) == 3
    assert (first == 0).mean() == pytest.approx(config.dropout, abs=0.03)
    np.testing.assert_allclose(first[first > 0], 1 / (1 - config.dropout), rtol=1e-6)  # the mean is kept


def test_a_step_without_dropout_is_one_whose_masks_leave_out_nothing() -> None:
    agent, rows = find_agent("dial"), 12
    config = make_config(agent, cost_limit=(1.0,), horizon=20.0, hidden=(8, 8), model_hidden=(8,), model_batch=4)
    trainer = Trainer(agent, road(20), [Run(config, 0)])
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trainer.state)
    batch = agent.batch(config, trainer._table, jnp.arange(rows), jax.random.key(1))
    almost = dataclasses.replace(config, dropout=1e-12)  # no number below 1 is as large as 1 − 1e-12, in float32
    assert all(np.all(np.asarray(mask) == 1) for mask in masks(jax.random.key(2), almost, rows))
    steps = [jax.jit(agent.update)(c, state, batch, jax.random.key(2))[0] for c in (config, almost)]
    for without, whole in zip(*map(jax.tree.leaves, steps), strict=True):
        np.testing.assert_allclose(without, whole, rtol=1e-4, atol=1e-6)
