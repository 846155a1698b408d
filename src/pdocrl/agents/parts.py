"""Pieces more than one agent is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.agents.agent import Metrics
from pdocrl.data.dataset import Dataset
from pdocrl.nn.density import ClippedGaussian, TanhGaussian
from pdocrl.nn.mlp import MLP, CostCritic, Critic
from pdocrl.policies.policy import MLPPolicy

M = TypeVar("M", bound=eqx.Module)
T = TypeVar("T")
LATENT_CLIP = 0.5  # proposals come from the middle of the prior, where the decoder has seen much data


def adam_step(gradient: M, opt: optax.OptState, module: M, rate: float | Array) -> tuple[M, optax.OptState]:
    """One Adam step whose rate is a traced number, so that runs may differ in it."""
    direction, opt = optax.scale_by_adam().update(gradient, opt)
    moved: M = jax.tree.map(lambda p, d: p - rate * d, module, direction)
    return moved, opt


def density_ratio(weight: MLP, inputs: Float[Array, "B X"], largest: float | Array) -> Float[Array, " B"]:
    """w = clip(softplus(network(s, a)), 0, w_max), [B]."""
    raw = jax.nn.softplus(weight(inputs)[..., 0])
    return clip_inward(raw, jnp.asarray(largest, raw.dtype))


@jax.custom_vjp
def clip_inward(raw: Array, largest: Array) -> Array:
    """Clip to [0, largest]; outside, the gradient passes only where it leads back in: projected gradient ascent.

    A plain clip has no gradient outside, so a ratio that once left the box could never return.
    """
    return jnp.clip(raw, 0, largest)


def _clip_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    raw, largest = saved
    outward = ((raw >= largest) & (gradient < 0)) | ((raw <= 0) & (gradient > 0))  # a descent step goes against it
    return jnp.where(outward, 0.0, gradient), None


clip_inward.defvjp(lambda raw, largest: (jnp.clip(raw, 0, largest), (raw, largest)), _clip_backward)


def mix_twins(
    value: Float[Array, "2 *n B"], cost: Float[Array, "2 *n B K"], pessimism: float | Array
) -> tuple[Float[Array, "*n B"], Float[Array, "*n B K"]]:
    """BCQ's soft pessimism: a mixture of the worse of two estimates and the better; for a cost the larger is worse."""
    return pessimism * value.min(0) + (1 - pessimism) * value.max(0), mix_costs(cost, pessimism)


def mix_costs(cost: Float[Array, "2 *n B K"], pessimism: float | Array) -> Float[Array, "*n B K"]:
    """A mixture of the larger of two estimates of a cost and the smaller."""
    return pessimism * cost.max(0) + (1 - pessimism) * cost.min(0)


def best_candidate(
    critic: Critic, cost_critic: CostCritic, lam: Array, obs: Array, action: Array, pessimism: float | Array
) -> tuple[Float[Array, " B"], Float[Array, "B K"]]:
    """Reward and cost values of the candidate with the highest Q_r − λ·Q_c; obs [B, S], action [n, B, A].

    One action is chosen and both its values are taken, so that Q_r and Q_c are values of the same policy.
    """
    value, cost = mix_twins(critic(obs, action), cost_critic(obs, action), pessimism)  # [n, B], [n, B, K]
    best = jnp.argmax(value - cost @ lam, 0)[None]  # [1, B]
    return jnp.take_along_axis(value, best, 0)[0], jnp.take_along_axis(cost, best[..., None], 0)[0]


def sum_over(function: Callable[[Any], T], pieces: Any) -> T:
    """Σ_p function(piece p), one piece after another; every array of `pieces` is [P, …]."""
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], pieces))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(total: T, piece: Any) -> tuple[T, None]:
        return jax.tree.map(jnp.add, total, function(piece)), None

    total: T = jax.lax.scan(add, zero, pieces)[0]
    return total


def per_constraint(name: str, values: Float[Array, " K"]) -> Metrics:
    """{'lambda': …} for one constraint, {'lambda_0': …, 'lambda_1': …} for more."""
    if len(values) == 1:
        return {name: values[0]}
    return {f"{name}_{i}": value for i, value in enumerate(values)}


def rows_of_episodes(dataset: Dataset, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row numbers of the given episodes, one after another."""
    starts, lengths = dataset.episode_start[episodes], dataset.episode_length[episodes]
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def network_policy(network: MLP) -> MLPPolicy:
    """tanh of a network's output."""
    return MLPPolicy(tuple(map(np.asarray, network.weights)), tuple(map(np.asarray, network.biases)))


def mode_policy(actor: TanhGaussian | ClippedGaussian) -> MLPPolicy:
    """The network of the mean, without the half that gives the scale."""
    whole = network_policy(actor.mlp)
    half = whole.weights[-1].shape[-1] // 2
    weights = (*whole.weights[:-1], whole.weights[-1][:, :half])
    return MLPPolicy(weights, (*whole.biases[:-1], whole.biases[-1][:half]))
