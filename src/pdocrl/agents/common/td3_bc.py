"""TD3+BC, the offline actor-critic that CARL and O3SRL hand their rewards to.

    Q_i ← r + γ min_j Q_j(s′, a′),   a′ = clip(π(s′) + clip(ε, ±c)),   ε ~ N(0, σ²)
    minimise over π   E_D[ ‖π(s) − a‖² ] − α E_D[ Q_1(s, π(s)) ] / E_D|Q_1(s, π(s))|,   π(s) = tanh(network(s))

π and all targets move at every second step only. Fujimoto and Gu, A Minimalist Approach to Offline RL (NeurIPS 2021).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from pdocrl.agents.base import AgentConfig, Metrics, Problem, Transitions, static
from pdocrl.agents.common.candidates import fit_twins
from pdocrl.nn.mlp import MLP, Critic, polyak
from pdocrl.nn.optim import descend


class TD3BCConfig(AgentConfig):
    """The hyper-parameters of TD3+BC as published."""

    actor_rate: float = 3e-4  # learning rate of π
    critic_rate: float = 3e-4  # of the critics
    target_rate: float = 0.005  # of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    pull: float = 2.5  # α: how much the critic counts beside imitation
    target_noise: float = 0.2  # σ of the noise on the action a critic is backed up from
    noise_clip: float = 0.5  # and its largest size
    batch_size: int = static(256)  # transitions per step
    actor_every: int = static(2)  # steps between two moves of π and of the targets


class ActorCritic(eqx.Module):
    """π, twin critics, their targets and optimisers."""

    actor: MLP
    critic: Critic
    actor_target: MLP
    target: Critic
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    steps: Array  # taken so far

    @staticmethod
    def create(config: TD3BCConfig, problem: Problem, key: PRNGKeyArray) -> ActorCritic:
        s, a = problem.obs_dim, problem.action_dim
        keys, adam = jax.random.split(key), optax.scale_by_adam()
        actor = MLP.create(keys[0], (s, *config.hidden, a))
        critic = Critic.create(keys[1], s, a, config.hidden, members=2)
        return ActorCritic(actor, critic, actor, critic, adam.init(actor), adam.init(critic), jnp.zeros((), jnp.int32))

    def step(
        self, config: TD3BCConfig, batch: Transitions, reward: Float[Array, " B"], noise: Float[Array, "B A"]
    ) -> tuple[ActorCritic, Metrics]:
        """One step on the given rewards (already scaled), with standard normal noise; metrics hold both losses."""
        shake = jnp.clip(config.target_noise * noise, -config.noise_clip, config.noise_clip)
        next_action = jnp.clip(jnp.tanh(self.actor_target(batch.next_obs)) + shake, -1, 1)
        backup = reward + config.gamma * batch.not_done * self.target(batch.next_obs, next_action).min(0)

        critic, critic_opt, (critic_objective, q) = fit_twins(
            self.critic, self.critic_opt, batch, backup, config.critic_rate
        )
        first = Critic(jax.tree.map(lambda weight: weight[0], critic.mlp))

        def actor_loss(actor: MLP) -> tuple[Array, Array]:
            action = jnp.tanh(actor(batch.obs))
            value = first(batch.obs, action)
            size = jax.lax.stop_gradient(jnp.abs(value).mean()) + 1e-8
            return ((action - batch.action) ** 2).mean() - config.pull * value.mean() / size, value.mean()

        def move(_: None) -> tuple[MLP, MLP, Critic, optax.OptState, Array, Array]:
            actor, actor_opt, (objective, value) = descend(
                actor_loss, self.actor, self.actor_opt, config.actor_rate, has_aux=True
            )
            targets = (
                polyak(self.actor_target, actor, config.target_rate),
                polyak(self.target, critic, config.target_rate),
            )
            return actor, *targets, actor_opt, objective, value

        def stay(_: None) -> tuple[MLP, MLP, Critic, optax.OptState, Array, Array]:
            objective, value = actor_loss(self.actor)
            return self.actor, self.actor_target, self.target, self.actor_opt, objective, value

        steps = self.steps + 1
        due: Bool[Array, ""] = steps % config.actor_every == 0
        actor, actor_target, target, actor_opt, objective, value = jax.lax.cond(due, move, stay, None)
        moved = ActorCritic(actor, critic, actor_target, target, actor_opt, critic_opt, steps)
        return moved, {
            "critic_loss": critic_objective,
            "actor_loss": objective,
            "q": q.mean(),
            "q_policy": value,
        }
