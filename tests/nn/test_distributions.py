"""The density that logged actions are copied with: whole, bounded, and with its mode where the data is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from pdocrl.nn.distributions import LOG_SCALE_RANGE, ClippedGaussian
from pdocrl.nn.mlp import MLP


def constant(mean: float, raw: float) -> ClippedGaussian:
    """The same density in every state: tanh of `mean`, and `raw` before the scale's squash."""
    return ClippedGaussian(MLP((jnp.zeros((1, 2)),), (jnp.asarray([mean, raw], jnp.float32),)))


def log_prob(pi: ClippedGaussian, action: np.ndarray | float) -> np.ndarray:
    column = jnp.asarray(action, jnp.float32).reshape(-1, 1)
    return np.asarray(pi.log_prob(jnp.zeros_like(column), column))


@settings(max_examples=30, deadline=None)
@given(mean=st.floats(-3, 3), raw=st.floats(-6, 6))
def test_the_density_inside_and_the_masses_at_the_bounds_add_up_to_one(mean: float, raw: float) -> None:
    pi = constant(mean, raw)
    location, log_std = (float(x[0]) for x in pi.parameters(jnp.zeros(1)))
    assert LOG_SCALE_RANGE[0] <= log_std <= LOG_SCALE_RANGE[1]
    inside, _ = quad(norm(location, np.exp(log_std)).pdf, -1, 1, points=[location], epsabs=1e-9)
    np.testing.assert_allclose(np.exp(log_prob(pi, [-1.0, 1.0])).sum() + inside, 1, atol=1e-5)
    grid = np.linspace(-0.99, 0.99, 7)
    np.testing.assert_allclose(log_prob(pi, grid), norm(location, np.exp(log_std)).logpdf(grid), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("middle", [0.5, -0.8])
def test_the_likeliest_mode_of_clipped_actions_is_where_they_were_before_the_clip(middle: float) -> None:
    """clip(N(m, ½)): a Gaussian before tanh, with ±1 moved in by 1e-6, has its mode at .91 in place of ½."""
    action = np.clip(np.random.default_rng(0).normal(middle, 0.5, 20_000), -1, 1)
    pi, adam = constant(0.0, 0.0), optax.adam(0.03)
    loss = lambda pi: -pi.log_prob(jnp.zeros((len(action), 1)), jnp.asarray(action[:, None], jnp.float32)).mean()  # noqa: E731

    def step(
        carry: tuple[ClippedGaussian, optax.OptState], _: None
    ) -> tuple[tuple[ClippedGaussian, optax.OptState], None]:
        pi, opt = carry
        move, opt = adam.update(jax.grad(loss)(pi), opt)
        return (optax.apply_updates(pi, move), opt), None

    pi, _ = jax.jit(lambda pi: jax.lax.scan(step, (pi, adam.init(pi)), length=500)[0])(pi)
    assert float(pi.mode(jnp.zeros(1))[0]) == pytest.approx(middle, abs=0.02)
    assert float(jnp.exp(pi.parameters(jnp.zeros(1))[1][0])) == pytest.approx(0.5, abs=0.02)


def test_what_acts_is_the_mode_and_noise_moves_it_no_further_than_the_bounds() -> None:
    pi = constant(0.7, 0.0)
    location, log_std = (float(x[0]) for x in pi.parameters(jnp.zeros(1)))
    noise = jnp.asarray([[0.0], [0.5], [50.0], [-50.0]])
    drawn = np.asarray(pi.act(jnp.zeros((4, 1)), noise))[:, 0]
    np.testing.assert_allclose(drawn, [np.tanh(0.7), location + 0.5 * np.exp(log_std), 1, -1], rtol=1e-6)


def test_likelihood_and_gradient_are_finite_for_every_action_and_scale() -> None:
    grid = np.array([-1, -1 + 1e-7, -0.9999, 0, 0.9999, 1])
    for mean, raw in ((30.0, -50.0), (-30.0, -50.0), (0.0, 50.0)):
        pi = constant(mean, raw)
        assert np.isfinite(log_prob(pi, grid)).all()
        assert log_prob(pi, grid).max() <= -LOG_SCALE_RANGE[0]  # no action is likelier than the narrowest scale allows
        gradient = jax.grad(lambda pi: pi.log_prob(jnp.zeros((6, 1)), jnp.asarray(grid[:, None], jnp.float32)).sum())(
            pi
        )
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
