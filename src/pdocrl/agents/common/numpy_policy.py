"""From a trained network to the policy that acts, in plain NumPy."""

from __future__ import annotations

import numpy as np

from pdocrl.nn.density import Categorical, ClippedGaussian, TanhGaussian
from pdocrl.nn.mlp import MLP
from pdocrl.policies.policy import Layers, MLPPolicy


def layers_of(network: MLP) -> Layers:
    """A network's weights and biases as NumPy."""
    return tuple(map(np.asarray, network.weights)), tuple(map(np.asarray, network.biases))


def network_policy(network: MLP) -> MLPPolicy:
    """tanh of a network's output."""
    return MLPPolicy(*layers_of(network))


def mode_policy(actor: TanhGaussian | ClippedGaussian | Categorical) -> MLPPolicy:
    """The network of the mean, without the half of the scale; of discrete actions, the network of their scores."""
    if isinstance(actor, Categorical):
        return MLPPolicy(*layers_of(actor.mlp), discrete=True)
    whole = network_policy(actor.mlp)
    half = whole.weights[-1].shape[-1] // 2
    weights = (*whole.weights[:-1], whole.weights[-1][:, :half])
    return MLPPolicy(weights, (*whole.biases[:-1], whole.biases[-1][:half]))
