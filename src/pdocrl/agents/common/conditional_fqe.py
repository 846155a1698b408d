"""Fitted Q evaluation of a conditional policy: one network for all its settings, and no model of the dynamics.

    Q(s, a, z, t) ← (r, c) + Q̄(s′, π(s′, z′), z′, t + 1),   z = (relative return, target cost, cost cap, spent)

z′ is z with the logged cost added to what is spent; the sum is undiscounted and ends with the horizon, so values flow
backwards in time only. Each logged transition is used with a setting drawn from the table, since what follows (s, a)
does not depend on what was asked for. Where the data has chance, targets average over it: a setting that asks for what
lucky episodes had is evaluated on what its actions lead to, lucky or not.

The distribution of an episode's cost C is evaluated alike, since what is spent u is part of z: for thresholds b_j

    S_j(s, a, z, t) ← 1[u + c > b_j] + 1[u + c ≤ b_j] S̄_j(s′, π(s′, z′), z′, t + 1) = P(C > b_j)

It begins at one half, and what was not learned yet objects to a limit: backups travel one step of an episode in
1 / target_rate steps of the training. One that began near 0 called a tail satisfied in a training too short for that.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.nn.distributions import LikelihoodActor
from pdocrl.nn.mlp import MLP
from pdocrl.policies.policy import DialPolicy

MEMBERS = 2
LEVELS = 12  # thresholds b_j of an episode's cost, which lie closer together where costs are small
SHARES: tuple[float, ...] = tuple((j / LEVELS) ** 2 for j in range(LEVELS))  # of the costliest logged episode's cost


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
    """Undiscounted return and costs of the rest of an episode under the conditional policy, or logits of P(C > b_j)."""

    mlp: MLP  # members: (policy inputs, room below the cap, action) → [1 + K], or with what is spent → [K LEVELS]
    tails: bool = eqx.field(static=True, default=False)

    @staticmethod
    def create(
        key: PRNGKeyArray, obs_dim: int, action_dim: int, n_costs: int, hidden: Sequence[int], tails: bool = False
    ) -> ConditionalCritic:
        inputs = obs_dim + 2 + 8 * n_costs + n_costs + action_dim + 4 * n_costs * tails
        outputs = n_costs * LEVELS if tails else 1 + n_costs
        return ConditionalCritic(MLP.create(key, (inputs, *hidden, outputs), MEMBERS), tails)

    def __call__(
        self, at: Conditioned, action: Float[Array, "B A"], max_episode_cost: Float[Array, " K"]
    ) -> Float[Array, "M B O"]:
        """In units of the largest return and the largest episode costs."""
        room = jnp.clip((at.cost_cap - at.spent) / max_episode_cost, 0, 1)
        spent = [DialPolicy.features(at.spent, max_episode_cost, xp=jnp)] if self.tails else []
        inputs = jnp.concatenate([at.inputs(max_episode_cost), room, action, *spent], -1)
        found: Array = self.mlp(inputs)
        return found

    def values(
        self, actor: LikelihoodActor, at: Conditioned, max_episode_cost: Float[Array, " K"]
    ) -> Float[Array, "M B O"]:
        """Of the policy's own action."""
        return self(at, actor.mode(at.inputs(max_episode_cost)), max_episode_cost)


class Backup(eqx.Module):
    """B logged transitions, and where they lead under the settings of `at`."""

    at: Conditioned
    action: Float[Array, "B A"]
    paid: Float[Array, "B 1+K"]  # reward and costs in units of the largest
    after: Conditioned
    goes_on: Float[Array, " B"]  # 0 where the episode or the horizon ends

    @staticmethod
    def of(
        at: Conditioned,
        action: Float[Array, "B A"],
        paid: Float[Array, "B 1+K"],
        next_obs: Float[Array, "B S"],
        not_done: Float[Array, " B"],
        max_episode_cost: Float[Array, " K"],
        step: Array,
    ) -> Backup:
        """`step` is 1 / horizon."""
        spent, left = at.spent + paid[:, 1:] * max_episode_cost, jnp.maximum(at.time_left - step, 0)
        after = Conditioned(next_obs, at.relative_return, at.target_cost, at.cost_cap, spent, left)
        return Backup(at, action, paid, after, not_done * (left[:, 0] > 0.5 * step))


def fqe_loss(
    critic: ConditionalCritic,
    target: ConditionalCritic,
    actor: LikelihoodActor,
    rows: Backup,
    max_episode_cost: Float[Array, " K"],
) -> Array:
    """Squared error of the backup of return and costs."""
    ahead = target.values(actor, rows.after, max_episode_cost)  # [M, B, 1 + K]
    ahead = ahead.at[..., 1:].set(jnp.maximum(ahead[..., 1:], 0))
    backup = jax.lax.stop_gradient(rows.paid + rows.goes_on[:, None] * ahead)
    error: Array = ((critic(rows.at, rows.action, max_episode_cost) - backup) ** 2).mean(1).sum()
    return error


def tail_loss(
    critic: ConditionalCritic,
    target: ConditionalCritic,
    actor: LikelihoodActor,
    rows: Backup,
    max_episode_cost: Float[Array, " K"],
) -> Array:
    """Cross-entropy of the backup of P(C > b_j), where that is not yet known."""

    def over(at: Conditioned) -> Array:  # [B, K LEVELS]
        spent = at.spent / max_episode_cost
        return (spent[..., None] > jnp.asarray(SHARES) + 1e-6).reshape(len(spent), -1)

    ahead = jax.nn.sigmoid(target.values(actor, rows.after, max_episode_cost))
    backup = jax.lax.stop_gradient(jnp.where(over(rows.after), 1.0, rows.goes_on[:, None] * ahead))
    logits = critic(rows.at, rows.action, max_episode_cost)
    entropy = optax.losses.sigmoid_binary_cross_entropy(logits, backup) * ~over(rows.at)
    loss: Array = entropy.mean((1, 2)).sum()
    return loss
