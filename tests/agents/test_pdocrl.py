"""PDOCRL: its losses are the paper's and its signs are right. What it reaches is in test_pdocrl_probes.py."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import Problem, Transitions, make_config
from pdocrl.agents.common.saddle import ratio_of
from pdocrl.agents.pdocrl import PDOCRLState
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.mlp import MLP, clip_inward, density_ratio
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, bandit

SMALL: dict[str, Any] = {"hidden": (16, 16), "batch_size": 64, "horizon": float(HORIZON)}


agent_of = lru_cache(find_agent)  # one instance of each: what it compiles is compiled once


def make(name: str, dataset: Dataset, **settings: Any) -> Trainer:
    agent = agent_of(name)
    return Trainer(agent, dataset, [Run(make_config(agent, **{**SMALL, **settings}), 0)])


def test_outside_the_box_the_gradient_only_leads_back() -> None:
    """Descent on ±w: at the upper bound only a decrease passes, at the lower only an increase."""
    raw = jnp.asarray([-1.0, 5.0, 12.0])
    down = jax.grad(lambda x: clip_inward(x, jnp.float32(10)).sum())(raw)
    up = jax.grad(lambda x: -clip_inward(x, jnp.float32(10)).sum())(raw)
    np.testing.assert_array_equal(down, [0, 1, 1])
    np.testing.assert_array_equal(up, [-1, -1, 0])


def batch(rng: np.random.Generator, n: int = 32, costs: int = 1, cost: float | None = None) -> Transitions:
    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    spent = jnp.asarray(rng.random((n, costs)) if cost is None else np.full((n, costs), cost), jnp.float32)
    not_done = jnp.asarray(rng.random(n) < 0.8, jnp.float32)
    return Transitions(normal(n, 3), jnp.tanh(normal(n, 2)), normal(n), spent, normal(n, 3), not_done, normal(n, 3))


def lagrangian(state: PDOCRLState, data: Transitions, config: Any, actions: np.ndarray, w: np.ndarray) -> np.ndarray:
    """L̂ of each twin in float64 NumPy, from the formula, without the constant λ·κ."""

    def mlp(net: Any, x: np.ndarray, member: int) -> np.ndarray:
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            x = np.maximum(x @ np.asarray(weight[member], float) + np.asarray(bias[member], float), 0)
        return (x @ np.asarray(net.weights[-1][member], float) + np.asarray(net.biases[-1][member], float))[:, 0]

    bound = float(state.q_bound)
    obs, action, after = (np.asarray(x, float) for x in (data.obs, data.action, data.next_obs))
    n, found = len(obs), []
    for member in range(2):
        q = [
            bound * np.tanh(mlp(state.critic.mlp, np.concatenate(pair, 1), member) / bound)
            for pair in ((data.initial_obs, actions[:n]), (after, actions[n:]), (obs, action))
        ]
        lam = np.asarray(state.multiplier.lam, float)
        reward = config.reward_scale * np.asarray(data.reward, float) - np.asarray(data.cost, float) @ lam
        future = config.gamma * np.asarray(data.not_done, float) * q[1]
        found.append(np.mean((1 - config.gamma) * q[0] + w * (reward + future - q[2])))
    return np.asarray(found)


def test_the_linear_critic_descends_the_lagrangian() -> None:
    """The critic's objective and L̂ differ only by terms without Q, so their values differ by a constant in Q."""
    agent = find_agent("pdocrl")
    config = make_config(agent, cost_limit=(1.0,), critic="linear", initial_states="starts", **SMALL)
    state = jax.jit(lambda key: agent.init(config, Problem(3, 2, 1), key))(jax.random.key(0))
    data, key = batch(np.random.default_rng(0)), jax.random.key(1)
    actions = np.asarray(state.actor.sample(jnp.concatenate([data.initial_obs, data.next_obs]), key)[0], float)
    w = np.asarray(density_ratio(state.weight, jnp.concatenate([data.obs, data.action], -1), 10.0), float)
    _, metrics = jax.jit(agent.update)(config, state, data, key)
    lam = np.asarray(state.multiplier.lam, float)
    without_q = np.mean(w * (0.1 * np.asarray(data.reward, float) - np.asarray(data.cost, float) @ lam))
    expected = (lagrangian(state, data, config, actions, w) - without_q).sum()
    assert float(metrics["critic_loss"]) == pytest.approx(expected, abs=1e-5)


def test_the_normalised_ratio_has_mean_one_and_gains_nothing_from_a_residual_that_is_the_same_everywhere() -> None:
    """E[w ρ] with E[w] = 1 does not grow where ρ is constant; the clipped class runs to its bound there."""
    pair, weight = batch(np.random.default_rng(0)).obs, MLP.create(jax.random.key(0), (3, 16, 1))

    def slope(ratio: str) -> float:
        config = make_config(agent_of("pdocrl"), cost_limit=(1.0,), ratio=ratio, **SMALL)
        gradient = jax.grad(lambda weight: 0.7 * ratio_of(config, weight, pair).mean())(weight)
        return float(sum(jnp.abs(part).sum() for part in jax.tree.leaves(gradient)))

    config = make_config(agent_of("pdocrl"), cost_limit=(1.0,), ratio="normalised", **SMALL)
    assert float(ratio_of(config, weight, pair).mean()) == pytest.approx(1, abs=1e-5)
    assert slope("clipped") > 0.1
    assert slope("normalised") < 1e-4


@pytest.mark.parametrize("name", ["pdocrl", "pdocrl_extraction"])
def test_clipped_backups_hold_the_critic_where_values_can_be(name: str) -> None:
    """From a target network far above the largest value, the backup is the largest value."""
    agent, data, key = agent_of(name), batch(np.random.default_rng(0)), jax.random.key(1)
    losses = {}
    for critic in ("squared", "clipped"):
        config = make_config(agent, cost_limit=(1.0,), critic=critic, **SMALL)
        state = jax.jit(lambda key, config=config: agent.init(config, Problem(3, 2, 1), key))(jax.random.key(0))
        net = state.target if name == "pdocrl_extraction" else state.target.mlp
        far: Any = dataclasses.replace(net, biases=(*net.biases[:-1], net.biases[-1] + 1e6))
        target = far if name == "pdocrl_extraction" else dataclasses.replace(state.target, mlp=far)
        state = dataclasses.replace(state, target=target)
        _, metrics = jax.jit(agent.update)(config, state, data, key)
        losses[critic] = float(metrics["critic_loss"])
        bound = float(state.v_bound if name == "pdocrl_extraction" else state.q_bound)
    assert losses["squared"] > 1e11
    assert losses["clipped"] < 2 * 10 * (1.5 * bound) ** 2  # two twins, w ≤ 10


@pytest.mark.parametrize("name", ["pdocrl", "pdocrl_extraction"])
@pytest.mark.parametrize(("cost", "rises"), [(1.0, True), (0.0, False)])
def test_the_price_rises_when_the_cost_is_above_the_limit_and_falls_below(name: str, cost: float, rises: bool) -> None:
    """The sign printed in the paper's appendix would let λ only grow."""
    agent = agent_of(name)
    config = make_config(agent, cost_limit=(1.0,), **SMALL)  # rate .1 per step, against cost 1 or 0
    state = jax.jit(lambda key: agent.init(config, Problem(3, 2, 1), key))(jax.random.key(0))
    after, _metrics = jax.jit(agent.update)(
        config, state, batch(np.random.default_rng(0), cost=cost), jax.random.key(1)
    )
    moved = float(after.multiplier.lam[0] - state.multiplier.lam[0])
    assert (moved > 0) == rises
    assert moved != 0


def test_prices_of_several_limits_stay_within_the_dual_bound() -> None:
    found = make("pdocrl", bandit((0.01, 0.01), n=400).dataset, cost_limit=(0.1, 0.1), multiplier_rate=0.1)
    found.advance(200)
    lam = np.asarray(found.state.multiplier.lam)[0]
    assert (lam >= 0).all()
    assert lam.sum() == pytest.approx(2.0, rel=1e-4), "limits this tight drive ‖λ‖₁ to B"


@pytest.mark.parametrize("name", ["pdocrl", "pdocrl_extraction"])
@pytest.mark.parametrize("costs", [1, 2])
def test_a_price_at_its_bound_falls_as_soon_as_the_limits_are_kept(name: str, costs: int) -> None:
    """Cost 1 a step against .1 drives ‖λ‖₁ to B = 2; then nothing costs, and all of λ has to come down."""
    agent = agent_of(name)
    config = make_config(agent, cost_limit=(1.0,) * costs, multiplier_rate=0.05, **SMALL)
    state = jax.jit(lambda key: agent.init(config, Problem(3, 2, costs), key))(jax.random.key(0))
    update = jax.jit(lambda state, data: agent.update(config, state, data, jax.random.key(1))[0])
    dear, free = (batch(np.random.default_rng(0), costs=costs, cost=cost) for cost in (1.0, 0.0))
    for _ in range(100):
        state = update(state, dear)
    assert float(state.multiplier.lam.sum()) == pytest.approx(2, rel=1e-5)
    for _ in range(60):
        state = update(state, free)
    assert (np.asarray(state.multiplier.lam) < 1.5 / costs).all()


def test_as_published_time_limits_end_the_bootstrap_and_only_there() -> None:
    agent, dataset = find_agent("pdocrl"), bandit(n=200).dataset
    assert dataset.timeout.any()
    ours, published = (
        agent.columns(make_config(agent, published=switch), dataset)["not_done"] for switch in (False, True)
    )
    np.testing.assert_array_equal(ours, ~dataset.terminal)
    np.testing.assert_array_equal(published, ~(dataset.terminal | dataset.timeout))


def test_as_published_leaves_no_choice_of_the_critic() -> None:
    agent, dataset = find_agent("pdocrl"), bandit(n=200).dataset
    with pytest.raises(PdocrlError, match="published=true leaves no choice of `critic`"):
        agent.columns(make_config(agent, published=True, critic="linear"), dataset)


def test_as_published_the_price_grows_with_the_data_s_cost_whatever_the_policy_does() -> None:
    """λ_t = λ₀ exp(η Σ (c̄ − κ)), with c̄ of the mini-batches: twenty steps of the rule alone give the same."""
    dataset, costs = bandit(n=400).dataset, []
    found = make("pdocrl", dataset, cost_limit=(1.0,), published=True, multiplier_rate=0.1)
    for _ in range(20):
        before = np.log(np.asarray(found.state.multiplier.lam)[0, 0])
        found.advance(1)
        costs.append((np.log(np.asarray(found.state.multiplier.lam)[0, 0]) - before) / 0.1 + 1.0 / HORIZON)
    assert np.mean(costs) == pytest.approx(dataset.cost.mean(), rel=0.1)
    assert (np.array(costs) > 0).all()


def test_the_average_of_iterates_is_the_average() -> None:
    found = make("pdocrl", bandit(n=200).dataset, cost_limit=(2.5,), average=True)
    total = 0.0
    for _ in range(5):
        found.advance(1)
        total = total + np.asarray(found.state.actor.mlp.weights[0])
    np.testing.assert_allclose(found.state.average.mlp.weights[0], total / 5, rtol=1e-5, atol=1e-7)
