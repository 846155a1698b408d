"""PDOCRL, the paper's practical algorithm: gradient descent–ascent on the empirical Lagrangian with four players.

    max_{w,π} min_{Q,λ}  L̂ = (1−γ) E_{d₀}[Q(s,π)] + E_D[ w(s,a) (r_λ + γ Q(s′,π) − Q(s,a)) ] + λ·κ,
    r_λ = r − λ·c,   κ = cost limit / horizon,   0 ≤ w ≤ 10,   λ ∈ B·Δ,   B = 1 + 1/φ.

The sign of λ·κ differs from the text of the paper's appendix, which prints −λC; a cost limit J_c ≤ κ needs the plus,
or λ could only grow. Without costs this is PDORL. docs/agents/pdocrl.md says what the options change and why.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.acting import mode_policy
from pdocrl.agents.agent import Agent, AgentConfig, Columns, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.pdocrl_published import LARGEST_BOUND, published_update
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.density import TanhGaussian
from pdocrl.nn.mlp import MLP, Critic, polyak
from pdocrl.nn.multipliers import LogMultiplier, SoftplusMultiplier
from pdocrl.nn.optimise import adam_step
from pdocrl.nn.ratio import density_ratio
from pdocrl.policies.policy import MLPPolicy


class SaddleConfig(AgentConfig):
    """The paper's table of hyper-parameters."""

    learning_rate: float = 3e-4  # of w, π and Q
    multiplier_rate: float = 1e-4  # of λ's parameter
    multiplier_init: float = 1.0  # λ₀
    slater_margin: float = 1.0  # φ: how far some policy stays inside the limits; B = 1 + 1/φ bounds λ
    target_rate: float = 0.005  # κ of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    w_max: float = 10.0  # w is clipped to [0, w_max]
    initial_states: Literal["batch", "starts"] = static("batch")  # d₀: the mini-batch's states, or true episode starts
    critic: Literal["squared", "linear"] = static("squared")  # w-weighted squared Bellman error, or L̂ itself in Q
    multiplier_signal: Literal["weighted", "dataset"] = static("weighted")  # E_D[w·c], or the plain mean cost
    multiplier: Literal["softplus", "published"] = static("softplus")  # projected ascent on L̂, or the published rule
    average: bool = static(False)  # return the average of π's iterates' parameters instead of the last


class PDOCRLConfig(SaddleConfig):
    """The players of `pdocrl`, or those of the published code."""

    published: bool = static(False)  # the published code's update to the letter: pdocrl_published.py


class PDOCRLState(eqx.Module):
    """The four players, the critics' target, and one optimiser per player."""

    weight: MLP
    actor: TanhGaussian
    critic: Critic
    target: Critic
    multiplier: SoftplusMultiplier | LogMultiplier
    average: TanhGaussian
    steps: Array
    q_bound: Array  # largest |Q| of the class, used by the linear critic only
    weight_opt: optax.OptState
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    multiplier_opt: optax.OptState


class PDOCRL(Agent[PDOCRLConfig, PDOCRLState]):
    """Primal–dual offline constrained RL."""

    name = "pdocrl"
    summary = "Density ratio, policy, critic and multipliers play the paper's Lagrangian; no policy extraction."
    paper = "Offline Constrained RL under Partial Data Coverage, Algorithm 3"
    needs = "any number of costs; none is PDORL"
    fewest_costs = 0
    Config = PDOCRLConfig

    def columns(self, config: PDOCRLConfig, dataset: Dataset) -> Columns:
        """In the published code an episode that runs out of time is done."""
        columns = super().columns(config, dataset)
        if config.published:
            for name in ("initial_states", "critic", "average"):
                if getattr(config, name) != getattr(PDOCRLConfig(), name):
                    raise PdocrlError(f"pdocrl: published=true leaves no choice of `{name}`; drop one of the two.")
            columns["alive"] = (~(dataset.terminal | dataset.timeout)).astype(np.float32)
        return columns

    def init(self, config: PDOCRLConfig, problem: Problem, key: PRNGKeyArray) -> PDOCRLState:
        keys = jax.random.split(key, 3)
        sizes = (problem.obs_dim + problem.action_dim, *config.hidden, 1)
        weight = MLP.create(keys[0], sizes)
        actor = TanhGaussian.create(keys[1], problem.obs_dim, problem.action_dim, config.hidden)
        critic = Critic.create(keys[2], problem.obs_dim, problem.action_dim, config.hidden, members=2)
        rule = dataclasses.replace(config, multiplier="published") if config.published else config
        multiplier = make_multiplier(rule, problem.n_costs)
        largest = problem.reward_scale * config.reward_scale + dual_bound(config) * problem.cost_scale
        adam = optax.scale_by_adam()
        return PDOCRLState(
            weight, actor, critic, critic, multiplier, actor, jnp.zeros((), jnp.int32),
            jnp.asarray(largest / (1 - config.gamma), jnp.float32),
            adam.init(weight), adam.init(actor), adam.init(critic), adam.init(multiplier),
        )  # fmt: skip

    def update(
        self, config: PDOCRLConfig, state: PDOCRLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[PDOCRLState, Metrics]:
        if config.published:
            return published_update(config, state, batch, key)
        lam = state.multiplier.lam
        starts = batch.obs if config.initial_states == "batch" else batch.initial_obs
        reward = config.reward_scale * batch.reward - batch.cost @ lam
        pair = jnp.concatenate([batch.obs, batch.action], -1)
        w = density_ratio(state.weight, pair, config.w_max)

        def value(critic: Critic, obs: Array, action: Array) -> Float[Array, "2 B"]:
            q = critic(obs, action)
            return state.q_bound * jnp.tanh(q / state.q_bound) if config.critic == "linear" else q

        # π acts where episodes start and where transitions lead: one pass over both, [2B, …]
        visited = jnp.concatenate([starts, batch.next_obs])
        actions = state.actor.sample(visited, key)[0]
        start_action, next_action = jnp.split(actions, 2)
        next_value = value(state.target, batch.next_obs, next_action).min(0)
        backup = reward + config.gamma * batch.alive * next_value

        def critic_loss(critic: Critic) -> tuple[Array, Array]:
            q = value(critic, batch.obs, batch.action)
            if config.critic == "squared":
                return (w * (backup - q) ** 2).mean(-1).sum(), q
            # L̂ in Q: each twin descends it; the bound on Q is what keeps the minimum finite.
            flow = (1 - config.gamma) * value(critic, starts, start_action)
            future = config.gamma * batch.alive * value(critic, batch.next_obs, next_action)
            return (flow + w * (future - q)).mean(-1).sum(), q

        (critic_objective, q), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic)
        residual = backup - q.min(0)

        def weight_loss(weight: MLP) -> Array:
            return -jnp.mean(density_ratio(weight, pair, config.w_max) * residual)

        def actor_loss(actor: TanhGaussian) -> Array:
            # (1−γ) E[Q(s₀,π)] + γ E[w Q(s′,π)]: where the flow of w says π will be
            flow, future = jnp.split(value(state.critic, visited, actor.sample(visited, key)[0]).min(0), 2)
            return -jnp.mean((1 - config.gamma) * flow + config.gamma * batch.alive * w * future)

        weight_gradient = jax.grad(weight_loss)(state.weight)
        actor_objective, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)

        weight, weight_opt = adam_step(weight_gradient, state.weight_opt, state.weight, config.learning_rate)
        actor, actor_opt = adam_step(actor_gradient, state.actor_opt, state.actor, config.learning_rate)
        critic, critic_opt = adam_step(critic_gradient, state.critic_opt, state.critic, config.learning_rate)
        multiplier, multiplier_opt = move_multiplier(config, state.multiplier, state.multiplier_opt, batch.cost, w)
        steps = state.steps + 1
        state = PDOCRLState(
            weight, actor, critic, polyak(state.target, critic, config.target_rate), multiplier,
            polyak(state.average, actor, 1 / steps) if config.average else state.average, steps, state.q_bound,
            weight_opt, actor_opt, critic_opt, multiplier_opt,
        )  # fmt: skip
        metrics = {
            "critic_loss": critic_objective,
            "actor_loss": actor_objective,
            "q": q.mean(),
            "residual": residual.mean(),
            "w": w.mean(),
            "w_at_clip": (w >= config.w_max).mean(),
        }
        return state, metrics | per_constraint("lambda", lam) | per_constraint(
            "weighted_cost", (w @ batch.cost) / len(w)
        )

    def policy(self, config: PDOCRLConfig, state: PDOCRLState) -> MLPPolicy:
        return mode_policy(state.average if config.average else state.actor)


def dual_bound(config: SaddleConfig) -> Array:
    """B = 1 + 1/φ."""
    return 1 + 1 / jnp.asarray(config.slater_margin)


def make_multiplier(config: SaddleConfig, n_costs: int) -> SoftplusMultiplier | LogMultiplier:
    """λ₀ for each of K costs, in the form the rule that moves it asks for."""
    if config.multiplier == "published":
        return LogMultiplier.create(config.multiplier_init, n_costs)
    return SoftplusMultiplier.create(config.multiplier_init, n_costs, dual_bound(config))


def move_multiplier(
    config: SaddleConfig,
    multiplier: SoftplusMultiplier | LogMultiplier,
    opt: optax.OptState,
    cost: Float[Array, "B K"],
    w: Float[Array, " B"],
) -> tuple[SoftplusMultiplier | LogMultiplier, optax.OptState]:
    """λ one step up the violation E_D[w c] − κ. The published rule looks at the data's mean cost, whatever w is."""
    bound = dual_bound(config)
    if isinstance(multiplier, LogMultiplier):
        bound = jnp.minimum(bound, LARGEST_BOUND)
        return multiplier.step(cost.mean(0) - config.cost_rate, config.multiplier_rate, bound), opt
    spent = w @ cost / len(w) if config.multiplier_signal == "weighted" else cost.mean(0)
    slope = multiplier.slope(spent - config.cost_rate, bound)
    moved, opt = adam_step(slope, opt, multiplier, config.multiplier_rate)
    return moved.within(bound), opt
