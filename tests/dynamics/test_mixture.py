"""The dynamics model draws what is rare as often as it was logged, in as many modes as it has."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.dynamics.mixture import Luck, MixtureModel, Step
from pdocrl.dynamics.normaliser import LEVELS, Normaliser, cost_levels
from pdocrl.nn.mlp import polyak
from pdocrl.nn.optim import adam_step

STEPS, BATCH = 3000, 128
SAFE, RARE, RISKY, GUSTS = range(4)  # what the actions bring about


def world(rows: int = 20_000, seed: int = 0) -> Dataset:
    """Action 2 crashes one time in ten, 1 one time in a hundred; 3 is thrown to one side or the other, never between.

    A crash costs 5, sets the state to 3 and ends one episode in two. Seen are the state and noise.
    """
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 4, rows)
    crash = rng.random(rows) < np.choose(action, [0.0, 0.01, 0.1, 0.0])
    obs = np.stack([rng.normal(0, 1, rows), rng.normal(0, 1, rows)], -1)
    side = np.where(rng.random(rows) < 0.3, 2.0, -1.0)
    state = np.where(crash, 3.0, 0.8 * obs[:, 0] + (action == GUSTS) * side)
    after = np.stack([state, rng.normal(0, 1, rows)], -1)
    end = crash & (rng.random(rows) < 0.5)
    reward = 1.0 - 0.5 * crash
    return make_dataset(obs, action, reward, 5.0 * crash[:, None], after, end, ~end, discrete_actions=4)


@lru_cache
def learned() -> tuple[MixtureModel, Normaliser]:
    data = world()
    normaliser = Normaliser.of(Normaliser.measure(data))
    model = MixtureModel.create(jax.random.key(0), 2, 4, 1, LEVELS, (64, 64))
    step = Step(*(jnp.asarray(x) for x in (data.next_obs, data.reward, data.cost)), jnp.asarray(data.terminal, float))
    rows = jnp.asarray(data.obs), jnp.asarray(data.action), step

    @jax.jit
    def fit(model: MixtureModel) -> MixtureModel:
        def one(i: Array, carry: tuple[MixtureModel, MixtureModel, optax.OptState]):  # type: ignore[no-untyped-def]
            model, average, opt = carry
            at = jax.random.randint(jax.random.fold_in(jax.random.key(1), i), (BATCH,), 0, len(data))
            some = jax.tree.map(lambda x: x[at], rows)
            gradient = jax.grad(lambda m: m.loss(normaliser, *some))(model)
            model, opt = adam_step(gradient, opt, model, 1e-3)
            return model, polyak(average, model, 10 / (10 + i)), opt

        return jax.lax.fori_loop(0, STEPS, one, (model, model, optax.scale_by_adam().init(model)))[1]

    return fit(model), normaliser


@lru_cache
def drawn(action: int, rows: int = 20_000) -> tuple[np.ndarray, Step]:
    model, normaliser = learned()
    keys = jax.random.split(jax.random.key(2))
    obs = jax.random.normal(keys[0], (rows, 2))
    actions = jnp.tile(jax.nn.one_hot(action, 4), (rows, 1))
    mean = model.predicted_mean(normaliser, obs, actions)
    step = model.draw(normaliser, obs, actions, mean, Luck.draw(keys[1], rows, 2, 1))
    return np.asarray(obs), jax.tree.map(np.asarray, step)


@pytest.mark.parametrize(("action", "rate"), [(SAFE, 0.0), (RARE, 0.01), (RISKY, 0.1)])
def test_a_crash_happens_as_often_as_in_the_data(action: int, rate: float) -> None:
    data = world()
    logged = (data.cost[data.action[:, action] > 0] > 0).mean()  # of some 5,000 rows
    _, step = drawn(action)
    crashed = step.cost[:, 0] > 0
    assert crashed.mean() == pytest.approx(logged, abs=0.003 + 0.15 * rate)
    assert set(np.unique(step.cost)) <= {0.0, 5.0}
    assert step.end[~crashed].mean() < 0.003
    if rate == 0.1:  # the jump, the end and the reward come with the cost, not beside it
        assert step.end.mean() == pytest.approx(rate / 2, abs=0.012)
        assert abs(step.next_obs[crashed, 0] - 3.0).mean() < 0.3
        assert (step.next_obs[~crashed, 0] > 2.6).mean() < 0.003
        np.testing.assert_allclose(step.reward[crashed].mean(), 0.5, atol=0.1)
        np.testing.assert_allclose(step.reward[~crashed].mean(), 1.0, atol=0.02)


def test_two_modes_are_drawn_and_nothing_between() -> None:
    obs, step = drawn(GUSTS)
    thrown = step.next_obs[:, 0] - 0.8 * obs[:, 0]
    inside = abs(obs[:, 0]) < 2  # elsewhere the box of the data cuts
    right = abs(thrown - 2.0) < 0.7
    left = abs(thrown + 1.0) < 0.7
    assert right[inside].mean() == pytest.approx(0.3, abs=0.04)
    assert (left | right)[inside].mean() > 0.97


def test_levels_are_the_amounts_that_were_logged_and_unbiased_where_they_are_many() -> None:
    few = cost_levels(np.asarray([0, 0, 0.1, 1000, 0.1], np.float32))
    np.testing.assert_allclose(np.unique(few), [0, 0.1, 1000], rtol=1e-6)
    assert len(few) == LEVELS
    many = np.random.default_rng(0).gamma(1.0, 3.0, 5000).astype(np.float32)
    many[::2] = 0
    levels = cost_levels(many)
    normaliser = Normaliser.of(Normaliser.measure(world(100)))
    counted = dataclasses.replace(normaliser, levels=jnp.asarray(levels)[None])
    level = np.asarray(counted.level_of(jnp.asarray(many)[:, None]))[:, 0]
    assert levels[level].mean() == pytest.approx(many.mean(), rel=0.01)
    np.testing.assert_array_equal(level == 0, many == 0)
    assert abs(levels[level] - many).mean() < 0.1 * many.mean()
