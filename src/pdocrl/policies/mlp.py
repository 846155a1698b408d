"""What the kinds of policy share: the protocol they keep, layers in NumPy; and one network alone, which most learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Step = Callable[..., NDArray[np.float32]]  # of one episode: (obs [S], last_reward, last_cost [K]) → action [A]


class Policy(Protocol):
    """A policy that can be saved: acts on batches of observations and is rebuilt from named arrays and settings.

    A policy with memory or randomness also has `begin(seed) -> step`, where `step(obs [S], last_reward, last_cost [K])`
    gives the action [A] within one episode. Its `__call__` then acts as on an episode's first step, with a fixed seed.
    """

    kind: ClassVar[str]  # names the class in a saved file

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]: ...

    def arrays(self) -> dict[str, NDArray[np.float32]]: ...

    def settings(self) -> dict[str, Any]: ...


def one_hot(scores: NDArray[Any]) -> NDArray[np.float32]:
    """1 where the last axis is largest (the first place of several), 0 elsewhere."""
    best = np.asarray(scores).argmax(-1)
    out: NDArray[np.float32] = (best[..., None] == np.arange(np.shape(scores)[-1])).astype(np.float32)
    return out


Layers = tuple[tuple[NDArray[np.float32], ...], tuple[NDArray[np.float32], ...]]  # weights, biases


def forward(layers: Layers, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Affine layers with ReLU between; weights [M, n_in, n_out] give M outputs."""
    weights, biases = layers
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    out: NDArray[np.float32] = x @ weights[-1] + biases[-1]
    return out


def layer_arrays(networks: dict[str, Layers]) -> dict[str, NDArray[np.float32]]:
    """Named networks as named arrays."""
    return {
        f"{name}/{part}_{i}": array
        for name, network in networks.items()
        for part, arrays in zip(("weight", "bias"), network, strict=True)
        for i, array in enumerate(arrays)
    }


def layers_from(arrays: dict[str, NDArray[np.float32]], counts: dict[str, int]) -> dict[str, Layers]:
    """The networks of `layer_arrays` again, from their arrays and the number of layers of each."""

    def part(name: str, of: str) -> tuple[NDArray[np.float32], ...]:
        return tuple(arrays[f"{name}/{of}_{i}"] for i in range(counts[name]))

    return {name: (part(name, "weight"), part(name, "bias")) for name in counts}


class SavedNetworks:
    """How a policy of networks, arrays and plain values is saved and rebuilt. Subclasses are frozen dataclasses."""

    networks: dict[str, Layers]  # the first field

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        own = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return layer_arrays(self.networks) | own

    def settings(self) -> dict[str, Any]:
        others = {n: v for n, v in vars(self).items() if n != "networks" and not isinstance(v, np.ndarray)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in others.items()}
        return {"layers": {name: len(weights) for name, (weights, _) in self.networks.items()}, **plain}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> Any:
        own: dict[str, Any] = {name: array for name, array in arrays.items() if "/" not in name}
        own |= {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items() if n != "layers"}
        return cls(layers_from(arrays, settings["layers"]), **own)  # type: ignore[call-arg]


@dataclasses.dataclass(frozen=True)
class MLPPolicy:
    """The mode of a tanh-Gaussian: tanh of the mean's network, whose scale half is not needed to act.

    Of discrete actions, the likeliest one, one-hot.
    """

    kind: ClassVar[str] = "mlp"
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    discrete: bool = False  # whether outputs are scores of discrete actions

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        out = forward((self.weights, self.biases), np.asarray(obs, np.float32))
        return one_hot(out) if self.discrete else np.tanh(out)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = range(len(self.weights))
        return {f"weight_{i}": self.weights[i] for i in layers} | {f"bias_{i}": self.biases[i] for i in layers}

    def settings(self) -> dict[str, Any]:
        return {"layers": len(self.weights), "discrete": self.discrete}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> MLPPolicy:
        layers = range(settings["layers"])
        weights, biases = (tuple(arrays[f"{part}_{i}"] for i in layers) for part in ("weight", "bias"))
        return cls(weights, biases, settings.get("discrete", False))
