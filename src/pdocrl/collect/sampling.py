"""Train one expert per schedule and keep every episode it ever plays.

    settings → expert → (limit, actor) → episodes → episode log → update → the next batch
    episode log → grid filter → dataset

Workers simulate while JAX rests and the other way round. An episode is a function of (seed, expert, batch, number), so
the same settings give the same episodes with any number of workers, and a killed collection goes on as if nothing had
happened: from the last whole batch, without playing again what its episode log holds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from pdocrl.collect import grid, ppo
from pdocrl.collect.actor import Actor, noise_of
from pdocrl.collect.episode_log import Episode, Place, Store
from pdocrl.collect.problem import ExpertProblem
from pdocrl.collect.settings import Settings
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import one_hot
from pdocrl.data.io import dsrl
from pdocrl.envs.episode import Episodes
from pdocrl.envs.rollout import Rollouts
from pdocrl.errors import PdocrlError
from pdocrl.training import checkpoint

LARGEST = 1e15  # beyond this a number has exploded, though float32 still holds it


@dataclasses.dataclass(frozen=True)
class CollectProgress:
    """Where a collection stands after a batch. Means are over the batch."""

    expert: int  # which one is in training
    schedule: str
    batch: int
    steps: int  # of all experts so far
    episodes: int
    reward: float
    cost: tuple[float, ...]  # [K]
    limit: tuple[float, ...]  # [K] infinite: unconstrained
    multiplier: tuple[float, ...]  # [K]
    cells: int  # of the grid, filled so far
    simulate_s: float  # wall time spent playing, learning and storing, over all sittings
    learn_s: float
    store_s: float


@dataclasses.dataclass
class _Clock:
    """Wall time by what it was spent on."""

    simulate_s: float = 0.0
    learn_s: float = 0.0
    store_s: float = 0.0
    _last: float = dataclasses.field(default_factory=time.perf_counter)

    def spent(self, on: str) -> None:
        now = time.perf_counter()
        setattr(self, on, getattr(self, on) + now - self._last)
        self._last = now

    def metadata(self) -> dict[str, float]:
        return {"simulate_s": self.simulate_s, "learn_s": self.learn_s, "store_s": self.store_s}


def train_experts(
    problem: ExpertProblem,
    store: Store,
    workers: int | None = None,
    watch: Callable[[CollectProgress], None] = lambda _: None,
) -> None:
    """Play and learn until the settings' steps are spent. Returns at once if that was done before."""
    settings = store.settings
    rows = batch_rows(problem, settings.config)
    first, state, batch, clock = _resume(problem, store)
    if first >= len(settings.schedules):
        return
    with Rollouts(problem.make, workers, problem.info_keys) as pool:
        for expert in range(first, len(settings.schedules)):
            if expert > first:
                state, batch = new_expert(problem, settings, expert), 0
            steps = sum(e.length for e in store.log.entries.values() if e.place[0] == expert and e.place[1] < batch)
            while steps < settings.steps_each:
                done = steps / settings.steps_each
                limit = settings.limits(expert, done)
                actor = ppo.actor_of(state, problem.discrete_actions)
                episodes = _play(pool, actor, problem, store, (expert, batch), rows)
                clock.spent("simulate_s")
                cost = np.mean([episode.cost.sum(axis=0) for episode in episodes], axis=0)
                state, metrics = learn(
                    settings, state, assemble(episodes, rows, problem.discrete_actions), cost, limit, done
                )
                steps += sum(map(len, episodes))
                batch += 1
                clock.spent("learn_s")
                store.log.sync()
                metadata = {"expert": expert, "batch": batch, "done": steps >= settings.steps_each, **clock.metadata()}
                checkpoint.save(store.checkpoint, state, metadata)
                clock.spent("store_s")
                watch(
                    CollectProgress(
                        expert,
                        settings.schedules[expert].name,
                        batch,
                        expert * settings.steps_each + steps,
                        len(store.log.entries),
                        float(np.mean([episode.reward.sum() for episode in episodes])),
                        tuple(cost.tolist()),
                        limit,
                        tuple(np.asarray(metrics.multiplier).tolist()),
                        grid.coverage(list(store.log.entries.values()), settings.cost_max),
                        **clock.metadata(),
                    )
                )
                clock.spent("store_s")  # telling about it, too, must not count as playing


def batch_rows(problem: ExpertProblem, config: ppo.PPOConfig) -> int:
    """Transitions per update: whole episodes where their length is known."""
    horizon = min(problem.horizon or 1, config.batch_steps)
    return math.ceil(config.batch_steps / horizon) * horizon


def new_expert(problem: ExpertProblem, settings: Settings, expert: int) -> ppo.ExpertState:
    """The untrained expert of this number."""
    key = jax.random.fold_in(jax.random.PRNGKey(settings.seed), expert)
    sizes = problem.obs_dim, problem.action_dim, len(problem.cost_names)
    return ppo.init(key, *sizes, settings.config, bool(problem.discrete_actions))


def learn(
    settings: Settings,
    state: ppo.ExpertState,
    batch: ppo.Batch,
    cost: ArrayLike,
    limit: ArrayLike,
    done: float,
) -> tuple[ppo.ExpertState, ppo.Metrics]:
    """One update, waited for. The violation's unit is a quarter of the largest cost."""
    config = settings.config
    tops = np.array(settings.cost_max)
    violation = (np.asarray(cost) - np.asarray(limit)) / (tops / 4)
    rate = config.learning_rate + (config.final_learning_rate - config.learning_rate) * done
    moved, metrics = ppo.update(config, state, batch, jnp.asarray(violation, jnp.float32), jnp.float32(rate))
    metrics.kl.block_until_ready()
    return moved, metrics


def assemble(episodes: Sequence[Episode], rows: int, discrete_actions: tuple[int, ...] = ()) -> ppo.Batch:
    """The first `rows` transitions of the episodes, with the noise drawn, or the discrete actions taken."""
    if discrete_actions:
        drawn = one_hot(
            np.concatenate([episode.action for episode in episodes]), discrete_actions, "the episode log's action"
        )
    else:
        actions = episodes[0].action.shape[1]
        drawn = np.concatenate([noise_of(e.seed, len(e), actions) for e in episodes]).astype(np.float32)
    ends = np.cumsum([len(episode) for episode in episodes]) - 1
    terminal, end = np.zeros((2, ends[-1] + 1), dtype=bool)
    end[ends], terminal[ends] = True, [episode.terminated for episode in episodes]
    columns = (
        np.concatenate([episode.obs[:-1] for episode in episodes]),
        np.concatenate([episode.obs[1:] for episode in episodes]),
        drawn,
        np.concatenate([np.column_stack([episode.reward, episode.cost]) for episode in episodes]),
        terminal,
        end,
    )
    return ppo.Batch(*(jnp.asarray(column[:rows]) for column in columns))


@dataclasses.dataclass(frozen=True)
class Filter:
    """Which of the collected episodes become the dataset."""

    target: int  # how many
    reward_min: float = -math.inf  # smallest return wanted: DSRL's files, too, leave out the first clumsy steps
    seed: int = 0


def write_dataset(problem: ExpertProblem, store: Store, path: Path, wanted: Filter) -> Dataset:
    """The collection after DSRL's grid filter, as a DSRL file that says how it was made."""
    entries = store.log.ordered()
    chosen = grid.choose(entries, store.settings.cost_max, wanted.reward_min, wanted.target, wanted.seed)
    dataset = store.log.dataset(chosen, path.name, problem.cost_names, problem.discrete_actions)
    if not problem.discrete_actions:
        low, high = tuple(problem.low.tolist()), tuple(problem.high.tolist())
        dataset = dataclasses.replace(dataset, action_low=low, action_high=high)
    reward_min = None if math.isinf(wanted.reward_min) else wanted.reward_min
    filtered = {**vars(wanted), "reward_min": reward_min, "bins": grid.BINS, "collected_episodes": len(entries)}
    filtered["collected_steps"] = sum(entry.length for entry in entries)  # fewer than `steps`: stopped before its end
    metadata = {**store.description, "filter": filtered, "digest": dataset.digest}
    dsrl.write(dataset, path, {"task": problem.name, "collection": json.dumps(metadata)})
    return dataset


def _resume(problem: ExpertProblem, store: Store) -> tuple[int, ppo.ExpertState, int, _Clock]:
    """The expert in training, its state, its next batch, and the time spent so far."""
    settings = store.settings
    fresh = new_expert(problem, settings, 0)
    if not store.checkpoint.exists():
        return 0, fresh, 0, _Clock()
    state, metadata = checkpoint.load(store.checkpoint, fresh)
    clock = _Clock(metadata["simulate_s"], metadata["learn_s"], metadata["store_s"])
    state = jax.tree.map(jnp.asarray, state)
    if not metadata["done"]:
        return metadata["expert"], state, metadata["batch"], clock
    following = metadata["expert"] + 1
    if following < len(settings.schedules):
        state = new_expert(problem, settings, following)
    return following, state, 0, clock


def _play(
    pool: Rollouts, actor: Actor, problem: ExpertProblem, store: Store, place: tuple[int, int], rows: int
) -> list[Episode]:
    """Episodes of one batch, until they hold enough transitions.

    They are asked for in rounds: as many as are missing if all were full length, then by their mean length so far. So
    which episodes belong to a batch depends on their lengths, never on which worker was faster.
    """
    episodes: list[Episode] = []
    while (missing := rows - sum(map(len, episodes))) > 0:
        typical = np.mean([len(e) for e in episodes]) if episodes else problem.horizon or missing
        asked = range(len(episodes), len(episodes) + math.ceil(missing / float(typical)))
        episodes += _round(pool, actor, store, [(*place, number) for number in asked])
    return episodes


def _round(pool: Rollouts, actor: Actor, store: Store, places: Sequence[Place]) -> list[Episode]:
    recorded = store.log
    known = {place: recorded.read(recorded.entries[place]) for place in places if place in recorded.entries}
    games = {
        pool.submit(actor, 1, _seed(store.settings.seed, place), record=True): place
        for place in places
        if place not in known
    }
    for game in as_completed(games):
        known[games[game]] = _recorded(games[game], game.result())
        recorded.append(known[games[game]])
    return [known[place] for place in places]


def _recorded(place: Place, played: Episodes) -> Episode:
    assert played.trajectories is not None
    (trajectory,) = played.trajectories
    for what in ("obs", "reward", "cost"):
        values = getattr(trajectory, what)
        exploded = ~(np.abs(values) < LARGEST)  # true for NaN, too
        if exploded.any():
            where = np.argwhere(exploded)[0]
            raise PdocrlError(
                f"the environment's {what} at step {where[0]} is {values[tuple(where)]:g} (episode with seed "
                f"{played.seed[0]}). Does it end before its state explodes?"
            )
    floats = {what: getattr(trajectory, what).astype(np.float32) for what in ("obs", "action", "reward", "cost")}
    return Episode(place, int(played.seed[0]), bool(played.terminated[0]), **floats)


def _seed(seed: int, place: Place) -> int:
    return int(np.random.SeedSequence((seed, *place)).generate_state(1, np.uint64)[0])
