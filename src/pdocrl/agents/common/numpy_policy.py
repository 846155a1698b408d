"""From a trained network to the policy that acts, in plain NumPy."""

from __future__ import annotations

import numpy as np

from pdocrl.nn.distributions import Categorical, ClippedGaussian, TanhGaussian
from pdocrl.nn.mlp import MLP
from pdocrl.policies.policy import Layers, MLPPolicy


def layers_of(network: MLP) -> Layers:
    """A network's weights and biases as NumPy."""
    return tuple(map(np.asarray, network.weights)), tuple(map(np.asarray, network.biases))


def network_policy(network: MLP) -> MLPPolicy:
    """tanh of a network's output."""
    return MLPPolicy(*layers_of(network))


def mode_policy(actor: TanhGaussian | ClippedGaussian | Categorical) -> MLPPolicy:
    """A policy that acts by the mode, with the density of the actor."""
    if isinstance(actor, Categorical):
        return MLPPolicy(*layers_of(actor.mlp), discrete=True, density="categorical")
    whole = network_policy(actor.mlp)
    half = whole.weights[-1].shape[-1] // 2
    weights = (*whole.weights[:-1], whole.weights[-1][:, :half])
    biases = (*whole.biases[:-1], whole.biases[-1][:half])
    density = "tanh_gaussian" if isinstance(actor, TanhGaussian) else "clipped_gaussian"
    scale = (whole.weights[-1][:, half:], whole.biases[-1][half:])
    return MLPPolicy(weights, biases, density=density, scale=scale)
