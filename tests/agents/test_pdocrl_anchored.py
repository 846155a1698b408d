"""PDOCRL anchored in episodes: the weights in closed form, the cost of rollouts, one step against NumPy."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm

from pdocrl.agents.base import Transitions, make_config
from pdocrl.agents.pdocrl_anchored import AnchoredBatch, AnchoredProblem, episode_weights
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import make_dataset
from pdocrl.dynamics.mixture import COMPONENTS, MixtureModel
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.running_cost import RunningCost
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import MLP

S, A, K, B = 3, 2, 2, 16


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 200), wanted=st.floats(1.5, 60), limit=st.floats(0.5, 20))
def test_weights_are_a_distribution_on_episodes_within_limits(seed: int, n: int, wanted: float, limit: float) -> None:
    rng = np.random.default_rng(seed)
    returns, costs = rng.normal(size=n) * 10, rng.uniform(0, 20, (n, 1))
    within = costs[:, 0] <= limit
    p = episode_weights(returns, costs, np.array([limit]), wanted)
    assert p.sum() == pytest.approx(1)
    assert (p >= 0).all()
    if within.sum() >= 2:
        assert (p[~within] == 0).all()
        assert p.argmax() == np.flatnonzero(within)[returns[within].argmax()]
        assert 1 / (p**2).sum() == pytest.approx(min(wanted, max(1, within.sum() / 2)), rel=0.02, abs=0.1)


def test_weights_solve_the_entropic_problem() -> None:
    """p maximises Σ p R − α KL(p ‖ uniform): log p is affine in R with one slope for all episodes."""
    returns = np.array([3.0, 1.0, 2.0, 0.0, 5.0])
    p = episode_weights(returns, np.array([[1.0], [1.0], [1.0], [1.0], [9.0]]), np.array([2.0]), 2.0)
    slopes = np.diff(np.log(p[:4])) / np.diff(returns[:4])
    assert p[4] == 0
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-9)


def test_without_an_episode_within_the_limits_the_nearest_stand_in() -> None:
    p = episode_weights(np.array([9.0, 1.0, 1.0]), np.array([[30.0], [11.0], [12.0]]), np.array([10.0]), 2.0)
    assert p[0] == 0
    np.testing.assert_allclose(p[1:], 0.5)


def linear(matrix: np.ndarray, bias: np.ndarray, members: int | None = None) -> MLP:
    """x ↦ x M + b as a ReLU network: positive and negative parts apart."""
    n = matrix.shape[0]
    both = np.concatenate([np.eye(n), -np.eye(n)], 1)
    weights, biases = [both, np.concatenate([matrix, -matrix], 0)], [np.zeros(2 * n), bias]
    if members is not None:
        weights, biases = [np.stack([w] * members) for w in weights], [np.stack([b[None]] * members) for b in biases]
    return MLP(tuple(jnp.asarray(w, jnp.float32) for w in weights), tuple(jnp.asarray(b, jnp.float32) for b in biases))


UNIT = 0.01  # of a change


def says(cost: tuple[float, float], end: tuple[float, float]) -> MLP:
    """(s, a, change, reward) → logits of nothing, of a cost and of an end: slope · s′ + bias each."""
    slopes = np.asarray([0.0, cost[0], end[0], 0.0, 0.0])
    biases = np.asarray([0.0, cost[1], end[1], 0.0, 0.0])
    return linear(np.stack([slopes, 0 * slopes, UNIT * slopes, 0 * slopes]), biases)


def cost_of_rollouts(events: MLP, horizon: float) -> float:
    """Of an episode of s′ = s + 0.1 tanh(½) from 0, each step of which costs 2 as `events` says."""
    low, high, change = (jnp.asarray([x]) for x in (-9.0, 9.0, UNIT))
    zero, one, levels = jnp.zeros(1), jnp.ones(1), jnp.asarray([[0.0, 2.0]])
    normaliser = Normaliser(zero, one, low, high, change, jnp.ones(()), 2 * one, levels)
    silent = np.tile([0.0, 0.0, 0.0, -50.0, -50.0], COMPONENTS)
    mean = linear(np.array([[0.0, 0.0], [0.1 / UNIT, 0.0]]), np.zeros(2))
    one_model = MixtureModel(mean, events, linear(np.zeros((7, 5 * COMPONENTS)), silent))
    models = jax.tree.map(lambda x: jnp.stack([x, x]), one_model)
    created = RunningCost.create(jax.random.key(0), normaliser, 1, (8,), jnp.asarray(horizon), members=2)
    running = eqx.tree_at(lambda i: (i.models, i.average), created, (models, models))
    actor = ClippedGaussian(linear(np.zeros((1, 2)), np.array([0.5, -5.0])))
    return float(played_for(running, actor, jnp.asarray(horizon)).cost_per_episode[0])


@jax.jit
def played_for(running: RunningCost, actor: ClippedGaussian, horizon: jax.Array) -> RunningCost:
    """3000 steps later."""

    def one(step: jax.Array, running: RunningCost) -> RunningCost:
        return running.play(actor, jnp.zeros((4, 1)), horizon, jax.random.fold_in(jax.random.key(1), step))

    return jax.lax.fori_loop(0, 3000, one, running)


def test_the_cost_of_rollouts_is_the_true_one_where_the_model_is_exact() -> None:
    """A step costs 2 once s′ passes 0.5; episodes of 30 steps."""
    found = cost_of_rollouts(says(cost=(1e4, -5e3), end=(0.0, -1e4)), 30.0)
    states = 0.1 * np.tanh(0.5) * np.arange(1, 31)
    assert found == pytest.approx(2 * (states > 0.5).sum(), rel=0.03)


def test_an_end_in_a_rollout_ends_the_episode() -> None:
    """The same, but passing 0.5 ends it: one costly step an episode, whatever the horizon."""
    found = cost_of_rollouts(says(cost=(1e4, -5e3), end=(1e4, -5e3)), 30.0)
    assert found == pytest.approx(2, rel=0.05)


def test_a_cost_by_chance_comes_as_often_as_the_model_says() -> None:
    """One step in ten costs 2, whatever the state."""
    found = cost_of_rollouts(says(cost=(0.0, float(np.log(1 / 9))), end=(0.0, -1e4)), 30.0)
    assert found == pytest.approx(2 * 30 / 10, rel=0.1)


@lru_cache
def random_problem() -> tuple[Any, Any, Any, AnchoredBatch]:
    rng = np.random.default_rng(0)
    n = 60
    dataset = make_dataset(
        rng.normal(size=(n, S)),
        rng.uniform(-0.9, 0.9, (n, A)),
        rng.normal(size=n),
        3 * rng.random((n, K)),
        rng.normal(size=(n, S)),
        rng.random(n) < 0.1,
        np.arange(n) % 10 == 9,
    )
    agent = find_agent("pdocrl_anchored")
    config = make_config(agent, hidden=(8, 8), batch_size=B, cost_limit=(3.0, 6.0), horizon=20.0, gamma=0.9)
    state = jax.jit(lambda key: agent.init(config, agent.problem(dataset), key))(jax.random.key(1))
    f = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    data = Transitions(
        f(2 * B, S),
        jnp.clip(f(2 * B, A), -1, 1),
        f(2 * B),
        jnp.abs(f(2 * B, K)),
        f(2 * B, S),
        jnp.asarray(rng.random(2 * B) < 0.7, jnp.float32),
        f(B, S),
    )
    return agent, config, state, AnchoredBatch(data, jnp.abs(f(B, K)))


@jax.jit
def update(config: Any, state: Any, batch: AnchoredBatch, key: Any) -> Any:
    return random_problem()[0].update(config, state, batch, key)


def mlp(net: Any, x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ net.weights[-1] + net.biases[-1]


def test_one_step_has_the_losses_and_gradients_of_float64() -> None:
    """Written again from the docs page; gradients by central differences against Adam's first moment."""
    _, config, state, batch = random_problem()
    new, metrics = update(config, state, batch, jax.random.key(2))
    d = jax.tree.map(lambda x: np.asarray(x, np.float64), state)
    data = jax.tree.map(lambda x: np.asarray(x, np.float64), batch.transitions)
    spent, gamma, limit, lam = np.asarray(batch.episode_cost, np.float64), 0.9, np.array([3.0, 6.0]), d.multiplier.lam
    scale, cost_scale = float(d.reward_scale), d.running_cost.normaliser.cost

    w = np.exp(-(spent / limit) @ lam)
    w /= w.mean()

    def mode(actor: Any, obs: np.ndarray) -> np.ndarray:
        return np.tanh(mlp(actor.mlp, obs)[:, :A])

    def q(critic: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        return mlp(critic.mlp, np.concatenate([obs, action], -1))

    ahead = q(d.critic_target, data.next_obs, mode(d.average, data.next_obs))
    ahead = np.concatenate([ahead[..., :1].min(0).clip(-1, 1), ahead[..., 1:].mean(0).clip(0, 1)], -1)
    paid = np.concatenate([data.reward[:, None] / scale, data.cost / cost_scale], -1)
    target = (1 - gamma) * paid + gamma * data.not_done[:, None] * ahead

    def critic_loss(critic: Any) -> float:
        return float(((q(critic, data.obs, data.action) - target) ** 2).mean(1).sum())

    def actor_loss(actor: Any, size_of_q: float | None = None) -> float:
        obs, action = data.obs[:B], data.action[:B]
        values = q(d.critic, obs, mode(actor, obs))
        reward, cost = values[..., 0].min(0), values[..., 1:].max(0)
        size_of_q = np.abs(reward).mean() + 1e-6 if size_of_q is None else size_of_q
        gain = (reward / size_of_q - cost @ (lam * cost_scale * 20 / limit)) / (1 + lam.sum())
        mean, log_std = np.split(mlp(actor.mlp, obs), 2, -1)
        log_std = -3 + 3.5 / (1 + np.exp(-log_std))
        z = (action - np.tanh(mean)) / np.exp(log_std)
        fit = np.where(abs(action) == 1, norm.logcdf(-abs(z)), -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
        return float(-(w * (gain + fit)).mean())

    def model_loss(models: Any) -> float:
        """Of four members, each on every fourth row."""
        normaliser = d.running_cost.normaliser
        members = [jax.tree.map(lambda x, m=m: x[m], models) for m in range(4)]
        return float(np.mean([mixture_loss(model, normaliser, m) for m, model in enumerate(members)]))

    def mixture_loss(model: Any, normaliser: Any, m: int) -> float:
        obs, action, reward, next_obs, cost, not_done = (
            x[B:][m::4] for x in (data.obs, data.action, data.reward, data.next_obs, data.cost, data.not_done)
        )
        here = (obs - normaliser.mean) / normaliser.std
        y = np.column_stack([(next_obs - obs) / normaliser.change, reward / normaliser.reward]).clip(-20, 20)
        mean = mlp(model.mean, np.concatenate([here, action], -1))
        x = np.concatenate([here, action, fixed[m]], -1)
        known = np.concatenate([cost > 0, cost / normaliser.cost], -1)
        out = mlp(model.events, x)
        levels = normaliser.levels.shape[1]
        logits = out[:, : K * levels].reshape(-1, K, levels)
        level = np.where(cost == 0, 0, abs(cost[..., None] - normaliser.levels[:, 1:]).argmin(-1) + 1)
        of_cost = np.take_along_axis(logits - logsumexp(logits, axis=-1, keepdims=True), level[..., None], -1)
        end = out[:, K * levels] + (out[:, K * levels + 1 :] * known).sum(-1)
        of_end = -np.logaddexp(0, np.where(not_done < 1, -end, end))
        parts = mlp(model.residual, np.concatenate([x, known, 1 - not_done[:, None]], -1)).reshape(len(x), 4, -1)
        log_std = -4 + 5 / (1 + np.exp(-parts[..., 2 + S :]))
        z = ((y - fixed[m])[:, None] - parts[..., 1 : 2 + S]) / np.exp(log_std)
        density = norm.logpdf(z).sum(-1) - log_std.sum(-1) + parts[..., 0] - logsumexp(parts[..., 0], -1, keepdims=True)
        log_prob = of_cost.sum((1, 2)) + of_end + logsumexp(density, axis=-1)
        return float((((mean - y) ** 2).mean(-1) - log_prob).mean())

    fixed = []  # the means around which the mixtures are: no gradient passes
    for m in range(4):
        model = jax.tree.map(lambda x, m=m: x[m], d.running_cost.models)
        here = (data.obs[B:][m::4] - d.running_cost.normaliser.mean) / d.running_cost.normaliser.std
        fixed.append(mlp(model.mean, np.concatenate([here, data.action[B:][m::4]], -1)))
    frozen = np.abs(q(d.critic, data.obs[:B], mode(d.actor, data.obs[:B]))[..., 0].min(0)).mean() + 1e-6
    assert float(metrics["critic_loss"]) == pytest.approx(critic_loss(d.critic), rel=1e-5)
    assert float(metrics["actor_loss"]) == pytest.approx(actor_loss(d.actor), rel=1e-5)
    assert float(metrics["model_loss"]) == pytest.approx(model_loss(d.running_cost.models), rel=1e-5)
    compare(new.critic_opt, d.critic, critic_loss)
    compare(new.actor_opt, d.actor, lambda actor: actor_loss(actor, frozen))
    compare(new.running_cost.opt, d.running_cost.models, model_loss)


def compare(opt: Any, module: Any, loss: Any, step: float = 1e-5) -> None:
    """Two random coordinates of every array, central differences against the gradient Adam saw."""
    rng = np.random.default_rng(0)
    leaves, tree = jax.tree.flatten(module)
    used = jax.tree.leaves(opt.mu)
    for n, leaf in enumerate(leaves):
        for _ in range(2):
            place = tuple(rng.integers(0, size) for size in leaf.shape)
            values = []
            for sign in (1, -1):
                moved = leaf.copy()
                moved[place] += sign * step
                values.append(loss(jax.tree.unflatten(tree, [*leaves[:n], moved, *leaves[n + 1 :]])))
            expected = (values[0] - values[1]) / (2 * step)
            assert float(used[n][place]) / 0.1 == pytest.approx(expected, rel=1e-3, abs=2e-5)


def test_the_price_rises_while_the_cost_of_rollouts_is_above_the_limit_and_falls_below() -> None:
    _, config, state, batch = random_problem()
    for cost, sign in ((100.0, 1), (0.0, -1)):
        told = eqx.tree_at(lambda s: s.running_cost.cost, state, jnp.full(K, cost))
        new, _ = update(config, told, batch, jax.random.key(0))
        assert (np.sign(np.asarray(new.multiplier.lam - state.multiplier.lam)) == sign).all()


def test_without_improvement_and_tilt_it_is_cloning_that_neither_q_nor_the_price_touches() -> None:
    """The control of its ablation: other critics and another λ, and π moves by the same bits."""
    _, config, state, batch = random_problem()
    moved = []
    for own in (config, dataclasses.replace(config, improvement=0.0, tilt=0.0)):
        other = eqx.tree_at(
            lambda s: (s.multiplier.lam, s.critic),
            state,
            (state.multiplier.lam + 1, jax.tree.map(lambda x: 2 * x, state.critic)),
        )
        moved.append([update(own, s, batch, jax.random.key(0))[0].actor for s in (state, other)])
    same = [eqx.tree_equal(*pair) for pair in moved]
    assert [bool(x) for x in same] == [False, True]


def test_a_problem_can_be_described_in_numbers() -> None:
    agent, _, _, _ = random_problem()
    n = 20
    dataset = make_dataset(
        np.ones((n, 1)),
        np.zeros((n, 1)),
        np.ones(n),
        np.ones((n, 1)),
        np.ones((n, 1)),
        np.zeros(n),
        np.arange(n) % 10 == 9,
    )
    problem = agent.problem(dataset)
    assert isinstance(problem, AnchoredProblem)
    assert len(problem.normaliser) == 8
    assert all(isinstance(x, float) for numbers in problem.normaliser for x in np.ravel(numbers).tolist())
