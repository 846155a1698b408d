"""CPQ, constraints penalised Q-learning: values count only through safe actions, unknown actions count as costly.

    Q_r ← r + γ 1[Q_c(s′,a′) ≤ l] Q_r(s′,a′),   Q_c ← c + γ Q_c(s′,a′),   a′ ~ π(·|s′),   l = κ / (1−γ)
    minimise over Q_c   E_D[TD²] − α ( E_{a~π, unlike the data}[Q_c(s,a)] − 1.5 l )
    maximise over π     E_D[ 1[Q_c(s,π) ≤ l] Q_r(s,π) ]

κ = cost limit / horizon. An action is unlike the data when a VAE of the data gives its code a large KL to the prior.
docs/agents/cpq.md.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import (
    Agent,
    AgentConfig,
    Columns,
    Learned,
    Metrics,
    Problem,
    Transitions,
    not_done_at_timeout,
    per_constraint,
    static,
)
from pdocrl.agents.common.candidates import fit_twins, mix_costs
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import TanhGaussian
from pdocrl.nn.mlp import CostCritic, Critic, normals, polyak
from pdocrl.nn.multipliers import ProjectedMultiplier
from pdocrl.nn.optim import descend
from pdocrl.nn.vae import VAE
from pdocrl.policies.policy import MLPPolicy


class CPQConfig(AgentConfig):
    """The benchmark's hyper-parameters."""

    actor_rate: float = 1e-4  # learning rate of π
    critic_rate: float = 1e-3  # of Q_r and Q_c
    vae_rate: float = 1e-3  # of the VAE
    alpha_rate: float = 1e-4  # of α, which moves by alpha_rate · (1.5 l − Q_c of unknown actions)
    alpha_max: float = 0.2  # α stays in [0, alpha_max]
    target_rate: float = 0.005  # of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    beta: float = 0.5  # β, weight of the KL term in the VAE's loss; at .5 the VAE hardly varies its actions
    ood_margin: float = 1.5  # Q_c of unknown actions is pushed up to this many times the limit
    pessimism: float = 1.0  # weight of the larger of two estimates of a cost; the rest is the smaller's
    ood_quantile: float = static(0.75)  # an action is unknown when its KL is beyond this quantile …
    ood_among: Literal["policy", "data"] = static("policy")  # … of the policy's actions, or of the dataset's
    samples: int = static(10)  # actions per state in the search for unknown ones
    vae_hidden: tuple[int, ...] = static((400, 400))  # widths of the VAE's hidden layers
    published: bool = static(False)  # the reference code's update to the letter: `published_update`


class CPQState(eqx.Module):
    """Policy, both critics and their targets, the VAE, and the weight of the penalty on unknown actions."""

    actor: TanhGaussian
    critic: Critic
    cost_critic: CostCritic
    target: Critic
    cost_target: CostCritic
    vae: VAE
    alpha: ProjectedMultiplier
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    cost_opt: optax.OptState
    vae_opt: optax.OptState


class CPQ(Agent[CPQConfig, CPQState]):
    """Constraints penalised Q-learning."""

    name = "cpq"
    summary = "Q-learning in which unsafe actions have no value and actions unlike the data are taken to be costly."
    paper = "Xu, Zhan, Zhu, Constraints Penalized Q-learning for Safe Offline RL (AAAI 2022)"
    Config = CPQConfig

    def columns(self, config: CPQConfig, dataset: Dataset) -> Columns:
        """In the published code an episode that runs out of time is done."""
        columns = super().columns(config, dataset)
        if config.published:
            columns["not_done"] = not_done_at_timeout(dataset)
        return columns

    def init(self, config: CPQConfig, problem: Problem, key: PRNGKeyArray) -> CPQState:
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 4)
        actor = TanhGaussian.create(keys[0], s, a, config.hidden)
        critic = Critic.create(keys[1], s, a, config.hidden, members=2)
        cost_critic = CostCritic.create(keys[2], s, a, k, config.hidden, members=2)
        vae = VAE.create(keys[3], s, a, config.vae_hidden, latent=2 * a)
        adam = optax.scale_by_adam()
        return CPQState(
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            target=critic,
            cost_target=cost_critic,
            vae=vae,
            alpha=ProjectedMultiplier.create(0.0, k),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            cost_opt=adam.init(cost_critic),
            vae_opt=adam.init(vae),
        )

    def update(
        self, config: CPQConfig, state: CPQState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[CPQState, Metrics]:
        if config.published:
            return published_update(config, state, batch, key)
        size, action_dim = batch.action.shape
        next_noise, actor_noise, ood_noise, vae_noise = normals(
            key, (size, action_dim), (size, action_dim), (config.samples, size, action_dim), (size, 2 * action_dim)
        )
        limit = config.cost_rate / (1 - config.gamma)  # [K] what Q_c is held against

        def is_safe(cost: Float[Array, "2 B K"]) -> Float[Array, " B"]:
            return (mix_costs(cost, config.pessimism) <= limit).all(-1).astype(jnp.float32)

        next_action = state.actor.act(batch.next_obs, next_noise)
        next_value = valued(state.target, batch.next_obs, next_action).min(0)
        next_cost = valued(state.cost_target, batch.next_obs, next_action)
        not_done = config.gamma * batch.not_done
        backup = config.reward_scale * batch.reward + not_done * is_safe(next_cost) * next_value
        cost_backup = batch.cost + not_done[:, None] * mix_costs(next_cost, config.pessimism)

        # Which of the policy's actions are unlike the data: U of samples · B
        tried = state.actor.act(batch.obs, ood_noise)  # [n, B, A]
        divergence = state.vae.divergence(batch.obs, tried).reshape(-1)
        tried, origin = tried.reshape(-1, action_dim), jnp.arange(divergence.size) % size
        if config.ood_among == "policy":  # how many they are is known, so only they are looked at again
            count = divergence.size - math.ceil(config.ood_quantile * (divergence.size - 1))
            unknown = jnp.ones(count)
            _, which = jax.lax.top_k(divergence, count)
            tried, origin = tried[which], origin[which]
        else:
            logged = state.vae.divergence(batch.obs, batch.action)
            unknown = (divergence >= jnp.quantile(logged, config.ood_quantile)).astype(jnp.float32)

        # Logged actions, then unknown ones: one way through the critic and back for both
        obs, action = jnp.concatenate([batch.obs, batch.obs[origin]]), jnp.concatenate([batch.action, tried])

        def cost_loss(cost_critic: CostCritic) -> tuple[Array, tuple[Array, Array]]:
            q, q_tried = jnp.split(cost_critic(obs, action), [size], axis=1)  # [2, B, K], [2, U, K]
            ood = unknown @ q_tried.mean(0) / jnp.maximum(unknown.sum(), 1)  # [K]
            penalty = state.alpha.lam @ (ood - config.ood_margin * limit)
            return ((cost_backup - q) ** 2).mean(1).sum() - penalty, (q, ood)

        def actor_loss(actor: TanhGaussian) -> Array:
            action = actor.act(batch.obs, actor_noise)
            value = state.critic(batch.obs, action).min(0)
            cost = valued(state.cost_critic, batch.obs, jax.lax.stop_gradient(action))
            return -jnp.mean(is_safe(cost) * value)

        def vae_loss(vae: VAE) -> Array:
            return vae.loss(batch.obs, batch.action, vae_noise, config.beta)

        critic, critic_opt, (critic_objective, q) = fit_twins(
            state.critic, state.critic_opt, batch, backup, config.critic_rate
        )
        cost_critic, cost_opt, (cost_objective, (cost_q, ood)) = descend(
            cost_loss, state.cost_critic, state.cost_opt, config.critic_rate, has_aux=True
        )
        actor, actor_opt, actor_objective = descend(actor_loss, state.actor, state.actor_opt, config.actor_rate)
        vae, vae_opt, vae_objective = descend(vae_loss, state.vae, state.vae_opt, config.vae_rate)
        alpha = state.alpha.step(config.ood_margin * limit - ood, config.alpha_rate, config.alpha_max)
        metrics = {
            "critic_loss": critic_objective,
            "cost_loss": cost_objective,
            "actor_loss": actor_objective,
            "vae_loss": vae_objective,
            "q": q.mean(),
            "safe": is_safe(next_cost).mean(),
        }
        metrics |= per_constraint("q_cost", cost_q.mean((0, 1))) | per_constraint("q_cost_unknown", ood)
        state = CPQState(
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            target=polyak(state.target, critic, config.target_rate),
            cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
            vae=vae,
            alpha=alpha,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            cost_opt=cost_opt,
            vae_opt=vae_opt,
        )
        return state, metrics | per_constraint("alpha", alpha.lam)

    def policy(self, config: CPQConfig, state: CPQState) -> MLPPolicy:
        return mode_policy(state.actor)

    def learned(self, config: CPQConfig, state: CPQState) -> Learned:
        """Q_r, which counts safe actions alone, and Q_c."""
        return Learned(
            q=lambda obs, action: state.critic(obs, action).min(0) / config.reward_scale,
            q_cost=lambda obs, action: mix_costs(state.cost_critic(obs, action), config.pessimism),
        )


def valued(
    critic: Critic | CostCritic, obs: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "2 B ..."]:
    """Values no gradient is asked of, as of many actions a state (`MLP.joined`) that are one."""
    return critic(obs, action[None])[:, 0]


def published_update(
    config: CPQConfig, state: CPQState, batch: Transitions, key: PRNGKeyArray
) -> tuple[CPQState, Metrics]:
    """One step of OSRL's CPQ, to the letter: what `cpq` does with `published=True`.

    Read beside `osrl/algorithms/cpq.py` of liuzuxin/OSRL. Q_r, Q_c and π move one after another, each sees the new
    values of those before it, and each draws fresh actions:

        done = terminal or timeout,   l = limit (1 − γᵀ) / ((1 − γ) T),   min over twins, of costs too
        Q_r   minimise  Σ_twins E[ (Q_r − r − γ (1 − done) 1[min Q̄_c(s′,a′) ≤ l] min Q̄_r(s′,a′))² ]
        Q_c   minimise  Σ_twins E[ (Q_c − c − γ min Q̄_c(s′,a′))² ]                          (without 1 − done)
        π     minimise  −E[ 1[min Q_c(s,π) ≤ l] min Q_r(s,π) ]

    There the penalty on unknown actions is computed without gradient, so it changes no network; neither does the VAE
    that finds them, nor α. All three are left out, and what is left has the same numbers (tests/agents/test_reference).
    `batch.not_done` is 1 − done.
    """
    for_critic, for_cost, for_actor = normals(key, *[batch.action.shape] * 3)
    limit = config.cost_rate * (1 - config.gamma**config.horizon) / (1 - config.gamma)  # [K]

    def is_safe(cost: Float[Array, "B K"]) -> Float[Array, " B"]:
        return jnp.all(cost <= limit, -1).astype(jnp.float32)

    def future(noise: Array) -> tuple[Float[Array, " B"], Float[Array, "B K"]]:
        action = state.actor.act(batch.next_obs, noise)
        return state.target(batch.next_obs, action).min(0), state.cost_target(batch.next_obs, action).min(0)

    value, cost = future(for_critic)
    counted = is_safe(cost)
    backup = config.reward_scale * batch.reward + config.gamma * batch.not_done * counted * value
    cost_backup = batch.cost + config.gamma * future(for_cost)[1]

    critic, critic_opt, (critic_objective, q) = fit_twins(
        state.critic, state.critic_opt, batch, backup, config.critic_rate
    )
    cost_critic, cost_opt, (cost_objective, cost_q) = fit_twins(
        state.cost_critic, state.cost_opt, batch, cost_backup, config.critic_rate
    )

    def actor_loss(actor: TanhGaussian) -> Array:
        action = actor.act(batch.obs, for_actor)
        return -jnp.mean(is_safe(cost_critic(batch.obs, action).min(0)) * critic(batch.obs, action).min(0))

    actor, actor_opt, actor_objective = descend(actor_loss, state.actor, state.actor_opt, config.actor_rate)
    metrics = {
        "critic_loss": critic_objective,
        "cost_loss": cost_objective,
        "actor_loss": actor_objective,
        "q": q.mean(),
        "safe": counted.mean(),
    }
    state = dataclasses.replace(
        state,
        actor=actor,
        critic=critic,
        cost_critic=cost_critic,
        target=polyak(state.target, critic, config.target_rate),
        cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        cost_opt=cost_opt,
    )
    return state, metrics | per_constraint("q_cost", cost_q.mean((0, 1)))
