"""Proposals and their judges: what such policies share, and BCQ-Lag's."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.network import Layers, Step, forward, layer_arrays, layers_from


class ProposingPolicy:
    """A policy that chooses among n actions made from random numbers. Subclasses are frozen dataclasses."""

    candidates: int  # n proposals per observation

    @property
    def latent_dim(self) -> int:
        """Z, random numbers a proposal is made from."""
        raise NotImplementedError

    def act(self, obs: NDArray[Any], latent: NDArray[Any]) -> NDArray[np.float32]:
        """obs [B, S] and standard normal latents [B, n, Z] → action [B, A]."""
        raise NotImplementedError

    def begin(self, seed: int) -> Step:
        rng = np.random.default_rng(seed)

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = ()) -> NDArray[np.float32]:
            latent = rng.standard_normal((1, self.candidates, self.latent_dim))
            action: NDArray[np.float32] = self.act(obs[None], latent)[0]
            return action

        return step

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        latent = np.random.default_rng(0).standard_normal((1, self.candidates, self.latent_dim))
        return self.act(obs, np.repeat(latent, len(obs), 0))


@dataclasses.dataclass(frozen=True)
class CandidatePolicy(ProposingPolicy):
    """The best of n random proposals: a decoder proposes, a perturbation adjusts, critics choose by Q_r − λ·Q_c."""

    kind: ClassVar[str] = "candidates"
    networks: dict[str, Layers]  # decoder, perturbation; critic and cost_critic are pairs of networks
    lam: NDArray[np.float32]  # [K] price of each cost
    candidates: int  # n proposals per observation
    latent_clip: float  # latents are clipped to ± this
    perturbation: float  # the largest adjustment
    pessimism: float  # weight of the more pessimistic critic of each pair

    @property
    def latent_dim(self) -> int:
        decoder, critic = self.networks["decoder"][0], self.networks["critic"][0]
        return int(decoder[0].shape[0] - critic[0].shape[1] + decoder[-1].shape[1])  # (S + Z) − (S + A) + A

    def act(self, obs: NDArray[Any], latent: NDArray[Any]) -> NDArray[np.float32]:
        """obs [B, S] and standard normal latents [B, n, Z] → action [B, A]."""
        latent = np.clip(np.asarray(latent, np.float32), -self.latent_clip, self.latent_clip)
        states = np.repeat(np.asarray(obs, np.float32)[:, None], latent.shape[1], 1)  # [B, n, S]
        proposed = np.tanh(forward(self.networks["decoder"], np.concatenate([states, latent], -1)))
        pair = np.concatenate([states, proposed], -1)
        action = np.clip(proposed + self.perturbation * np.tanh(forward(self.networks["perturbation"], pair)), -1, 1)
        flat = np.concatenate([states, action], -1).reshape(-1, pair.shape[-1])
        value, cost = forward(self.networks["critic"], flat)[..., 0], forward(self.networks["cost_critic"], flat)
        mixed_value = self.pessimism * value.min(0) + (1 - self.pessimism) * value.max(0)
        mixed_cost = self.pessimism * cost.max(0) + (1 - self.pessimism) * cost.min(0)
        best = (mixed_value - mixed_cost @ self.lam).reshape(action.shape[:2]).argmax(1)
        return np.asarray(np.take_along_axis(action, best[:, None, None], 1)[:, 0], np.float32)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {**layer_arrays(self.networks), "lam": self.lam}

    def settings(self) -> dict[str, Any]:
        numbers = ("candidates", "latent_clip", "perturbation", "pessimism")
        layers = {name: len(network[0]) for name, network in self.networks.items()}
        return {"layers": layers, **{name: getattr(self, name) for name in numbers}}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> CandidatePolicy:
        settings = dict(settings)
        return cls(layers_from(arrays, settings.pop("layers")), arrays["lam"], **settings)
