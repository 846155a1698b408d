"""PDOCRL, the paper's practical algorithm: gradient descent–ascent on the empirical Lagrangian with four players.

    max_{w,π} min_{Q,λ}  L̂ = (1−γ) E_{d₀}[Q(s,π)] + E_D[ w(s,a) (r_λ + γ Q(s′,π) − Q(s,a)) ] + λ·κ,
    r_λ = r − λ·c,   κ = cost limit / horizon,   0 ≤ w ≤ 10,   λ ∈ B·Δ,   B = 1 + 1/φ.

The sign of λ·κ differs from the text of the paper's appendix, which prints −λC; a cost limit J_c ≤ κ needs the plus,
or λ could only grow. Without costs this is PDORL. docs/agents/pdocrl.md says what the options change and why.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, Columns, Learned, Metrics, Problem, Transitions, not_done_at_timeout, static
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.agents.common.saddle import (
    SaddleConfig,
    dual_bound,
    make_multiplier,
    move_multiplier,
    ratio_of,
    saddle_metrics,
)
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.distributions import TanhGaussian
from pdocrl.nn.mlp import MLP, Critic, density_ratio, polyak
from pdocrl.nn.multipliers import LogMultiplier, SoftplusMultiplier
from pdocrl.nn.optim import adam_step, descend
from pdocrl.policies.policy import MLPPolicy


class PDOCRLConfig(SaddleConfig):
    """The players of `pdocrl`, or those of the published code."""

    published: bool = static(False)  # the published code's update to the letter: `published_update`


class PDOCRLState(eqx.Module):
    """The four players, the critics' target, and one optimiser per player."""

    weight: MLP
    actor: TanhGaussian
    critic: Critic
    target: Critic
    multiplier: SoftplusMultiplier | LogMultiplier
    average: TanhGaussian
    steps: Array
    q_bound: Array  # largest |Q| there can be, (r_max + B c_max) / (1 − γ); not used by the squared critic
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
    mixed_precision = True  # learns what it learns in TF32: benchmarks/mixed_precision.py
    Config = PDOCRLConfig

    def columns(self, config: PDOCRLConfig, dataset: Dataset) -> Columns:
        """In the published code an episode that runs out of time is done."""
        columns = super().columns(config, dataset)
        if config.published:
            for name in ("initial_states", "critic", "ratio", "average"):
                if getattr(config, name) != getattr(PDOCRLConfig(), name):
                    raise PdocrlError(f"pdocrl: published=true leaves no choice of `{name}`; drop one of the two.")
            columns["not_done"] = not_done_at_timeout(dataset)
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
            weight=weight,
            actor=actor,
            critic=critic,
            target=critic,
            multiplier=multiplier,
            average=actor,
            steps=jnp.zeros((), jnp.int32),
            q_bound=jnp.asarray(largest / (1 - config.gamma), jnp.float32),
            weight_opt=adam.init(weight),
            actor_opt=adam.init(actor),
            critic_opt=adam.init(critic),
            multiplier_opt=adam.init(multiplier),
        )

    def zero_padded(
        self, config: PDOCRLConfig, state: PDOCRLState, here: Problem, there: Problem
    ) -> PDOCRLState | None:
        """Critics learn at logged actions alone, whose added columns are 0: what is added to the networks stays 0."""
        if config.initial_states != "batch" or config.critic == "linear":
            return None
        obs, action = (here.obs_dim, there.obs_dim), (here.action_dim, there.action_dim)

        def actor(old: TanhGaussian) -> TanhGaussian:
            return TanhGaussian(old.mlp.zero_padded([obs], [action, action]))

        def critic(old: Critic) -> Critic:
            return Critic(old.mlp.zero_padded([obs, action], [(1, 1)]))

        def weight(old: MLP) -> MLP:
            return old.zero_padded([obs, action], [(1, 1)])

        def moments(opt: Any, change: Callable[[Any], Any]) -> Any:
            return opt._replace(mu=change(opt.mu), nu=change(opt.nu))

        return PDOCRLState(
            weight=weight(state.weight),
            actor=actor(state.actor),
            critic=critic(state.critic),
            target=critic(state.target),
            multiplier=state.multiplier,
            average=actor(state.average),
            steps=state.steps,
            q_bound=state.q_bound,
            weight_opt=moments(state.weight_opt, weight),
            actor_opt=moments(state.actor_opt, actor),
            critic_opt=moments(state.critic_opt, critic),
            multiplier_opt=state.multiplier_opt,
        )

    def update(
        self, config: PDOCRLConfig, state: PDOCRLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[PDOCRLState, Metrics]:
        if config.published:
            return published_update(config, state, batch, key)
        lam = state.multiplier.lam
        starts = batch.obs if config.initial_states == "batch" else batch.initial_obs
        reward = config.reward_scale * batch.reward - batch.cost @ lam
        pair = jnp.concatenate([batch.obs, batch.action], -1)
        # w and π are computed once, for their values and for their gradients
        w, back_to_weight = jax.vjp(lambda weight: ratio_of(config, weight, pair), state.weight)

        def value(critic: Critic, obs: Array, action: Array) -> Float[Array, "2 B"]:
            q = critic(obs, action)
            return state.q_bound * jnp.tanh(q / state.q_bound) if config.critic == "linear" else q

        # π acts where episodes start and where transitions lead: one pass over both, [2B, …]
        visited = jnp.concatenate([starts, batch.next_obs])
        actions, back_to_actor = jax.vjp(lambda actor: actor.sample(visited, key)[0], state.actor)
        start_action, next_action = jnp.split(actions, 2)
        next_value = value(state.target, batch.next_obs, next_action).min(0)
        backup = reward + config.gamma * batch.not_done * next_value
        if config.critic == "clipped":
            backup = jnp.clip(backup, -state.q_bound, state.q_bound)

        def critic_loss(critic: Critic) -> tuple[Array, Array]:
            q = value(critic, batch.obs, batch.action)
            if config.critic != "linear":
                return (w * (backup - q) ** 2).mean(-1).sum(), q
            # L̂ in Q: each twin descends it; the bound on Q is what keeps the minimum finite.
            flow = (1 - config.gamma) * value(critic, starts, start_action)
            future = config.gamma * batch.not_done * value(critic, batch.next_obs, next_action)
            return (flow + w * (future - q)).mean(-1).sum(), q

        critic, critic_opt, (critic_objective, q) = descend(
            critic_loss, state.critic, state.critic_opt, config.learning_rate, has_aux=True
        )
        residual = backup - q.min(0)

        def actor_loss(actions: Array) -> Array:
            # (1−γ) E[Q(s₀,π)] + γ E[w Q(s′,π)]: where the flow of w says π will be
            flow, future = jnp.split(value(state.critic, visited, actions).min(0), 2)
            return -jnp.mean((1 - config.gamma) * flow + config.gamma * batch.not_done * w * future)

        (in_weight,) = back_to_weight(-residual / len(residual))  # of −E[w · residual]
        weight, weight_opt = adam_step(in_weight, state.weight_opt, state.weight, config.learning_rate)
        actor_objective, in_actions = jax.value_and_grad(actor_loss)(actions)
        (in_actor,) = back_to_actor(in_actions)
        actor, actor_opt = adam_step(in_actor, state.actor_opt, state.actor, config.learning_rate)
        multiplier, multiplier_opt = move_multiplier(config, state.multiplier, state.multiplier_opt, batch.cost, w)
        steps = state.steps + 1
        state = PDOCRLState(
            weight=weight,
            actor=actor,
            critic=critic,
            target=polyak(state.target, critic, config.target_rate),
            multiplier=multiplier,
            average=polyak(state.average, actor, 1 / steps) if config.average else state.average,
            steps=steps,
            q_bound=state.q_bound,
            weight_opt=weight_opt,
            actor_opt=actor_opt,
            critic_opt=critic_opt,
            multiplier_opt=multiplier_opt,
        )
        metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "q": q.mean()}
        return state, metrics | saddle_metrics(config, batch, w, residual, lam)

    def policy(self, config: PDOCRLConfig, state: PDOCRLState) -> MLPPolicy:
        return mode_policy(state.average if config.average else state.actor)

    def learned(self, config: PDOCRLConfig, state: PDOCRLState) -> Learned:
        """Q of the priced reward r − λ·c, the density ratio w, and λ as reward given up for a unit of cost."""

        def q(obs: Array, action: Array) -> Array:
            found: Array = state.critic(obs, action).min(0)
            if config.critic == "linear":
                found = state.q_bound * jnp.tanh(found / state.q_bound)
            return found / config.reward_scale

        def ratio(obs: Array, action: Array) -> Array:
            return density_ratio(state.weight, jnp.concatenate([obs, action], -1), config.w_max)

        return Learned(q=q, ratio=ratio, multipliers=state.multiplier.lam / config.reward_scale)


LARGEST_NORM = 10.0  # of the gradient of each of w, Q and π


def published_update(
    config: PDOCRLConfig, state: PDOCRLState, batch: Transitions, key: PRNGKeyArray
) -> tuple[PDOCRLState, Metrics]:
    """One step of the authors' published code, to the letter: what `pdocrl` does with `published=True`.

    Read beside `osrl/algorithms/pdocrl.py` of komin0407/PDOCRL. The players move one after another, each sees the new
    values of those before it, and each draws fresh actions:

        done = terminal or timeout,   y = r − λ·c + γ (1 − done) min Q̄(s′, a′),   w = clip(softplus f_w(s, a), 0, 10)
        w   minimise  −E[ w (y − min Q(s, a)) ]
        Q   minimise  Σ_twins E[ w (Q(s, a) − y)² ]
        π   minimise  −(1 − γ) E[min Q(s, π)] − γ E[w min Q(s′, π)]                           (without 1 − done)
        λ   log λ ← clip(log λ + η (E_D[c] − κ), −10, log min(B, 10))                         (without w)

    The norms of the gradients of w, of both critics together and of π are cut at 10. The clip of w is a plain one:
    where softplus f_w is above 10 it has no gradient, so such a w stays. Published for one cost; here each cost has its
    own λ. `batch.not_done` is 1 − done.
    """
    for_w, for_q, for_start, for_next = jax.random.split(key, 4)
    lam = state.multiplier.lam
    reward = config.reward_scale * batch.reward - batch.cost @ lam
    pair = jnp.concatenate([batch.obs, batch.action], -1)

    def backup(key: PRNGKeyArray) -> Float[Array, " B"]:
        action = state.actor.sample(batch.next_obs, key)[0]
        return reward + config.gamma * batch.not_done * state.target(batch.next_obs, action).min(0)

    def ratio(weight: MLP) -> Float[Array, " B"]:
        return jnp.clip(jax.nn.softplus(weight(pair)[..., 0]), 0, config.w_max)

    residual = backup(for_w) - state.critic(batch.obs, batch.action).min(0)
    step = functools.partial(descend, rate=config.learning_rate, largest=LARGEST_NORM)
    weight, weight_opt, _ = step(lambda weight: -jnp.mean(ratio(weight) * residual), state.weight, state.weight_opt)
    w, y = ratio(weight), backup(for_q)

    def critic_loss(critic: Critic) -> tuple[Array, Array]:
        q = critic(batch.obs, batch.action)
        return (w * (q - y) ** 2).mean(-1).sum(), q

    critic, critic_opt, (critic_objective, q) = step(critic_loss, state.critic, state.critic_opt, has_aux=True)

    def actor_loss(actor: TanhGaussian) -> Array:
        here = critic(batch.obs, actor.sample(batch.obs, for_start)[0]).min(0)
        there = critic(batch.next_obs, actor.sample(batch.next_obs, for_next)[0]).min(0)
        return -jnp.mean((1 - config.gamma) * here + config.gamma * w * there)

    actor, actor_opt, actor_objective = step(actor_loss, state.actor, state.actor_opt)
    multiplier, _ = move_multiplier(config, state.multiplier, state.multiplier_opt, batch.cost, w)
    state = dataclasses.replace(
        state,
        weight=weight,
        actor=actor,
        critic=critic,
        target=polyak(state.target, critic, config.target_rate),
        multiplier=multiplier,
        steps=state.steps + 1,
        weight_opt=weight_opt,
        actor_opt=actor_opt,
        critic_opt=critic_opt,
    )
    metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "q": q.mean()}
    return state, metrics | saddle_metrics(config, batch, w, residual, lam)
