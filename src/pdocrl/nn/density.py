"""The class Π: policies as densities over actions in [−1, 1]^A."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from pdocrl.nn.mlp import MLP

LOG_STD_RANGE = (-5.0, 2.0)  # keeps exp() and its gradient finite; the same for every agent
ACTION_MARGIN = 1e-6  # logged actions of exactly ±1 have no finite pre-image under tanh


class TanhGaussian(eqx.Module):
    """π(·|s): a Gaussian squashed by tanh into (−1, 1)^A."""

    mlp: MLP

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> TanhGaussian:
        return TanhGaussian(MLP.create(key, (obs_dim, *hidden, 2 * action_dim)))

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation before the squash, [..., A] each."""
        mean, log_std = jnp.split(self.mlp(obs), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def mode(self, obs: Array) -> Array:
        """The action taken when evaluated: tanh of the mean."""
        return jnp.tanh(self.parameters(obs)[0])

    def act(self, obs: Array, noise: Array) -> Array:
        """The action [..., A] that given standard normal noise [..., A] leads to."""
        mean, log_std = self.parameters(obs)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def sample(self, obs: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        """A reparameterised action [..., A] and its log-density [...]."""
        mean, log_std = self.parameters(obs)
        noise = jax.random.normal(key, mean.shape)
        raw = mean + jnp.exp(log_std) * noise
        return jnp.tanh(raw), _squashed_log_density(raw, noise, log_std)

    def log_prob(self, obs: Array, action: Array) -> Array:
        """log π(a|s) of logged actions, [...]."""
        mean, log_std = self.parameters(obs)
        raw = jnp.arctanh(jnp.clip(action, -1 + ACTION_MARGIN, 1 - ACTION_MARGIN))
        return _squashed_log_density(raw, (raw - mean) * jnp.exp(-log_std), log_std)


def _squashed_log_density(raw: Array, standardised: Array, log_std: Array) -> Array:
    """Σ_A log N(z) − log σ − log(1 − tanh² raw), the last term written so that it cannot lose its digits."""
    normal = -0.5 * (standardised**2 + jnp.log(2 * jnp.pi)) - log_std
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return (normal - squash).sum(-1)
