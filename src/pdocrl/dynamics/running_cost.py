"""A policy's own cost per episode while it trains: rollouts in dynamics models that are learned beside it.

P rollouts are always under way, at evenly spread moments of an episode, and each takes one step per training step.
Cost per step over ends per step is the cost of an episode. A policy changes little while an episode lasts, so the
figure follows the policy; and unlike an estimate over logged states it sees where the policy itself drifts to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.dynamics.mixture import MixtureModel, Step
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.rollouts import one_step
from pdocrl.nn.mlp import polyak
from pdocrl.nn.optim import descend

EMA_RATE = 0.003  # of the moving averages of cost and ends, per step


class HasMode(Protocol):
    """A policy that acts by its mode."""

    def mode(self, obs: Array) -> Array: ...


class RunningCost(eqx.Module):
    """The models, their moving average, and the rollouts in the latter."""

    models: MixtureModel  # every array with a leading axis of M members
    average: MixtureModel
    opt: optax.OptState
    normaliser: Normaliser
    obs: Float[Array, "P S"]
    time: Float[Array, " P"]  # steps taken; negative: waits for its turn
    cost: Float[Array, " K"]  # moving average of cost per step
    ends: Float[Array, ""]  # moving average of ends per step

    @staticmethod
    def create(
        key: PRNGKeyArray,
        normaliser: Normaliser,
        action_dim: int,
        hidden: Sequence[int],
        horizon: Array,
        members: int = 4,
        copies: int = 64,
    ) -> RunningCost:
        s, (costs, levels) = normaliser.mean.shape[0], normaliser.levels.shape
        models = jax.vmap(lambda key: MixtureModel.create(key, s, action_dim, costs, levels, hidden))(
            jax.random.split(key, members)
        )
        turn = jnp.arange(copies) / copies
        return RunningCost(
            models,
            models,
            optax.scale_by_adam().init(models),
            normaliser,
            jnp.zeros((copies, s)),
            -jnp.ceil(turn * horizon),
            jnp.zeros(costs),
            1 / jnp.asarray(horizon, jnp.float32),
        )

    @property
    def members(self) -> int:
        return int(self.models.mean.weights[0].shape[0])

    def loss(self, models: MixtureModel, obs: Array, action: Array, step: Step) -> Array:
        """Mean over the members of their losses, each on a part of the rows of its own."""
        each = len(obs) // self.members
        own = np.arange(self.members * each).reshape(each, self.members).T
        rows = jax.tree.map(lambda x: x[own], (obs, action, step))
        losses: Array = jax.vmap(lambda model, some: model.loss(self.normaliser, *some))(models, rows)
        return losses.mean()

    def learn(
        self, obs: Array, action: Array, step: Step, rate: Array | float, average_rate: Array | float
    ) -> tuple[RunningCost, Array]:
        """One gradient step of the models; their loss [scalar]."""
        models, opt, loss = descend(lambda m: self.loss(m, obs, action, step), self.models, self.opt, rate)
        average = polyak(self.average, models, average_rate)
        learned = eqx.tree_at(lambda i: (i.models, i.average, i.opt), self, (models, average, opt))
        return learned, loss

    def play(
        self, actor: HasMode, first: Float[Array, "B S"], horizon: Array | float, key: PRNGKeyArray
    ) -> RunningCost:
        """Every rollout takes one step; those whose turn it is start at a row of `first`."""
        fresh = jnp.resize(first, self.obs.shape)
        obs = jnp.where((self.time <= 0)[:, None], fresh, self.obs)
        action = actor.mode(obs)

        def by_member(x: Array) -> Array:
            return x.reshape(self.members, -1, x.shape[-1])

        drawn = one_step(self.average, self.normaliser, by_member(obs), by_member(action), key)
        next_obs, cost, end = (x.reshape(len(obs), *x.shape[2:]) for x in (drawn.next_obs, drawn.cost, drawn.end))
        playing = self.time >= 0
        time = self.time + 1
        over = playing & ((end > 0) | (time >= horizon))
        share = EMA_RATE * playing.mean()
        now = jnp.where(playing[:, None], cost, 0.0).sum(0) / jnp.maximum(playing.sum(), 1)
        ends = over.sum() / jnp.maximum(playing.sum(), 1)
        played: RunningCost = eqx.tree_at(
            lambda i: (i.obs, i.time, i.cost, i.ends),
            self,
            (
                next_obs,
                jnp.where(over, 0.0, time),
                self.cost + share * (now - self.cost),
                self.ends + share * (ends - self.ends),
            ),
        )
        return played

    @property
    def cost_per_episode(self) -> Float[Array, " K"]:
        return self.cost / jnp.maximum(self.ends, 1e-6)
