"""The data's magnitudes, and what the networks of a step see: states, actions and the step before, standardised.

memory(s, a, s′)          what the next step remembers of this one
inputs(memory, s, a)      of the change;  features(…) adds products, for the regression
outcome_inputs(s, a, s′)  of what a step earns and costs
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, varies

FARTHEST = 6.0  # standard deviations beyond which inputs are clipped
JUMP = 20.0  # … and changes and targets: heavy tails are the world's, an angle that wraps round is not a change
MOST_PRODUCTS = 1000  # of two inputs; with more inputs only their squares are features


class Scales(eqx.Module):
    """The data's magnitudes, constants of the networks."""

    obs_mean: Float[Array, " S"]
    obs_scale: Float[Array, " S"]
    action_mean: Float[Array, " A"]
    action_scale: Float[Array, " A"]
    change_mean: Float[Array, " S"]
    change_scale: Float[Array, " S"]
    reward_mean: Float[Array, ""]
    reward_scale: Float[Array, ""]
    cost_mean: Float[Array, " K"]  # of the costs that are not 0
    cost_scale: Float[Array, " K"]
    low: Float[Array, " S"]  # no simulated state leaves the box the data lies in; what is rounding stays where it is
    high: Float[Array, " S"]
    cost_low: Float[Array, " K"]  # of the costs that are not 0
    cost_high: Float[Array, " K"]

    @staticmethod
    def of(data: Dataset) -> Scales:
        # One step in a thousand may be a jump (an angle that wraps round), and must not set the scale of all others.
        change = data.next_obs - data.obs
        change = np.clip(change, *np.quantile(change, [0.0005, 0.9995], axis=0))
        paid = [column[column != 0] for column in data.cost.T]
        paid = [column if len(column) else np.zeros(1, np.float32) for column in paid]
        mean, moves = data.obs.mean(axis=0, dtype=np.float64), data.obs_varies
        low = np.minimum(data.obs.min(axis=0), data.next_obs.min(axis=0))
        high = np.maximum(data.obs.max(axis=0), data.next_obs.max(axis=0))
        numbers = {
            "obs_mean": mean,
            "obs_scale": spread(data.obs),
            "action_mean": data.action.mean(axis=0, dtype=np.float64),
            "action_scale": spread(data.action),
            "change_mean": change.mean(axis=0, dtype=np.float64),
            "change_scale": np.where(moves, spread(change), 1.0),
            "reward_mean": data.reward.mean(dtype=np.float64),
            "reward_scale": spread(data.reward[:, None])[0],
            "cost_mean": [column.mean(dtype=np.float64) for column in paid],
            "cost_scale": [spread(column[:, None])[0] for column in paid],
            # A policy may standardise even a column of rounding, of 1e-14, say; no model learns what that does next.
            "low": np.where(moves, low, mean),
            "high": np.where(moves, high, mean),
            "cost_low": [column.min() for column in paid],
            "cost_high": [column.max() for column in paid],
        }
        return Scales(**{name: jnp.asarray(value, jnp.float32) for name, value in numbers.items()})

    def change_of(self, obs: Array, next_obs: Array) -> Array:
        """s′ − s, standardised and without jumps."""
        return jnp.clip((next_obs - obs - self.change_mean) / self.change_scale, -JUMP, JUMP)

    def memory(self, obs: Array, action: Array, next_obs: Array) -> Array:
        """[..., S + A + 1] what the next step remembers of this one; zeros at the start of an episode."""
        past = [
            jnp.clip(self.change_of(obs, next_obs), -FARTHEST, FARTHEST),
            (action - self.action_mean) / self.action_scale,
        ]
        return jnp.concatenate([*past, jnp.ones((*obs.shape[:-1], 1))], -1)

    def inputs(self, memory: Array, obs: Array, action: Array) -> Array:
        """[..., 2(S + A) + 1] s and a, standardised, and the memory."""
        x = [(obs - self.obs_mean) / self.obs_scale, (action - self.action_mean) / self.action_scale]
        return jnp.concatenate([*(jnp.clip(part, -FARTHEST, FARTHEST) for part in x), memory], -1)

    def features(self, memory: Array, obs: Array, action: Array) -> tuple[Array, Array]:
        """φ [..., d] of the regression: 1, s, a, memory, products of s and a. And the network's inputs."""
        inputs = self.inputs(memory, obs, action)
        n = obs.shape[-1] + action.shape[-1]
        i, j = np.triu_indices(n) if n * (n + 1) // 2 <= MOST_PRODUCTS else (np.arange(n),) * 2
        x = inputs[..., :n]
        return jnp.concatenate([with_one(inputs), x[..., i] * x[..., j]], -1), inputs

    def outcome_inputs(self, obs: Array, action: Array, next_obs: Array) -> Array:
        """[..., 3S + A] a, Δ, s′ and s′²: limits on a speed or a distance are balls, whose curvature squares spare."""
        a = (action - self.action_mean) / self.action_scale
        after = jnp.clip((next_obs - self.obs_mean) / self.obs_scale, -FARTHEST, FARTHEST)
        return jnp.concatenate([a, self.change_of(obs, next_obs), after, after * after], -1)


def spread(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """[D] standard deviations of columns [N, D] in whatever unit; of one that is rounding its size, 1 at least."""
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    return np.asarray(np.where(varies(mean, deviation), deviation, np.maximum(np.abs(mean), 1.0)))


def with_one(x: Array) -> Array:
    return jnp.concatenate([jnp.ones((*x.shape[:-1], 1)), x], -1)
