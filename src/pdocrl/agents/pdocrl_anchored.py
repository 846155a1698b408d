"""Return-weighted cloning of logged episodes within the limits, a small Q term, and a price on the model's cost.

    p_e ∝ exp(R_e / α)  on episodes within the limits,   w = exp(−λ·C_e / limit), normalised
    maximise over π   E_{e ~ p}[ w ( log π(a|s) + η (Q_r(s,π) / mean|Q_r| − λ·Q_c(s,π) H / limit) / (1 + Σλ) ) ]
    λ ← clip(λ + rate · clip(Ĉ / (margin · limit) − 1, ±1), 0, λ_max),   Ĉ the cost of π̄ in a learned model

It was found from the paper's saddle point, by letting the w-player choose among mixtures of episodes, for which the
flow term vanishes; but it is not that saddle point: Q is fitted and not adversarial, λ has another price in w than in
π, and rows are drawn evenly in time. With η = 0 and tilt = 0 only the cloning is left, the control of its ablation.
docs/agents/pdocrl_anchored.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import (
    Agent,
    AgentConfig,
    Columns,
    DeviceTable,
    Learned,
    Metrics,
    Problem,
    Transitions,
    per_constraint,
    static,
)
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.data.dataset import Dataset
from pdocrl.dynamics.mixture import Step as ModelStep
from pdocrl.dynamics.normaliser import Normaliser, max_step_cost
from pdocrl.dynamics.running_cost import EMA_RATE, RunningCost
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import CostCritic, polyak
from pdocrl.nn.multipliers import ProjectedMultiplier
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import Policy

# A limit of zero is held as half a unit of cost, so that ratios to it stay finite; where no step costs a whole unit, as
# half of the costliest step.
SMALLEST_LIMIT = 0.5
RESOLUTION = 32  # an episode's weight is a whole number of copies, this many for the heaviest


class AnchoredConfig(AgentConfig):
    """One setting for every task and limit."""

    batch_size: int = static(256)  # rows of anchor episodes per step; as many of the whole data join them
    actor_rate: float = 3e-4  # learning rate of π
    critic_rate: float = 3e-4  # learning rate of Q
    model_rate: float = 1e-3  # learning rate of the model of the dynamics
    target_rate: float = 0.005  # κ of the targets' moving average
    average_rate: float = 0.001  # rate of the moving averages of π, which is returned, and of the model
    episodes: float = 30.0  # effective number of episodes in the anchor, which sets α
    improvement: float = 1.0  # η, weight of Q_λ against the likelihood of the anchor's actions
    tilt: float = 1.0  # pull of λ on the episodes' weights; 0 leaves them as they are
    rollouts: float = 1.0  # share of the rollouts' cost in λ's signal; the rest is the critics' estimate
    margin: float = 0.9  # share of the limit λ aims at
    multiplier_rate: float = 3e-4  # step of λ
    multiplier_max: float = 3.0  # bound of λ


class AnchoredBatch(eqx.Module):
    """B rows of anchor episodes followed by B rows of the whole data."""

    transitions: Transitions
    episode_cost: Float[Array, "B K"]  # of the episode each anchor row belongs to


class AnchoredState(eqx.Module):
    """All players and what they remember."""

    actor: ClippedGaussian
    average: ClippedGaussian  # the policy that is returned, rolled out and looked ahead with
    critic: CostCritic  # twins: (s, a) → Q_r, Q_1 … Q_K, all times (1 − γ)
    critic_target: CostCritic
    multiplier: ProjectedMultiplier
    estimate: Float[Array, " K"]  # the policy's cost as a share of the limit
    running_cost: RunningCost  # of π̄, in learned models
    reward_scale: Float[Array, ""]
    actor_opt: optax.OptState
    critic_opt: optax.OptState


@dataclasses.dataclass(frozen=True)
class AnchoredProblem(Problem):
    """Also the data's magnitudes, for the model."""

    normaliser: tuple[Any, ...] = ()


def episode_weights(
    returns: Float[NDArray[np.float64], " E"],
    costs: Float[NDArray[np.float64], "E K"],
    limits: Float[NDArray[np.float64], " K"],
    episodes: float,
) -> Float[NDArray[np.float64], " E"]:
    """p_e ∝ exp(R_e/α) on episodes within every limit, α such that 1/Σp² = `episodes` (at most half of them).

    Where no two episodes are within the limits, those that exceed them least stand in.
    """
    worst = (costs / limits).max(1, initial=0.0)
    allowed = worst <= 1
    if allowed.sum() < 2:
        allowed = worst <= np.sort(worst)[min(int(episodes), len(worst)) - 1]
    gap = returns[allowed] - returns[allowed].max()
    wanted = min(episodes, max(1.0, allowed.sum() / 2))
    low, high = 1e-6, 1e3  # α in units of the returns' spread
    spread = max(float(gap.std()), 1e-9)
    for _ in range(60):
        alpha = np.sqrt(low * high)
        p = np.exp(gap / (alpha * spread))
        p /= p.sum()
        low, high = (alpha, high) if 1 / (p**2).sum() < wanted else (low, alpha)
    weights = np.zeros(len(returns))
    weights[allowed] = p
    return weights


class PDOCRLAnchored(Agent[AnchoredConfig, AnchoredState]):
    """Cloning of the best episodes within the limits, plus Q_λ, with λ from the cost of rollouts in a learned model."""

    name = "pdocrl_anchored"
    summary = "Clones the best logged episodes within the limits, with a small Q term and a price on rollouts' cost."
    paper = "this library; found from the saddle point of Offline Constrained RL under Partial Data Coverage"
    needs = "whole episodes"
    fewest_costs = 0
    Config = AnchoredConfig
    problem_class = AnchoredProblem

    def problem(self, dataset: Dataset) -> AnchoredProblem:
        return AnchoredProblem(**vars(super().problem(dataset)), normaliser=Normaliser.measure(dataset))

    def columns(self, config: AnchoredConfig, dataset: Dataset) -> Columns:
        spent = np.repeat(dataset.cost_return, dataset.episode_length, axis=0)
        return super().columns(config, dataset) | {"episode_cost": spent}

    def rows(self, config: AnchoredConfig, dataset: Dataset) -> NDArray[np.int64]:
        """Rows of anchor episodes, each episode as often as its weight says."""
        limits = np.asarray(config.cost_limit, np.float64).reshape(-1)
        limits = np.maximum(limits, SMALLEST_LIMIT * np.minimum(max_step_cost(dataset), 1))
        p = episode_weights(dataset.reward_return, dataset.cost_return, limits, float(config.episodes))
        copies = np.rint(p / p.max() * RESOLUTION).astype(np.int64)
        return dataset.rows_of(np.repeat(np.arange(len(p)), copies))

    def batch(self, config: AnchoredConfig, table: DeviceTable, rows: Array, key: PRNGKeyArray) -> AnchoredBatch:
        """B rows of the anchor, then B rows of the whole data."""
        for_start, for_rows = jax.random.split(key)
        starts = table.others["initial_obs"]
        first = starts[jax.random.randint(for_start, rows.shape, 0, starts.shape[0])]
        anywhere = jax.random.randint(for_rows, rows.shape, 0, len(table))
        taken = table.take(jnp.concatenate([rows, anywhere]))
        episode_cost = taken.pop("episode_cost")[: len(rows)]
        return AnchoredBatch(Transitions(**taken, initial_obs=first), episode_cost)

    def init(self, config: AnchoredConfig, problem: Problem, key: PRNGKeyArray) -> AnchoredState:
        assert isinstance(problem, AnchoredProblem)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 3)
        actor = ClippedGaussian.create(keys[0], s, a, config.hidden)
        critic = CostCritic.create(keys[1], s, a, 1 + k, config.hidden, members=2)
        normaliser, horizon = Normaliser.of(problem.normaliser), jnp.asarray(config.horizon, jnp.float32)
        running_cost = RunningCost.create(keys[2], normaliser, a, config.hidden, horizon)
        adam = optax.scale_by_adam()
        return AnchoredState(
            actor=actor,
            average=actor,
            critic=critic,
            critic_target=critic,
            multiplier=ProjectedMultiplier.create(1.0, k),
            estimate=jnp.ones(k),
            running_cost=running_cost,
            reward_scale=jnp.asarray(max(problem.reward_scale, 1e-6)),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
        )

    def update(
        self, config: AnchoredConfig, state: AnchoredState, batch: AnchoredBatch, key: PRNGKeyArray
    ) -> tuple[AnchoredState, Metrics]:
        data, lam = batch.transitions, state.multiplier.lam
        size = config.batch_size
        anchor, anywhere = jax.tree.map(lambda x: x[:size], data), jax.tree.map(lambda x: x[size:], data)
        unit, cost_scale = 1 - config.gamma, state.running_cost.normaliser.cost
        limit = jnp.asarray(config.cost_limit, jnp.float32).reshape(-1)
        limit = jnp.maximum(limit, SMALLEST_LIMIT * jnp.minimum(cost_scale, 1))

        # w: the weights of the anchor's episodes once λ has its say, mean 1
        w = jnp.exp(-config.tilt * (batch.episode_cost / limit) @ lam)
        w = w / w.mean()

        # Q: (1 − γ)(r, c) + γ Q(s′, π̄), the smaller reward of the twins, the mean cost. Times (1 − γ), a value is an
        # average over steps, so |Q_r| ≤ 1 and 0 ≤ Q_c ≤ 1 in units of the largest: no target leaves that box.
        ahead = state.critic_target(data.next_obs, state.average.mode(data.next_obs))  # [2, 2B, 1 + K]
        ahead = jnp.concatenate([ahead[..., :1].min(0).clip(-1, 1), ahead[..., 1:].mean(0).clip(0, 1)], -1)
        paid = jnp.concatenate([data.reward[:, None] / state.reward_scale, data.cost / cost_scale], -1)
        target = unit * paid + config.gamma * data.not_done[:, None] * ahead

        def critic_loss(critic: CostCritic) -> Array:
            return ((critic(data.obs, data.action) - target) ** 2).mean(1).sum()

        loss_q, grad_q = jax.value_and_grad(critic_loss)(state.critic)

        # π: likelihood of the anchor's actions plus η Q_λ, Q_r in units of its mean size and Q_c in units of the limit
        def actor_loss(actor: ClippedGaussian) -> tuple[Array, tuple[Array, Array]]:
            values = state.critic(anchor.obs, actor.mode(anchor.obs))
            reward, cost = values[..., 0].min(0), values[..., 1:].max(0)
            size_of_q = jax.lax.stop_gradient(jnp.abs(reward).mean()) + 1e-6
            gain = (reward / size_of_q - cost @ (lam * cost_scale * config.horizon / limit)) / (1 + lam.sum())
            fit = actor.log_prob(anchor.obs, anchor.action)
            return -(w * (config.improvement * gain + fit)).mean(), (values[..., 1:].mean(0), fit)

        (loss_pi, (cost_here, fit)), grad_pi = jax.value_and_grad(actor_loss, has_aux=True)(state.actor)

        # λ: the cost of π̄ in rollouts (or as the critics telescope it over the anchor's states) against the limit
        step = ModelStep(anywhere.next_obs, anywhere.reward, anywhere.cost, 1 - anywhere.not_done)
        running_cost, loss_model = state.running_cost.learn(
            anywhere.obs, anywhere.action, step, config.model_rate, config.average_rate
        )
        running_cost = running_cost.play(state.average, data.initial_obs, config.horizon, key)
        gone = config.gamma * anchor.not_done[:, None] * ahead[:size, 1:]
        telescoped = (w[:, None] * (cost_here - gone)).mean(0) * cost_scale * config.horizon / unit
        estimate = state.estimate + EMA_RATE * (telescoped / limit - state.estimate)
        rolled_out = running_cost.cost_per_episode / limit
        signal = config.rollouts * rolled_out + (1 - config.rollouts) * estimate
        violation = jnp.clip(signal / config.margin - 1, -1, 1)

        actor, actor_opt = adam_step(grad_pi, state.actor_opt, state.actor, config.actor_rate)
        critic, critic_opt = adam_step(grad_q, state.critic_opt, state.critic, config.critic_rate)
        state = AnchoredState(
            actor=actor,
            average=polyak(state.average, actor, config.average_rate),
            critic=critic,
            critic_target=polyak(state.critic_target, critic, config.target_rate),
            multiplier=state.multiplier.step(violation, config.multiplier_rate, config.multiplier_max),
            estimate=estimate,
            running_cost=running_cost,
            reward_scale=state.reward_scale,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
        )
        metrics = {"critic_loss": loss_q, "actor_loss": loss_pi, "model_loss": loss_model, "log_prob": fit.mean()}
        metrics |= {"w_max": w.max(), "w_share": 1 / (w**2).mean()}
        metrics |= per_constraint("lambda", lam) | per_constraint("model_cost", rolled_out * limit)
        return state, metrics | per_constraint("telescoped_cost", estimate * limit)

    def policy(self, config: AnchoredConfig, state: AnchoredState) -> Policy:
        return mode_policy(state.average)

    def learned(self, config: AnchoredConfig, state: AnchoredState) -> Learned:
        """Q_r and Q_c of the averaged policy; the critics learn both times (1 − γ), in units of the largest."""
        whole, units = 1 / (1 - config.gamma), state.running_cost.normaliser.cost
        return Learned(
            q=lambda obs, action: state.critic(obs, action)[..., 0].min(0) * state.reward_scale * whole,
            q_cost=lambda obs, action: state.critic(obs, action)[..., 1:].mean(0) * units * whole,
        )
