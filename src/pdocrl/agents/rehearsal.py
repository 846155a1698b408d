"""What each setting of a dial earns and costs, played out in models of the dynamics learned from the same data.

    s′ = s + mean_m f_m(s, a),   a = π(s, dial(spent, t)),   s₀ ~ the dataset's first states

Every setting plays a whole episode from every start, all side by side. Costs that are all or nothing come by chance, as
they do in the world, because the policy answers to what it has spent. Nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray
from scipy.special import stdtrit

from pdocrl.agents.imagination import Model, Standards
from pdocrl.nn.distributions import LikelihoodActor
from pdocrl.policies.policy import DialPolicy


def rehearse(
    models: Model,
    standards: Standards,
    actor: LikelihoodActor,
    starts: Float[Array, "P S"],
    dial: DialPolicy,
    lasting: Bool[NDArray[np.bool_], " N"],
    confidence: float,
    episodes: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Mean reward [N] and costs [N, K] of an episode under each of the dial's N settings, and a bound on the costs.

    `models` has a leading axis of M, and their mean plays. No logged episode did what a setting does that is not
    `lasting`; there each model plays by itself too, and the worst counts. `bound` says what its bound holds for.
    """
    together, alone = (jax.tree.map(lambda x, axis=axis: jnp.expand_dims(x, axis), models) for axis in (0, 1))
    tables = [jnp.asarray(table) for table in (dial.quality, dial.ask, dial.stop)]
    rest = jnp.asarray(dial.largest), jnp.asarray(dial.horizon, jnp.float32)
    earned, paid = (np.asarray(x) for x in _play(together, standards, actor, starts, *tables, *rest))
    reward, cost, upper = earned[0].mean(-1), paid[0].mean(-2), bound(paid[0], confidence, episodes)
    if not lasting.all():
        stops = [table[~lasting] for table in tables]
        earned, paid = (np.asarray(x) for x in _play(alone, standards, actor, starts, *stops, *rest))
        reward[~lasting] = np.minimum(reward[~lasting], earned.mean(-1).min(0))
        upper[~lasting] = np.maximum(upper[~lasting], bound(paid, confidence, episodes).max(0))
    return reward, cost, upper


def rehearse_other(
    models: Model,
    standards: Standards,
    act: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    starts: Float[Array, "P S"],
    horizon: int,
    confidence: float,
    episodes: float,
) -> tuple[float, NDArray[np.float32]]:
    """Reward and bound on the costs [K] of a policy without a dial or memory, obs [P, S] → action [P, A]."""
    obs, not_done, earned, spent = starts, jnp.ones(len(starts)), jnp.zeros(len(starts)), 0.0
    for time in range(horizon):
        action = jnp.asarray(act(np.asarray(obs)))
        obs, reward, costs, ends = _step(models, standards, obs, action, 1, jnp.int32(time))
        earned, spent = earned + not_done * reward, spent + not_done[:, None] * costs
        not_done = not_done * (1 - ends)
    return float(earned.mean()), bound(np.asarray(spent, np.float32), confidence, episodes)


def bound(
    costs: Float[NDArray[np.float32], "... P K"], confidence: float, episodes: float
) -> Float[NDArray[np.float32], "... K"]:
    """What the mean of so many new episodes lies below with this confidence, from the costs of P: μ + t σ √(1/P + 1/n).

    Both the P starts and the n are draws of the same starts. With n = ∞ it bounds the mean over all of them.
    """
    played = costs.shape[-2]
    errors = stdtrit(max(played - 1, 1), confidence) * np.sqrt(1 / played + 1 / episodes)
    upper: NDArray[np.float32] = costs.mean(-2) + np.float32(errors) * costs.std(-2, ddof=min(1, played - 1))
    return upper


@jax.jit
def _play(
    casts: Model,
    standards: Standards,
    actor: LikelihoodActor,
    starts: Float[Array, "P S"],
    quality: Float[Array, " N"],
    ask: Float[Array, "N K"],
    stop: Float[Array, "N K"],
    largest: Float[Array, " K"],
    horizon: Float[Array, ""],
) -> tuple[Float[Array, "C N P"], Float[Array, "C N P K"]]:
    """Reward and cost of every setting from every start in each of C casts: models [C, M, …] whose mean plays."""
    settings, first = len(ask), len(starts)
    wished, asked, stopped = (jnp.repeat(table, first, axis=0) for table in (quality, ask, stop))  # [N P, …]

    def play(models: Model) -> tuple[Array, Array]:
        def step(time: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            obs, not_done, earned, spent = carry
            action = actor.mode(inputs(obs, wished, asked, stopped, spent, time, horizon, largest))
            ahead, reward, costs, ends = _step(models, standards, obs, action, settings, time)
            return ahead, not_done * (1 - ends), earned + not_done * reward, spent + not_done[:, None] * costs

        nothing = jnp.zeros(settings * first)
        begin = (jnp.tile(starts, (settings, 1)), nothing + 1, nothing, jnp.zeros_like(asked))
        _, _, earned, spent = jax.lax.fori_loop(0, jnp.int32(jnp.round(horizon)), step, begin)
        return earned.reshape(settings, first), spent.reshape(settings, first, -1)

    return jax.vmap(play)(casts)


@partial(jax.jit, static_argnums=4)
def _step(
    models: Model,
    standards: Standards,
    obs: Float[Array, "N S"],
    action: Float[Array, "N A"],
    settings: int,
    time: Array,
) -> tuple[Float[Array, "N S"], Float[Array, " N"], Float[Array, "N K"], Float[Array, " N"]]:
    """Next states, rewards, costs and chances of an end; all settings meet the same luck, so they differ by deeds."""

    def mean(parts: Float[Array, "M ..."]) -> Array:
        return jnp.tensordot(jnp.full(len(parts), 1 / len(parts)), parts, 1)

    ahead = mean(jax.vmap(lambda model: model.forward(standards, obs, action))(models))
    found = jax.vmap(lambda model: model.outcomes(standards, obs, action, ahead))(models)
    reward, logits = mean(found[0]), mean(found[1])
    chances = jax.nn.sigmoid(logits)
    key = jax.random.fold_in(jax.random.key(0), time)
    luck = jnp.tile(jax.random.uniform(key, (len(obs) // settings, chances.shape[-1] - 1)), (settings, 1))
    happens = (luck < chances[:, :-1]).astype(jnp.float32)
    costs = jnp.where(standards.all_or_nothing > 0, happens, chances[:, :-1]) * standards.cost
    return ahead, reward, costs, chances[:, -1]


def inputs(
    obs: Float[Array, "N S"],
    quality: Float[Array, " N"],
    ask: Float[Array, "N K"],
    stop: Float[Array, "N K"],
    spent: Float[Array, "N K"],
    time: Array,
    horizon: Float[Array, ""],
    largest: Float[Array, " K"],
) -> Float[Array, "N S+2+8K"]:
    """What the dial's network sees; `DialPolicy.act`, for JAX."""
    ask = jnp.where((spent >= stop).any(-1, keepdims=True), 0.0, ask)
    numbers = jnp.stack([quality, jnp.broadcast_to(1 - time / horizon, quality.shape)], -1)
    budgets = [features(ask - spent, largest), features(jnp.maximum(ask, spent), largest)]
    return jnp.concatenate([obs, numbers, *budgets], -1)


def features(budget: Float[Array, "N K"], largest: Float[Array, " K"]) -> Float[Array, "N 4K"]:
    """`DialPolicy.features`, for JAX."""
    share = jnp.maximum(budget, 0.0) / largest
    return jnp.concatenate([2 * jnp.sqrt(share), *(2 * share / (share + scale) for scale in DialPolicy.SCALES)], -1)
