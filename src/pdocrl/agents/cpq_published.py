"""One step of OSRL's CPQ, to the letter: what `cpq` does with `published=True`.

Read beside `osrl/algorithms/cpq.py` of liuzuxin/OSRL. Q_r, Q_c and π move one after another, each sees the new values
of those before it, and each draws fresh actions:

    done = terminal or timeout,   l = limit (1 − γᵀ) / ((1 − γ) T),   min over twins, of costs too
    Q_r   minimise  Σ_twins E[ (Q_r − r − γ (1 − done) 1[min Q̄_c(s′,a′) ≤ l] min Q̄_r(s′,a′))² ]
    Q_c   minimise  Σ_twins E[ (Q_c − c − γ min Q̄_c(s′,a′))² ]                          (without 1 − done)
    π     minimise  −E[ 1[min Q_c(s,π) ≤ l] min Q_r(s,π) ]

There the penalty on unknown actions is computed without gradient, so it changes no network; neither does the VAE that
finds them, nor α. All three are left out here, and what is left has the same numbers (tests/agents/test_reference.py).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.agent import Metrics, Transitions, per_constraint
from pdocrl.nn.density import TanhGaussian
from pdocrl.nn.mlp import CostCritic, Critic, normals, polyak
from pdocrl.nn.optimise import adam_step

if TYPE_CHECKING:
    from pdocrl.agents.cpq import CPQConfig, CPQState


def published_update(
    config: CPQConfig, state: CPQState, batch: Transitions, key: PRNGKeyArray
) -> tuple[CPQState, Metrics]:
    """`batch.alive` is 1 − done here, and done includes time limits."""
    for_critic, for_cost, for_actor = normals(key, *[batch.action.shape] * 3)
    limit = config.cost_rate * (1 - config.gamma**config.horizon) / (1 - config.gamma)  # [K]

    def is_safe(cost: Float[Array, "B K"]) -> Float[Array, " B"]:
        return jnp.all(cost <= limit, -1).astype(jnp.float32)

    def future(noise: Array) -> tuple[Float[Array, " B"], Float[Array, "B K"]]:
        action = state.actor.act(batch.next_obs, noise)
        return state.target(batch.next_obs, action).min(0), state.cost_target(batch.next_obs, action).min(0)

    value, cost = future(for_critic)
    counted = is_safe(cost)
    backup = config.reward_scale * batch.reward + config.gamma * batch.alive * counted * value
    cost_backup = batch.cost + config.gamma * future(for_cost)[1]

    def critic_loss(critic: Critic) -> tuple[Array, Array]:
        q = critic(batch.obs, batch.action)
        return ((q - backup) ** 2).mean(-1).sum(), q

    def cost_loss(cost_critic: CostCritic) -> tuple[Array, Array]:
        q = cost_critic(batch.obs, batch.action)
        return ((q - cost_backup) ** 2).mean(1).sum(), q

    (critic_objective, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
    critic, critic_opt = adam_step(gradient, state.critic_opt, state.critic, config.critic_rate)
    (cost_objective, cost_q), cost_gradient = jax.value_and_grad(cost_loss, has_aux=True)(state.cost_critic)
    cost_critic, cost_opt = adam_step(cost_gradient, state.cost_opt, state.cost_critic, config.critic_rate)

    def actor_loss(actor: TanhGaussian) -> Array:
        action = actor.act(batch.obs, for_actor)
        return -jnp.mean(is_safe(cost_critic(batch.obs, action).min(0)) * critic(batch.obs, action).min(0))

    actor_objective, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)
    actor, actor_opt = adam_step(actor_gradient, state.actor_opt, state.actor, config.actor_rate)
    metrics = {
        "critic_loss": critic_objective,
        "cost_loss": cost_objective,
        "actor_loss": actor_objective,
        "q": q.mean(),
        "safe": counted.mean(),
    }
    state = dataclasses.replace(
        state, actor=actor, critic=critic, cost_critic=cost_critic,
        target=polyak(state.target, critic, config.target_rate),
        cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
        actor_opt=actor_opt, critic_opt=critic_opt, cost_opt=cost_opt,
    )  # fmt: skip
    return state, metrics | per_constraint("q_cost", cost_q.mean((0, 1)))
