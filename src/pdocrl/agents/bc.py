"""Behaviour cloning: imitate the dataset, or the part of it one would like to see again.

    continuous actions:  minimise  E_D[ ‖π(s) − a‖² ],      π(s) = tanh(network(s))
    discrete actions:    minimise  −E_D[ log π(a|s) ],      π(·|s) = softmax(network(s))

BC-All imitates everything, BC-Safe the episodes within every limit, BC-Frontier those that (nearly) none beats in
reward at no more cost. docs/agents/bc.md.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, AgentConfig, Metrics, Problem, Transitions, static
from pdocrl.agents.common.numpy_policy import mode_policy, network_policy
from pdocrl.data.dataset import Dataset
from pdocrl.data.filters import best_within
from pdocrl.errors import PdocrlError
from pdocrl.nn.distributions import Categorical
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import MLPPolicy


class BCConfig(AgentConfig):
    """Which episodes to imitate, and how fast."""

    actor_rate: float = 1e-4  # learning rate of π
    episodes: Literal["all", "safe", "frontier"] = static("all")  # which episodes to imitate
    slack: float = 0.1  # frontier: how far below it an episode may lie, as a share of the range of returns


class BCState(eqx.Module):
    """The policy and its optimiser."""

    actor: MLP | Categorical
    actor_opt: optax.OptState


class BC(Agent[BCConfig, BCState]):
    """Behaviour cloning by least squares, of discrete actions by likelihood."""

    name = "bc"
    summary = "Imitates all episodes, the safe ones (episodes=safe) or those near the frontier (episodes=frontier)."
    paper = "Pomerleau, ALVINN (1989); safe and frontier: Liu et al., Datasets and Benchmarks (2023)"
    needs = "any number of costs"
    fewest_costs = 0
    discrete_actions = True
    Config = BCConfig

    def ignores_limit(self, config: BCConfig) -> bool:
        return config.episodes != "safe"

    def rows(self, config: BCConfig, dataset: Dataset) -> NDArray[np.int64] | None:
        """The transitions of the episodes to imitate; each run has its own limits."""
        if config.episodes == "all":
            return None
        if config.episodes == "safe":
            kept = (dataset.cost_return <= np.asarray(config.cost_limit)).all(1)
        else:
            kept = dataset.reward_return >= best_within(dataset) - config.slack * np.ptp(dataset.reward_return)
        if not kept.any():
            lowest = ", ".join(f"{cost:g}" for cost in dataset.cost_return.min(0))
            raise PdocrlError(
                f"{dataset.name}: no episode satisfies the cost limit {config.cost_limit}; the lowest cost is {lowest}."
            )
        return dataset.rows_of(np.flatnonzero(kept))

    def init(self, config: BCConfig, problem: Problem, key: PRNGKeyArray) -> BCState:
        mlp = MLP.create(key, (problem.obs_dim, *config.hidden, problem.action_dim))
        actor = Categorical(mlp) if problem.discrete_actions else mlp
        return BCState(actor, optax.scale_by_adam().init(actor))

    def update(
        self, config: BCConfig, state: BCState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[BCState, Metrics]:
        def actor_loss(actor: MLP | Categorical) -> Array:
            if isinstance(actor, Categorical):
                return -actor.log_prob(batch.obs, batch.action).mean()
            return jnp.mean((jnp.tanh(actor(batch.obs)) - batch.action) ** 2)

        loss, gradient = jax.value_and_grad(actor_loss)(state.actor)
        actor, actor_opt = adam_step(gradient, state.actor_opt, state.actor, config.actor_rate)
        return BCState(actor, actor_opt), {"actor_loss": loss}

    def policy(self, config: BCConfig, state: BCState) -> MLPPolicy:
        actor = state.actor
        return mode_policy(actor) if isinstance(actor, Categorical) else network_policy(actor)
