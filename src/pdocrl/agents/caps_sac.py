"""CAPS with heads from SAC+BC: each climbs its mixture of the critics and stays near the logged actions.

    Q_r ← r + γ mean_k (Q_r(s′, a′_k) − α log π_k(a′_k|s′)),   Q_c ← c + γ mean_k Q_c(s′, a′_k),   a′_k ~ π_k(·|s′)
    head k minimises   E_D[ α log π_k − 2.5 M_k / mean|M_k| ] + mean (a_k − a)²,   a_k ~ π_k(·|s)
    M_1 = Q_r,   M_k = Q_r − 2(k−1)/(H−1) Q_c,   M_H = −Q_c
    α by gradient of   α E[−log π − entropy aimed at]

One critic of reward and one of cost serve all heads, each the most pessimistic of M networks. No limit is told in
training: `caps.py` has how one is kept. docs/agents/caps.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import (
    Agent,
    Columns,
    Learned,
    Metrics,
    Problem,
    Transitions,
    not_done_at_timeout,
    per_constraint,
    static,
)
from pdocrl.agents.common.caps import CAPSConfig, check_heads, price_of_cost, switching_policy
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import LOG_STD_RANGE, squashed_log_density
from pdocrl.nn.mlp import MLP, normals, polyak
from pdocrl.nn.optim import adam_step
from pdocrl.policies.cost_conditioned import SwitchingPolicy


class CAPSSACConfig(CAPSConfig):
    """The paper's hyper-parameters."""

    actor_rate: float = 1e-4  # learning rate of the heads
    critic_rate: float = 1e-3  # of Q_r and Q_c
    temperature_rate: float = 1e-4  # of log α
    temperature: float = 0.1  # α at the start
    improvement: float = 2.5  # weight of the critics against the logged actions
    members: int = static(4)  # M, networks of each critic
    time_limit_ends: bool = static(True)  # whether nothing counts beyond an episode's last logged step


class SquashedHeads(eqx.Module):
    """H tanh-Gaussians on one network, whose outputs are all means, then all log standard deviations."""

    mlp: MLP
    heads: int = eqx.field(static=True)

    def act(
        self, obs: Float[Array, "B S"], noise: Float[Array, "H B A"]
    ) -> tuple[Float[Array, "H B A"], Float[Array, "H B"]]:
        """The actions that standard normal noise leads to, and their log-densities."""
        out = jnp.moveaxis(self.mlp(obs).reshape(len(obs), 2, self.heads, -1), 0, 2)  # [2, H, B, A]
        mean, log_std = out[0], jnp.clip(out[1], *LOG_STD_RANGE)
        raw = mean + jnp.exp(log_std) * noise
        return jnp.tanh(raw), squashed_log_density(raw, noise, log_std)


class Temperature(eqx.Module):
    """α = e^log, the price of certainty."""

    log: Array


class CAPSSACState(eqx.Module):
    """Heads, critics, their targets, the temperature."""

    actor: SquashedHeads
    critic: MLP
    cost_critic: MLP
    target: MLP
    cost_target: MLP
    temperature: Temperature
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    cost_opt: optax.OptState
    temperature_opt: optax.OptState


class CAPSSAC(Agent[CAPSSACConfig, CAPSSACState]):
    """Policy switching among heads of SAC+BC."""

    name = "caps_sac"
    summary = "Heads that ascend reward or descend cost near the data; acts by the best within any given limit."
    paper = "Chemingui et al., Constraint-Adaptive Policy Switching for Offline Safe RL (AAAI 2025)"
    mixed_precision = True  # five tasks, the same seeds: docs/training.md
    Config = CAPSSACConfig

    def ignores_limit(self, config: CAPSSACConfig) -> bool:
        return True  # it is told when it acts

    def columns(self, config: CAPSSACConfig, dataset: Dataset) -> Columns:
        """Beyond a time limit there is a future, but the critics, each the worst of M at actions that nobody logged,
        find no end to it: Q_c outgrows what an episode can cost, and no head satisfies any limit."""
        columns = super().columns(config, dataset)
        return columns | {"not_done": not_done_at_timeout(dataset)} if config.time_limit_ends else columns

    def init(self, config: CAPSSACConfig, problem: Problem, key: PRNGKeyArray) -> CAPSSACState:
        check_heads(config)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 3)
        actor = SquashedHeads(MLP.create(keys[0], (s, *config.hidden, 2 * config.heads * a)), config.heads)
        critic = MLP.create(keys[1], (s + a, *config.hidden, 1), config.members)
        cost_critic = MLP.create(keys[2], (s + a, *config.hidden, k), config.members)
        temperature = Temperature(jnp.log(jnp.asarray(config.temperature, jnp.float32)))
        adam = optax.scale_by_adam()
        return CAPSSACState(
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            target=critic,
            cost_target=cost_critic,
            temperature=temperature,
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            cost_opt=adam.init(cost_critic),
            temperature_opt=adam.init(temperature),
        )

    def update(
        self, config: CAPSSACConfig, state: CAPSSACState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[CAPSSACState, Metrics]:
        size, action_dim = batch.action.shape
        heads, shape = config.heads, (config.heads, size, action_dim)
        next_noise, noise = normals(key, shape, shape)
        alpha = jnp.exp(state.temperature.log)
        pairs = jnp.concatenate([batch.obs, batch.action], -1)

        next_action, next_log_prob = state.actor.act(batch.next_obs, next_noise)
        next_value = state.target.joined(batch.next_obs, next_action)[..., 0].min(0)  # [H, B]
        next_cost = state.cost_target.joined(batch.next_obs, next_action).max(0).mean(0)  # [B, K]
        not_done = config.gamma * batch.not_done
        backup = config.reward_scale * batch.reward + not_done * (next_value - alpha * next_log_prob).mean(0)
        cost_backup = batch.cost + not_done[:, None] * next_cost

        def critic_loss(critic: MLP) -> Array:
            return ((backup - critic(pairs)[..., 0]) ** 2).mean(-1).sum()

        def cost_loss(cost_critic: MLP) -> Array:
            return ((cost_backup - cost_critic(pairs)) ** 2).mean(1).sum()

        def actor_loss(actor: SquashedHeads) -> tuple[Array, Array]:
            action, log_prob = actor.act(batch.obs, noise)
            tried = jnp.concatenate([jnp.broadcast_to(batch.obs, (heads, *batch.obs.shape)), action], -1)
            # The last head is not asked for its reward, nor the first for its cost: each [H−1, B].
            value = state.critic(tried[:-1].reshape(-1, tried.shape[-1]))[..., 0].min(0).reshape(-1, size)
            cost = state.cost_critic(tried[1:].reshape(-1, tried.shape[-1])).max(0).sum(-1).reshape(-1, size)
            between = [value[k] - price_of_cost(k, heads) * cost[k - 1] for k in range(1, heads - 1)]
            mixed = jnp.stack([value[0], *between, -cost[-1]])
            scale = config.improvement / jax.lax.stop_gradient(jnp.abs(mixed).mean(-1))
            copied = ((action - batch.action) ** 2).mean((1, 2))
            return (alpha * log_prob.mean(-1) - scale * mixed.mean(-1) + copied).sum(), log_prob

        critic_objective, critic_gradient = jax.value_and_grad(critic_loss)(state.critic)
        cost_objective, cost_gradient = jax.value_and_grad(cost_loss)(state.cost_critic)
        (actor_objective, log_prob), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.actor)
        entropy = -log_prob.mean(-1)  # [H]; aimed at: minus the number of the action's coordinates

        def temperature_loss(temperature: Temperature) -> Array:
            return jnp.exp(temperature.log) * jnp.sum(entropy + action_dim)

        temperature_gradient = jax.grad(temperature_loss)(state.temperature)
        actor, actor_opt = adam_step(actor_gradient, state.actor_opt, state.actor, config.actor_rate)
        critic, critic_opt = adam_step(critic_gradient, state.critic_opt, state.critic, config.critic_rate)
        cost_critic, cost_opt = adam_step(cost_gradient, state.cost_opt, state.cost_critic, config.critic_rate)
        temperature, temperature_opt = adam_step(
            temperature_gradient, state.temperature_opt, state.temperature, config.temperature_rate
        )
        state = CAPSSACState(
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            target=polyak(state.target, critic, config.target_rate),
            cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
            temperature=temperature,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            cost_opt=cost_opt,
            temperature_opt=temperature_opt,
        )
        metrics = {
            "critic_loss": critic_objective,
            "cost_loss": cost_objective,
            "actor_loss": actor_objective,
            "q": backup.mean(),
            "alpha": alpha,
            "entropy": entropy.mean(),
        }
        return state, metrics | per_constraint("q_cost", cost_backup.mean(0))

    def policy(self, config: CAPSSACConfig, state: CAPSSACState) -> SwitchingPolicy:
        action_dim = state.actor.mlp.weights[-1].shape[-1] // (2 * config.heads)
        return switching_policy(config, state.actor.mlp, action_dim, state.critic, state.cost_critic)

    def learned(self, config: CAPSSACConfig, state: CAPSSACState) -> Learned:
        """Q_r and Q_c of the mean over heads."""

        def pairs(obs: Array, action: Array) -> Array:
            return jnp.concatenate([obs, action], -1)

        return Learned(
            q=lambda obs, action: state.critic(pairs(obs, action))[..., 0].min(0) / config.reward_scale,
            q_cost=lambda obs, action: state.cost_critic(pairs(obs, action)).max(0),
        )
