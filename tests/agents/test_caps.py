"""CAPS: implicit values, heads that earn or save, and the switch between them when acting."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm
from test_agent_oracles import GAMMA, KEY, A, B, check, double, mlp, one_step, pair, random_batch

from pdocrl.agents.base import make_config
from pdocrl.agents.common.iql import expectile_loss
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.mlp import normals
from pdocrl.policies.cost_conditioned import SwitchingPolicy, discounted_budget
from pdocrl.training.trainer import Run, Trainer

HORIZON, SLOW, FAST, HALF = 20, 0.2, 0.9, 0.5
SMALL = {"hidden": (32, 32), "batch_size": 64, "horizon": float(HORIZON), "gamma": HALF, "reward_scale": 1.0}


def expectile(u: np.ndarray, tau: float) -> np.ndarray:
    return np.where(u < 0, 1 - tau, tau) * u**2


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.7])
def test_the_least_loss_is_at_the_expectile_of_the_sample(tau: float) -> None:
    """Of a fair coin it is τ; of any sample it balances τ E[(x − m)₊] = (1 − τ) E[(m − x)₊]."""
    coin = jnp.asarray([0.0, 1.0])
    assert abs(jax.grad(lambda m: expectile_loss(coin - m, tau).mean())(tau)) < 1e-6
    x = np.random.default_rng(0).gamma(2.0, size=50)
    balance = lambda m: tau * np.maximum(x - m, 0).mean() - (1 - tau) * np.maximum(m - x, 0).mean()  # noqa: E731
    m = brentq(balance, x.min(), x.max())
    assert abs(jax.grad(lambda m: expectile_loss(jnp.asarray(x) - m, tau).mean())(m)) < 1e-5


def implicit_losses(values: Any, pairs: np.ndarray, obs: np.ndarray, backup: np.ndarray, tau: float) -> Any:
    """The losses of V and of Q, in float64."""
    twins = mlp(values.target, pairs)
    q = twins.max(0) if values.of_costs else twins.min(0)

    def value_loss(value: Any) -> float:
        return float(expectile(q - mlp(value, obs), tau).mean(0).sum())

    def critic_loss(critic: Any) -> float:
        return float(((mlp(critic, pairs) - backup) ** 2).mean(1).mean(0).sum())

    return value_loss, critic_loss, q - mlp(values.value, obs)


def test_one_step_of_implicit_heads_is_the_formulas() -> None:
    batch = random_batch()
    new, old, metrics = one_step("caps_iql", batch, heads=3, reward_scale=0.3, beta=4.0, beta_cost=2.0)
    b, o = double(batch), double(old)
    pairs, not_done = pair(b.obs, b.action), GAMMA * b.not_done[:, None]
    backup = 0.3 * b.reward[:, None] + not_done * mlp(o.reward.value, b.next_obs)
    cost_backup = b.cost + not_done * mlp(o.cost.value, b.next_obs)
    value_loss, critic_loss, gain = implicit_losses(o.reward, pairs, b.obs, backup, 0.7)
    cost_value_loss, cost_loss, pain = implicit_losses(o.cost, pairs, b.obs, cost_backup, 0.3)
    earns, saves = np.exp(4 * gain[:, 0]), np.exp(-2 * pain.sum(1))
    weights = [earns, earns + saves, saves]

    def actor_loss(actor: Any) -> float:
        mean = np.tanh(mlp(actor.mlp, b.obs)).reshape(B, 3, A)
        scales = np.exp(actor.log_std)
        logs = [norm(mean[:, k], scales[k]).logpdf(b.action).sum(-1) for k in range(3)]
        return -float(np.mean([(w * log).mean() for w, log in zip(weights, logs, strict=True)]))

    check(
        new,
        old,
        metrics,
        {
            "reward.value": ("reward.value_opt", "value_loss", value_loss),
            "reward.critic": ("reward.critic_opt", "critic_loss", critic_loss),
            "cost.value": ("cost.value_opt", "cost_value_loss", cost_value_loss),
            "cost.critic": ("cost.critic_opt", "cost_loss", cost_loss),
            "actor": ("actor_opt", "actor_loss", actor_loss),
        },
    )
    moved = double(o.reward.target).weights[0] + 0.005 * (
        double(new.reward.critic).weights[0] - o.reward.target.weights[0]
    )
    np.testing.assert_allclose(new.reward.target.weights[0], moved, atol=1e-7)


def test_one_step_of_climbing_heads_is_the_formulas() -> None:
    batch = random_batch()
    new, old, metrics = one_step("caps_sac", batch, heads=3, reward_scale=0.3, members=3)
    b, o = double(batch), double(old)
    next_noise, noise = double(normals(KEY, (3, B, A), (3, B, A)))
    alpha = np.exp(o.temperature.log)

    def act(actor: Any, obs: np.ndarray, k: int, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = mlp(actor.mlp, obs).reshape(B, 2, 3, A)
        mean, std = out[:, 0, k], np.exp(np.clip(out[:, 1, k], -5, 2))
        raw = mean + std * drawn
        return np.tanh(raw), (norm(mean, std).logpdf(raw) - np.log(1 - np.tanh(raw) ** 2)).sum(-1)

    after = [act(o.actor, b.next_obs, k, next_noise[k]) for k in range(3)]
    soft = [mlp(o.target, pair(b.next_obs, a))[..., 0].min(0) - alpha * log for a, log in after]
    ahead = [mlp(o.cost_target, pair(b.next_obs, a)).max(0) for a, _ in after]
    backup = 0.3 * b.reward + GAMMA * b.not_done * np.mean(soft, 0)
    cost_backup = b.cost + GAMMA * b.not_done[:, None] * np.mean(ahead, 0)

    def td(target: np.ndarray) -> Any:
        return lambda c: float(((mlp(c, pair(b.obs, b.action)) - target.reshape(B, -1)) ** 2).mean(1).sum())

    def actor_loss(actor: Any, frozen: Any = o.actor) -> float:
        total = 0.0
        for k in range(3):
            worth = []
            for player in (actor, frozen):  # the scale is not differentiated
                action, log = act(player, b.obs, k, noise[k])
                q = mlp(o.critic, pair(b.obs, action))[..., 0].min(0)
                cost = mlp(o.cost_critic, pair(b.obs, action)).max(0).sum(-1)
                worth.append((q, q - cost, -cost)[k])
            action, log = act(actor, b.obs, k, noise[k])
            total += (alpha * log).mean() - 2.5 * worth[0].mean() / np.abs(worth[1]).mean()
            total += ((action - b.action) ** 2).mean()
        return float(total)

    entropy = [-act(o.actor, b.obs, k, noise[k])[1].mean() for k in range(3)]
    check(
        new,
        old,
        metrics,
        {
            "critic": ("critic_opt", "critic_loss", td(backup)),
            "cost_critic": ("cost_opt", "cost_loss", td(cost_backup)),
            "actor": ("actor_opt", "actor_loss", actor_loss),
            "temperature": ("temperature_opt", None, lambda t: float(np.exp(t.log) * sum(e + A for e in entropy))),
        },
    )


def street(rows: int = 4000) -> Dataset:
    """One state, a coin at every step: fast (a = .7) pays .9 and costs 1, slow (a = −.7) pays .2."""
    fast = np.random.default_rng(0).random(rows) < 0.5
    state = np.ones((rows, 1))
    return make_dataset(
        state,
        np.where(fast, 0.7, -0.7)[:, None],
        np.where(fast, FAST, SLOW),
        fast[:, None].astype(float),
        state,
        terminal=np.zeros(rows, bool),
        timeout=np.arange(rows) % HORIZON == HORIZON - 1,
        name="street",
    )


def drive(policy: Any, limit: float) -> list[bool]:
    """Which steps of an episode were fast."""
    step, fast = policy.begin(0, limit=limit), []
    for _ in range(HORIZON):
        fast.append(float(step(np.ones(1), 0.0, np.asarray([float(fast[-1]) if fast else 0.0]))[0]) > 0)
    return fast


def learned(name: str, steps: int, **settings: float) -> Trainer:
    agent = find_agent(name)
    trainer = Trainer(agent, street(), [Run(make_config(agent, cost_limit=(5.0,), **SMALL, **settings), 0)])
    trainer.advance(steps)
    return trainer


def test_on_a_coin_the_values_are_known_and_the_switch_follows_from_them() -> None:
    """V_c is the .3-expectile of {γV, 1 + γV}: .6 at γ = .5. So Q_c is .3 or 1.3: fast is taken where 1.3 is left."""
    trainer = learned("caps_iql", 800, critic_rate=3e-3, value_rate=3e-3, actor_rate=3e-3, target_rate=0.05)
    state = jax.tree.map(lambda leaf: np.asarray(leaf)[0], trainer.state)
    obs = np.zeros((2, 1))  # a constant is standardised to nothing
    cost = mlp(state.cost.critic, pair(obs, np.asarray([[0.7], [-0.7]]))).max(0)[:, 0]
    np.testing.assert_allclose(cost, [1.3, 0.3], atol=0.1)
    np.testing.assert_allclose(np.tanh(mlp(state.actor.mlp, obs[:1]))[0], [0.7, -0.7], atol=0.25)
    policy = trainer.policies()[0]
    for limit in (0.0, 5.0, 12.0, 16.0, 40.0):
        spent, expected = 0.0, []
        for t in range(HORIZON):
            allowed = discounted_budget(np.asarray([[limit]]), np.asarray([[spent]]), np.asarray([[t]]), HORIZON, HALF)
            expected.append(bool(allowed[0, 0] > 1.3))
            spent += expected[-1]
        found = drive(policy, limit)
        assert sum(found) <= limit
        assert abs(sum(found) - sum(expected)) <= 1, limit


def test_a_time_limit_ends_what_climbing_heads_count_unless_told_otherwise() -> None:
    """By default nothing is asked beyond an episode's last step; the implicit kind asks, and only terminals end it."""
    rows = 6
    data = make_dataset(
        np.zeros((rows, 1)),
        np.linspace(-1, 1, rows)[:, None],
        np.zeros(rows),
        np.zeros(rows),
        np.zeros((rows, 1)),
        np.arange(rows) == 2,
        np.arange(rows) == 5,
    )

    def not_done(name: str, **settings: Any) -> list[float]:
        agent = find_agent(name)
        return list(agent.columns(make_config(agent, **settings), data)["not_done"])

    assert not_done("caps_sac") == [1, 1, 0, 1, 1, 0]
    assert not_done("caps_sac", time_limit_ends=False) == not_done("caps_iql") == [1, 1, 0, 1, 1, 1]


def test_climbing_heads_part_and_keep_limits_nobody_trained_for() -> None:
    rates = {"critic_rate": 3e-3, "actor_rate": 3e-3, "temperature": 0.01, "target_rate": 0.05}
    policy = learned("caps_sac", 800, **rates).policies()[0]
    for limit in (0.0, 5.0, 12.0):
        assert sum(drive(policy, limit)) <= limit
    assert sum(drive(policy, 40.0)) == HORIZON


def layer(weights: list[list[float]], bias: list[float], members: int = 0) -> Any:
    weight, shift = np.asarray(weights, np.float32), np.asarray(bias, np.float32)
    if members:
        weight, shift = np.stack([weight] * members), np.stack([shift[None]] * members)
    return (weight,), (shift,)


@pytest.fixture
def switch() -> SwitchingPolicy:
    """Three heads at tanh(−1), tanh(0), tanh(1); Q_r = a, and costs 5(a + 1) and 2."""
    networks = {
        "actor": layer([[0.0, 0.0, 0.0]], [-1.0, 0.0, 1.0]),
        "critic": layer([[0.0], [1.0]], [0.0], 2),
        "cost_critic": layer([[0.0, 0.0], [5.0, 0.0]], [5.0, 2.0], 2),
    }
    return SwitchingPolicy(networks, horizon=10.0, gamma=0.0, limit=(100.0, 100.0), heads=3)


def act(policy: SwitchingPolicy, limit: list[float], spent: float = 0.0, time: float = 0.0) -> float:
    """The head taken, by its action before the tanh. γ = 0: a step may cost what is left over the steps left."""
    one: NDArray[Any] = np.ones((1, 1))
    return float(np.arctanh(policy.act(one, np.asarray([limit]), one * spent * np.ones(2), one * time)[0, 0]))


def test_the_best_head_within_all_limits_is_taken(switch: SwitchingPolicy) -> None:
    assert act(switch, [100, 100]) == pytest.approx(1)  # costs 8.8 of 10 a step
    assert act(switch, [80, 100]) == pytest.approx(0)
    assert act(switch, [40, 100]) == pytest.approx(-1)
    assert act(switch, [40, 100], time=8) == pytest.approx(1)  # two steps left
    assert act(switch, [80, 100], spent=40) == pytest.approx(-1)


def test_where_no_head_keeps_the_limits_the_one_that_exceeds_them_least_is_taken(switch: SwitchingPolicy) -> None:
    assert act(switch, [5, 100]) == pytest.approx(-1)
    # every head exceeds the second limit by 2; a tie goes to the first
    assert act(switch, [100, 0]) == pytest.approx(-1)


def test_a_limit_that_is_no_amount_of_cost_is_refused(switch: SwitchingPolicy) -> None:
    for bad in (-1.0, [1.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="limit"):
            switch.begin(0, limit=bad)


def test_one_head_is_refused() -> None:
    agent = find_agent("caps_iql")
    with pytest.raises(PdocrlError, match="heads is 1"):
        Trainer(agent, street(40), [Run(make_config(agent, cost_limit=(1.0,), heads=1, **SMALL), 0)])
