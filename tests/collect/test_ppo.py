"""The learner: each formula against a plain loop, and an expert whose optimum under a limit is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.collect import ppo
from pdocrl.collect.actor import CategoricalActor, noise_of
from pdocrl.collect.ppo import Batch, Moments, PPOConfig

SMALL = PPOConfig(hidden=(8, 8), minibatch=100)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 40))
def test_moments_of_two_parts_are_the_moments_of_the_whole(seed, one, other):
    rows = np.random.default_rng(seed).normal(3, 2, size=(one + other, 2)).astype(np.float32)
    moments = Moments.create(2).include(jnp.asarray(rows[:one])).include(jnp.asarray(rows[one:]))
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-3, atol=1e-4)


def random_batch(seed: int, rows: int = 50, signals: int = 3) -> Batch:
    rng = np.random.default_rng(seed)
    end = rng.random(rows) < 0.2
    end[-1] = False  # the last episode is cut
    terminal = end & (rng.random(rows) < 0.5)
    floats = (rng.normal(size=(rows, width)).astype(np.float32) for width in (2, 2, 1, signals))
    return Batch(*(jnp.asarray(column) for column in (*floats, terminal, end)))


def test_advantages_bootstrap_through_time_limits_and_stop_at_terminals():
    """Â_t = Σ_i (γλ)^i δ_{t+i} up to the episode's end; a terminal has no value beyond, a time limit has."""
    config, batch = PPOConfig(), random_batch(0)
    rng = np.random.default_rng(1)
    values, next_values = rng.normal(size=(2, 50, 3)).astype(np.float32)
    estimated = ppo._advantages(batch, batch.signals, jnp.asarray(values), jnp.asarray(next_values), config)
    expected = np.zeros((50, 3))
    for start in range(50):
        weight = 1.0
        for t in range(start, 50):
            beyond = 0 if batch.terminal[t] else config.gamma * next_values[t]
            expected[start] += weight * (np.asarray(batch.signals[t]) + beyond - values[t])
            weight *= config.gamma * config.trace
            if batch.end[t]:
                break
    np.testing.assert_allclose(estimated, expected, rtol=1e-4, atol=1e-4)


def test_discounted_sums_begin_anew_with_each_episode():
    batch = random_batch(2)
    sums, total = np.asarray(ppo._discounted_sums(batch, 0.9)), np.zeros(3)
    for t in range(50):
        total = 0.9 * total + np.asarray(batch.signals[t])
        np.testing.assert_allclose(sums[t], total, rtol=1e-4, atol=1e-5)
        total = total * (not batch.end[t])


def trained_state(obs_dim: int = 4, action_dim: int = 2) -> ppo.ExpertState:
    state = ppo.init(jax.random.PRNGKey(0), obs_dim, action_dim, 1, SMALL)
    rows = np.random.default_rng(0).normal(5, 3, size=(100, obs_dim)).astype(np.float32)
    return ppo.ExpertState(
        state.expert, state.adam, state.obs.include(jnp.asarray(rows)), state.signals, state.multiplier, state.key
    )


def test_the_actor_that_plays_is_the_expert_that_learns():
    """Normalisation folded into the first layer, noise drawn again: a = μ(s) + σ ε."""
    state, seed = trained_state(), 11
    actor = ppo.actor_of(state)
    step, noise = actor.begin(seed), noise_of(seed, 20, 2)
    obs = np.random.default_rng(1).normal(5, 3, size=(20, 4)).astype(np.float32)
    mean = state.expert.mean((obs - state.obs.mean) / state.obs.std)
    raw = np.asarray(mean) + np.exp(np.asarray(state.expert.log_std)) * noise
    played = np.stack([step(row) for row in obs])
    np.testing.assert_allclose(played, raw, rtol=1e-4, atol=1e-5)


def bandit_batch(actor: object, seeds: range) -> tuple[Batch, np.ndarray, np.ndarray]:
    """One-step episodes with reward a₀ + a₁ and costs a₀₊, a₁₊: the action is its own price."""
    actions = np.stack([np.clip(actor.begin(seed)(np.zeros(1, np.float32)), -1, 1) for seed in seeds])
    cost = np.maximum(actions, 0)
    noise = np.concatenate([noise_of(seed, 1, 2) for seed in seeds])
    n = len(actions)
    columns = np.zeros((n, 1)), np.zeros((n, 1)), noise, np.column_stack([actions.sum(1), cost])
    floats = (jnp.asarray(column, jnp.float32) for column in columns)
    return Batch(*floats, jnp.ones(n, bool), jnp.ones(n, bool)), actions, cost


def test_each_cost_settles_at_its_own_limit_and_an_infinite_limit_is_none():
    """Reward a₀ + a₁ pushes both actions to 1. A limit of 0.3 on the first holds it there; the second is free."""
    config = PPOConfig(hidden=(8, 8), minibatch=200, learning_rate=5e-3, log_std=-1.5, log_std_floor=-2.0)
    state = ppo.init(jax.random.PRNGKey(1), 1, 2, 2, config)
    history = []
    for batch in range(150):
        seeds = range(batch * 400, batch * 400 + 400)
        data, actions, cost = bandit_batch(ppo.actor_of(state), seeds)
        violation = jnp.asarray((cost.mean(0) - [0.3, np.inf]) / 0.25, jnp.float32)
        state, metrics = ppo.update(config, state, data, violation, jnp.float32(config.learning_rate))
        history.append([*actions.mean(0), *np.asarray(metrics.multiplier)])
    free, held = np.mean(history[-40:], axis=0)[[1, 0]]
    assert held == pytest.approx(0.3, abs=0.1)
    assert free > 0.8
    assert history[-1][2] > 0 == history[-1][3]


def test_an_expert_among_choices_takes_the_best_one_its_limit_allows():
    """Choices earn 0, 1, 2; the last also costs 1. With a limit of 0.25 it is taken a quarter of the time."""
    config = PPOConfig(hidden=(8, 8), minibatch=200, learning_rate=5e-3)
    state = ppo.init(jax.random.PRNGKey(1), 1, 3, 1, config, discrete_actions=True)
    taken = []
    for batch in range(100):
        actor = ppo.actor_of(state, (0, 1, 2))
        names = [actor.begin(seed)(np.zeros(1, np.float32)) for seed in range(batch * 400, batch * 400 + 400)]
        shares = np.bincount(names, minlength=3) / 400
        columns = np.zeros((400, 1)), np.zeros((400, 1)), np.eye(3)[names], np.array([[0, 0], [1, 0], [2, 1]])[names]
        floats = (jnp.asarray(column, jnp.float32) for column in columns)
        data = Batch(*floats, jnp.ones(400, bool), jnp.ones(400, bool))
        violation = jnp.asarray([(shares[2] - 0.25) / 0.25], jnp.float32)
        state, _ = ppo.update(config, state, data, violation, jnp.float32(config.learning_rate))
        taken.append(shares)
    rest, walk, run = np.mean(taken[-40:], axis=0)
    assert run == pytest.approx(0.25, abs=0.1)
    assert walk > 0.6 > rest


def test_a_choice_is_drawn_with_the_probability_of_its_score():
    actor = CategoricalActor(
        (np.zeros((1, 2), np.float32), np.zeros((2, 3), np.float32)), (np.zeros(2), np.log([1, 2, 5])), (4, 5, 6)
    )
    step = actor.begin(0)
    names = [step(np.zeros(1, np.float32)) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(names)[4:] / 4000, [0.125, 0.25, 0.625], atol=0.03)


def test_the_multiplier_never_exceeds_its_largest_value_and_comes_back_from_it():
    state = ppo.init(jax.random.PRNGKey(0), 2, 1, 1, SMALL)
    pid = state.multiplier
    for _ in range(200):
        pid = ppo._priced(pid, jnp.array([9.0]), SMALL)
    assert pid.lam[0] == SMALL.largest_multiplier
    steps = 0
    while pid.lam[0] > 0:
        pid, steps = ppo._priced(pid, jnp.array([-9.0]), SMALL), steps + 1
    assert steps <= SMALL.largest_multiplier / SMALL.ki / SMALL.largest_violation + 1


def test_epochs_stop_once_the_policy_has_moved_far_enough():
    state, batch = ppo.init(jax.random.PRNGKey(0), 2, 1, 2, SMALL), random_batch(3, rows=400)
    far = PPOConfig(hidden=(8, 8), minibatch=100, largest_kl=1e-9)
    _, stopped = ppo.update(far, state, batch, jnp.zeros(2), jnp.float32(1e-2))
    _, full = ppo.update(SMALL, state, batch, jnp.zeros(2), jnp.float32(0.0))
    assert stopped.epochs < SMALL.epochs == full.epochs
    assert full.kl == pytest.approx(0, abs=1e-6)
