"""Fitted Q evaluation of a conditional policy: one network for all its settings, and no model of the dynamics.

    Q(s, a, z, t) ← (r, c) + Q̄(s′, π(s′, z′), z′, t + 1),   z = (relative return, target cost, cost cap, spent)

z′ is z with the logged cost added to what is spent; the sum is undiscounted and ends with the horizon, so values flow
backwards in time only. Each logged transition is used with a setting drawn from the table, since what follows (s, a)
does not depend on what was asked for. Where the data has chance, targets average over it: a setting that asks for what
lucky episodes had is evaluated on what its actions lead to, lucky or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.nn.distributions import LikelihoodActor
from pdocrl.nn.mlp import MLP
from pdocrl.policies.policy import DialPolicy

MEMBERS = 2


class Conditioned(eqx.Module):
    """Where B episodes are, and what is asked of them."""

    obs: Float[Array, "B S"]
    relative_return: Float[Array, "B 1"]
    target_cost: Float[Array, "B K"]
    cost_cap: Float[Array, "B K"]
    spent: Float[Array, "B K"]
    time_left: Float[Array, "B 1"]  # as a share of the horizon

    def inputs(self, max_episode_cost: Float[Array, " K"]) -> Float[Array, "B S+2+8K"]:
        """What the policy's network sees."""
        parts = self.obs, self.relative_return, self.target_cost, self.cost_cap, self.spent, self.time_left
        found: Array = DialPolicy.inputs(*parts, max_episode_cost, xp=jnp)
        return found


class ConditionalCritic(eqx.Module):
    """Undiscounted return and costs of the rest of an episode under the conditional policy."""

    mlp: MLP  # members: (policy inputs, room below the cap, action) → [1 + K]

    @staticmethod
    def create(
        key: PRNGKeyArray, obs_dim: int, action_dim: int, n_costs: int, hidden: Sequence[int]
    ) -> ConditionalCritic:
        inputs = obs_dim + 2 + 8 * n_costs + n_costs + action_dim
        return ConditionalCritic(MLP.create(key, (inputs, *hidden, 1 + n_costs), MEMBERS))

    def __call__(
        self, at: Conditioned, action: Float[Array, "B A"], max_episode_cost: Float[Array, " K"]
    ) -> Float[Array, "M B 1+K"]:
        """In units of the largest return and the largest episode costs."""
        room = jnp.clip((at.cost_cap - at.spent) / max_episode_cost, 0, 1)
        inputs = jnp.concatenate([at.inputs(max_episode_cost), room, action], -1)
        found: Array = self.mlp(inputs)
        return found

    def values(
        self, actor: LikelihoodActor, at: Conditioned, max_episode_cost: Float[Array, " K"]
    ) -> Float[Array, "M B 1+K"]:
        """Of the policy's own action."""
        return self(at, actor.mode(at.inputs(max_episode_cost)), max_episode_cost)


def fqe_loss(
    critic: ConditionalCritic,
    target: ConditionalCritic,
    actor: LikelihoodActor,
    at: Conditioned,
    action: Float[Array, "B A"],
    paid: Float[Array, "B 1+K"],
    next_obs: Float[Array, "B S"],
    not_done: Float[Array, " B"],
    max_episode_cost: Float[Array, " K"],
    step: Array,
) -> Array:
    """Squared error of the backup; `paid` is reward and costs in their units, `step` 1 / horizon."""
    spent = at.spent + paid[:, 1:] * max_episode_cost
    after = Conditioned(
        next_obs, at.relative_return, at.target_cost, at.cost_cap, spent, jnp.maximum(at.time_left - step, 0)
    )
    ahead = target.values(actor, after, max_episode_cost)  # [M, B, 1 + K]
    ahead = ahead.at[..., 1:].set(jnp.maximum(ahead[..., 1:], 0))
    goes_on = not_done * (after.time_left[:, 0] > 0.5 * step)
    backup = jax.lax.stop_gradient(paid + goes_on[:, None] * ahead)
    error: Array = ((critic(at, action, max_episode_cost) - backup) ** 2).mean(1).sum()
    return error
