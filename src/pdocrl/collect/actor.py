"""The expert as it plays: a random policy in plain NumPy, small enough to send to a worker process for every batch.

Its noise is a function of the episode's seed alone. So the numbers do not depend on how many processes play, and the
learner can draw the same noise again instead of having it sent along.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class GaussianActor:
    """a = μ(s) + σ ε, with μ a tanh network whose first layer normalises the observation.

    Outside [−1, 1] the action is clipped by whoever carries it out; the learner reasons about it unclipped.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    std: Floats  # [A]

    def begin(self, seed: int) -> Callable[..., NDArray[Any]]:
        """The episode's own `step(obs [S], …) → action [A]`."""
        rng, network, actions = _noise_generator(seed), _tanh_network(self.weights, self.biases), len(self.std)
        return lambda obs, *_: network(obs) + self.std * rng.standard_normal(actions)


@dataclasses.dataclass(frozen=True)
class CategoricalActor:
    """One of n discrete actions, with probabilities softmax(network(s)): Gumbel-max sampling."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    discrete_actions: tuple[int, ...]

    def begin(self, seed: int) -> Callable[..., int]:
        """The episode's own `step(obs [S], …) → choice`."""
        rng, network = _noise_generator(seed), _tanh_network(self.weights, self.biases)
        return lambda obs, *_: self.discrete_actions[
            int(np.argmax(network(obs) + rng.gumbel(size=len(self.discrete_actions))))
        ]


def _tanh_network(weights: tuple[Floats, ...], biases: tuple[Floats, ...]) -> Callable[[Floats], NDArray[Any]]:
    """One observation [S] after another → the network's output."""
    (w0, *middle, w_last), (b0, *middle_biases, b_last) = weights, biases
    hidden = list(zip(middle, middle_biases, strict=True))

    def out(obs: Floats) -> NDArray[Any]:
        x = np.tanh(obs.dot(w0) + b0)
        for weight, bias in hidden:
            x = np.tanh(x.dot(weight) + bias)
        scores: NDArray[Any] = x.dot(w_last) + b_last
        return scores

    return out


Actor = GaussianActor | CategoricalActor


def noise_of(seed: int, steps: int, actions: int) -> NDArray[np.float64]:
    """ε [T, A] of the episode of this seed, as `GaussianActor.begin(seed)` draws it."""
    return _noise_generator(seed).standard_normal((steps, actions))


def _noise_generator(seed: int) -> np.random.Generator:
    return np.random.default_rng((seed, 1))  # not the stream that the environment's own reset draws from
