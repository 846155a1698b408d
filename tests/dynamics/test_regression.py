"""The part of a step in closed form: quadratic worlds, what they leave, and what the step before tells."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.dynamics.mixture import Luck, MixtureModel, Step
from pdocrl.dynamics.normaliser import LEVELS, Normaliser
from pdocrl.dynamics.regression import explained, memory_of, regress

NOISE = 0.01


def quadratic(rows: int = 4000) -> tuple[Dataset, np.ndarray]:
    """s′ = s + .1 a − .05 s a + .2 m + noise, where m is the last action; r = s². One group sees a's sign turned."""
    rng = np.random.default_rng(0)
    obs, action, last = rng.normal(size=(rows, 1)), rng.uniform(-1, 1, (rows, 1)), rng.uniform(-1, 1, (rows, 1))
    turned = np.where(np.arange(rows)[:, None] < rows // 2, 1.0, -1.0)
    after = obs + 0.1 * turned * action - 0.05 * obs * action + 0.2 * last + NOISE * rng.normal(size=(rows, 1))
    data = make_dataset(obs, action, obs[:, 0] ** 2, 0 * obs, after, np.zeros(rows), np.ones(rows))
    return data, last.astype(np.float32)


def test_each_member_finds_the_world_of_the_groups_it_sees() -> None:
    data, last = quadratic()
    normaliser = Normaliser.in_any_unit(data)
    memory = np.concatenate([0 * last, last, np.ones_like(last)], 1)
    rows = data.obs, data.action, memory
    target = np.asarray(normaliser.targets(jnp.asarray(data.obs), jnp.asarray(data.next_obs), jnp.asarray(data.reward)))
    group = (np.arange(len(data)) >= len(data) // 2).astype(np.int64)
    found = regress(normaliser, rows, target, np.array([[True, False], [False, True]]), group)
    told = explained(found, normaliser, rows)
    unit = float(normaliser.change[0])
    for member in range(2):
        own, other = group == member, group != member
        assert np.abs(told[member, own] - target[own])[:, 0].mean() * unit < 1.2 * NOISE
        assert np.abs(told[member, other] - target[other])[:, 0].mean() * unit > 5 * NOISE
        np.testing.assert_allclose(told[member, own, 1], target[own, 1], atol=0.01)
    one = regress(normaliser, rows, target, np.array([[True, False]]), group)
    both = regress(
        normaliser,
        (data.obs[:2000], data.action[:2000], memory[:2000]),
        target[:2000],
        np.ones((1, 1), bool),
        0 * group,
    )
    np.testing.assert_allclose(one.theta, both.theta, atol=1e-3)
    assert float(both.left[0, 0]) * unit == pytest.approx(NOISE, rel=0.15)


def test_a_model_around_its_regression_draws_the_noise_that_is_left_or_a_share_of_it() -> None:
    """Networks of zeros: the mean is the regression's, and what is drawn is in units of what it leaves."""
    data, last = quadratic()
    normaliser = Normaliser.in_any_unit(data)
    memory = jnp.asarray(np.concatenate([0 * last, last, np.ones_like(last)], 1))
    obs, action = jnp.asarray(data.obs), jnp.asarray(data.action)
    target = normaliser.targets(obs, jnp.asarray(data.next_obs), jnp.asarray(data.reward))
    group = np.zeros(len(data), np.int64)
    base = regress(
        normaliser, (data.obs, data.action, np.asarray(memory)), np.asarray(target), np.ones((1, 1), bool), group
    )
    base = jax.tree.map(lambda x: x[0], base)
    model = MixtureModel.create(jax.random.key(0), 1, 1, 1, LEVELS, (4,), base=base)
    model = dataclasses.replace(
        model, **{n: jax.tree.map(jnp.zeros_like, getattr(model, n)) for n in ("mean", "residual")}
    )
    mean = model.predicted_mean(normaliser, obs, action, memory)
    np.testing.assert_allclose(mean, base(normaliser, obs, action, memory), atol=1e-5)
    luck = Luck.draw(jax.random.key(1), len(data), 1, 1)
    still = model.draw(normaliser, obs, action, mean, luck, noise=0.0).next_obs
    np.testing.assert_allclose(still, normaliser.after(obs, mean)[0], atol=1e-5)
    whole, half = (model.draw(normaliser, obs, action, mean, luck, noise=x).next_obs - still for x in (1.0, 0.5))
    np.testing.assert_allclose(whole, 2 * half, atol=1e-4)
    size = float(jnp.exp(-1.5) * base.left[0] * normaliser.change[0])  # σ at zero is in the middle of its range
    assert float(whole.std()) == pytest.approx(size, rel=0.1)
    step = Step(jnp.asarray(data.next_obs), jnp.asarray(data.reward), jnp.asarray(data.cost), jnp.zeros(len(data)))
    told = base(normaliser, obs, action, memory)
    frozen = jax.grad(lambda m: m.loss(normaliser, obs, action, step, memory=memory, explained=told))(model)
    assert all(float(jnp.abs(x).max()) == 0 for x in jax.tree.leaves(frozen.base))  # it is not learned along
    assert float(jnp.abs(frozen.mean.biases[-1]).max()) > 0


def test_what_is_remembered_is_the_change_and_the_action() -> None:
    data, _ = quadratic(50)
    normaliser = Normaliser.in_any_unit(data)
    found = memory_of(normaliser, jnp.asarray(data.obs), jnp.asarray(data.action), jnp.asarray(data.next_obs))
    change = np.clip((data.next_obs - data.obs) / np.asarray(normaliser.change), -6, 6)
    np.testing.assert_allclose(found, np.concatenate([change, data.action, np.ones((50, 1))], 1), atol=1e-5)
