"""CAPS with heads from implicit Q-learning: each copies logged actions, weighed by their advantage in reward or cost.

    V_r, V_c the τ-expectiles of Q_r and of −Q_c over logged actions,   Q_r ← r + γ V_r(s′),   Q_c ← c + γ V_c(s′)
    head 1 maximises   E_D[ w_r log π(a|s) ],   w_r = e^{β (Q_r − V_r)}
    head H maximises   E_D[ w_c log π(a|s) ],   w_c = e^{β_c (V_c − Q_c)}
    head k between     E_D[ (w_r + 2(k−1)/(H−1) w_c) log π(a|s) ]

Weights are cut at 100. No head, and no critic, is told a limit: `caps.py` has that. docs/agents/caps.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, Learned, Metrics, Problem, Transitions, per_constraint
from pdocrl.agents.common.caps import CAPSConfig, check_heads, price_of_cost, switching_policy
from pdocrl.agents.common.iql import ImplicitValues, advantage_weight
from pdocrl.nn.distributions import LOG_STD_RANGE
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optim import adam_step
from pdocrl.policies.cost_conditioned import SwitchingPolicy


class CAPSIQLConfig(CAPSConfig):
    """The paper's hyper-parameters for the Bullet and Safety-Gymnasium tasks."""

    actor_rate: float = 3e-4  # learning rate of the heads
    critic_rate: float = 3e-4  # of Q_r and Q_c
    value_rate: float = 3e-4  # of V_r and V_c
    expectile: float = 0.7  # τ of V_r
    cost_expectile: float = 0.7  # τ of −V_c: V_c leans to the least cost of a logged action
    beta: float = 3.0  # β, inverse temperature of the reward's weights
    beta_cost: float = 3.0  # β_c, of the cost's


class GaussianHeads(eqx.Module):
    """H Gaussians on one network: means tanh(network) [H, B, A], a scale for each head and coordinate of the action."""

    mlp: MLP
    log_std: Float[Array, "H A"]

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, action_dim: int, heads: int, hidden: tuple[int, ...]) -> GaussianHeads:
        return GaussianHeads(MLP.create(key, (obs_dim, *hidden, heads * action_dim)), jnp.zeros((heads, action_dim)))

    def modes(self, obs: Float[Array, "B S"]) -> Float[Array, "H B A"]:
        return jnp.moveaxis(jnp.tanh(self.mlp(obs)).reshape(len(obs), *self.log_std.shape), 1, 0)

    def log_prob(self, obs: Float[Array, "B S"], action: Float[Array, "B A"]) -> Float[Array, "H B"]:
        log_std = jnp.clip(self.log_std, *LOG_STD_RANGE)[:, None]
        z = (action - self.modes(obs)) * jnp.exp(-log_std)
        return (-0.5 * (z**2 + jnp.log(2 * jnp.pi)) - log_std).sum(-1)


class CategoricalHeads(eqx.Module):
    """H distributions over n discrete actions on one network."""

    mlp: MLP
    heads: int = eqx.field(static=True)

    def log_prob(self, obs: Float[Array, "B S"], action: Float[Array, "B A"]) -> Float[Array, "H B"]:
        scores = self.mlp(obs).reshape(len(obs), self.heads, -1)
        return (action[:, None] * jax.nn.log_softmax(scores)).sum(-1).T


Heads = GaussianHeads | CategoricalHeads


class CAPSIQLState(eqx.Module):
    """Values of reward and costs, and the heads."""

    reward: ImplicitValues
    cost: ImplicitValues
    actor: Heads
    actor_opt: optax.OptState


class CAPSIQL(Agent[CAPSIQLConfig, CAPSIQLState]):
    """Policy switching among heads of implicit Q-learning."""

    name = "caps_iql"
    summary = "Heads that imitate by reward or by cost advantage; acts by the best within any given limit."
    paper = "Chemingui et al., Constraint-Adaptive Policy Switching for Offline Safe RL (AAAI 2025)"
    discrete_actions = True
    Config = CAPSIQLConfig

    def ignores_limit(self, config: CAPSIQLConfig) -> bool:
        return True  # it is told when it acts

    def init(self, config: CAPSIQLConfig, problem: Problem, key: PRNGKeyArray) -> CAPSIQLState:
        check_heads(config)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 3)
        actor: Heads = GaussianHeads.create(keys[2], s, a, config.heads, config.hidden)
        if problem.discrete_actions:
            actor = CategoricalHeads(actor.mlp, config.heads)
        return CAPSIQLState(
            reward=ImplicitValues.create(keys[0], s + a, s, 1, config.hidden, of_costs=False),
            cost=ImplicitValues.create(keys[1], s + a, s, k, config.hidden, of_costs=True),
            actor=actor,
            actor_opt=optax.scale_by_adam().init(actor),
        )

    def update(
        self, config: CAPSIQLConfig, state: CAPSIQLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[CAPSIQLState, Metrics]:
        pairs = jnp.concatenate([batch.obs, batch.action], -1)
        not_done = (config.gamma * batch.not_done)[:, None]
        backup = config.reward_scale * batch.reward[:, None] + not_done * state.reward.value(batch.next_obs)
        cost_backup = batch.cost + not_done * state.cost.value(batch.next_obs)

        earns = advantage_weight(state.reward.advantage(pairs, batch.obs)[:, 0], config.beta)
        saves = advantage_weight(-state.cost.advantage(pairs, batch.obs).sum(-1), config.beta_cost)
        between = [earns + price_of_cost(k, config.heads) * saves for k in range(1, config.heads - 1)]
        weights = jnp.stack([earns, *between, saves])  # [H, B]

        def actor_loss(actor: Heads) -> Array:
            return -(weights * actor.log_prob(batch.obs, batch.action)).mean()

        objective, gradient = jax.value_and_grad(actor_loss)(state.actor)
        actor, actor_opt = adam_step(gradient, state.actor_opt, state.actor, config.actor_rate)

        # A cost's expectile is that of −Q_c, so 1 − τ of Q_c.
        reward, value_loss = state.reward.fit_value(pairs, batch.obs, config.expectile, config.value_rate)
        cost, cost_value_loss = state.cost.fit_value(pairs, batch.obs, 1 - config.cost_expectile, config.value_rate)
        reward, critic_loss = reward.fit_critic(pairs, backup, config.critic_rate, config.target_rate)
        cost, cost_loss = cost.fit_critic(pairs, cost_backup, config.critic_rate, config.target_rate)
        metrics = {
            "critic_loss": critic_loss,
            "value_loss": value_loss,
            "cost_loss": cost_loss,
            "cost_value_loss": cost_value_loss,
            "actor_loss": objective,
            "q": backup.mean(),
        }
        metrics |= per_constraint("q_cost", cost_backup.mean(0))
        return CAPSIQLState(
            reward=reward,
            cost=cost,
            actor=actor,
            actor_opt=actor_opt,
        ), metrics

    def policy(self, config: CAPSIQLConfig, state: CAPSIQLState) -> SwitchingPolicy:
        actor = state.actor
        action_dim = actor.mlp.biases[-1].shape[-1] // config.heads
        discrete = isinstance(actor, CategoricalHeads)
        return switching_policy(config, actor.mlp, action_dim, state.reward.critic, state.cost.critic, discrete)

    def learned(self, config: CAPSIQLConfig, state: CAPSIQLState) -> Learned:
        """Expectile values of logged actions: the largest reward, the least cost."""
        reward, cost = state.reward, state.cost

        def pairs(obs: Array, action: Array) -> Array:
            return jnp.concatenate([obs, action], -1)

        return Learned(
            q=lambda obs, action: reward.worse(reward.critic(pairs(obs, action)))[..., 0] / config.reward_scale,
            v=lambda obs: reward.value(obs)[..., 0] / config.reward_scale,
            q_cost=lambda obs, action: cost.worse(cost.critic(pairs(obs, action))),
            v_cost=lambda obs: cost.value(obs),
        )
