"""CARL, constraint-aware reward relabelling: where the cost to go is over the limit, the reward is the worst there is.

    Q_c ← c + γ Q_c(s′, π(s′))                                   the policy's own cost to go, by fitted Q evaluation
    r̃(s,a) = r(s,a)  if Q_c(s,a) ≤ l  else  −R_max               relabelled anew at every step
    π by TD3+BC on r̃

R_max is the largest reward of the data, l the cost limit. No multiplier: the limit is asked of every state and action,
not of their mean. docs/agents/carl.md.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, Learned, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.common.candidates import fit_twins
from pdocrl.agents.common.numpy_policy import network_policy
from pdocrl.agents.common.td3_bc import ActorCritic, TD3BCConfig
from pdocrl.nn.mlp import CostCritic, polyak
from pdocrl.policies.policy import MLPPolicy


class CARLConfig(TD3BCConfig):
    """Those of TD3+BC, and how the limit and the penalty are read."""

    penalty: Literal["reward", "value"] = static("reward")  # what relabelling takes: R_max, or R_max / (1 − γ)
    held: Literal["limit", "rate"] = static("limit")  # Q_c against the limit itself, or limit / horizon / (1 − γ)


class CARLState(eqx.Module):
    """The actor-critic on relabelled rewards, the cost critic, and the largest reward."""

    players: ActorCritic
    cost_critic: CostCritic
    cost_target: CostCritic
    cost_opt: optax.OptState
    largest_reward: Float[Array, ""]  # R_max, unscaled; stays as it is


class CARL(Agent[CARLConfig, CARLState]):
    """Offline actor-critic whose rewards are relabelled where the cost to go is over the limit."""

    name = "carl"
    summary = "TD3+BC with the worst reward wherever the policy's own cost to go exceeds the limit; no multiplier."
    paper = "Constraint-Aware Reward Relabeling for Offline Safe RL (submitted to ICLR 2026)"
    Config = CARLConfig

    def init(self, config: CARLConfig, problem: Problem, key: PRNGKeyArray) -> CARLState:
        keys = jax.random.split(key)
        cost_critic = CostCritic.create(
            keys[1], problem.obs_dim, problem.action_dim, problem.n_costs, config.hidden, members=1
        )
        return CARLState(
            players=ActorCritic.create(config, problem, keys[0]),
            cost_critic=cost_critic,
            cost_target=cost_critic,
            cost_opt=optax.scale_by_adam().init(cost_critic),
            largest_reward=jnp.asarray(problem.reward_scale, jnp.float32),
        )

    def update(
        self, config: CARLConfig, state: CARLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[CARLState, Metrics]:
        next_action = jnp.tanh(state.players.actor(batch.next_obs))
        next_cost = state.cost_target(batch.next_obs, next_action)[0]
        cost_backup = batch.cost + (config.gamma * batch.not_done)[:, None] * next_cost

        cost_critic, cost_opt, (objective, _) = fit_twins(
            state.cost_critic, state.cost_opt, batch, cost_backup, config.critic_rate
        )

        q_cost = cost_critic(batch.obs, batch.action)[0]  # [B, K], of the critic just moved
        safe = (q_cost <= self.threshold(config)).all(-1)
        worst = state.largest_reward / (1 - config.gamma if config.penalty == "value" else 1)
        reward = config.reward_scale * jnp.where(safe, batch.reward, -worst)
        players, metrics = state.players.step(config, batch, reward, jax.random.normal(key, batch.action.shape))
        state = CARLState(
            players=players,
            cost_critic=cost_critic,
            cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
            cost_opt=cost_opt,
            largest_reward=state.largest_reward,
        )
        metrics |= {"cost_loss": objective, "safe": safe.mean()} | per_constraint("q_cost", q_cost.mean(0))
        return state, metrics | per_constraint("q_cost_policy", next_cost.mean(0))

    @staticmethod
    def threshold(config: CARLConfig) -> Float[Array, " K"]:
        """l, what the discounted cost to go is held against."""
        if config.held == "rate":
            return config.cost_rate / (1 - config.gamma)
        return config.cost_rate * config.horizon

    def policy(self, config: CARLConfig, state: CARLState) -> MLPPolicy:
        return network_policy(state.players.actor)

    def learned(self, config: CARLConfig, state: CARLState) -> Learned:
        """Q_r of the relabelled reward, and Q_c."""
        return Learned(
            q=lambda obs, action: state.players.critic(obs, action).min(0) / config.reward_scale,
            q_cost=lambda obs, action: state.cost_critic(obs, action)[0],
        )
