"""Rollouts: what they sum, which member and which luck they have, and how far a mean may be from them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.dynamics.mixture import COMPONENTS, MixtureModel
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.rollouts import error_of_mean, member_starts, rollouts, rollouts_of_policy

LEVEL_AMOUNTS = (0.0, 1.0, 4.0)


def normaliser() -> Normaliser:
    one = jnp.ones(1)
    return Normaliser(0 * one, one, -50 * one, 50 * one, one, jnp.ones(()), 4 * one, jnp.asarray([LEVEL_AMOUNTS]))


def member(shift: float, chances: tuple[float, float, float], end: float = 0.0) -> MixtureModel:
    """s′ = s + shift, reward = shift; a cost of the levels with these chances, an end with that one; whatever a is."""
    model = MixtureModel.create(jax.random.key(0), 1, 1, 1, 3, (4,))
    model = jax.tree.map(jnp.zeros_like, model)
    events = jnp.concatenate([jnp.log(jnp.asarray(chances) + 1e-9), jnp.asarray([np.log(end + 1e-9), 0.0, 0.0])])
    events = events.at[3].add(-np.log1p(-end))
    flat = jnp.concatenate([jnp.zeros(1), jnp.zeros(2), jnp.full(2, -50.0)])  # one component like all, without noise
    return eqx.tree_at(
        lambda m: (m.mean.biases, m.events.biases, m.residual.biases),
        model,
        (
            (model.mean.biases[0], jnp.full(2, shift)),
            (model.events.biases[0], events),
            (model.residual.biases[0], jnp.tile(flat, COMPONENTS)),
        ),
    )


def ensemble(*members: MixtureModel) -> MixtureModel:
    stacked: MixtureModel = jax.tree.map(lambda *x: jnp.stack(x), *members)
    return stacked


def still(obs: Any, spent: Any, time: Any) -> Any:
    return jnp.zeros_like(obs)


def test_a_rollout_keeps_its_member_and_shares_the_mean() -> None:
    """One member says every step costs 1, the other none does: an episode has all of it or nothing (TS∞)."""
    models = ensemble(member(0.1, (0.0, 1.0, 0.0)), member(0.3, (1.0, 0.0, 0.0)))
    starts = jnp.zeros((2, 6, 1))
    drawn = rollouts(models, normaliser(), still, starts, jnp.asarray(10.0), jax.random.key(0))
    np.testing.assert_allclose(drawn.cost[:, :, 0], [[10.0] * 6, [0.0] * 6])
    np.testing.assert_allclose(drawn.reward, 10 * 0.2, atol=0.3)  # of the members' mean
    alone = rollouts(models, normaliser(), still, starts, jnp.asarray(10.0), jax.random.key(0), alone=True)
    np.testing.assert_allclose(np.asarray(alone.reward).mean(1), [1.0, 3.0], atol=0.2)


def test_chances_of_costs_and_ends_are_those_of_the_model() -> None:
    """A step costs 1 with .2 and 4 with .05 and ends with .1: (1 − .9^20) / .1 steps of .4."""
    models = ensemble(member(0.0, (0.75, 0.2, 0.05), 0.1))
    starts = jnp.zeros((1, 4000, 1))
    drawn = rollouts(models, normaliser(), still, starts, jnp.asarray(20.0), jax.random.key(1))
    steps = (1 - 0.9**20) / 0.1
    assert float(drawn.cost.mean()) == pytest.approx(0.4 * steps, rel=0.05)


def test_blocks_of_rows_meet_the_same_luck() -> None:
    models = ensemble(member(0.0, (0.5, 0.5, 0.0)), member(0.0, (0.5, 0.5, 0.0)))
    starts = jnp.tile(jnp.zeros((2, 8, 1)), (1, 3, 1))
    drawn = rollouts(models, normaliser(), still, starts, jnp.asarray(9.0), jax.random.key(0), repeat=3)
    blocks = np.asarray(drawn.cost[..., 0]).reshape(2, 3, 8)
    np.testing.assert_array_equal(blocks[:, 0], blocks[:, 1])
    np.testing.assert_array_equal(blocks[:, 0], blocks[:, 2])
    assert len(np.unique(blocks[:, 0])) > 3


def test_a_policy_in_numpy_is_rolled_out_alike() -> None:
    models = ensemble(member(0.5, (0.0, 1.0, 0.0)))
    drawn = rollouts_of_policy(models, normaliser(), lambda obs: 0 * obs, jnp.zeros((3, 1)), 8, 12)
    assert drawn.cost.shape == (1, 12, 1)
    np.testing.assert_allclose(drawn.cost, 8.0)
    np.testing.assert_allclose(np.asarray(drawn.reward).mean(), 4.0, atol=0.1)


def test_every_first_state_is_rolled_out_and_few_are_repeated() -> None:
    starts = jnp.arange(7.0)[:, None]
    few = np.asarray(member_starts(starts, 5, 20))
    assert few.shape == (5, 4, 1)
    assert set(few.ravel().tolist()) == set(range(7))
    many = np.asarray(member_starts(jnp.arange(23.0)[:, None], 5, 20))
    assert set(many.ravel().tolist()) == set(range(23))


def test_the_mean_of_twenty_episodes_is_below_its_bound_as_often_as_said() -> None:
    """Both parts of the error count: 48 rollouts were drawn, and the twenty episodes are a draw of their own."""
    rng = np.random.default_rng(0)
    drawn = rng.gamma(4.0, 1.0, (20_000, 48, 1)).astype(np.float32)
    played = rng.gamma(4.0, 1.0, (20_000, 20)).mean(1)

    def bound(episodes: float) -> np.ndarray:
        return (drawn.mean(1) + error_of_mean(drawn, 0.95, episodes, 48))[:, 0]

    assert (played <= bound(20.0)).mean() == pytest.approx(0.95, abs=0.015)
    assert (played <= bound(np.inf)).mean() < 0.85  # what holds for the expectation, not for few episodes
    assert (bound(np.inf) >= 4.0).mean() == pytest.approx(0.95, abs=0.02)


def test_rollouts_from_the_same_first_state_do_not_count_as_others() -> None:
    """Of six first states, eight rollouts each, the cost is the state's alone: there are six numbers, not 48."""
    rng = np.random.default_rng(0)
    of_start = rng.normal(10, 2, (20_000, 6, 1)).astype(np.float32)
    drawn = np.repeat(of_start, 8, axis=1)
    bound = (drawn.mean(1) + error_of_mean(drawn, 0.95, np.inf, 6))[:, 0]
    assert (bound >= 10).mean() == pytest.approx(0.95, abs=0.04)
