"""BCQ-Lag: choose among actions a VAE of the data proposes, slightly perturbed, by Q_r − λ·Q_c; λ by PID control.

    π(s) = argmax_i Q_λ(s, a_i),   a_i = clip(â_i + Φ tanh ξ(s, â_i)),   â_i = decode(s, z_i),   z_i ~ N(0, I) clipped
    Q_λ = Q_r − λ·Q_c,   Q_r ← r + γ Q_r(s′, π(s′)),   Q_c ← c + γ Q_c(s′, π(s′))
    maximise over ξ   E_D[ Q_λ(s, a₁) ],   λ by PID of   E_D[Q_c(s′, π(s′))] − κ/(1−γ)

κ = cost limit / horizon. Twin critics are mixed as in BCQ: 0.75 of the pessimistic one, 0.25 of the other.
docs/agents/bcq_lag.md.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from pdocrl.agents.base import Agent, AgentConfig, Learned, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.common.candidates import LATENT_CLIP, best_candidate, fit_twins, mix_costs, mix_twins, mix_values
from pdocrl.agents.common.numpy_policy import layers_of
from pdocrl.nn.mlp import MLP, CostCritic, Critic, normals, polyak
from pdocrl.nn.multipliers import PIDMultiplier
from pdocrl.nn.optim import descend
from pdocrl.nn.vae import VAE
from pdocrl.policies.policy import CandidatePolicy


class BCQLagConfig(AgentConfig):
    """The benchmark's hyper-parameters."""

    actor_rate: float = 1e-4  # learning rate of the perturbation ξ
    critic_rate: float = 1e-3  # of Q_r and Q_c
    vae_rate: float = 1e-3  # of the VAE
    target_rate: float = 0.005  # of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    beta: float = 0.5  # β, weight of the KL term in the VAE's loss; at .5 the VAE hardly varies its actions
    perturbation: float = 0.05  # Φ: how far an action may move from the VAE's proposal
    pessimism: float = 0.75  # weight of the pessimistic twin
    pid_p: float = 0.1  # gains of the PID controller of λ: proportional,
    pid_i: float = 0.003  # integral
    pid_d: float = 0.001  # and derivative
    samples: int = static(10)  # proposals per state
    vae_hidden: tuple[int, ...] = static((400, 400))  # widths of the VAE's hidden layers


class BCQLagState(eqx.Module):
    """The VAE, the perturbation, the critics, their targets, and the controller of λ."""

    vae: VAE
    actor: MLP
    critic: Critic
    cost_critic: CostCritic
    actor_target: MLP
    target: Critic
    cost_target: CostCritic
    multiplier: PIDMultiplier
    vae_opt: optax.OptState
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    cost_opt: optax.OptState


class BCQLag(Agent[BCQLagConfig, BCQLagState]):
    """Batch-constrained Q-learning with a Lagrangian."""

    name = "bcq_lag"
    summary = "Picks among a VAE's proposals by reward minus priced cost; prices follow a PID controller."
    paper = "Fujimoto et al., BCQ (ICML 2019); Stooke et al., PID Lagrangian (ICML 2020); Xu et al. (AAAI 2022)"
    mixed_precision = True  # five tasks, the same seeds: docs/training.md
    Config = BCQLagConfig

    def init(self, config: BCQLagConfig, problem: Problem, key: PRNGKeyArray) -> BCQLagState:
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 4)
        vae = VAE.create(keys[0], s, a, config.vae_hidden, latent=2 * a)
        actor = MLP.create(keys[1], (s + a, *config.hidden, a))
        critic = Critic.create(keys[2], s, a, config.hidden, members=2)
        cost_critic = CostCritic.create(keys[3], s, a, k, config.hidden, members=2)
        adam = optax.scale_by_adam()
        return BCQLagState(
            vae=vae,
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            actor_target=actor,
            target=critic,
            cost_target=cost_critic,
            multiplier=PIDMultiplier.create(k),
            vae_opt=adam.init(vae),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            cost_opt=adam.init(cost_critic),
        )

    def update(
        self, config: BCQLagConfig, state: BCQLagState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[BCQLagState, Metrics]:
        lam, size, latent = state.multiplier.lam, len(batch.obs), 2 * batch.action.shape[-1]
        vae_noise, next_noise, actor_noise = normals(
            key, (size, latent), (config.samples, size, latent), (size, latent)
        )

        def proposals(obs: Array, noise: Array) -> Array:
            return state.vae.decode(obs, jnp.clip(noise, -LATENT_CLIP, LATENT_CLIP))

        def perturbed(actor: MLP, obs: Array, action: Array) -> Array:
            moved = action + config.perturbation * jnp.tanh(actor.joined(obs, action))
            return jnp.clip(moved, -1, 1)

        # π at s′: the best of n perturbed proposals, [n, B, A]
        candidates = perturbed(state.actor_target, batch.next_obs, proposals(batch.next_obs, next_noise))
        next_value, next_cost = best_candidate(
            state.target, state.cost_target, lam, batch.next_obs, candidates, config.pessimism
        )
        not_done = config.gamma * batch.not_done
        backup = config.reward_scale * batch.reward + not_done * next_value
        cost_backup = batch.cost + not_done[:, None] * next_cost

        proposed = proposals(batch.obs, actor_noise)

        def actor_loss(actor: MLP) -> Array:
            action = perturbed(actor, batch.obs, proposed)
            value, cost = mix_twins(
                state.critic(batch.obs, action), state.cost_critic(batch.obs, action), config.pessimism
            )
            return -jnp.mean(value - cost @ lam)

        def vae_loss(vae: VAE) -> Array:
            return vae.loss(batch.obs, batch.action, vae_noise, config.beta)

        critic, critic_opt, (critic_objective, q) = fit_twins(
            state.critic, state.critic_opt, batch, backup, config.critic_rate
        )
        cost_critic, cost_opt, (cost_objective, cost_q) = fit_twins(
            state.cost_critic, state.cost_opt, batch, cost_backup, config.critic_rate
        )
        actor, actor_opt, actor_objective = descend(actor_loss, state.actor, state.actor_opt, config.actor_rate)
        vae, vae_opt, vae_objective = descend(vae_loss, state.vae, state.vae_opt, config.vae_rate)
        # The gains were chosen for discounted sums, so the violation of the rate is divided by 1 − γ.
        own_cost = next_cost.mean(0)
        violation = own_cost - config.cost_rate / (1 - config.gamma)
        multiplier = state.multiplier.step(violation, config.pid_p, config.pid_i, config.pid_d)
        state = BCQLagState(
            vae=vae,
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            actor_target=polyak(state.actor_target, actor, config.target_rate),
            target=polyak(state.target, critic, config.target_rate),
            cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
            multiplier=multiplier,
            vae_opt=vae_opt,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            cost_opt=cost_opt,
        )
        metrics = {
            "critic_loss": critic_objective,
            "cost_loss": cost_objective,
            "actor_loss": actor_objective,
            "vae_loss": vae_objective,
            "q": q.mean(),
        }
        metrics |= per_constraint("q_cost", cost_q.mean((0, 1))) | per_constraint("q_cost_policy", own_cost)
        return state, metrics | per_constraint("lambda", lam)

    def policy(self, config: BCQLagConfig, state: BCQLagState) -> CandidatePolicy:
        return CandidatePolicy(
            {
                name: layers_of(mlp)
                for name, mlp in (
                    ("decoder", state.vae.decoder),
                    ("perturbation", state.actor),
                    ("critic", state.critic.mlp),
                    ("cost_critic", state.cost_critic.mlp),
                )
            },
            np.asarray(state.multiplier.lam),
            candidates=config.samples,
            latent_clip=LATENT_CLIP,
            perturbation=float(config.perturbation),
            pessimism=float(config.pessimism),
        )

    def learned(self, config: BCQLagConfig, state: BCQLagState) -> Learned:
        """Q_r, Q_c and λ as reward given up for a unit of cost."""
        return Learned(
            q=lambda obs, action: mix_values(state.critic(obs, action), config.pessimism) / config.reward_scale,
            q_cost=lambda obs, action: mix_costs(state.cost_critic(obs, action), config.pessimism),
            multipliers=state.multiplier.lam / config.reward_scale,
        )
