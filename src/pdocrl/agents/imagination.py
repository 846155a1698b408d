"""A policy's own cost per episode, from data alone: the policy plays in a model of the dynamics learned beside it.

    s′ = s + mean_m f_m(s, a),   c = g(s, a, s′),   a = π(s),   s₀ ~ the dataset's first states

P copies of the policy are always on stage, at evenly spread moments of an episode, and each takes one step per training
step. They step by the mean of M networks: what one of them gets wrong, the others seldom do, and small errors of one
sign would add up over an episode. Cost per step over endings per step is the cost of an episode. A policy changes
little while an episode lasts, so the figure follows the policy; and unlike an estimate over logged states it sees where
the policy itself drifts to.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Transitions
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import ClippedGaussian
from pdocrl.nn.mlp import MLP, polyak
from pdocrl.nn.optim import descend

FORGETTING = 0.003  # of the moving averages of cost and endings, per step


class Standards(eqx.Module):
    """The data's magnitudes: constants that scale what the networks see."""

    mean: Float[Array, " S"]
    std: Float[Array, " S"]
    low: Float[Array, " S"]  # no imagined state leaves the box the data lies in
    high: Float[Array, " S"]
    change: Float[Array, " S"]  # root mean square of s′ − s
    cost: Float[Array, ...]  # the largest cost of a step, [K]; a number where there is one cost
    reward: Float[Array, ""]  # the largest |r| of a step
    all_or_nothing: Float[Array, ...]  # 1 where a step costs either nothing or the largest cost, likewise

    @staticmethod
    def measure(dataset: Dataset) -> tuple[tuple[float, ...], ...]:
        """The eight fields as plain numbers, which a problem's description holds and a checkpoint stores."""
        # The size of a change, not its spread: a clock always moves by the same, and dividing by 0 would be no unit.
        obs, change = dataset.obs, np.sqrt(((dataset.next_obs - dataset.obs) ** 2).mean(0))
        # Each cost in its own unit: beside one of thousands, one of thousandths would not be learned at all.
        largest = dearest_step(dataset)
        reward = float(np.abs(dataset.reward).max(initial=0.0)) or 1.0
        two = ((dataset.cost == 0) | (dataset.cost == largest)).all(axis=0)
        found = (obs.mean(0), obs.std(0) + 1e-6, obs.min(0), obs.max(0), change + 1e-6, largest, reward, two)
        return tuple(tuple(np.atleast_1d(np.asarray(x, np.float32)).tolist()) for x in found)

    @staticmethod
    def of(measured: tuple[tuple[float, ...], ...]) -> Standards:
        mean, std, low, high, change, cost, reward, two = (jnp.asarray(numbers, jnp.float32) for numbers in measured)
        if cost.shape == (1,):  # a number, as checkpoints have had it since there was one cost
            cost, two = cost[0], two[0]
        return Standards(mean, std, low, high, change, cost, reward[0], two)


def dearest_step(dataset: Dataset) -> NDArray[np.float32]:
    """[K] the largest cost of a step; 1 where none costs anything."""
    most = dataset.cost.max(axis=0, initial=0.0)
    return np.where(most > 0, most, np.float32(1))


class Model(eqx.Module):
    """What happens next."""

    dynamics: MLP  # M members: (s, a) → (s′ − s) / its size
    outcome: MLP  # (s, a, s′) → reward as a share of the largest, [1], logits of the costs likewise [K], of an end [1]

    @property
    def members(self) -> int:
        return int(self.dynamics.weights[0].shape[0])

    @staticmethod
    def create(
        key: PRNGKeyArray, obs_dim: int, action_dim: int, n_costs: int, hidden: Sequence[int], members: int
    ) -> Model:
        keys = jax.random.split(key)
        return Model(
            MLP.create(keys[0], (obs_dim + action_dim, *hidden, obs_dim), members),
            MLP.create(keys[1], (2 * obs_dim + action_dim, *hidden, n_costs + 2)),
        )

    def forward(self, standards: Standards, obs: Array, action: Array) -> Array:
        """The next state according to the mean of the members, [P, S], from obs [P, S]."""
        change = self.dynamics(jnp.concatenate([(obs - standards.mean) / standards.std, action], -1)).mean(0)
        return jnp.clip(obs + change * standards.change, standards.low, standards.high)

    def outcomes(self, standards: Standards, obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array]:
        """Reward [...], and logits of costs and of an ending, [..., K + 1]."""
        both = [(x - standards.mean) / standards.std for x in (obs, next_obs)]
        out = self.outcome(jnp.concatenate([both[0], action, both[1]], -1))
        return out[..., 0] * standards.reward, out[..., 1:]

    def loss(self, standards: Standards, batch: Transitions, weight: Array | float = 1.0) -> Array:
        """Squared error of change and reward plus cross-entropy of costs and endings; rows count by `weight` [B]."""
        rows = jnp.broadcast_to(jnp.asarray(weight), batch.reward.shape)
        inputs = jnp.concatenate([(batch.obs - standards.mean) / standards.std, batch.action], -1)
        change = (batch.next_obs - batch.obs) / standards.change
        reward, logits = self.outcomes(standards, batch.obs, batch.action, batch.next_obs)
        labels = jnp.concatenate([batch.cost / standards.cost, 1 - batch.not_done[:, None]], -1)
        error = (rows[:, None] * (self.dynamics(inputs) - change) ** 2).mean((-2, -1)).sum()
        error = error + (rows * ((reward - batch.reward) / standards.reward) ** 2).mean()
        surprise: Array = (rows[:, None] * optax.sigmoid_binary_cross_entropy(logits, labels)).mean(0).sum()
        return error + surprise


class Imagination(eqx.Module):
    """The model, its moving average, and the copies of the policy that play in the latter."""

    model: Model
    average: Model
    opt: optax.OptState
    standards: Standards
    obs: Float[Array, "P S"]
    age: Float[Array, " P"]  # steps played; negative: waits for its turn
    cost: Float[Array, " K"]  # moving average of cost per step
    ends: Float[Array, ""]  # moving average of endings per step

    @staticmethod
    def create(
        key: PRNGKeyArray,
        standards: Standards,
        action_dim: int,
        n_costs: int,
        hidden: tuple[int, ...],
        horizon: Array,
        members: int = 4,
        copies: int = 64,
    ) -> Imagination:
        s = standards.mean.shape[0]
        model = Model.create(key, s, action_dim, n_costs, hidden, members)
        turn = jnp.arange(copies) / copies
        return Imagination(
            model,
            model,
            optax.scale_by_adam().init(model),
            standards,
            jnp.zeros((copies, s)),
            -jnp.ceil(turn * horizon),
            jnp.zeros(n_costs),
            1 / jnp.asarray(horizon, jnp.float32),
        )

    def learn(self, batch: Transitions, rate: Array | float, average_rate: Array | float) -> tuple[Imagination, Array]:
        """One gradient step of the model; its loss [scalar]."""
        model, opt, loss = descend(lambda m: m.loss(self.standards, batch), self.model, self.opt, rate)
        average = polyak(self.average, model, average_rate)
        learned = eqx.tree_at(lambda i: (i.model, i.average, i.opt), self, (model, average, opt))
        return learned, loss

    def play(self, actor: ClippedGaussian, first: Float[Array, "B S"], horizon: Array | float) -> Imagination:
        """Every copy takes one step; those whose turn it is start at a row of `first`."""
        fresh = jnp.resize(first, self.obs.shape)
        obs = jnp.where((self.age <= 0)[:, None], fresh, self.obs)
        action = actor.mode(obs)
        next_obs = self.average.forward(self.standards, obs, action)
        _, logits = self.average.outcomes(self.standards, obs, action, next_obs)
        playing = self.age >= 0
        age = self.age + 1
        over = playing & ((logits[:, -1] > 0) | (age >= horizon))
        cost = jax.nn.sigmoid(logits[:, :-1]) * self.standards.cost
        share = FORGETTING * playing.mean()
        now = jnp.where(playing[:, None], cost, 0.0).sum(0) / jnp.maximum(playing.sum(), 1)
        ends = over.sum() / jnp.maximum(playing.sum(), 1)
        played: Imagination = eqx.tree_at(
            lambda i: (i.obs, i.age, i.cost, i.ends),
            self,
            (
                next_obs,
                jnp.where(over, 0.0, age),
                self.cost + share * (now - self.cost),
                self.ends + share * (ends - self.ends),
            ),
        )
        return played

    @property
    def cost_per_episode(self) -> Float[Array, " K"]:
        return self.cost / jnp.maximum(self.ends, 1e-6)
