"""Proposals and their judges: what such policies share, BCQ-Lag's and FISOR's."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.mlp import Layers, SavedNetworks, Step, forward


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
class CandidatePolicy(SavedNetworks, ProposingPolicy):
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


@dataclasses.dataclass(frozen=True)
class FeasiblePolicy(SavedNetworks, ProposingPolicy):
    """Of the mode and n − 1 draws of π(·|s) = clip(N(μ, σ²), ±1) the action of least Q_h."""

    kind: ClassVar[str] = "feasible"
    LOG_SCALE_RANGE: ClassVar[tuple[float, float]] = (-3.0, 0.5)  # that of pdocrl.nn.distributions
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
