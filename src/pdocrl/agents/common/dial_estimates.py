"""What dial's settings return and cost: by rollouts of its dynamics models, and by its fitted Q evaluation.

`config` and `state` are the agent's `DialConfig` and `DialState`.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

from pdocrl.agents.common.conditional_fqe import LEVELS, Conditioned
from pdocrl.agents.common.conditioning import Targets
from pdocrl.agents.common.tail_estimates import Drawn, Exceedance
from pdocrl.agents.common.two_estimates import Estimate
from pdocrl.dynamics.mixture import MixtureModel
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.rollouts import Rollouts, error_of_mean, member_starts, rollouts
from pdocrl.nn.distributions import LikelihoodActor
from pdocrl.policies.policy import DialPolicy

STARTS = 120  # first states that are rolled out
ALONE = 48  # of them, where each model plays by itself
MEMBERS = 5  # models; each leaves out another fifth of the episodes


def return_unit(outcomes: Float[Array, "E 1+K"]) -> Array:
    """The largest |return| logged."""
    return jnp.maximum(jnp.abs(outcomes[:, 0]).max(), 1e-6)


def by_rollouts(
    config: Any, state: Any, targets: Targets, plain: Bool[NDArray[np.bool_], " N"]
) -> tuple[Estimate, Drawn]:
    """Return and cost of every setting, from episodes drawn from the models.

    No logged episode did what a setting with a cap does; there each model plays by itself too, and the worst counts.
    """
    distinct = len(state.starts)
    earned, paid, step = _rolled_out(config, state, targets, state.starts, STARTS, alone=False)
    every = [x.reshape(len(x), -1, *x.shape[3:]) for x in (earned, paid)]  # [N, M R, …]
    error = error_of_mean(every[1], float(config.confidence), float(config.episodes), distinct)
    found = Estimate(every[0].mean(-1), every[1].mean(-2), error)
    start = np.resize(np.arange(distinct), every[1].shape[1]).reshape(-1, MEMBERS).T.ravel()  # as `member_starts`
    drawn = Drawn(every[1], start, step.max((1, 2)), np.zeros_like(every[1]))
    if not plain.all():
        some = state.starts[:ALONE]
        earned, paid, _ = _rolled_out(config, state, targets.rows(~plain), some, MEMBERS * ALONE, alone=True)
        error = error_of_mean(paid, float(config.confidence), float(config.episodes), len(some))
        member = (paid.mean(-2) + error).max(-1).argmax(-1)  # [N] the member of the largest bound
        picked = np.arange(len(member)), member
        worse = paid.mean(-2)[picked] > found.cost[~plain]
        found.cost[~plain] = np.where(worse, paid.mean(-2)[picked], found.cost[~plain])
        found.error[~plain] = np.maximum(error[picked], found.error[~plain])
        found.reward[~plain] = np.minimum(found.reward[~plain], earned.mean(-1).min(-1))
        n, own = drawn.cost.shape[1], np.sort(paid[picked], axis=1)
        drawn.alone[~plain] = own[:, np.arange(n) * own.shape[1] // n]
    return found, drawn


def by_critic(state: Any, targets: Targets) -> tuple[Estimate, Exceedance]:
    """The same from fitted Q evaluation at the first states; it knows no spread, so its error is 0."""
    values, share = _evaluated(state, jax.tree.map(jnp.asarray, targets))
    values, share = np.asarray(values), np.asarray(share)
    reward, cost = values[..., 0].mean(1), np.maximum(values[..., 1:].mean(1), 0)
    return Estimate(reward, cost, np.zeros_like(cost)), Exceedance(share, values[..., 1:])


def _rolled_out(
    config: Any, state: Any, targets: Targets, starts: Float[Array, "P S"], least: int, alone: bool
) -> tuple[NDArray[np.float32], ...]:
    """Returns [N, M, R], costs and costliest steps [N, M, R, K]."""
    horizon, largest = jnp.asarray(config.horizon, jnp.float32), state.max_episode_cost
    played = state.models_average, state.normaliser, state.average, starts, horizon, largest
    found = _roll(*played, jax.tree.map(jnp.asarray, targets), least, alone)
    return tuple(map(np.asarray, (found.reward, found.cost, found.largest_step)))


@eqx.filter_jit
def _roll(
    models: MixtureModel,
    normaliser: Normaliser,
    actor: LikelihoodActor,
    starts: Float[Array, "P S"],
    horizon: Float[Array, ""],
    largest: Float[Array, " K"],
    targets: Targets,
    least: int,
    alone: bool,
) -> Rollouts:
    """Arrays [N, M, R, …], of at least so many rollouts a setting."""
    count = len(targets.relative_return)
    first = member_starts(starts, MEMBERS, least)  # [M, R, S]
    each = first.shape[1]
    wished, target, cap = (jnp.repeat(jnp.asarray(table), each, axis=0) for table in targets)

    def act(obs: Array, spent: Array, time: Array) -> Array:
        left = jnp.full((count * each, 1), 1 - time / horizon)

        def seen(o: Array, u: Array) -> Array:
            found: Array = DialPolicy.inputs(o, wished[:, None], target, cap, u, left, largest, xp=jnp)
            return found

        return actor.mode(jax.vmap(seen)(obs, spent))

    begin = jnp.tile(first, (1, count, 1))
    found = rollouts(models, normaliser, act, begin, horizon, jax.random.key(0), repeat=count, alone=alone)
    by_setting: Rollouts = jax.tree.map(lambda x: x.reshape(MEMBERS, count, each, *x.shape[2:]).swapaxes(0, 1), found)
    return by_setting


@jax.jit
def _evaluated(state: Any, targets: Targets) -> tuple[Float[Array, "N P 1+K"], Float[Array, "N P K J"]]:
    count, each, largest = len(targets.relative_return), len(state.starts), state.max_episode_cost
    wished, target, cap = (jnp.repeat(jnp.asarray(table), each, axis=0) for table in targets)
    obs, spent, left = jnp.tile(state.starts, (count, 1)), jnp.zeros_like(target), jnp.ones((count * each, 1))
    at = Conditioned(obs, wished[:, None], target, cap, spent, left)
    unit = jnp.concatenate([return_unit(state.outcomes)[None], largest])
    values = state.critic_average.mean.values(state.average, at, largest).mean(0) * unit  # [N P, 1 + K]
    share = jax.nn.sigmoid(state.critic_average.tail.values(state.average, at, largest)).mean(0)
    return values.reshape(count, each, -1), share.reshape(count, each, len(largest), LEVELS)
