"""FISOR: maximise reward where no further cost is needed, minimise violation where one is.

    h = 25 where a step costs anything, −1 where not
    Q_h ← (1−γ) h + γ max(h, V_h(s′)),   V_h ← the lower expectile of Q_h: ≤ 0 where there is a way on without cost
    Q ← r + γ V(s′),   V ← the upper expectile of Q
    maximise  E_D[ w log π(a|s) ],   w = 1[Q_h ≤ 0] e^{α (Q − V)} where V_h(s) ≤ 0,   e^{α_h (V_h − Q_h)} elsewhere

Hard constraints: any cost of any step is a violation, and the limit is not looked at. To act, of the mode of π and some
draws the action of least Q_h is taken. docs/agents/fisor.md.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.agents.base import Agent, AgentConfig, Learned, Metrics, Problem, Transitions, static
from pdocrl.agents.common.iql import ImplicitValues, advantage_weight
from pdocrl.agents.common.numpy_policy import layers_of
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import polyak
from pdocrl.nn.optim import descend
from pdocrl.policies.candidates import FeasiblePolicy


class FISORConfig(AgentConfig):
    """The authors' hyper-parameters, but for the policy and the length of training."""

    actor_rate: float = 3e-4  # learning rate of π
    critic_rate: float = 3e-4  # of Q and Q_h
    value_rate: float = 3e-4  # of V and V_h
    target_rate: float = 0.005  # of the critics' targets
    average_rate: float = 0.001  # rate of the moving average of π, which is returned
    expectile: float = 0.9  # of V
    cost_expectile: float = 0.9  # of −V_h: V_h leans to the least Q_h of a logged action
    violation: float = 25.0  # h where a step costs anything; −1 where it does not
    reward_temperature: float = 3.0  # α
    cost_temperature: float = 5.0  # α_h
    cost_weight: float = 150.0  # largest weight where nothing is feasible; the least is 1
    candidates: int = static(16)  # actions to choose from when acting: the mode and draws; 1 is the mode alone


@dataclasses.dataclass(frozen=True)
class FISORProblem(Problem):
    """Also how far the returns of episodes lie apart."""

    return_spread: float = 1.0


class FISORState(eqx.Module):
    """Values of reward, feasibility, the policy and its average."""

    reward: ImplicitValues
    risk: ImplicitValues
    actor: ClippedGaussian
    average: ClippedGaussian
    reward_unit: Array  # rewards are counted in so much, so that returns lie within a horizon of each other
    actor_opt: optax.OptState


class FISOR(Agent[FISORConfig, FISORState]):
    """Feasibility-guided offline learning."""

    name = "fisor"
    summary = "Maximises reward in the feasible region, else minimises violation; no limit, and no diffusion model."
    paper = "Zheng et al., Safe Offline RL with Feasibility-Guided Diffusion Model (ICLR 2024)"
    Config = FISORConfig
    problem_class = FISORProblem

    def ignores_limit(self, config: FISORConfig) -> bool:
        return True  # any cost is too much

    def problem(self, dataset: Dataset) -> FISORProblem:
        return FISORProblem(**vars(super().problem(dataset)), return_spread=float(np.ptp(dataset.reward_return)) or 1.0)

    def init(self, config: FISORConfig, problem: Problem, key: PRNGKeyArray) -> FISORState:
        if config.candidates < 1:
            raise PdocrlError(f"setting candidates is {config.candidates}, must be at least 1: the mode.")
        s, a, keys = problem.obs_dim, problem.action_dim, jax.random.split(key, 3)
        actor = ClippedGaussian.create(keys[2], s, a, config.hidden)
        spread = problem.return_spread if isinstance(problem, FISORProblem) else 1.0
        return FISORState(
            reward=ImplicitValues.create(keys[0], s + a, s, 1, config.hidden, of_costs=False),
            risk=ImplicitValues.create(keys[1], s + a, s, 1, config.hidden, of_costs=True),
            actor=actor,
            average=actor,
            reward_unit=jnp.asarray(spread / config.horizon, jnp.float32),
            actor_opt=optax.scale_by_adam().init(actor),
        )

    def update(
        self, config: FISORConfig, state: FISORState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[FISORState, Metrics]:
        pairs, not_done = jnp.concatenate([batch.obs, batch.action], -1), batch.not_done[:, None]
        weight, feasible = self.weights(config, state, pairs, batch.obs)

        def actor_loss(actor: ClippedGaussian) -> Array:
            return -(weight * actor.log_prob(batch.obs, batch.action)).mean()

        actor, actor_opt, objective = descend(actor_loss, state.actor, state.actor_opt, config.actor_rate)

        reward, value_loss = state.reward.fit_value(pairs, batch.obs, config.expectile, config.value_rate)
        backup = batch.reward[:, None] / state.reward_unit + config.gamma * not_done * reward.value(batch.next_obs)
        reward, critic_loss = reward.fit_critic(pairs, backup, config.critic_rate, config.target_rate)

        risk, risk_value_loss = state.risk.fit_value(pairs, batch.obs, 1 - config.cost_expectile, config.value_rate)
        now = jnp.where((batch.cost > 0).any(-1, keepdims=True), config.violation, -1.0)  # h
        later = (1 - config.gamma) * now + config.gamma * jnp.maximum(now, risk.value(batch.next_obs))
        risk, risk_loss = risk.fit_critic(
            pairs, jnp.where(not_done > 0, later, now), config.critic_rate, config.target_rate
        )
        metrics = {
            "critic_loss": critic_loss,
            "value_loss": value_loss,
            "risk_loss": risk_loss,
            "risk_value_loss": risk_value_loss,
            "actor_loss": objective,
            "q": backup.mean(),
            "feasible": feasible.mean(),
            "weight": weight.mean(),
        }
        average = polyak(state.average, actor, config.average_rate)
        return FISORState(
            reward=reward,
            risk=risk,
            actor=actor,
            average=average,
            reward_unit=state.reward_unit,
            actor_opt=actor_opt,
        ), metrics

    def weights(
        self, config: FISORConfig, state: FISORState, pairs: Float[Array, "B P"], obs: Float[Array, "B S"]
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """How much each logged action counts, and whether its state is feasible."""
        danger, q_danger = state.risk.value(obs)[:, 0], state.risk.worse(state.risk.target(pairs))[:, 0]
        earns = advantage_weight(state.reward.advantage(pairs, obs)[:, 0], config.reward_temperature)
        flees = advantage_weight(danger - q_danger, config.cost_temperature, config.cost_weight)
        feasible = danger <= 0
        return jnp.where(feasible, (q_danger <= 0) * earns, jnp.maximum(flees, 1.0)), feasible.astype(jnp.float32)

    def policy(self, config: FISORConfig, state: FISORState) -> FeasiblePolicy:
        networks = {"actor": layers_of(state.average.mlp), "critic": layers_of(state.risk.target)}
        return FeasiblePolicy(networks, config.candidates)

    def learned(self, config: FISORConfig, state: FISORState) -> Learned:
        """Expectile values of reward; the feasibility value is no sum of costs."""
        reward = state.reward

        def q(obs: Array, action: Array) -> Array:
            return reward.worse(reward.critic(jnp.concatenate([obs, action], -1)))[..., 0] * state.reward_unit

        return Learned(q=q, v=lambda obs: reward.value(obs)[..., 0] * state.reward_unit)
