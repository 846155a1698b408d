"""FISOR: a feasibility whose fixed point is known, weights that depend on it, and the safest of some actions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_agent_oracles import GAMMA, PROBLEM, check, double, log_density, mlp, one_step, pair, random_batch
from test_caps import HORIZON, implicit_losses, layer

from pdocrl.agents.base import make_config
from pdocrl.agents.fisor import FISORProblem
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.policies.candidates import FeasiblePolicy
from pdocrl.training.trainer import Run, Trainer


def test_one_step_is_the_formulas() -> None:
    """In the authors' order: π with the values as they were, then V and Q, then V_h and Q_h."""
    batch = random_batch()
    batch = dataclasses.replace(batch, cost=jnp.where(batch.cost > 0.6, batch.cost, 0.0))
    problem = FISORProblem(**vars(PROBLEM), return_spread=40.0)  # rewards are counted in 40 / 20
    new, old, metrics = one_step("fisor", batch, problem, violation=0.05, reward_temperature=2.0)
    b, o, n = double(batch), double(old), double(new)
    pairs, not_done = pair(b.obs, b.action), b.not_done[:, None]
    h = np.where((b.cost > 0).any(1, keepdims=True), 0.05, -1.0)
    assert 0 < (h > 0).mean() < 1
    backup = b.reward[:, None] / 2 + GAMMA * not_done * mlp(n.reward.value, b.next_obs)
    later = (1 - GAMMA) * h + GAMMA * np.maximum(h, mlp(n.risk.value, b.next_obs))
    value_loss, critic_loss, gain = implicit_losses(o.reward, pairs, b.obs, backup, 0.9)
    risk_value_loss, risk_loss, _ = implicit_losses(o.risk, pairs, b.obs, np.where(not_done > 0, later, h), 0.1)
    danger, q_danger = mlp(o.risk.value, b.obs)[:, 0], mlp(o.risk.target, pairs).max(0)[:, 0]
    assert 0 < (danger <= 0).mean() < 1
    safe = np.where(q_danger <= 0, np.minimum(np.exp(2 * gain[:, 0]), 100), 0)
    weight = np.where(danger <= 0, safe, np.clip(np.exp(5 * (danger - q_danger)), 1, 150))
    check(
        new,
        old,
        metrics,
        {
            "reward.value": ("reward.value_opt", "value_loss", value_loss),
            "reward.critic": ("reward.critic_opt", "critic_loss", critic_loss),
            "risk.value": ("risk.value_opt", "risk_value_loss", risk_value_loss),
            "risk.critic": ("risk.critic_opt", "risk_loss", risk_loss),
            "actor": ("actor_opt", "actor_loss", lambda p: -(weight * log_density(p, b.obs, b.action)).mean()),
        },
    )


def three_ways(rows: int = 6000) -> Dataset:
    """One state; by a die, fast (a = .7) pays .9 and costs, slow (a = −.7) pays .6, standing (a = 0) pays nothing."""
    way = np.random.default_rng(0).integers(0, 3, rows)
    state = np.ones((rows, 1))
    return make_dataset(
        state,
        np.asarray([0.7, -0.7, 0.0])[way, None],
        np.asarray([0.9, 0.6, 0.0])[way],
        np.asarray([3.0, 0.0, 0.0])[way, None],
        state,
        terminal=np.zeros(rows, bool),
        timeout=np.arange(rows) % HORIZON == HORIZON - 1,
        name="three ways",
    )


def test_the_best_action_without_cost_is_found_where_one_is_feasible_and_reward_is_forgotten_where_none_is() -> None:
    """V_h solves τ (25 − V) = 2 (1 − τ) (V − Q) with Q = −(1−γ) + γ max(−1, V): 1.6 at τ = .1, −.97 at τ = .001."""
    agent = find_agent("fisor")
    rates = {"critic_rate": 3e-3, "value_rate": 3e-3, "actor_rate": 3e-3, "target_rate": 0.05, "average_rate": 0.02}
    small = {"hidden": (32, 32), "batch_size": 64, "candidates": 4, "gamma": 0.5, "horizon": float(HORIZON)}
    runs = [Run(make_config(agent, cost_limit=(5.0,), cost_expectile=e, **small, **rates), 0) for e in (0.9, 0.999)]
    trainer = Trainer(agent, three_ways(), runs)
    trainer.advance(1000)
    states = [jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], trainer.state) for i in (0, 1)]
    nothing = np.zeros((1, 1))  # a constant is standardised to nothing
    danger = [mlp(state.risk.value, nothing)[0, 0] for state in states]
    np.testing.assert_allclose(danger, [1.6, -0.97], atol=0.25)
    modes = [np.tanh(mlp(state.average.mlp, nothing)[0, 0]) for state in states]
    np.testing.assert_allclose(modes, [-0.35, -0.7], atol=0.12)  # slow and standing weigh alike; slow alone earns
    assert (trainer.policies()[1](np.ones((3, 1))) < -0.4).all()


@pytest.fixture
def policy() -> FeasiblePolicy:
    """π = clip(N(0, 1), ±1) whatever the state, and Q_h = a."""
    raw = np.log(3.0 / 0.5)  # log σ = −3 + 3.5 sigmoid(raw) = 0
    return FeasiblePolicy({"actor": layer([[0.0, 0.0]], [0.0, raw]), "critic": layer([[0.0], [1.0]], [0.0], 2)}, 4)


def test_the_action_of_least_risk_among_the_mode_and_the_draws_is_taken(policy: FeasiblePolicy) -> None:
    one = np.ones((1, 1))
    act = lambda *draws: float(policy.act(one, np.asarray(draws)[None, :, None])[0, 0])  # noqa: E731
    assert act(-9.0, 0.5, -0.25, 0.1) == pytest.approx(-0.25)  # the first is the mode, whatever was drawn
    assert act(-9.0, 0.5, 0.25, 0.1) == pytest.approx(0.0)
    assert act(-9.0, 0.5, -7.0, 0.1) == pytest.approx(-1.0)
    alone = dataclasses.replace(policy, candidates=1)
    assert float(alone.act(one, np.full((1, 1, 1), 5.0))[0, 0]) == 0.0


def test_an_episode_is_decided_by_its_seed(policy: FeasiblePolicy) -> None:
    def play(seed: int) -> list[float]:
        step: Any = policy.begin(seed)
        return [float(step(np.ones(1), 0.0, np.zeros(1))[0]) for _ in range(5)]

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_a_policy_without_candidates_is_refused() -> None:
    agent = find_agent("fisor")
    with pytest.raises(PdocrlError, match="candidates is 0"):
        Trainer(agent, three_ways(40), [Run(make_config(agent, cost_limit=(1.0,), candidates=0), 0)])
