"""The behaviour policy as a generative network: what actions the data shows in a state."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from pdocrl.nn.mlp import MLP

LATENT_LOG_STD_RANGE = (-4.0, 15.0)  # of the encoder


class VAE(eqx.Module):
    """The behaviour policy as a conditional VAE: encoder q(z|s,a), decoder a = tanh(network(s, z)), prior N(0, I).

    Actions and codes may be many for each state: s [B, S] with a [n, B, A] or z [n, B, Z].
    """

    encoder: MLP
    decoder: MLP

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, action_dim: int, hidden: Sequence[int], latent: int) -> VAE:
        encoder_key, decoder_key = jax.random.split(key)
        return VAE(
            MLP.create(encoder_key, (obs_dim + action_dim, *hidden, 2 * latent)),
            MLP.create(decoder_key, (obs_dim + latent, *hidden, action_dim)),
        )

    def encode(self, obs: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation of z, [..., Z] each."""
        mean, log_std = jnp.split(self.encoder.joined(obs, action), 2, axis=-1)
        return mean, jnp.clip(log_std, *LATENT_LOG_STD_RANGE)

    def decode_raw(self, obs: Array, latent: Array) -> Array:
        """The action before the squash, [..., A]."""
        return self.decoder.joined(obs, latent)

    def decode(self, obs: Array, latent: Array) -> Array:
        return jnp.tanh(self.decode_raw(obs, latent))

    def divergence(self, obs: Array, action: Array) -> Array:
        """KL(q(z|s,a) ‖ N(0, I)), mean over the latent's coordinates, [...]: large where (s, a) is unlike the data."""
        return from_prior(*self.encode(obs, action))

    def loss(self, obs: Array, action: Array, noise: Array, weight: float | Array) -> Array:
        """mean ‖a − decode(s, z)‖² + weight · mean KL, the negative evidence bound, z = μ + σ · noise [B, Z]."""
        mean, log_std = self.encode(obs, action)  # once: asked twice, its gradient would be computed twice
        rebuilt = self.decode(obs, mean + jnp.exp(log_std) * noise)
        return jnp.mean((rebuilt - action) ** 2) + weight * from_prior(mean, log_std).mean()


def from_prior(mean: Array, log_std: Array) -> Array:
    """KL(N(μ, σ²) ‖ N(0, I)), mean over the coordinates, [...]."""
    return -0.5 * (1 + 2 * log_std - mean**2 - jnp.exp(2 * log_std)).mean(-1)
