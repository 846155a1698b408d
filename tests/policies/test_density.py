"""Policies that sample and tell log-probabilities: as the networks they come from, in the environment's units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.common.numpy_policy import mode_policy, network_policy
from pdocrl.errors import PdocrlError
from pdocrl.nn.distributions import Categorical, ClippedGaussian, TanhGaussian
from pdocrl.nn.mlp import MLP
from pdocrl.policies.mlp import MLPPolicy, log_normal_cdf
from pdocrl.policies.policy import Normaliser, PolicyInputError, load_all, save, with_normaliser
from pdocrl.policy_folder import load_policy

KEY = jax.random.key(3)
OBS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
NORMALISER = Normaliser(
    np.zeros(3, np.float32), np.ones(3, np.float32), np.array([-4, 0], np.float32), np.array([4, 1], np.float32)
)


def in_units(network: Any, columns: tuple[str, ...] = ()) -> Any:
    return with_normaliser(network, NORMALISER, columns)


@pytest.mark.parametrize("kind", [TanhGaussian, ClippedGaussian])
def test_log_probabilities_are_those_of_the_trained_density(kind: Any) -> None:
    actor = kind.create(KEY, 3, 2, (16,))
    policy = in_units(mode_policy(actor))
    drawn = policy.sample(OBS, 0)
    unit = NORMALISER.normalise_action(drawn)
    if kind is ClippedGaussian:
        expected = np.asarray(actor.log_prob(OBS, unit))
        inside = np.abs(unit) < 1 - 1e-6
    else:
        mean, log_std = actor.parameters(OBS)
        raw = np.arctanh(np.clip(unit, -1 + 1e-6, 1 - 1e-6).astype(np.float64))
        z = (raw - np.asarray(mean)) * np.exp(-np.asarray(log_std))
        expected = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.asarray(log_std) - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
        inside = np.ones_like(unit, bool)
    jacobian = np.where(inside, np.log([4.0, 0.5]), 0).sum(-1)  # half the range of each action
    np.testing.assert_allclose(policy.log_prob(OBS, drawn), expected - jacobian, rtol=2e-3, atol=2e-3)
    mean_unit = NORMALISER.normalise_action(np.stack([policy.sample(OBS, seed) for seed in range(400)])).mean(0)
    noise = np.asarray(jax.random.normal(KEY, (400, *OBS.shape[:1], 2)))
    reference = np.asarray(jnp.stack([actor.act(OBS, n) for n in noise])).mean(0)
    assert np.abs(mean_unit - reference).mean() < 0.06  # both are means of 400 draws


@pytest.mark.parametrize("mean", [0.0, -2.0, 7.0, 30.0])
@pytest.mark.parametrize("kind", ["tanh_gaussian", "clipped_gaussian"])
def test_densities_and_masses_sum_to_one_also_where_tanh_is_rounded_to_one(kind: str, mean: float) -> None:
    """∫ p(a) da over ]−1, 1[ in x = artanh a, where it is smooth, and the masses at ±1; samples are likely."""
    flat = np.zeros((1, 1), np.float32)
    network = MLPPolicy((flat,), (np.float32([mean]),), density=kind, scale=(flat, np.float32([-1.0])))
    far = np.arctanh(1 - 1e-6)
    raw = np.linspace(-far, far, 40_001)[1:-1]
    obs, ends = np.zeros((len(raw), 1)), np.array([[-1.0], [1.0]])
    density = np.exp(network.log_prob(obs, np.tanh(raw)[:, None])[:, 0]) * (1 - np.tanh(raw) ** 2)
    mass = np.exp(network.log_prob(obs[:2], ends)).sum()
    assert network.has_mass(ends).all()
    assert density.sum() * (raw[1] - raw[0]) + mass == pytest.approx(1, abs=1e-3)
    drawn = network.sample(obs[:200], np.random.default_rng(0))
    assert network.log_prob(obs[:200], drawn).mean() > -3


def test_discrete_actions_are_drawn_as_often_as_their_probabilities_say() -> None:
    actor = Categorical.create(KEY, 3, 3, (16,))
    normaliser = Normaliser(*(np.zeros(3, np.float32), np.ones(3, np.float32), *2 * [np.zeros(3, np.float32)]))
    normaliser = Normaliser(
        normaliser.obs_mean, normaliser.obs_scale, normaliser.action_low, normaliser.action_high, np.array([5, 6, 7])
    )
    policy = with_normaliser(mode_policy(actor), normaliser)
    row = np.repeat(OBS[:1], 20_000, 0)
    drawn = policy.sample(row, 1)
    for label in (5, 6, 7):
        assert (drawn == label).mean() == pytest.approx(np.exp(policy.log_prob(OBS[0], label)), abs=0.015)
    with pytest.raises(PolicyInputError, match="none of 5 … 7"):
        policy.log_prob(OBS[:1], [4])


def test_far_tails_of_the_normal_are_finite() -> None:
    x = np.array([-40.0, -25.0, -20.0001, -19.9999, -3.0, 0.0])
    expected = np.asarray(jax.scipy.special.log_ndtr(x.astype(np.float64)))
    np.testing.assert_allclose(log_normal_cdf(x), expected, rtol=1e-5)


def test_rows_by_name_are_read_in_the_order_of_the_data(tmp_path: Path) -> None:
    policy = in_units(mode_policy(ClippedGaussian.create(KEY, 3, 2, (16,))), ("speed", "height", "tilt"))
    row = {"tilt": float(OBS[0, 2]), "speed": float(OBS[0, 0]), "height": float(OBS[0, 1]), "note": "ignored"}
    np.testing.assert_allclose(policy.act(row), policy(OBS[:1])[0], rtol=1e-6)
    np.testing.assert_allclose(policy.act([row, row])[1], policy(OBS[:1])[0], rtol=1e-6)
    with pytest.raises(PolicyInputError, match="column `tilt` is missing"):
        policy.act({"speed": 1, "height": 2})
    with pytest.raises(PolicyInputError, match=r"`height`. is not finite"):
        policy.act({**row, "height": np.nan})
    with pytest.raises(PolicyInputError, match="column `height` is 'high', not a number"):
        policy.act({**row, "height": "high"})
    with pytest.raises(PolicyInputError, match="serves one cost limit"):
        policy.act(row, limit=20)
    with pytest.raises(PolicyInputError, match="expected 3 numbers"):
        policy.act(OBS[:, :2])
    save(tmp_path / "policy.npz", [policy])
    restored = load_policy(tmp_path / "policy.npz")
    assert restored.columns == ("speed", "height", "tilt")
    np.testing.assert_array_equal(restored.sample(OBS, 3), policy.sample(OBS, 3))
    with pytest.raises(PdocrlError, match="serves one cost limit"):
        load_policy(tmp_path / "policy.npz", cost_limit=3)
    assert load_all(tmp_path / "policy.npz")[1] == {}


def test_a_deterministic_policy_draws_its_action_and_has_no_density() -> None:
    policy = in_units(network_policy(MLP.create(KEY, (3, 16, 2))))
    np.testing.assert_array_equal(policy.sample(OBS, 0), policy(OBS))
    with pytest.raises(PolicyInputError, match="no density"):
        policy.log_prob(OBS, policy(OBS))
