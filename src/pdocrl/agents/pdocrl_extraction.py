"""The paper's ablation: solve the V-form Lagrangian for a density ratio, then extract a policy from it.

    max_w min_{V,λ}  L̂ = (1−γ) E_{d₀}[V(s)] + E_D[ w(s,a) (r_λ + γ V(s′) − V(s)) ] + λ·κ        eq. (ablation)
    π̂ = argmax_π  E_D[ w(s,a) log π(a|s) ]                                    eq. (policy extraction, density ratio)

Identical to PDOCRL except that π takes no part in the game. Both problems are descended together; π never feeds back.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from pdocrl.agents.base import Agent, Learned, Metrics, Problem, Transitions
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.agents.common.saddle import (
    SaddleConfig,
    dual_bound,
    make_multiplier,
    move_multiplier,
    ratio_of,
    saddle_metrics,
)
from pdocrl.nn.distributions import LikelihoodActor, likelihood_actor
from pdocrl.nn.mlp import MLP, density_ratio, polyak
from pdocrl.nn.multipliers import LogMultiplier, SoftplusMultiplier
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import MLPPolicy


class PDOCRLExtractionState(eqx.Module):
    """w, V with its target, λ, and the extracted policy."""

    weight: MLP
    actor: LikelihoodActor
    critic: MLP
    target: MLP
    multiplier: SoftplusMultiplier | LogMultiplier
    average: LikelihoodActor
    steps: Array
    v_bound: Array  # largest |V| there can be; not used by the squared critic
    weight_opt: optax.OptState
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    multiplier_opt: optax.OptState


class PDOCRLExtraction(Agent[SaddleConfig, PDOCRLExtractionState]):
    """V-form saddle point, then weighted maximum likelihood."""

    name = "pdocrl_extraction"
    summary = (
        "The ablation: a density ratio from the V-form Lagrangian, then a policy extracted by weighted likelihood."
    )
    paper = "Offline Constrained RL under Partial Data Coverage, ablation study"
    needs = "any number of costs"
    fewest_costs = 0
    discrete_actions = True
    Config = SaddleConfig

    def init(self, config: SaddleConfig, problem: Problem, key: PRNGKeyArray) -> PDOCRLExtractionState:
        keys = jax.random.split(key, 3)
        weight = MLP.create(keys[0], (problem.obs_dim + problem.action_dim, *config.hidden, 1))
        actor = likelihood_actor(problem.discrete_actions).create(
            keys[1], problem.obs_dim, problem.action_dim, config.hidden
        )
        critic = MLP.create(keys[2], (problem.obs_dim, *config.hidden, 1), members=2)
        multiplier = make_multiplier(config, problem.n_costs)
        largest = problem.reward_scale * config.reward_scale + dual_bound(config) * problem.cost_scale
        adam = optax.scale_by_adam()
        return PDOCRLExtractionState(
            weight=weight,
            actor=actor,
            critic=critic,
            target=critic,
            multiplier=multiplier,
            average=actor,
            steps=jnp.zeros((), jnp.int32),
            v_bound=jnp.asarray(largest / (1 - config.gamma), jnp.float32),
            weight_opt=adam.init(weight),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            multiplier_opt=adam.init(multiplier),
        )

    def update(
        self, config: SaddleConfig, state: PDOCRLExtractionState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[PDOCRLExtractionState, Metrics]:
        lam = state.multiplier.lam
        starts = batch.obs if config.initial_states == "batch" else batch.initial_obs
        reward = config.reward_scale * batch.reward - batch.cost @ lam
        pair = jnp.concatenate([batch.obs, batch.action], -1)
        w = ratio_of(config, state.weight, pair)

        def value(critic: MLP, obs: Array) -> Array:
            v = critic(obs)[..., 0]  # [2, B]
            return state.v_bound * jnp.tanh(v / state.v_bound) if config.critic == "linear" else v

        backup = reward + config.gamma * batch.not_done * value(state.target, batch.next_obs).min(0)
        if config.critic == "clipped":
            backup = jnp.clip(backup, -state.v_bound, state.v_bound)

        def critic_loss(critic: MLP) -> tuple[Array, Array]:
            v = value(critic, batch.obs)
            if config.critic != "linear":
                return (w * (backup - v) ** 2).mean(-1).sum(), v
            future = config.gamma * batch.not_done * value(critic, batch.next_obs)
            return ((1 - config.gamma) * value(critic, starts) + w * (future - v)).mean(-1).sum(), v

        (critic_objective, v), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
        residual = backup - v.min(0)

        def weight_loss(weight: MLP) -> Array:
            return -jnp.mean(ratio_of(config, weight, pair) * residual)

        def actor_loss(actor: LikelihoodActor) -> Array:
            return -jnp.mean(w * actor.log_prob(batch.obs, batch.action))

        weight, weight_opt = adam_step(
            jax.grad(weight_loss)(state.weight), state.weight_opt, state.weight, config.learning_rate
        )
        actor_objective, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)
        actor, actor_opt = adam_step(actor_gradient, state.actor_opt, state.actor, config.learning_rate)
        critic, critic_opt = adam_step(critic_gradient, state.critic_opt, state.critic, config.learning_rate)
        multiplier, multiplier_opt = move_multiplier(config, state.multiplier, state.multiplier_opt, batch.cost, w)
        steps = state.steps + 1
        state = PDOCRLExtractionState(
            weight=weight,
            actor=actor,
            critic=critic,
            target=polyak(state.target, critic, config.target_rate),
            multiplier=multiplier,
            average=polyak(state.average, actor, 1 / steps) if config.average else state.average,
            steps=steps,
            v_bound=state.v_bound,
            weight_opt=weight_opt,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            multiplier_opt=multiplier_opt,
        )
        metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "v": v.mean()}
        return state, metrics | saddle_metrics(config, batch, w, residual, lam)

    def policy(self, config: SaddleConfig, state: PDOCRLExtractionState) -> MLPPolicy:
        return mode_policy(state.average if config.average else state.actor)

    def learned(self, config: SaddleConfig, state: PDOCRLExtractionState) -> Learned:
        """V of the priced reward r − λ·c, the density ratio w, and λ as reward given up for a unit of cost."""

        def v(obs: Array) -> Array:
            found: Array = state.critic(obs)[..., 0].min(0)
            if config.critic == "linear":
                found = state.v_bound * jnp.tanh(found / state.v_bound)
            return found / config.reward_scale

        def ratio(obs: Array, action: Array) -> Array:
            return density_ratio(state.weight, jnp.concatenate([obs, action], -1), config.w_max)

        return Learned(v=v, ratio=ratio, multipliers=state.multiplier.lam / config.reward_scale)
