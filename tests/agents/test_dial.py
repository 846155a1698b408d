"""The dial: one training for every limit, asked costs that are paid, pieces of episodes joined."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from pdocrl.agents.base import Transitions, make_config
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.agents.dial import MEMBERS, NEVER, DialBatch, masks, qualities, settings, unseen
from pdocrl.agents.imagination import Model, Standards
from pdocrl.agents.registry import find_agent
from pdocrl.agents.rehearsal import bound, rehearse, rehearse_other
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import MLP
from pdocrl.policies.policy import DialPolicy
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
    (run,) = trained().runs
    trained().runs = (Run(dataclasses.replace(run.config, margin=margin), 0),)
    return trained().policies()[0]


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


def test_units_of_reward_and_cost_change_nothing() -> None:
    rng = np.random.default_rng(0)
    returns, costs = rng.normal(size=50), rng.integers(0, 9, (50, 2)).astype(float)
    starts = rng.normal(size=(50, 3))
    expected = qualities(returns, costs, starts)
    np.testing.assert_allclose(qualities(1e5 * returns + 7, costs / [100, 1e-3], starts), expected, atol=1e-6)
    shares = DialPolicy.features(costs, costs.max(0))
    np.testing.assert_allclose(DialPolicy.features(1e3 * costs, 1e3 * costs.max(0)), shares, rtol=1e-5)


def test_quality_is_one_for_the_best_at_their_cost_and_less_below() -> None:
    returns = np.asarray([1.0, 1.0, 1.0, 0.2, 3.0, 3.0, 3.0, 1.0])
    costs = np.asarray([[0.0]] * 4 + [[5.0]] * 4)
    found = qualities(returns, costs, np.zeros((8, 2)))
    np.testing.assert_allclose(found[[0, 1, 2, 4, 5, 6]], 1.0, atol=1e-9)
    assert (found[[3, 7]] < 0.5).all()


def test_what_a_hard_start_cannot_earn_is_no_fault() -> None:
    """From the hard starts nobody earns more than 2; from the easy ones 2 is half of what others do."""
    rng = np.random.default_rng(0)
    hard = np.arange(100) % 5 == 0  # as many as are compared
    returns = np.where(hard, 2.0, 4.0) * np.where(np.arange(100) // 5 % 2, 0.5, 1.0)
    starts = np.where(hard, 3.0, 0.0)[:, None] + rng.normal(0, 0.3, (100, 2))
    found = qualities(returns, np.zeros((100, 1)), starts)
    np.testing.assert_allclose(found[hard & (returns == 2.0)], 1.0, atol=1e-6)
    assert found[~hard & (returns == 2.0)].max() < 0.5


def constant(*values: float, inputs: int) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    return (np.zeros((inputs, len(values)), np.float32),), (np.asarray(values, np.float32),)


def table_policy(cost: list[float], reward: list[float]) -> DialPolicy:
    """A dial with given figures over two states, whose network sees its inputs and answers 0."""
    ask = np.asarray(cost, np.float32)[:, None]
    weights, biases = constant(0.0, inputs=2 + 2 + 8)
    return DialPolicy(
        weights,
        biases,
        10.0,
        np.ones(1, np.float32) * 100,
        (10.0,),
        np.ones(len(ask), np.float32),
        ask,
        np.full_like(ask, NEVER),
        np.asarray(reward, np.float32),
        ask,
    )


def test_the_dial_takes_the_most_reward_within_the_limit() -> None:
    policy = table_policy([0.0, 10.0, 30.0], [1.0, 2.0, 3.0])
    chosen = policy.setting(np.asarray([[0.0], [10.0], [20.0], [30.0], [99.0]]))
    np.testing.assert_array_equal(chosen, [0, 1, 1, 2, 2])


def test_where_no_setting_keeps_the_limit_the_nearest_to_it_is_taken() -> None:
    policy = table_policy([20.0, 10.0, 30.0], [3.0, 1.0, 2.0])
    np.testing.assert_array_equal(policy.setting(np.asarray([[5.0]])), [1])


def test_a_limit_that_is_no_amount_of_cost_is_refused() -> None:
    policy = table_policy([0.0], [1.0])
    for bad in (-1.0, [1.0, 2.0], float("nan")):
        with pytest.raises(ValueError, match="limit"):
            policy.begin(0, limit=bad)


class Line(eqx.Module):
    """Worlds without learning: s′ = s + a/10, reward s′, cost 1 where s′ > ½, no end."""

    outcome: MLP  # only its number of members counts

    def forward(self, standards: Standards, obs: Any, action: Any) -> Any:
        return obs + action / 10

    def outcomes(self, standards: Standards, obs: Any, action: Any, ahead: Any) -> Any:
        costly = jnp.where(ahead[:, :1] > 0.5, 50.0, -50.0)
        return ahead[:, 0], jnp.concatenate([costly, jnp.full_like(costly, -50.0)], -1)


def test_the_rehearsal_is_what_the_policy_does_in_that_world() -> None:
    """The same episodes, played one by one with the NumPy policy."""
    actor = ClippedGaussian.create(jax.random.key(0), 1 + 2 + 8, 1, (16, 16))
    network = mode_policy(actor)
    largest = np.asarray([10.0], np.float32)
    quality, ask, stop = settings(largest, (1.0, 0.9, 0.8), True)
    dial = DialPolicy(
        network.weights,
        network.biases,
        10.0,
        largest,
        (5.0,),
        quality,
        ask,
        stop,
        np.zeros(len(ask), np.float32),
        np.zeros_like(ask),
    )
    one = jnp.ones(())
    standards = Standards(*(jnp.zeros(1),) * 5, one, one, one)
    starts = jnp.asarray([[0.45]])
    worlds: Any = Line(MLP.create(jax.random.key(0), (1, 1, 1), 2))
    reward, cost, upper = rehearse(worlds, standards, actor, starts, dial, (stop >= NEVER).all(1), 0.95, 20.0)
    np.testing.assert_allclose(upper, cost)  # from one start there is nothing to be unsure of
    for m in (0, 5, 23, 33, 64 + 5, len(ask) - 12, len(ask) - 1):
        alone = dataclasses.replace(
            dial,
            quality=quality[m : m + 1],
            ask=ask[m : m + 1],
            stop=stop[m : m + 1],
            reward=np.zeros(1, np.float32),
            cost=np.zeros((1, 1), np.float32),
        )
        step, place, earned, spent, last = alone.begin(0), np.asarray([0.45]), 0.0, 0.0, 0.0
        for _ in range(10):
            place = place + step(place, 0.0, np.asarray([last])) / 10
            last = float(place[0] > 0.5)
            earned, spent = earned + float(place[0]), spent + last
        assert reward[m] == pytest.approx(earned, abs=1e-3)
        assert cost[m, 0] == pytest.approx(spent, abs=1e-3)


def test_the_mean_of_twenty_episodes_is_below_its_bound_as_often_as_said() -> None:
    """Both halves of the error count: 48 starts were rehearsed, and the twenty are a draw of their own."""
    rng = np.random.default_rng(0)
    rehearsed = rng.gamma(4.0, 1.0, (20_000, 48, 1)).astype(np.float32)
    played = rng.gamma(4.0, 1.0, (20_000, 20)).mean(1)
    assert (played <= bound(rehearsed, 0.95, 20.0)[:, 0]).mean() == pytest.approx(0.95, abs=0.015)
    assert (played <= bound(rehearsed, 0.95, np.inf)[:, 0]).mean() < 0.85  # what holds over all starts, not over few
    assert (bound(rehearsed, 0.95, np.inf)[:, 0] >= 4.0).mean() == pytest.approx(0.95, abs=0.02)


def test_no_model_learns_from_the_episodes_it_leaves_out() -> None:
    trainer, agent = trained(), find_agent("dial")
    state = jax.tree.map(lambda leaf: leaf[0], trainer.state)
    ones = jnp.ones((10, 1))
    rows = Transitions(ones[:, :1].repeat(2, 1), ones, ones[:, 0], ones, ones.repeat(2, 1), ones[:, 0], ones)
    batch = DialBatch(rows, jnp.ones((10, 2 + 8)), jnp.full(10, 2.0))  # all of the third fold
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


def test_luck_is_not_copied_where_lower_qualities_are_rehearsed() -> None:
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
    agent = find_agent("dial")
    small = {"hidden": (32, 32), "model_hidden": (32, 32), "batch_size": 128, "model_batch": 64}
    some = make_config(agent, cost_limit=(1.0,), horizon=float(steps), qualities=(1.0, 0.8, 0.6, 0.4), **small)
    trainer = Trainer(agent, data, [Run(some, 0)])
    trainer.advance(1500)
    policy: Any = trainer.policies()[0]
    assert policy.network.quality[0] == 1
    assert policy.network.reward[0] == pytest.approx(0.6 * steps, abs=0.1)  # asked for the best, it gambles
    assert policy.network.expects()[0] == pytest.approx(0.7 * steps, abs=0.1)
    step = policy.begin(0)
    assert [int(step(row)) for row in rng.normal(0, 1, (steps, 1))] == [0] * steps


def test_two_costs_have_a_dial_each() -> None:
    quality, ask, stop = settings(np.asarray([10.0, 4.0], np.float32), (1.0, 0.9, 0.8), True)
    assert ask.shape == stop.shape
    assert len(quality) == len(ask)
    assert ask.shape[1] == 2
    assert {0.0, 10.0} <= set(ask[:, 0].tolist())
    assert {0.0, 4.0} <= set(ask[:, 1].tolist())


def test_a_policy_with_two_costs_is_told_two_limits() -> None:
    data = road()
    both = dataclasses.replace(data, cost=np.repeat(data.cost, 2, 1) * [1.0, 3.0], cost_names=("contact", "wear"))
    agent = find_agent("dial")
    small = {"hidden": (16, 16), "model_hidden": (16, 16), "batch_size": 32, "model_batch": 32}
    config = make_config(agent, cost_limit=(10.0, 30.0), horizon=float(HORIZON), **small)
    trainer = Trainer(agent, both, [Run(config, 0)])
    trainer.advance(20)
    policy: Any = trainer.policies()[0]
    assert policy.network.cost.shape == policy.network.ask.shape
    assert policy.network.ask.shape[1] == 2
    step = policy.begin(0, limit=(5.0, 60.0))
    first = step(np.asarray([0.0, 1.0]))
    later = step(np.asarray([0.05, 1.0]), 0.9, np.asarray([1.0, 3.0]), limit=(1.0, 2.0))
    assert first.shape == later.shape == (1,)
    with pytest.raises(ValueError, match="limit"):
        policy.begin(0, limit=5.0)


def test_a_policy_that_heeds_no_dial_rehearses_alike_with_and_without_one() -> None:
    """`rehearse_other` plays what `rehearse` plays at every setting, where the network does not look at the setting."""
    data, s = road(), 2
    standards = Standards.of(Standards.measure(data))
    models = jax.vmap(lambda key: Model.create(key, s, 1, 1, (8,), 1))(jax.random.split(jax.random.key(1)))
    actor = ClippedGaussian.create(jax.random.key(2), s + 2 + 8, 1, (8,))
    deaf = actor.mlp.weights[0].at[s:].set(0.0)
    actor = eqx.tree_at(lambda a: a.mlp.weights[0], actor, deaf)
    largest = np.asarray([20.0], np.float32)
    quality, ask, stop = settings(largest, (1.0, 0.9, 0.8), False)
    blank = np.zeros(len(ask), np.float32)
    dial = DialPolicy((), (), float(HORIZON), largest, (10.0,), quality, ask, stop, blank, np.zeros_like(ask))
    starts = jnp.asarray(data.initial_obs[:4], jnp.float32)
    reward, _, cost = rehearse(models, standards, actor, starts, dial, np.ones(len(ask), bool), 0.9, 20.0)
    assert np.ptp(reward) == 0.0

    def act(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(actor.mode(jnp.pad(jnp.asarray(obs), ((0, 0), (0, 10)))))

    other_reward, other_cost = rehearse_other(models, standards, act, starts, HORIZON, 0.9, 20.0)
    np.testing.assert_allclose(other_reward, reward[0], rtol=1e-5)
    np.testing.assert_allclose(other_cost, cost[0], rtol=1e-5)
    assert 0 < cost[0, 0] < HORIZON


def test_what_the_dial_expects_is_what_it_rehearsed_of_the_setting_it_takes() -> None:
    ask = np.asarray([[0.0], [5.0], [9.0]], np.float32)
    never, largest = np.full_like(ask, NEVER), np.asarray([10.0], np.float32)
    reward, cost = np.asarray([1.0, 2.0, 3.0], np.float32), np.asarray([[0.5], [4.0], [8.0]], np.float32)
    dial = DialPolicy((), (), 20.0, largest, (4.5,), np.ones(3, np.float32), ask, never, reward, cost)
    assert dial.expects()[0] == 2.0
    assert dial.expects(9.0) == (3.0, cost[2])
    assert dial.expects(0.1)[1] == cost[0]  # nothing keeps it: the one that exceeds it least


def test_a_cost_that_no_setting_brings_about_in_rehearsal_is_taken_to_come_anyhow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rare events of the world do not happen in models that move by their mean. No limit may be called kept there."""
    logged = np.asarray([[0.0, 1.0], [0.0, 3.0], [240.0, 2.0]], np.float32)
    rehearsed = np.asarray([[0.0, 0.0], [13.0, 1.0]], np.float32)
    np.testing.assert_array_equal(unseen(rehearsed, logged), [80.0, 0.0])  # each cost for itself
    np.testing.assert_array_equal(unseen(rehearsed + 40, logged), [0.0, 0.0])
    np.testing.assert_array_equal(unseen(0 * rehearsed, 0 * logged), [0.0, 0.0])  # a cost that never occurred
    config = make_config(find_agent("dial"), cost_limit=(14.0,), horizon=20.0, hidden=(8,), model_hidden=(8,))
    agent, data = find_agent("dial"), road(20)
    state, mean = agent.init(config, agent.problem(data), jax.random.key(0)), data.cost_return.mean()
    for paid, least in ((0.1, mean), (0.9 * mean, 0.0)):
        costs = np.full((len(settings(np.ones(1, np.float32), config.qualities, True)[0]), 1), paid, np.float32)
        monkeypatch.setattr("pdocrl.agents.dial.rehearse", lambda *_, c=costs: (c[:, 0].copy(), c, c.copy()))
        policy = agent.policy(config, state)
        assert policy.cost.min() == pytest.approx((paid + least) / 0.95, rel=1e-5)
        assert (policy.expects()[1] <= 14.0) == (least == 0)


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
