"""Fitted Q evaluation of a conditional policy: what its actions lead to, not what lucky episodes had."""

from __future__ import annotations

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.agents.common.conditional_fqe import (
    SHARES,
    Backup,
    ConditionalCritic,
    Conditioned,
    fqe_loss,
    tail_loss,
)
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import MLP, polyak
from pdocrl.nn.optim import adam_step

HORIZON, STEPS, BATCH = 10, 3000, 256
LARGEST = jnp.asarray([20.0])
NEVER = 1e6


def actor() -> ClippedGaussian:
    """Risks (a near 1) in proportion to what is left of its target: a = tanh(6 √(left / largest) − 3)."""
    weight = jnp.zeros((1 + 2 + 8, 2)).at[3, 0].set(3.0)  # of 2 √(left / largest), the first feature
    return ClippedGaussian(MLP((jnp.eye(11), weight), (jnp.zeros(11), jnp.asarray([-3.0, 0.0]))))


def chance(action: Array, smooth: bool) -> Array:
    """Of a cost of 5 in a step."""
    return 0.05 * (1 + action) if smooth else 0.1 * (action > 0)


@lru_cache
def learned(tails: bool = False) -> ConditionalCritic:
    """From logged actions at random: a > 0 returns 1 a step, and costs 5 one time in ten.

    Where the distribution of costs is learned, the chance of a cost rises with a, and is one in ten at a = 1.
    """
    rng, rows = np.random.default_rng(0), 200_000 if tails else 20_000
    time = rng.integers(0, HORIZON, rows)
    action = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    paid = np.stack([action[:, 0] > 0, rng.random(rows) < chance(action[:, 0], tails)], -1) * [1.0, 5.0 / 20]
    obs = rng.normal(size=(rows, 1)).astype(np.float32)
    left = (1 - time / HORIZON).astype(np.float32)[:, None]
    target = (20 * rng.random((rows, 1)) ** 2).astype(np.float32)
    spent = (5.0 * rng.integers(0, 3, (rows, 1))).astype(np.float32)
    one = jnp.ones((rows, 1))
    at = Conditioned(jnp.asarray(obs), one, *(jnp.asarray(x) for x in (target, 0 * target + NEVER, spent, left)))
    data = at, jnp.asarray(action), jnp.asarray(paid, jnp.float32), jnp.asarray(obs), jnp.ones(rows)
    critic = ConditionalCritic.create(jax.random.key(0), 1, 1, 1, (64, 64), tails)
    loss = tail_loss if tails else fqe_loss

    @jax.jit
    def fit(critic: ConditionalCritic) -> ConditionalCritic:
        def one_step(i: Array, carry):  # type: ignore[no-untyped-def]
            critic, target, average, opt = carry
            rows_now = jax.random.randint(jax.random.fold_in(jax.random.key(1), i), (BATCH,), 0, rows)
            some = jax.tree.map(lambda x: x[rows_now], data)
            backup = Backup.of(*some, LARGEST, jnp.asarray(1 / HORIZON))
            gradient = jax.grad(lambda c: loss(c, target, actor(), backup, LARGEST))(critic)
            critic, opt = adam_step(gradient, opt, critic, 1e-3)
            return critic, polyak(target, critic, 0.02), polyak(average, critic, 10 / (10 + i)), opt

        begin = critic, critic, critic, optax.scale_by_adam().init(critic)
        return jax.lax.fori_loop(0, STEPS, one_step, begin)[2]

    return fit(critic)


def played(target: float, tails: bool = False, episodes: int = 4000) -> tuple[float, NDArray[np.float64]]:
    """What the policy returns in truth, and the costs of its episodes."""
    rng, spent, earned = np.random.default_rng(1), np.zeros((episodes, 1)), np.zeros(episodes)
    act = eqx.filter_jit(lambda at: actor().mode(at.inputs(LARGEST)))
    for time in range(HORIZON):
        full = jnp.full((episodes, 1), target)
        obs, left = jnp.asarray(rng.normal(size=(episodes, 1))), jnp.full((episodes, 1), 1 - time / HORIZON)
        at = Conditioned(obs, 0 * full + 1, full, 0 * full + NEVER, jnp.asarray(spent), left)
        action = np.asarray(act(at))[:, 0]
        earned += action > 0
        spent[:, 0] += 5.0 * (rng.random(episodes) < chance(action, tails))
    return float(earned.mean()), spent[:, 0]


@pytest.mark.parametrize("target", [2.0, 6.0, 12.0, 20.0])
def test_values_are_what_the_policy_comes_to_whatever_it_asks_for(target: float) -> None:
    earned, costs = played(target)
    found = np.asarray(learned().values(actor(), first_states(target), LARGEST)).mean((0, 1))
    assert found[0] == pytest.approx(earned, abs=1.0)
    assert 20 * found[1] == pytest.approx(costs.mean(), abs=1.0)
    if target == 20.0:
        assert costs.mean() < 0.5 * target  # what is asked for is not what is paid


@pytest.mark.parametrize("target", [12.0, 20.0])
def test_the_distribution_of_costs_is_that_of_the_policy(target: float) -> None:
    """P(C > b_j) at all twelve thresholds; an episode costs 0, 5, 10, … by chance."""
    logits = learned(tails=True).values(actor(), first_states(target), LARGEST)
    found = np.asarray(jax.nn.sigmoid(logits)).mean((0, 1))
    truth = (played(target, tails=True)[1][:, None] > 20 * np.asarray(SHARES)).mean(0)
    np.testing.assert_allclose(found, truth, atol=0.06)


def first_states(target: float) -> Conditioned:
    obs = jnp.asarray(np.random.default_rng(2).normal(size=(200, 1)), jnp.float32)
    full = jnp.full((200, 1), target)
    return Conditioned(obs, 0 * full + 1, full, 0 * full + NEVER, 0 * full, 0 * full + 1)


def test_a_critic_of_tails_that_has_learned_nothing_objects() -> None:
    """Else a training too short for backups to reach the first state would call every limit on a tail satisfied."""
    critic = ConditionalCritic.create(jax.random.key(0), 3, 1, 1, (32, 32), tails=True)
    logits = critic.mlp(jax.random.normal(jax.random.key(1), (200, len(critic.mlp.weights[0][0]))))
    assert float(jax.nn.sigmoid(logits).min()) > 0.1
