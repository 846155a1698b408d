"""One step of the authors' published code, to the letter: what `pdocrl` does with `published=True`.

Read beside `osrl/algorithms/pdocrl.py` of komin0407/PDOCRL. The players move one after another, each sees the new
values of those before it, and each draws fresh actions:

    done = terminal or timeout,   y = r − λ·c + γ (1 − done) min Q̄(s′, a′),   w = clip(softplus f_w(s, a), 0, 10)
    w   minimise  −E[ w (y − min Q(s, a)) ]
    Q   minimise  Σ_twins E[ w (Q(s, a) − y)² ]
    π   minimise  −(1 − γ) E[min Q(s, π)] − γ E[w min Q(s′, π)]                           (without 1 − done)
    λ   log λ ← clip(log λ + η (E_D[c] − κ), −10, log min(B, 10))                         (without w)

The norms of the gradients of w, of both critics together and of π are cut at 10. The clip of w is a plain one: where
softplus f_w is above 10 it has no gradient, so such a w stays. Published for one cost; here each cost has its own λ.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.agent import Metrics, Transitions
from pdocrl.agents.saddle import move_multiplier, saddle_metrics
from pdocrl.nn.density import TanhGaussian
from pdocrl.nn.mlp import MLP, Critic, polyak
from pdocrl.nn.optimise import adam_step, clip_norm

if TYPE_CHECKING:
    from pdocrl.agents.pdocrl import PDOCRLConfig, PDOCRLState

LARGEST_NORM = 10.0  # of the gradient of each of w, Q and π


def published_update(
    config: PDOCRLConfig, state: PDOCRLState, batch: Transitions, key: PRNGKeyArray
) -> tuple[PDOCRLState, Metrics]:
    """`batch.alive` is 1 − done here, and done includes time limits."""
    for_w, for_q, for_start, for_next = jax.random.split(key, 4)
    lam = state.multiplier.lam
    reward = config.reward_scale * batch.reward - batch.cost @ lam
    pair = jnp.concatenate([batch.obs, batch.action], -1)

    def backup(key: PRNGKeyArray) -> Float[Array, " B"]:
        action = state.actor.sample(batch.next_obs, key)[0]
        return reward + config.gamma * batch.alive * state.target(batch.next_obs, action).min(0)

    def ratio(weight: MLP) -> Float[Array, " B"]:
        return jnp.clip(jax.nn.softplus(weight(pair)[..., 0]), 0, config.w_max)

    residual = backup(for_w) - state.critic(batch.obs, batch.action).min(0)
    weight_gradient = jax.grad(lambda weight: -jnp.mean(ratio(weight) * residual))(state.weight)
    weight, weight_opt = adam_step(
        clip_norm(weight_gradient, LARGEST_NORM), state.weight_opt, state.weight, config.learning_rate
    )
    w, y = ratio(weight), backup(for_q)

    def critic_loss(critic: Critic) -> tuple[Array, Array]:
        q = critic(batch.obs, batch.action)
        return (w * (q - y) ** 2).mean(-1).sum(), q

    (critic_objective, q), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
    critic, critic_opt = adam_step(
        clip_norm(critic_gradient, LARGEST_NORM), state.critic_opt, state.critic, config.learning_rate
    )

    def actor_loss(actor: TanhGaussian) -> Array:
        here = critic(batch.obs, actor.sample(batch.obs, for_start)[0]).min(0)
        there = critic(batch.next_obs, actor.sample(batch.next_obs, for_next)[0]).min(0)
        return -jnp.mean((1 - config.gamma) * here + config.gamma * w * there)

    actor_objective, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)
    actor, actor_opt = adam_step(
        clip_norm(actor_gradient, LARGEST_NORM), state.actor_opt, state.actor, config.learning_rate
    )
    multiplier, _ = move_multiplier(config, state.multiplier, state.multiplier_opt, batch.cost, w)
    state = dataclasses.replace(
        state, weight=weight, actor=actor, critic=critic, target=polyak(state.target, critic, config.target_rate),
        multiplier=multiplier, steps=state.steps + 1, weight_opt=weight_opt, actor_opt=actor_opt, critic_opt=critic_opt,
    )  # fmt: skip
    metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "q": q.mean()}
    return state, metrics | saddle_metrics(config, batch, w, residual, lam)
