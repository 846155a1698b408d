"""Draws of a Gaussian and the critic that chooses the safest: fisor."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.candidates import ProposingPolicy
from pdocrl.policies.network import Layers, forward, layer_arrays, layers_from


@dataclasses.dataclass(frozen=True)
class FeasiblePolicy(ProposingPolicy):
    """Of the mode and n − 1 draws of π(·|s) = clip(N(μ, σ²), ±1) the action of least Q_h."""

    kind: ClassVar[str] = "feasible"
    LOG_SCALE_RANGE: ClassVar[tuple[float, float]] = (-3.0, 0.5)  # that of pdocrl.nn.density
    networks: dict[str, Layers]  # actor: s → 2A, mean and scale; critic: M networks (s, a) → Q_h, the largest counts
    candidates: int  # n; with 1 nothing is drawn

    @property
    def latent_dim(self) -> int:
        return int(self.networks["actor"][0][-1].shape[1] // 2)

    def act(self, obs: NDArray[Any], latent: NDArray[Any]) -> NDArray[np.float32]:
        """obs [B, S] and standard normal draws [B, n, A], the first of which is not read → action [B, A]."""
        obs = np.asarray(obs, np.float32)
        mean, raw = np.split(forward(self.networks["actor"], obs)[:, None], 2, -1)  # [B, 1, A]
        low, high = self.LOG_SCALE_RANGE
        scale = np.exp(low + (high - low) / (1 + np.exp(-raw)))
        noise = np.concatenate([np.zeros_like(mean), np.asarray(latent, np.float32)[:, 1:]], 1)
        action = np.clip(np.tanh(mean) + scale * noise, -1, 1)  # [B, n, A]
        if self.candidates == 1:
            return np.asarray(action[:, 0], np.float32)
        pairs = np.concatenate([np.repeat(obs[:, None], self.candidates, 1), action], -1)
        risk = forward(self.networks["critic"], pairs.reshape(-1, pairs.shape[-1])).max(0).reshape(pairs.shape[:2])
        best = risk.argmin(1)
        return np.asarray(np.take_along_axis(action, best[:, None, None], 1)[:, 0], np.float32)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return layer_arrays(self.networks)

    def settings(self) -> dict[str, Any]:
        return {"layers": {n: len(net[0]) for n, net in self.networks.items()}, "candidates": self.candidates}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> FeasiblePolicy:
        return cls(layers_from(arrays, settings["layers"]), settings["candidates"])
