"""The class Π: policies as densities over actions in [−1, 1]^A, or as probabilities of n discrete actions.

Continuous actions: `TanhGaussian` is sampled from to climb a critic, `ClippedGaussian` is fitted to logged actions by
likelihood; of both the mode acts, tanh of the network's first half. Discrete actions: `Categorical`.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from pdocrl.nn.mlp import MLP

LOG_STD_RANGE = (-5.0, 2.0)  # keeps exp() and its gradient finite; the same for every agent
LOG_SCALE_RANGE = (-3.0, 0.5)  # of a clipped Gaussian: the narrowest is a fortieth of the actions' range
AT_BOUND = 1 - 1e-6  # a logged action this far out was clipped


class TanhGaussian(eqx.Module):
    """π(·|s): a Gaussian squashed by tanh into (−1, 1)^A, for policies that climb a critic.

    It has no density for logged actions: ±1 has no pre-image under tanh, and moved inside by a margin m it would be
    taken for one at ±½ log(2/m), far out, where it drags the mode after it. `ClippedGaussian` is for those.
    """

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
        return jnp.tanh(raw), squashed_log_density(raw, noise, log_std)


class ClippedGaussian(eqx.Module):
    """π(·|s): clip(N(μ, σ²), −1, 1) with μ = tanh(network), the density to clone logged actions with.

    Controllers are logged after a clip, so 9 to 44 % of the benchmark's actions are exactly ±1. Those have no pre-image
    under tanh; here they have the probability that the Gaussian lies beyond (a Tobit model), and all others a density.
    The likelihood is then bounded by σ's range, and its maximum has μ where the actions were before the clip.
    """

    mlp: MLP

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> ClippedGaussian:
        return ClippedGaussian(MLP.create(key, (obs_dim, *hidden, 2 * action_dim)))

    def parameters(self, obs: Array) -> tuple[Array, Array]:
        """μ in (−1, 1) and log σ within its range, [..., A] each; neither's gradient is ever cut off."""
        mean, raw = jnp.split(self.mlp(obs), 2, axis=-1)
        low, high = LOG_SCALE_RANGE
        return jnp.tanh(mean), low + (high - low) * jax.nn.sigmoid(raw)

    def mode(self, obs: Array) -> Array:
        """The action taken when evaluated: μ."""
        return self.parameters(obs)[0]

    def act(self, obs: Array, noise: Array) -> Array:
        """The action [..., A] that given standard normal noise [..., A] leads to."""
        mean, log_std = self.parameters(obs)
        return jnp.clip(mean + jnp.exp(log_std) * noise, -1, 1)

    def unclipped_log_prob(self, obs: Array, action: Array) -> Array:
        """Σ_A log N(a; μ, σ²) as if nothing had been clipped, [...]: μ is then the mean action, not what was meant."""
        mean, log_std = self.parameters(obs)
        z = (action - mean) * jnp.exp(-log_std)
        return (-0.5 * (z**2 + jnp.log(2 * jnp.pi)) - log_std).sum(-1)

    def log_prob(self, obs: Array, action: Array) -> Array:
        """Σ_A log N(a; μ, σ²), or of the Gaussian's mass beyond where a = ±1, [...]."""
        mean, log_std = self.parameters(obs)
        z = (action - mean) * jnp.exp(-log_std)
        inside = -0.5 * (z**2 + jnp.log(2 * jnp.pi)) - log_std
        beyond = jax.scipy.special.log_ndtr(jnp.where(action > 0, -z, z))
        return jnp.where(jnp.abs(action) >= AT_BOUND, beyond, inside).sum(-1)


class Categorical(eqx.Module):
    """π(·|s) = softmax(network) over n discrete actions, for behaviour cloning. Actions are one-hot, [..., n]."""

    mlp: MLP

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, discrete_actions: int, hidden: Sequence[int]) -> Categorical:
        return Categorical(MLP.create(key, (obs_dim, *hidden, discrete_actions)))

    def mode(self, obs: Array) -> Array:
        """The action taken when evaluated: the most probable."""
        scores = self.mlp(obs)
        return jax.nn.one_hot(scores.argmax(-1), scores.shape[-1])

    def log_prob(self, obs: Array, action: Array) -> Array:
        """log π(a|s), [...]."""
        return (action * jax.nn.log_softmax(self.mlp(obs))).sum(-1)

    def unclipped_log_prob(self, obs: Array, action: Array) -> Array:
        """The same: no discrete action was clipped."""
        return self.log_prob(obs, action)


LikelihoodActor = ClippedGaussian | Categorical  # behaviour-cloning heads, fitted by maximum likelihood


def likelihood_actor(discrete_actions: bool) -> type[LikelihoodActor]:
    """The likelihood actor (behaviour-cloning head) for continuous or discrete actions."""
    return Categorical if discrete_actions else ClippedGaussian


def squashed_log_density(raw: Array, standardised: Array, log_std: Array) -> Array:
    """Σ_A log N(z) − log σ − log(1 − tanh² raw), the last term written so that it cannot lose its digits."""
    normal = -0.5 * (standardised**2 + jnp.log(2 * jnp.pi)) - log_std
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return (normal - squash).sum(-1)
