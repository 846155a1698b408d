"""Whole episodes drawn from an ensemble of models: each rollout keeps one member for its mixture, from start to end.

    y_t = mean_m f_m(s_t, a_t) + δ_i + σ_i ε,   i, costs and end drawn from the mixture of the rollout's own member

The members' mean f is shared, since small errors of one member would add up over an episode; what may happen around it
is one member's word for the whole episode (TS∞ of Chua et al. 2018), so that what the members disagree about shows as
spread between rollouts and does not average out within each. With `alone` a member's f is its own as well.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from scipy.special import stdtrit

from pdocrl.dynamics.mixture import Luck, MixtureModel, Step
from pdocrl.dynamics.normaliser import Normaliser

# (states [M, R, S], costs so far [M, R, K], time) → actions [M, R, A]
Act = Callable[[Array, Array, Array], Array]


class Rollouts(eqx.Module):
    """Undiscounted sums of episodes, and their costliest steps."""

    reward: Float[Array, "M R"]
    cost: Float[Array, "M R K"]
    largest_step: Float[Array, "M R K"]  # the costliest step of each


def member_starts(starts: Float[Array, "P S"], members: int, least: int) -> Float[Array, "M R S"]:
    """R first states for each member, at least `least` in all; few starts are repeated, as the luck is not."""
    each = -(-max(least, len(starts)) // members)
    return jnp.resize(starts, (each * members, starts.shape[-1])).reshape(each, members, -1).swapaxes(0, 1)


def rollouts(
    models: MixtureModel,
    normaliser: Normaliser,
    act: Act,
    starts: Float[Array, "M R S"],
    horizon: Array,
    key: PRNGKeyArray,
    repeat: int = 1,
    alone: bool = False,
) -> Rollouts:
    """Episodes of M models [M, …], R each. Rows are `repeat` blocks of equal length, which meet the same luck."""
    members, rows, _ = starts.shape
    obs_dim, n_costs = starts.shape[-1], len(normaliser.cost)

    def step(time: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        obs, not_done, earned, spent, largest = carry
        action = act(obs, spent, time)
        drawn = one_step(models, normaliser, obs, action, jax.random.fold_in(key, time), repeat, alone)
        earned, cost = earned + not_done * drawn.reward, not_done[..., None] * drawn.cost
        return drawn.next_obs, not_done * (1 - drawn.end), earned, spent + cost, jnp.maximum(largest, cost)

    nothing, free = jnp.zeros((members, rows)), jnp.zeros((members, rows, n_costs))
    begin = (starts, nothing + 1, nothing, free, free)
    assert obs_dim == normaliser.mean.shape[0]
    _, _, *sums = jax.lax.fori_loop(0, jnp.int32(jnp.round(horizon)), step, begin)
    return Rollouts(*sums)


def one_step(
    models: MixtureModel,
    normaliser: Normaliser,
    obs: Float[Array, "M R S"],
    action: Float[Array, "M R A"],
    key: PRNGKeyArray,
    repeat: int = 1,
    alone: bool = False,
) -> Step:
    """One step of every rollout, arrays [M, R, …]."""
    return one_step_apart(models, normaliser, obs, action, key, repeat, alone)[0]


def one_step_apart(
    models: MixtureModel,
    normaliser: Normaliser,
    obs: Float[Array, "M R S"],
    action: Float[Array, "M R A"],
    key: PRNGKeyArray,
    repeat: int = 1,
    alone: bool = False,
    memory: Float[Array, "M R S+A+1"] | None = None,
    noise: Array | float = 1.0,
) -> tuple[Step, Float[Array, "M R"]]:
    """The same with memory and a share of the noise; and how far the members' means are apart, in units of changes."""
    members, rows, obs_dim = obs.shape
    luck = Luck.draw(key, members * rows // repeat, obs_dim, len(normaliser.cost))
    luck = jax.tree.map(lambda x: _tiled(x.reshape(members, -1, *x.shape[1:]), repeat), luck)
    if alone:
        mean = jax.vmap(lambda model, *given: model.predicted_mean(normaliser, *given))(models, obs, action, memory)
        apart = jnp.zeros((members, rows))
    else:
        flat = jax.tree.map(lambda x: x.reshape(members * rows, -1), (obs, action, memory))
        every = jax.vmap(lambda model: model.predicted_mean(normaliser, *flat))(models)
        mean = every.mean(0).reshape(members, rows, -1)
        apart = every.std(0).mean(-1).reshape(members, rows)
    drawn: Step = jax.vmap(lambda model, *given: model.draw(normaliser, *given, noise=noise))(
        models, obs, action, mean, luck
    )
    return drawn, apart


def _tiled(x: Float[Array, "M r ..."], repeat: int) -> Array:
    return jnp.tile(x, (1, repeat, *[1] * (x.ndim - 2)))


def rollouts_of_policy(
    models: MixtureModel,
    normaliser: Normaliser,
    policy: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    starts: Float[Array, "P S"],
    horizon: int,
    least: int,
) -> Rollouts:
    """Episodes of a policy in NumPy that has no memory, obs [B, S] → action [B, A]."""
    members = len(models.mean.weights[0])
    obs = member_starts(starts, members, least)
    shape, key = obs.shape[:2], jax.random.key(0)
    not_done, earned = jnp.ones(shape), jnp.zeros(shape)
    spent = largest = jnp.zeros((*shape, len(normaliser.cost)))
    step = eqx.filter_jit(one_step)
    for time in range(horizon):
        action = jnp.asarray(policy(np.asarray(obs).reshape(-1, obs.shape[-1]))).reshape(*shape, -1)
        drawn = step(models, normaliser, obs, action, jax.random.fold_in(key, time))
        earned, cost = earned + not_done * drawn.reward, not_done[..., None] * drawn.cost
        spent, largest = spent + cost, jnp.maximum(largest, cost)
        obs, not_done = drawn.next_obs, not_done * (1 - drawn.end)
    return Rollouts(earned, spent, largest)


def error_of_mean(
    costs: Float[NDArray[np.float32], "... P K"], confidence: float, episodes: float, starts: int
) -> Float[NDArray[np.float32], "... K"]:
    """What to add to a predicted mean so that the mean of so many new episodes is below: t σ √(1/P + 1/n).

    Both the P rollouts and the n episodes are draws. Rollouts that share a first state do not count as more of them:
    `starts` is how many there are. With n = ∞ the mean over all first states is bounded.
    """
    count = min(costs.shape[-2], starts)
    factor = stdtrit(max(count - 1, 1), confidence) * np.sqrt(1 / count + 1 / episodes)
    error: NDArray[np.float32] = np.float32(factor) * costs.std(-2, ddof=min(1, costs.shape[-2] - 1))
    return error
