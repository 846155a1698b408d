"""Twin critics and the choice among candidate actions by Q_r − λ·Q_c: what BCQ, BEAR and CPQ share."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from pdocrl.agents.base import Transitions
from pdocrl.nn.mlp import CostCritic, Critic
from pdocrl.nn.optim import descend

Q = TypeVar("Q", Critic, CostCritic)

LATENT_CLIP = 0.5  # proposals come from the middle of the prior, where the decoder has seen much data


def fit_twins(
    critic: Q, opt: optax.OptState, batch: Transitions, backup: Array, rate: float | Array
) -> tuple[Q, optax.OptState, Any]:
    """One step of every member to a backup [B] or [B, K]: critic, optimiser, and the loss and values [M, …] before."""

    def loss(critic: Q) -> tuple[Array, Array]:
        q = critic(batch.obs, batch.action)
        return ((backup - q) ** 2).mean(1).sum(), q

    return descend(loss, critic, opt, rate, has_aux=True)


def mix_twins(
    value: Float[Array, "2 *n B"], cost: Float[Array, "2 *n B K"], pessimism: float | Array
) -> tuple[Float[Array, "*n B"], Float[Array, "*n B K"]]:
    """BCQ's soft pessimism: a mixture of the worse of two estimates and the better; for a cost the larger is worse."""
    return mix_values(value, pessimism), mix_costs(cost, pessimism)


def mix_values(value: Float[Array, "2 *n B"], pessimism: float | Array) -> Float[Array, "*n B"]:
    """A mixture of the smaller of two estimates of a value and the larger."""
    return pessimism * value.min(0) + (1 - pessimism) * value.max(0)


def mix_costs(cost: Float[Array, "2 *n B K"], pessimism: float | Array) -> Float[Array, "*n B K"]:
    """A mixture of the larger of two estimates of a cost and the smaller."""
    return pessimism * cost.max(0) + (1 - pessimism) * cost.min(0)


def best_candidate(
    critic: Critic, cost_critic: CostCritic, lam: Array, obs: Array, action: Array, pessimism: float | Array
) -> tuple[Float[Array, " B"], Float[Array, "B K"]]:
    """Reward and cost values of the candidate with the highest Q_r − λ·Q_c; obs [B, S], action [n, B, A].

    One action is chosen and both its values are taken, so that Q_r and Q_c are values of the same policy.
    """
    value, cost = mix_twins(critic(obs, action), cost_critic(obs, action), pessimism)  # [n, B], [n, B, K]
    best = jnp.argmax(value - cost @ lam, 0)[None]  # [1, B]
    return jnp.take_along_axis(value, best, 0)[0], jnp.take_along_axis(cost, best[..., None], 0)[0]
