"""BEAR-Lag: a policy whose actions stay within a maximum mean discrepancy of the data's; λ by PID control.

    maximise over π   E_D[ Q_λ(s, π(s)) ]   s.t.   MMD( π(·|s), β̂(·|s) ) ≤ ε,   Q_λ = Q_r − λ·Q_c
    Q_r ← r + γ Q_r(s′, a*),   Q_c ← c + γ Q_c(s′, a*),   a* = argmax_i Q_λ(s′, a_i),   a_i ~ π(·|s′)

β̂ is a VAE of the data, the MMD's constraint is priced by α (dual ascent on log α), and λ follows a PID controller of
E_D[Q_c(s, π(s))] − κ/(1−γ), κ = cost limit / horizon. docs/agents/bear_lag.md.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, AgentConfig, Learned, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.common.candidates import LATENT_CLIP, best_candidate, fit_twins, mix_costs, mix_twins, mix_values
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.nn.distributions import TanhGaussian
from pdocrl.nn.mlp import CostCritic, Critic, normals, polyak
from pdocrl.nn.multipliers import PIDMultiplier
from pdocrl.nn.optim import adam_step, descend
from pdocrl.nn.vae import VAE
from pdocrl.policies.policy import MLPPolicy

LOG_ALPHA_MIN = -5.0


class BEARLagConfig(AgentConfig):
    """The benchmark's hyper-parameters."""

    actor_rate: float = 1e-4  # learning rate of π
    critic_rate: float = 1e-3  # of Q_r and Q_c
    vae_rate: float = 1e-3  # of the VAE
    alpha_rate: float = 1e-3  # of log α, the price of the discrepancy
    log_alpha_max: float = 5.0  # α is cut at e⁵; where that is too low for λ's pull, π leaves the data
    target_rate: float = 0.005  # of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    beta: float = 0.5  # β, weight of the KL term in the VAE's loss; at .5 the VAE hardly varies its actions
    discrepancy: float = 0.05  # ε: the largest allowed MMD
    kernel_width: float = 50.0  # σ of the kernel
    pessimism: float = 0.75  # weight of the pessimistic twin
    pid_p: float = 0.1  # gains of the PID controller of λ: proportional,
    pid_i: float = 0.003  # integral
    pid_d: float = 0.001  # and derivative
    normalised: bool = static(False)  # π climbs Q_λ / (1 + Σλ), so that α, which is cut, need not outgrow λ
    kernel: Literal["gaussian", "laplacian"] = static("gaussian")  # exp(−|x−y|²/2σ) or exp(−|x−y|₁/2σ)
    samples: int = static(10)  # actions per state, in backups and in the discrepancy
    vae_hidden: tuple[int, ...] = static((400, 400))  # widths of the VAE's hidden layers


class BEARLagState(eqx.Module):
    """The VAE, the policy, the critics, their targets, the discrepancy's price, and the controller of λ."""

    vae: VAE
    actor: TanhGaussian
    critic: Critic
    cost_critic: CostCritic
    actor_target: TanhGaussian
    target: Critic
    cost_target: CostCritic
    log_alpha: Float[Array, ""]
    multiplier: PIDMultiplier
    vae_opt: optax.OptState
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    cost_opt: optax.OptState
    alpha_opt: optax.OptState


class BEARLag(Agent[BEARLagConfig, BEARLagState]):
    """Bootstrapping error accumulation reduction with a Lagrangian."""

    name = "bear_lag"
    summary = "An actor-critic held within an MMD of the data's actions; prices of costs follow a PID controller."
    paper = "Kumar et al., BEAR (NeurIPS 2019); Stooke et al., PID Lagrangian (ICML 2020); Xu et al. (AAAI 2022)"
    mixed_precision = True  # five tasks, the same seeds: docs/training.md
    Config = BEARLagConfig

    def init(self, config: BEARLagConfig, problem: Problem, key: PRNGKeyArray) -> BEARLagState:
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 4)
        vae = VAE.create(keys[0], s, a, config.vae_hidden, latent=2 * a)
        actor = TanhGaussian.create(keys[1], s, a, config.hidden)
        critic = Critic.create(keys[2], s, a, config.hidden, members=2)
        cost_critic = CostCritic.create(keys[3], s, a, k, config.hidden, members=2)
        log_alpha, adam = jnp.zeros(()), optax.scale_by_adam()
        return BEARLagState(
            vae=vae,
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            actor_target=actor,
            target=critic,
            cost_target=cost_critic,
            log_alpha=log_alpha,
            multiplier=PIDMultiplier.create(k),
            vae_opt=adam.init(vae),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            cost_opt=adam.init(cost_critic),
            alpha_opt=adam.init(log_alpha),
        )

    def update(
        self, config: BEARLagConfig, state: BEARLagState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[BEARLagState, Metrics]:
        lam, n, (size, action_dim) = state.multiplier.lam, config.samples, batch.action.shape
        latent = 2 * action_dim
        vae_noise, next_noise, actor_noise, data_noise = normals(
            key, (size, latent), (n, size, action_dim), (n, size, action_dim), (n, size, latent)
        )

        candidates = state.actor_target.act(batch.next_obs, next_noise)  # [n, B, A]
        next_value, next_cost = best_candidate(
            state.target, state.cost_target, lam, batch.next_obs, candidates, config.pessimism
        )
        not_done = config.gamma * batch.not_done
        backup = config.reward_scale * batch.reward + not_done * next_value
        cost_backup = batch.cost + not_done[:, None] * next_cost

        # The discrepancy is measured before tanh, where saturated actions still differ: [n, B, A]
        data_raw = state.vae.decode_raw(batch.obs, jnp.clip(data_noise, -LATENT_CLIP, LATENT_CLIP))

        def actor_loss(actor: TanhGaussian) -> tuple[Array, tuple[Array, Array]]:
            mean, log_std = actor.parameters(batch.obs)
            raw = mean + jnp.exp(log_std) * actor_noise
            action = jnp.tanh(raw[0])
            value, cost = mix_twins(
                state.critic(batch.obs, action), state.cost_critic(batch.obs, action), config.pessimism
            )
            gap = discrepancy(raw, data_raw, config.kernel, config.kernel_width).mean()
            penalty = jnp.exp(state.log_alpha) * (gap - config.discrepancy)
            gain = jnp.mean(value - cost @ lam) / (1 + lam.sum() if config.normalised else 1)
            return penalty - gain, (gap, cost.mean(0))

        def vae_loss(vae: VAE) -> Array:
            return vae.loss(batch.obs, batch.action, vae_noise, config.beta)

        critic, critic_opt, (critic_objective, q) = fit_twins(
            state.critic, state.critic_opt, batch, backup, config.critic_rate
        )
        cost_critic, cost_opt, (cost_objective, cost_q) = fit_twins(
            state.cost_critic, state.cost_opt, batch, cost_backup, config.critic_rate
        )
        actor, actor_opt, (actor_objective, (gap, own_cost)) = descend(
            actor_loss, state.actor, state.actor_opt, config.actor_rate, has_aux=True
        )
        vae, vae_opt, vae_objective = descend(vae_loss, state.vae, state.vae_opt, config.vae_rate)
        alpha_gradient = jnp.exp(state.log_alpha) * (config.discrepancy - gap)  # α grows while the MMD is too large
        log_alpha, alpha_opt = adam_step(alpha_gradient, state.alpha_opt, state.log_alpha, config.alpha_rate)
        # The gains were chosen for discounted sums, so the violation of the rate is divided by 1 − γ.
        violation = own_cost - config.cost_rate / (1 - config.gamma)
        multiplier = state.multiplier.step(violation, config.pid_p, config.pid_i, config.pid_d)
        metrics = {
            "critic_loss": critic_objective,
            "cost_loss": cost_objective,
            "actor_loss": actor_objective,
            "vae_loss": vae_objective,
            "q": q.mean(),
            "discrepancy": gap,
            "alpha": jnp.exp(state.log_alpha),
        }
        metrics |= per_constraint("q_cost", cost_q.mean((0, 1))) | per_constraint("q_cost_policy", own_cost)
        state = BEARLagState(
            vae=vae,
            actor=actor,
            critic=critic,
            cost_critic=cost_critic,
            actor_target=polyak(state.actor_target, actor, config.target_rate),
            target=polyak(state.target, critic, config.target_rate),
            cost_target=polyak(state.cost_target, cost_critic, config.target_rate),
            log_alpha=jnp.clip(log_alpha, LOG_ALPHA_MIN, config.log_alpha_max),
            multiplier=multiplier,
            vae_opt=vae_opt,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            cost_opt=cost_opt,
            alpha_opt=alpha_opt,
        )
        return state, metrics | per_constraint("lambda", lam)

    def policy(self, config: BEARLagConfig, state: BEARLagState) -> MLPPolicy:
        return mode_policy(state.actor)

    def learned(self, config: BEARLagConfig, state: BEARLagState) -> Learned:
        """Q_r, Q_c and λ as reward given up for a unit of cost."""
        return Learned(
            q=lambda obs, action: mix_values(state.critic(obs, action), config.pessimism) / config.reward_scale,
            q_cost=lambda obs, action: mix_costs(state.cost_critic(obs, action), config.pessimism),
            multipliers=state.multiplier.lam / config.reward_scale,
        )


def discrepancy(x: Float[Array, "n B A"], y: Float[Array, "n B A"], kernel: str, width: float | Array) -> Array:
    """MMD(x, y) of n samples each, [B]: √( E k(x,x′) + E k(y,y′) − 2 E k(x,y) )."""

    def similarity(left: Array, right: Array) -> Array:
        gap = left[:, None] - right[None]  # [n, n, B, A]
        distance = (gap**2 if kernel == "gaussian" else jnp.abs(gap)).sum(-1)
        return jnp.exp(-distance / (2 * width)).mean((0, 1))

    squared = similarity(x, x) + similarity(y, y) - 2 * similarity(x, y)
    return jnp.sqrt(jnp.maximum(squared, 0) + 1e-6)  # the root's slope at 0 is kept finite
