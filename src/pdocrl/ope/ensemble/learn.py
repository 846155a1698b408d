"""How the ensembles learn: all members side by side, each from the groups of episodes of its bag.

How the state changes is asked hundreds of times in a row, each time from where the last answer led. A model that has
seen nothing but the world's own states may let small errors grow there. Three ways for the mean, and no one is best
everywhere; costs, ends and the mixture are always learned from the rows as they are:

    recorded  the log's rows as they are
    own       a member takes a few recorded actions in a row and learns, from each state it came to itself, what leads
              to where the world was (Venkatraman et al. 2015, "Improving multi-step prediction of learned time series
              models")
    noise     rows begin a little beside where they were (Sanchez-Gonzalez et al. 2020, "Learning to simulate …"), for
              the regression too, whose products of states that go together throw what is a little off far away
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.dynamics.mixture import JUMP, MixtureModel, Step
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.regression import FARTHEST, explained, memory_of, regress
from pdocrl.nn.optim import adam_step
from pdocrl.ope.ensemble.groups import Groups
from pdocrl.ope.ensemble.models import WAYS, EnsembleConfig, Ensembles, by_fold, untrained

ROWS = 150_000  # most rows to learn from
BLOCK = 25  # steps per compiled call

Arrays = dict[str, NDArray[Any]]
State = tuple[MixtureModel, optax.OptState]
Met = tuple[Any, Any]  # inputs of the mean [M, B, …] and what the regression leaves, where a way differs


def fit(
    data: Dataset,
    groups: Groups,
    bag: NDArray[np.bool_],
    config: EnsembleConfig,
    way: str = "recorded",
    advance: Callable[[int], None] = lambda steps: None,
) -> Ensembles:
    """Train the members in one way, each on the groups of its bag [M, G]. `advance` is told of every block of steps."""
    ahead, noise = WAYS[way]
    normaliser = Normaliser.in_any_unit(data)
    chosen = np.random.default_rng([config.seed, 7]).permutation(len(data))[:ROWS]  # shuffled: any chunk is a sample
    world = rows_of(data, normaliser)
    rows = moved = {name: x[chosen] for name, x in world.items()}
    group = np.repeat(groups, data.episode_length)[chosen]
    base = regress(normaliser, _inputs(rows), _targets(normaliser, rows), bag, group)
    if noise:
        size = noise * np.asarray(base.left[0, :-1])
        moved = with_noise(rows, normaliser, size, np.random.default_rng([config.seed, 13]))
        again = regress(normaliser, _inputs(moved), _targets(normaliser, moved), bag, group)
        base = dataclasses.replace(base, theta=again.theta)
    models = untrained(jax.random.key(config.seed), normaliser, data.action_dim, config, base)
    known = [np.flatnonzero(own[group]) for own in bag]
    told, told_moved = explained(base, normaliser, _inputs(rows)), None
    if noise:
        told_moved = explained(base, normaliser, _inputs(moved))
        left = _targets(normaliser, moved) - told_moved
        met_rows = np.asarray(MixtureModel.mean_inputs(normaliser, *_inputs(moved)))
    begun = _beginnings(data, groups, bag, ahead)
    state: State = models, optax.scale_by_adam().init(models)
    rng = np.random.default_rng([config.seed, 11])
    member = np.arange(len(bag))[:, None]
    steps = config.steps_for(len(data))
    for start in range(0, steps, BLOCK):
        block = min(BLOCK, steps - start)
        # Rows are drawn here, because gathering them is what XLA is slow at on a CPU.
        at = np.stack([found[rng.integers(len(found), size=(block, config.batch_size))] for found in known], axis=1)
        done = np.arange(start, start + block) / steps
        rate = config.learning_rate * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * done)))
        batch = {name: x[at] for name, x in rows.items()} | {"explained": told[member, at]}
        met: Met | None = None
        if told_moved is not None:
            met = met_rows[at], np.clip(left[member, at] / np.asarray(base.left)[:, None], -JUMP, JUMP)
        elif begun is not None:
            each = (block, max(1, config.batch_size // ahead))
            first = np.stack([found[rng.integers(len(found), size=each)] for found in begun])  # [M, steps, B/k]
            went = _went(state[0], normaliser, *_sequences(world, first.reshape(len(bag), -1), ahead))
            met = _in_batches(went[0], each), _in_batches(went[1], each)
        state = _block(state, normaliser, batch, met, jnp.asarray(rate, jnp.float32))
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        advance(block)
    return by_fold(state[0], normaliser, config.folds)


def rows_of(data: Dataset, normaliser: Normaliser) -> Arrays:
    """All rows of a dataset, [N, …], each with what it remembers of the one before."""
    memory = np.zeros((len(data), data.obs_dim + data.action_dim + 1), np.float32)
    memory[1:] = memory_of(normaliser, *(jnp.asarray(x[:-1]) for x in (data.obs, data.action, data.next_obs)))
    memory[data.episode_start] = 0
    return {
        "obs": data.obs,
        "action": data.action,
        "memory": memory,
        "next_obs": data.next_obs,
        "reward": data.reward,
        "cost": data.cost,
        "end": data.terminal.astype(np.float32),
    }


def with_noise(rows: Arrays, normaliser: Normaliser, size: NDArray[Any], rng: np.random.Generator) -> Arrays:
    """Rows that begin beside where they were, by `size` [S] units of changes, and end where they did."""
    off = rng.standard_normal(rows["obs"].shape, np.float32) * size
    s = off.shape[1]
    came = rows["memory"][:, :s] + off * rows["memory"][:, -1:]  # the first step of an episode came from nowhere
    memory = np.concatenate([np.clip(came, -FARTHEST, FARTHEST), rows["memory"][:, s:]], 1)
    return rows | {"obs": rows["obs"] + off * np.asarray(normaliser.change), "memory": memory}


def _inputs(rows: Arrays) -> tuple[Any, Any, Any]:
    return rows["obs"], rows["action"], rows["memory"]


def _targets(normaliser: Normaliser, rows: Arrays) -> NDArray[np.float32]:
    y = normaliser.targets(*(jnp.asarray(rows[name]) for name in ("obs", "next_obs", "reward")))
    return np.asarray(jnp.clip(y, -JUMP, JUMP))


def _beginnings(data: Dataset, groups: Groups, bag: NDArray[np.bool_], ahead: int) -> list[NDArray[np.int64]] | None:
    """Of each member the rows from which it can go `ahead` steps; None where it is to go none by itself, or cannot."""
    left = np.concatenate([np.arange(length, 0, -1) for length in data.episode_length])  # steps, this one included
    row = np.repeat(groups, data.episode_length)
    begun = [np.flatnonzero(seen[row] & (left >= ahead)) for seen in bag]
    return begun if ahead > 1 and all(map(len, begun)) else None


def _sequences(world: Arrays, first: NDArray[np.int64], ahead: int) -> tuple[NDArray[np.float32], ...]:
    """Memory and state at rows `first` [M, n]; of the k steps from there on [k, M, n, …] what happened."""
    at = first + np.arange(ahead)[:, None, None]
    later = (world[name][at] for name in ("action", "next_obs", "reward"))
    return (world["memory"][first], world["obs"][first], *later)


@jax.jit
def _went(
    models: MixtureModel, normaliser: Normaliser, memory: Array, obs: Array, action: Array, after: Array, reward: Array
) -> Met:
    """What members meet along k recorded actions [k, M, n, A] when they go on from obs [M, n, S] by their own means.

    Inputs of the mean [k, M, n, …], and what the regression leaves of the way to where the world was, after.
    """

    def of_member(model: MixtureModel, memory: Array, obs: Array, action: Array, after: Array, reward: Array) -> Met:
        def step(now: tuple[Array, Array], told: tuple[Array, ...]) -> tuple[tuple[Array, Array], Met]:
            (memory, state), (act, next_obs, reward) = now, told
            base: Any = model.base
            said = base(normaliser, state, act, memory)
            inputs = model.mean_inputs(normaliser, state, act, memory)
            target = (normaliser.targets(state, next_obs, reward) - said) / base.left
            came, _ = normaliser.after(state, said + base.left * model.mean(inputs))
            return (memory_of(normaliser, state, act, came), came), (inputs, jnp.clip(target, -JUMP, JUMP))

        return jax.lax.scan(step, (memory, obs), (action, after, reward))[1]

    found: Met = jax.vmap(of_member, (0, 0, 0, 1, 1, 1), 1)(models, memory, obs, action, after, reward)
    return found


def _in_batches(x: Array, each: tuple[int, int]) -> Array:
    """[k, M, steps · n, …] → [steps, M, k · n, …]: every batch has all of the k steps."""
    k, m = x.shape[:2]
    return x.reshape(k, m, *each, -1).transpose(2, 1, 0, 3, 4).reshape(each[0], m, k * each[1], -1)


@jax.jit
def _block(state: State, normaliser: Normaliser, batches: Arrays, met: Met | None, rates: Array) -> State:
    def loss(model: MixtureModel, batch: Any, met: Met | None) -> Array:
        step = Step(batch["next_obs"], batch["reward"], batch["cost"], batch["end"])
        given = (batch["obs"], batch["action"], step, batch["memory"], batch["explained"])
        log_prob, error = model.log_prob(normaliser, *given)
        if met is not None:
            error = jnp.square(model.mean(met[0]) - met[1]).mean(-1)
        return error.mean() - log_prob.mean()

    def step(carry: State, now: tuple[Any, Met | None, Array]) -> tuple[State, None]:
        (models, opt), (batch, met, rate) = carry, now
        gradient = jax.grad(lambda m: jax.vmap(loss)(m, batch, met).sum())(models)
        return adam_step(gradient, opt, models, rate), None

    found: State = jax.lax.scan(step, state, (batches, met, rates))[0]
    return found
