"""BCRL, budget-conditioned implicit Q-learning: a policy told how much of its limit is left beyond the least needed.

    V_c ← the lower τ_c-expectile of Q_c over logged actions,   Q_c ← c + γ V_c(s′)₊
    at budgets b ≥ max(Q_c, V_c):   V(s, b − V_c(s)) ← the τ-expectile of Q(s, a, b − Q_c(s, a))
    Q(s, a, γδ) ← r + γ V(s′, δ),   δ uniform
    maximise  E_D[ e^{β (Q − V)} log π(a | s, b − V_c(s)) ]   and   E_D[ e^{β (V_c − Q_c)} log π_c(a | s) ]

An action is seen only with budgets that cover its Q_c, so π at a small δ copies cheap actions only: the set of safe
pairs needs no multiplier. To act, b is what is left of the limit, spread over the steps left and discounted; where b −
V_c(s) is next to nothing, π_c acts. V_c and Q_c count as 0 where they are less, for costs are not: a lower expectile of
noise is below it, and backups add that up to a budget that nobody has. One training serves every limit.
docs/agents/bcrl.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, AgentConfig, Learned, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.common.iql import ImplicitValues, advantage_weight
from pdocrl.agents.common.numpy_policy import layers_of, mode_policy
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import LikelihoodActor, likelihood_actor
from pdocrl.nn.mlp import Dropout
from pdocrl.nn.optim import adam_step
from pdocrl.policies.cost_conditioned import BudgetPolicy


class BCRLConfig(AgentConfig):
    """The authors' hyper-parameters for the Bullet tasks."""

    hidden: tuple[int, ...] = static((512, 512))  # widths of the hidden layers
    actor_rate: float = 3e-4  # learning rate of π and π_c at the start
    decay: float = 100_000.0  # steps over which it falls to 0 along a cosine
    critic_rate: float = 3e-4  # of Q and Q_c
    value_rate: float = 3e-4  # of V and V_c
    target_rate: float = 0.005  # of the target networks
    clip: float = 10.0  # largest norm of a gradient of Q, V, Q_c and V_c
    expectile: float = 0.5  # τ
    cost_expectile: float = 0.2  # τ_c; the authors take .3 on CarCircle and DroneCircle
    beta: float = 3.0  # β, inverse temperature of the weights
    dropout: float = 0.1  # share of the last hidden units of π and π_c left out at each step
    reward_scale: float = 1.0  # rewards are multiplied by this before anything else


@dataclasses.dataclass(frozen=True)
class BCRLProblem(Problem):
    """Also the largest cost of a step, of each kind: one in thousandths is not lost beside one in thousands."""

    cost_units: tuple[float, ...] = ()  # [K]


class BCRLState(eqx.Module):
    """Values of reward and costs, both policies, the units of costs."""

    reward: ImplicitValues  # of (s, a, δ) and (s, δ)
    cost: ImplicitValues
    actor: LikelihoodActor
    safe: LikelihoodActor
    unit: Float[Array, " K"]  # the largest cost of a step, of each kind; 1 of a cost that never occurred
    steps: Array  # taken so far
    actor_opt: optax.OptState
    safe_opt: optax.OptState


class BCRL(Agent[BCRLConfig, BCRLState]):
    """Implicit Q-learning conditioned on what is left of the budget."""

    name = "bcrl"
    summary = "Implicit Q-learning conditioned on the limit's rest beyond the least that must be spent; any limit."
    paper = "Brahmanage, Kumar, Beyond Hard Constraints: Budget-Conditioned Reachability (ICAPS 2026)"
    discrete_actions = True
    mixed_precision = True  # five tasks, the same seeds: docs/training.md
    Config = BCRLConfig
    problem_class = BCRLProblem

    def ignores_limit(self, config: BCRLConfig) -> bool:
        return True  # it is told when it acts

    def problem(self, dataset: Dataset) -> BCRLProblem:
        return BCRLProblem(**vars(super().problem(dataset)), cost_units=dataset.largest_costs)

    def init(self, config: BCRLConfig, problem: Problem, key: PRNGKeyArray) -> BCRLState:
        assert isinstance(problem, BCRLProblem)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 4)
        make = likelihood_actor(problem.discrete_actions).create
        actor, safe = make(keys[2], s + k, a, config.hidden), make(keys[3], s, a, config.hidden)
        units = jnp.asarray([unit or 1.0 for unit in problem.cost_units], jnp.float32)
        adam = optax.scale_by_adam()
        return BCRLState(
            reward=ImplicitValues.create(keys[0], s + a + k, s + k, 1, config.hidden, of_costs=False),
            cost=ImplicitValues.create(keys[1], s + a, s, k, config.hidden, of_costs=True),
            actor=actor,
            safe=safe,
            unit=units,
            steps=jnp.zeros((), jnp.int32),
            actor_opt=adam.init(actor),
            safe_opt=adam.init(safe),
        )

    def update(
        self, config: BCRLConfig, state: BCRLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[BCRLState, Metrics]:
        rates = {"rate": config.critic_rate, "target_rate": config.target_rate, "clip": config.clip}
        size, costs = batch.cost.shape
        most = 1 / (1 - config.gamma)  # the largest discounted sum of costs, in units of the largest cost
        for_budgets, for_dropout = jax.random.split(key)
        drawn = most * jax.random.uniform(for_budgets, (3, size, costs))
        pairs, not_done = jnp.concatenate([batch.obs, batch.action], -1), (config.gamma * batch.not_done)[:, None]

        # the least that must be spent, whatever the budget
        cost, cost_value_loss = state.cost.fit_value(
            pairs, batch.obs, config.cost_expectile, config.value_rate, config.clip
        )
        cost_backup = batch.cost / state.unit + not_done * jax.nn.relu(cost.value(batch.next_obs))
        cost, cost_loss = cost.fit_critic(pairs, cost_backup, **rates)
        action_cost, state_cost = jax.nn.relu(cost.worse(cost.target(pairs))), jax.nn.relu(cost.value(batch.obs))

        def beyond(budget: Array) -> tuple[Float[Array, "B K"], Float[Array, "B K"]]:
            """Of a budget so much above both least costs, what is left beyond the action's and beyond the state's."""
            whole = budget + jnp.maximum(action_cost, state_cost)
            return whole - action_cost, whole - state_cost

        # reward, at budgets that cover the action
        of_action, of_state = beyond(drawn[0])
        reward, value_loss = state.reward.fit_value(
            jnp.concatenate([pairs, of_action], -1),
            jnp.concatenate([batch.obs, of_state], -1),
            config.expectile,
            config.value_rate,
            config.clip,
        )
        ahead = reward.value(jnp.concatenate([batch.next_obs, drawn[1]], -1))
        backup = config.reward_scale * batch.reward[:, None] + not_done * ahead
        reward, critic_loss = reward.fit_critic(jnp.concatenate([pairs, config.gamma * drawn[1]], -1), backup, **rates)

        # both policies copy logged actions
        of_action, of_state = beyond(drawn[2])
        given = jnp.concatenate([batch.obs, jnp.clip(of_state, 0, most)], -1)
        q = reward.worse(reward.critic(jnp.concatenate([pairs, of_action], -1)))
        earns = advantage_weight((q - reward.value(given))[:, 0], config.beta)
        saves = advantage_weight((state_cost - action_cost).sum(-1), config.beta)
        kept = (jax.random.uniform(for_dropout, (2, size, config.hidden[-1])) >= config.dropout) / (1 - config.dropout)

        def actor_loss(policy: LikelihoodActor, inputs: Array, weight: Array, units: Array) -> Array:
            thinned = type(policy)(Dropout(policy.mlp, [1.0] * (len(config.hidden) - 1) + [units]))  # type: ignore[arg-type]
            return -(weight * thinned.unclipped_log_prob(inputs, batch.action)).mean()

        loss, gradient = jax.value_and_grad(actor_loss)(state.actor, given, earns, kept[0])
        safe_loss, safe_gradient = jax.value_and_grad(actor_loss)(state.safe, batch.obs, saves, kept[1])
        rate = config.actor_rate * (1 + jnp.cos(jnp.pi * jnp.minimum(state.steps / config.decay, 1.0))) / 2
        actor, actor_opt = adam_step(gradient, state.actor_opt, state.actor, rate)
        safe, safe_opt = adam_step(safe_gradient, state.safe_opt, state.safe, rate)
        metrics = {
            "critic_loss": critic_loss,
            "value_loss": value_loss,
            "cost_loss": cost_loss,
            "cost_value_loss": cost_value_loss,
            "actor_loss": loss,
            "safe_loss": safe_loss,
            "q": backup.mean(),
        }
        metrics |= per_constraint("q_cost", state.unit * cost_backup.mean(0))
        return BCRLState(
            reward=reward,
            cost=cost,
            actor=actor,
            safe=safe,
            unit=state.unit,
            steps=state.steps + 1,
            actor_opt=actor_opt,
            safe_opt=safe_opt,
        ), metrics

    def policy(self, config: BCRLConfig, state: BCRLState) -> BudgetPolicy:
        actor, safe = mode_policy(state.actor), mode_policy(state.safe)
        networks = {
            "actor": (actor.weights, actor.biases),
            "safe": (safe.weights, safe.biases),
            "cost_value": layers_of(state.cost.value),
        }
        limit = tuple(float(one) for one in config.cost_limit)
        units = tuple(float(unit) for unit in state.unit)
        return BudgetPolicy(networks, float(config.horizon), float(config.gamma), units, limit, actor.discrete)

    def learned(self, config: BCRLConfig, state: BCRLState) -> Learned:
        """The least cost ahead, of an action and of a state; values of reward are functions of a budget, too."""
        cost, unit = state.cost, state.unit

        def q_cost(obs: Array, action: Array) -> Array:
            return unit * jax.nn.relu(cost.worse(cost.critic(jnp.concatenate([obs, action], -1))))

        return Learned(q_cost=q_cost, v_cost=lambda obs: unit * jax.nn.relu(cost.value(obs)))
