"""What the kinds of policy share: the protocol they keep, layers in NumPy; and one network alone, which most learn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Step = Callable[..., NDArray[np.float32]]  # of one episode: (obs [S], last_reward, last_cost [K]) → action [A]


class PolicyInputError(ValueError):
    """An observation or action a policy cannot use; one line that names what is wrong."""


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


LOG_STD_RANGE = (-5.0, 2.0)  # of a tanh-Gaussian, as in pdocrl.nn.distributions
LOG_SCALE_RANGE = (-3.0, 0.5)  # of a clipped Gaussian
AT_BOUND = 1 - 1e-6  # an action this far out was clipped
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class MLPPolicy:
    """A policy of one network: acts by its mode, tanh of the mean, or the likeliest discrete action, one-hot.

    With a density it can be sampled from and tells log-probabilities: "tanh_gaussian" is tanh(N(μ, σ²)),
    "clipped_gaussian" is clip(N(tanh μ, σ²), ±1), "categorical" is softmax. The Gaussians have mass at ±1: the first
    where float32 rounds tanh to ±1, the second by its clipping. Without a density it is deterministic.
    """

    kind: ClassVar[str] = "mlp"
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    discrete: bool = False  # whether outputs are scores of discrete actions
    density: str = ""  # "": deterministic
    scale: tuple[NDArray[np.float32], ...] = ()  # last layer of the scale: weights [n_in, A] and biases [A]

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        out = forward((self.weights, self.biases), np.asarray(obs, np.float32))
        return one_hot(out) if self.discrete else np.tanh(out)

    def sample(self, obs: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Actions [B, A] drawn from π(·|s); those of the mode where it is deterministic."""
        if not self.density:
            return self(obs)
        if self.density == "categorical":
            scores = forward((self.weights, self.biases), np.asarray(obs, np.float32))
            return one_hot(scores + rng.gumbel(size=scores.shape))
        mean, log_std = self._gaussian(obs)
        drawn = mean + np.exp(log_std) * rng.standard_normal(mean.shape)
        action = np.tanh(drawn) if self.density == "tanh_gaussian" else np.clip(drawn, -1, 1)
        return np.asarray(action, np.float32)

    def log_prob(self, obs: NDArray[Any], action: NDArray[Any]) -> NDArray[np.float64]:
        """[B, A] log-density of each coordinate of actions [B, A], log-probability where it has mass at ±1.

        Of a one-hot action [B, n] the log-probability is in the column that was taken, 0 in the others.
        """
        if not self.density:
            raise PolicyInputError("this policy is deterministic: it has no density. Compare actions instead.")
        action = np.asarray(action, np.float64)
        if self.density == "categorical":
            scores = forward((self.weights, self.biases), np.asarray(obs, np.float32)).astype(np.float64)
            shifted = scores - scores.max(-1, keepdims=True)
            return np.asarray(action * (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))))
        mean, log_std = self._gaussian(obs)
        if self.density == "tanh_gaussian":
            inside = np.clip(action, -AT_BOUND, AT_BOUND)
            raw = np.arctanh(inside)
            z = (raw - mean) * np.exp(-log_std)
            # Far out float32 rounds tanh to ±1, whatever was drawn: there it is the probability of being so far out.
            beyond = log_normal_cdf(np.where(action > 0, -z, z))
            density = -0.5 * z**2 - HALF_LOG_TAU - log_std - np.log1p(-(inside**2))
            return np.where(np.abs(action) >= AT_BOUND, beyond, density)
        z = (action - mean) * np.exp(-log_std)
        beyond = log_normal_cdf(np.where(action > 0, -z, z))
        return np.where(np.abs(action) >= AT_BOUND, beyond, -0.5 * z**2 - HALF_LOG_TAU - log_std)

    def has_mass(self, action: NDArray[Any]) -> NDArray[np.bool_]:
        """Where actions [B, A] in [−1, 1] have a probability, not a density."""
        return np.full(np.shape(action), True) if self.density == "categorical" else np.abs(action) >= AT_BOUND

    def _gaussian(self, obs: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and log σ, [B, A] each."""
        hidden = np.asarray(obs, np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight + bias, 0)
        mean = (hidden @ self.weights[-1] + self.biases[-1]).astype(np.float64)
        raw = (hidden @ self.scale[0] + self.scale[1]).astype(np.float64)
        if self.density == "tanh_gaussian":
            return mean, np.clip(raw, *LOG_STD_RANGE)
        low, high = LOG_SCALE_RANGE
        return np.tanh(mean), low + (high - low) / (1 + np.exp(-raw))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = range(len(self.weights))
        own = {f"weight_{i}": self.weights[i] for i in layers} | {f"bias_{i}": self.biases[i] for i in layers}
        return own | dict(zip(("scale_weight", "scale_bias"), self.scale, strict=False))

    def settings(self) -> dict[str, Any]:
        return {"layers": len(self.weights), "discrete": self.discrete, "density": self.density}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> MLPPolicy:
        layers = range(settings["layers"])
        weights, biases = (tuple(arrays[f"{part}_{i}"] for i in layers) for part in ("weight", "bias"))
        scale = tuple(arrays[name] for name in ("scale_weight", "scale_bias") if name in arrays)
        return cls(weights, biases, settings.get("discrete", False), settings.get("density", ""), scale)


def log_normal_cdf(x: NDArray[Any]) -> NDArray[np.float64]:
    """log Φ(x), also far out, where Φ(x) is 0 in doubles: −x²/2 − log(−x √(2π)) + log(1 − 1/x² + 3/x⁴)."""
    x = np.asarray(x, np.float64)
    near = np.maximum(x, -30.0)
    tail = np.minimum(x, -20.0)
    erfc = np.vectorize(math.erfc, otypes=[np.float64])(-near / math.sqrt(2)) if x.size else near
    far = -(tail**2) / 2 - np.log(-tail) - HALF_LOG_TAU + np.log1p(-1 / tail**2 + 3 / tail**4)
    found: NDArray[np.float64] = np.where(x > -20, np.log(0.5 * erfc), far)
    return found
