"""What each setting of a dial earns and costs, played out in a model of the dynamics learned from the same data.

    s′ = s + mean_m f_m(s, a),   a = π(s, dial(spent, t)),   s₀ ~ the dataset's first states

Every setting plays a whole episode from every start, all side by side. Costs that are all or nothing come by chance, as
they do in the world, because the policy answers to what it has spent; ends do too. Nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from pdocrl.agents.imagination import Model, Standards
from pdocrl.nn.density import ClippedGaussian
from pdocrl.policies.policy import DialPolicy


def rehearse(
    model: Model, standards: Standards, actor: ClippedGaussian, starts: Float[Array, "P S"], dial: DialPolicy
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean reward [M] of an episode under each of the dial's M settings, an upper estimate of its mean costs [M, K].

    The mean of the members plays from every start; each member by itself, from half of them. The cost is the largest
    that one of these comes to: where members disagree, the data does not settle what happens.
    """
    few = starts[: max(1, len(starts) // 2)]
    alone = [jax.tree.map(lambda x, m=m: x[m : m + 1], model.dynamics) for m in range(model.members)]
    found = [
        _play(
            eqx.tree_at(lambda m: m.dynamics, model, dynamics), standards, actor, first,
            jnp.asarray(dial.ask), jnp.asarray(dial.stop), jnp.asarray(dial.largest), dial.quality, dial.horizon,
        )
        for dynamics, first in [(model.dynamics, starts), *((member, few) for member in alone)]
    ]  # fmt: skip
    return np.asarray(found[0][0]), np.max([np.asarray(cost) for _, cost in found], axis=0)


def rehearse_other(
    model: Model, standards: Standards, act: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    starts: Float[Array, "P S"], horizon: int,
) -> tuple[float, NDArray[np.float32]]:  # fmt: skip
    """The same of a policy without a dial or memory, obs [P, S] → action [P, A]."""
    few = starts[: max(1, len(starts) // 2)]
    alone = [jax.tree.map(lambda x, m=m: x[m : m + 1], model.dynamics) for m in range(model.members)]
    found = []
    for dynamics, first in [(model.dynamics, starts), *((member, few) for member in alone)]:
        own = eqx.tree_at(lambda m: m.dynamics, model, dynamics)
        obs, alive, earned, spent = first, jnp.ones(len(first)), 0.0, 0.0
        for time in range(horizon):
            obs, reward, costs, ends = _step(own, standards, obs, jnp.asarray(act(np.asarray(obs))), 1, jnp.int32(time))
            earned, spent = earned + alive * reward, spent + alive[:, None] * costs
            alive = alive * (1 - ends)
        found.append((float(np.mean(earned)), np.asarray(spent, np.float32).mean(0)))
    return found[0][0], np.max([cost for _, cost in found], axis=0)


@jax.jit
def _play(
    model: Model, standards: Standards, actor: ClippedGaussian, starts: Float[Array, "P S"],
    ask: Float[Array, "M K"], stop: Float[Array, "M K"], largest: Float[Array, " K"],
    quality: Float[Array, ""], horizon: Float[Array, ""],
) -> tuple[Float[Array, " M"], Float[Array, "M K"]]:  # fmt: skip
    settings, first = len(ask), len(starts)
    asked, stopped = jnp.repeat(ask, first, axis=0), jnp.repeat(stop, first, axis=0)  # [M P, K]
    obs = jnp.tile(starts, (settings, 1))

    def step(time: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        obs, alive, earned, spent = carry
        action = actor.mode(inputs(obs, asked, stopped, spent, quality, time, horizon, largest))
        obs, reward, costs, ends = _step(model, standards, obs, action, settings, time)
        return obs, alive * (1 - ends), earned + alive * reward, spent + alive[:, None] * costs

    nothing = jnp.zeros(len(obs))
    begin = (obs, nothing + 1, nothing, jnp.zeros_like(asked))
    _, _, earned, spent = jax.lax.fori_loop(0, jnp.int32(jnp.round(horizon)), step, begin)
    return earned.reshape(settings, first).mean(1), spent.reshape(settings, first, -1).mean(1)


@partial(jax.jit, static_argnums=4)
def _step(
    model: Model, standards: Standards, obs: Float[Array, "N S"], action: Float[Array, "N A"], settings: int,
    time: Array,
) -> tuple[Float[Array, "N S"], Float[Array, " N"], Float[Array, "N K"], Float[Array, " N"]]:  # fmt: skip
    """Next states, rewards, costs and endings; all settings meet the same luck, so that they differ by what they do."""
    ahead = model.forward(standards, obs, action)
    reward, logits = model.outcomes(standards, obs, action, ahead)
    chances = jax.nn.sigmoid(logits)
    key = jax.random.fold_in(jax.random.key(0), time)
    luck = jnp.tile(jax.random.uniform(key, (len(obs) // settings, chances.shape[-1])), (settings, 1))
    happens = (luck < chances).astype(jnp.float32)
    costs = jnp.where(standards.all_or_nothing > 0, happens[:, :-1], chances[:, :-1]) * standards.cost
    return ahead, reward, costs, happens[:, -1]


def inputs(
    obs: Float[Array, "N S"], ask: Float[Array, "N K"], stop: Float[Array, "N K"], spent: Float[Array, "N K"],
    quality: Float[Array, ""], time: Array, horizon: Float[Array, ""], largest: Float[Array, " K"],
) -> Float[Array, "N S+2+8K"]:  # fmt: skip
    """What the dial's network sees; `DialPolicy.act`, for JAX."""
    ask = jnp.where((spent >= stop).any(-1, keepdims=True), 0.0, ask)
    numbers = jnp.broadcast_to(jnp.stack([quality, 1 - time / horizon]), (len(obs), 2))
    return jnp.concatenate([obs, numbers, features(ask - spent, largest), features(ask, largest)], -1)


def features(budget: Float[Array, "N K"], largest: Float[Array, " K"]) -> Float[Array, "N 4K"]:
    """`DialPolicy.features`, for JAX."""
    share = jnp.maximum(budget, 0.0) / largest
    return jnp.concatenate([2 * jnp.sqrt(share), *(2 * share / (share + scale) for scale in DialPolicy.SCALES)], -1)
