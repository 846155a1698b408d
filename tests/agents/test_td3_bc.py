"""CARL and O3SRL, which wrap TD3+BC: losses and gradients in float64, a bandit with a known best arm, known optima."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from test_agent_oracles import COMMON, GAMMA, KEY, PROBLEM, A, B, Loss, check, double, mlp, pair, random_batch, td_loss

from pdocrl.agents.base import make_config
from pdocrl.agents.o3srl import Bandit
from pdocrl.agents.registry import find_agent
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, bandit

LIMITS = np.array([3.0, 6.0])
SETTINGS = {"reward_scale": 0.3, "target_noise": 0.4, "noise_clip": 0.3}


def players_losses(players: Any, moved: Any, b: Any, reward: np.ndarray, noise: np.ndarray) -> dict[str, Any]:
    """Of TD3+BC's players; the actor climbs the first critic as it is after its own step."""
    shaken = np.tanh(mlp(players.actor_target, b.next_obs)) + np.clip(0.4 * noise, -0.3, 0.3)
    after = mlp(players.target.mlp, pair(b.next_obs, shaken.clip(-1, 1)))[..., 0].min(0)

    def actor_loss(actor: Any) -> float:
        action = np.tanh(mlp(actor, b.obs))
        value = mlp(moved.critic.mlp, pair(b.obs, action))[0, :, 0]
        size = np.abs(mlp(moved.critic.mlp, pair(b.obs, np.tanh(mlp(players.actor, b.obs))))[0, :, 0]).mean()
        return float(((action - b.action) ** 2).mean() - 2.5 * value.mean() / size)

    critic: Loss = td_loss(reward + GAMMA * b.not_done * after, b)
    return {
        "critic": ("critic_opt", "critic_loss", critic),
        "actor": ("actor_opt", "actor_loss", actor_loss),
    }


@lru_cache
def step_of(name: str, **settings: Any) -> tuple[Any, Any]:
    """A first state, and the compiled step."""
    agent = find_agent(name)
    config = make_config(agent, **{**COMMON, **SETTINGS, **settings})
    state = jax.jit(lambda key: agent.init(config, PROBLEM, key))(jax.random.key(3))
    return state, jax.jit(lambda state: agent.update(config, state, random_batch(), KEY))


def due(state: Any) -> Any:
    """The same state at a step at which the actor moves."""
    return eqx.tree_at(lambda s: s.players.steps, state, jnp.asarray(1, jnp.int32))


def test_carl() -> None:
    tight = (-0.15, 0.21)  # of the size of untrained critics, so that some actions count as safe and some do not
    old, step = step_of("carl", penalty="value", cost_limit=tight, critic_rate=1e-2)
    old = due(old)
    new, metrics = step(old)
    b, o, n = double(random_batch()), double(old), double(new)
    next_action = np.tanh(mlp(o.players.actor, b.next_obs))
    target = b.cost + GAMMA * b.not_done[:, None] * mlp(o.cost_target.mlp, pair(b.next_obs, next_action))[0]
    check(new, old, metrics, {"cost_critic": ("cost_opt", "cost_loss", td_loss(target, b))})

    safe = (mlp(n.cost_critic.mlp, pair(b.obs, b.action))[0] <= tight).all(1)
    assert 0 < safe.mean() < 1
    reward = 0.3 * np.where(safe, b.reward, -1 / (1 - GAMMA))  # the problem's largest reward is 1
    noise = double(jax.random.normal(KEY, (B, A)))
    check(new.players, old.players, metrics, players_losses(o.players, n.players, b, reward, noise))


def test_o3srl() -> None:
    old, step = step_of("o3srl", round_steps=2)
    old = due(old)
    new, metrics = step(old)
    b, o, n = double(random_batch()), double(old), double(new)
    reward = 0.3 * b.reward - (b.cost - (1 - GAMMA) * LIMITS) @ (5.0 * o.bandit.arm / 4)
    noise = double(jax.random.normal(jax.random.split(KEY)[0], (B, A)))
    check(new.players, old.players, metrics, players_losses(o.players, n.players, b, reward, noise))
    value = mlp(n.players.critic.mlp, pair(b.obs, np.tanh(mlp(o.players.actor, b.obs))))[0].mean()
    np.testing.assert_allclose([new.bandit.lowest, new.bandit.highest], value, rtol=1e-5)


def test_the_actor_the_targets_and_the_price_rest_until_they_are_due() -> None:
    start, step = step_of("o3srl", round_steps=2)
    new, _ = step(start)
    for name in ("actor", "actor_target", "target", "actor_opt"):
        before, after = (jax.tree.leaves(getattr(state.players, name)) for state in (start, new))
        assert all(np.array_equal(*both) for both in zip(before, after, strict=True)), name
    assert np.array_equal(start.bandit.arm, new.bandit.arm)
    assert np.isinf(new.bandit.lowest)
    second, _ = step(new)
    for name in ("actor", "actor_target", "target"):
        before, after = (jax.tree.leaves(getattr(state.players, name)) for state in (new, second))
        assert not any(np.array_equal(*both) for both in zip(before, after, strict=True)), name


def test_one_round_of_the_bandit_by_hand() -> None:
    logits = jnp.log(jnp.asarray([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    before = Bandit(logits, jnp.asarray([0, 2]), jnp.asarray(-1.0), jnp.asarray(2.0))
    after = before.play(jnp.asarray(3.0), 0.1, 0.3, jax.random.key(0))  # of [−1, 3] the highest: a loss of 1
    chance = 0.7 * np.asarray([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]) + 0.1
    weights = np.exp(np.asarray(logits, np.float64))
    weights[0, 0] *= np.exp(-0.1 / chance[0, 0])
    weights[1, 2] *= np.exp(-0.1 / chance[1, 2])
    np.testing.assert_allclose(after.chances(0.3), 0.7 * weights / weights.sum(1, keepdims=True) + 0.1, rtol=1e-5)
    assert (float(after.lowest), float(after.highest)) == (-1.0, 3.0)


def test_the_bandit_finds_the_arm_that_costs_least() -> None:
    """Charged .6, .5, .2, .5, .6 by arm, with noise: EXP3 ends up with the third but for its exploration."""
    costs = jnp.asarray([0.6, 0.5, 0.2, 0.5, 0.6])

    def round_of(state: Bandit, key: Any) -> tuple[Bandit, Any]:
        for_noise, for_arm = jax.random.split(key)
        value = costs[state.arm[0]] + 0.1 * jax.random.normal(for_noise)
        return state.play(value, 0.02, 0.05, for_arm), state.arm[0]

    start = Bandit.create(1, 5, jax.random.key(1))
    end, arms = jax.lax.scan(round_of, start, jax.random.split(jax.random.key(2), 3000))
    assert float(end.chances(0.05)[0, 2]) > 0.9
    assert (np.asarray(arms)[-500:] == 2).mean() > 0.85


PROBE = bandit(n=4000)
FAST = {"gamma": 0.5, "held": "rate", "reward_scale": 1.0, "actor_rate": 3e-3, "critic_rate": 5e-3, "pull": 10.0}


def solved(name: str, limits: list[float], steps: int, **settings: Any) -> list[float]:
    """The actions found for each limit on r = a, c = a²."""
    agent = find_agent(name)
    common = {"hidden": (16, 16), "batch_size": 32, "horizon": float(HORIZON)} | FAST | settings
    runs = [Run(make_config(agent, cost_limit=(limit * HORIZON,), **common), 0) for limit in limits]
    trainer = Trainer(agent, PROBE.dataset, runs)
    trainer.advance(steps)
    return [float(PROBE.evaluate(policy)[0]) for policy in trainer.policies()]


def test_carl_goes_as_far_as_the_limit_lets_it() -> None:
    """a = √κ is the last action whose cost to go keeps κ/(1−γ); a smooth critic stops a little before the step."""
    tight, loose = solved("carl", [0.0625, 0.25], 1200)
    assert 0.7 * 0.25 <= tight <= 1.05 * 0.25
    assert 0.8 * 0.50 <= loose <= 1.05 * 0.50


def test_o3srl_pays_no_price_for_a_limit_that_cannot_be_broken_and_the_highest_for_one_that_cannot_be_kept() -> None:
    """max_a a − λ(a² − κ) is at a = 1 for λ = 0, at a = 1/(2λ_max) = ¼ for λ_max = 2."""
    none, all_of_it = solved("o3srl", [4.0, -1.0], 1200, largest_price=2.0, bandit_rate=0.3, exploration=0.01)
    assert none > 0.9
    assert 0.1 < all_of_it < 0.4
