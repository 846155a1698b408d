"""The data's magnitudes, and the amounts a cost is counted in: constants that scale what the networks see.

A cost is a draw of one of L levels: nothing, or one of up to L − 1 amounts. Where no more amounts are logged they are
these, exactly; otherwise each is the mean of the logged costs nearest to it, so that the mean cost is unbiased. Costs
of .1 and of 1,000 in one column are then two levels, and neither is lost in the unit of the other.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset

LEVELS = 16  # L: 0 and at most fifteen amounts
TAIL = 0.0005  # of changes at each end, which do not set the unit of the others
LLOYD = 50  # rounds of moving each level to the mean of its costs
Numbers = tuple[float, ...] | tuple[tuple[float, ...], ...]


class Normaliser(eqx.Module):
    """Magnitudes of states, changes, rewards and costs."""

    mean: Float[Array, " S"]
    std: Float[Array, " S"]
    low: Float[Array, " S"]  # no predicted state leaves the box the data lies in
    high: Float[Array, " S"]
    change: Float[Array, " S"]  # root mean square of s′ − s
    reward: Float[Array, ""]  # the largest |r| of a step
    cost: Float[Array, " K"]  # the largest cost of a step
    levels: Float[Array, "K L"]  # amounts a cost is counted in, ascending from 0; the largest is repeated

    @staticmethod
    def measure(dataset: Dataset) -> tuple[Numbers, ...]:
        """The fields as plain numbers, which a problem's description holds and a checkpoint stores."""
        # The size of a change, not its spread: a clock always moves by the same, and dividing by 0 would be no unit.
        obs, change = dataset.obs, np.sqrt(((dataset.next_obs - dataset.obs) ** 2).mean(0))
        reward = float(np.abs(dataset.reward).max(initial=0.0)) or 1.0
        vectors = (obs.mean(0), obs.std(0) + 1e-6, obs.min(0), obs.max(0), change + 1e-6, [reward])
        levels = tuple(tuple(cost_levels(column).tolist()) for column in dataset.cost.T)
        largest = tuple(max_step_cost(dataset).tolist())
        return *(tuple(np.asarray(x, np.float32).tolist()) for x in vectors), largest, levels

    @staticmethod
    def in_any_unit(dataset: Dataset) -> Normaliser:
        """The same whatever the units of the columns; one that is rounding stays where it is.

        A policy may standardise even a column of rounding, of 1e-14, say, and no model learns what that does next.
        Jumps, an angle that wraps round, do not set the unit of all other changes.
        """
        reward, cost, levels = Normaliser.measure(dataset)[-3:]
        moves, change = dataset.obs_varies, dataset.next_obs - dataset.obs
        mean, std = dataset.obs.mean(axis=0, dtype=np.float64), dataset.obs.std(axis=0, dtype=np.float64)
        change = np.clip(change, *np.quantile(change, [TAIL, 1 - TAIL], axis=0))
        size = np.sqrt(np.square(change, dtype=np.float64).mean(axis=0))
        low, high = (getattr(np, end)(dataset.obs, dataset.next_obs) for end in ("minimum", "maximum"))
        columns = (
            mean,
            np.where(moves, std, np.maximum(np.abs(mean), 1.0)),
            np.where(moves, low.min(axis=0), mean),
            np.where(moves, high.max(axis=0), mean),
            np.where(moves & (size > 0), size, 1.0),
        )
        return Normaliser.of((*(tuple(x.tolist()) for x in columns), reward, cost, levels))

    @staticmethod
    def of(measured: tuple[Numbers, ...]) -> Normaliser:
        mean, std, low, high, change, reward, cost, levels = (jnp.asarray(x, jnp.float32) for x in measured)
        return Normaliser(mean, std, low, high, change, reward[0], cost, levels.reshape(len(cost), -1))

    def standardised(self, obs: Float[Array, "... S"]) -> Float[Array, "... S"]:
        return (obs - self.mean) / self.std

    def targets(
        self, obs: Float[Array, "B S"], next_obs: Float[Array, "B S"], reward: Float[Array, " B"]
    ) -> Float[Array, "B S+1"]:
        """What a model predicts of a step: the change of the state and the reward, in their units."""
        return jnp.concatenate([(next_obs - obs) / self.change, reward[:, None] / self.reward], -1)

    def after(
        self, obs: Float[Array, "... S"], y: Float[Array, "... S+1"]
    ) -> tuple[Float[Array, "... S"], Float[Array, " ..."]]:
        """Next state, within the data's box, and reward, of such a prediction."""
        return jnp.clip(obs + y[..., :-1] * self.change, self.low, self.high), y[..., -1] * self.reward

    def known(self, cost: Float[Array, "B K"]) -> Float[Array, "B 2K"]:
        """Which costs occurred, and how much of the largest: what an end and a jump may depend on."""
        return jnp.concatenate([(cost > 0).astype(jnp.float32), cost / self.cost], -1)

    def level_of(self, cost: Float[Array, "B K"]) -> Array:
        """The level of each cost, [B, K] of 0 … L − 1: 0 for nothing, else the nearest amount."""
        nearest = jnp.abs(cost[..., None] - self.levels[:, 1:]).argmin(-1) + 1
        return jnp.where(cost == 0, 0, nearest)


def max_step_cost(dataset: Dataset) -> NDArray[np.float32]:
    """[K] the largest cost of a step; 1 where none costs anything."""
    most = dataset.cost.max(axis=0, initial=0.0)
    return np.where(most > 0, most, np.float32(1))


def cost_levels(costs: NDArray[np.float32]) -> NDArray[np.float32]:
    """[L] the amounts that costs [N] are counted in."""
    paid = np.sort(costs[costs != 0].astype(np.float64))
    amounts = np.unique(paid)
    if len(amounts) >= LEVELS:
        amounts = np.unique(np.quantile(paid, np.linspace(0, 1, LEVELS - 1)))
        for _ in range(LLOYD):
            cell = np.searchsorted((amounts[1:] + amounts[:-1]) / 2, paid)
            count = np.bincount(cell)
            amounts = np.bincount(cell, paid)[count > 0] / count[count > 0]
    if not len(amounts):
        amounts = np.ones(1)
    padded = np.concatenate([np.zeros(1), amounts, np.full(LEVELS - 1 - len(amounts), amounts[-1])])
    return padded.astype(np.float32)
