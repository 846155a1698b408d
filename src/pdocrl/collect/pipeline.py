"""`collect`: from an environment to a dataset on disk in one call, as the command does it.

problem → settings (recipe, budget) → store → experts trained, every episode kept → grid filter → file and picture
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pdocrl import console
from pdocrl.collect import grid, ppo
from pdocrl.collect.episode_log import Episode, Store, steps_begun_with
from pdocrl.collect.problem import ExpertProblem, look_at
from pdocrl.collect.recipes import recipe_for, with_schedules
from pdocrl.collect.sampling import (
    CollectProgress,
    Filter,
    assemble,
    batch_rows,
    learn,
    new_expert,
    train_experts,
    write_dataset,
)
from pdocrl.collect.settings import Settings, settings_for
from pdocrl.data import plot
from pdocrl.data.dataset import Dataset
from pdocrl.envs.episode import Episodes
from pdocrl.envs.rollout import Rollouts
from pdocrl.errors import PdocrlError, PdocrlInterrupted, by_door

LIVE_EVERY_S = 10.0  # seconds between pictures while collecting
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much to collect: exactly one of the two."""

    steps: int | None = None
    minutes: float | None = None


@dataclasses.dataclass(frozen=True)
class Speed:
    """Speeds measured with an untrained expert."""

    simulate_steps_s: float  # environment steps per second of playing
    steps_s: float  # … of the whole loop
    compile_s: float

    def minutes(self, steps: int) -> float:
        return (self.compile_s + steps / self.steps_s) / 60

    def steps(self, minutes: float) -> int:
        """What fits into the minutes; at least one step."""
        return max(1, int((minutes * 60 - self.compile_s) * self.steps_s))


def parse_budget(text: str) -> Budget:
    """`800000`, `800k` and `1.5M` are steps; `20min` and `1.5h` are time."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|min|h)?", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise PdocrlError(
            f"{by_door('budget', '--budget')} {text!r}: write steps (800000, 800k, 1.5M) or time (20min, 1.5h)."
        )
    amount, unit = float(match[1]), match[2] or ""
    if unit in _UNITS:
        return Budget(steps=math.ceil(amount * _UNITS[unit]))
    return Budget(minutes=amount * (60 if unit == "h" else 1))


def measure_speed(
    problem: ExpertProblem, settings: Settings, workers: int | None = None, seconds: float = 2.0
) -> Speed:
    """Play for about `seconds` and learn from it, for the clock only."""
    state = new_expert(problem, settings, 0)
    actor = ppo.actor_of(state, problem.discrete_actions)
    played: list[Episodes] = []
    elapsed = 0.0
    with Rollouts(problem.make, workers, problem.info_keys) as pool:
        many = max(1, pool.workers)
        pool.run(actor, many, seed=0)  # every worker makes its environment
        while elapsed < seconds:
            begun = time.perf_counter()
            played.append(pool.run(actor, 4 * many, seed=len(played)))
            elapsed += time.perf_counter() - begun
    steps = sum(int(episodes.length.sum()) for episodes in played)
    learn_s, compile_s = _learning_time(problem, settings, state)
    rows = batch_rows(problem, settings.config)
    simulate_steps_s = steps / elapsed
    return Speed(simulate_steps_s, rows / (rows / simulate_steps_s + learn_s), compile_s)


def _learning_time(problem: ExpertProblem, settings: Settings, state: ppo.ExpertState) -> tuple[float, float]:
    """Seconds of one update, and of compiling it, on made-up transitions: arithmetic takes the same time on any."""
    rows, rng = batch_rows(problem, settings.config), np.random.default_rng(0)
    made_up = Episode(
        (0, 0, 0),
        0,
        False,
        rng.normal(size=(rows + 1, problem.obs_dim)).astype(np.float32),
        np.full(rows, problem.discrete_actions[0], np.float32)
        if problem.discrete_actions
        else np.zeros((rows, problem.action_dim), np.float32),
        rng.normal(size=rows).astype(np.float32),
        rng.integers(2, size=(rows, len(problem.cost_names))).astype(np.float32),
    )
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        batch = assemble([made_up], rows, problem.discrete_actions)
        state, _ = learn(settings, state, batch, settings.cost_max, settings.cost_max, 0.0)
        times.append(time.perf_counter() - begun)
    return times[1], times[0] - times[1]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A collection as it was asked for, before anything is played."""

    problem: ExpertProblem
    settings: Settings
    filter: Filter


@dataclasses.dataclass(frozen=True)
class Collected:
    """What a collection left behind."""

    dataset: Dataset
    out: Path
    picture: Path
    store: Path
    episodes: int  # collected, of which the dataset holds a part
    steps: int
    cells: int  # of the grid, filled


def prepare(
    task: str,
    *,
    target: int | None = None,
    seed: int = 0,
    reward_min: float | None = None,
    filter_seed: int = 0,
    schedules: Sequence[str] = (),
    costs: Sequence[str] = (),
    cost_function: str | None = None,
    cost_max: Sequence[float] = (),
) -> Wanted:
    """Look at the environment and choose settings; refuses what cannot be collected. Arguments as `collect`'s."""
    if target is not None and target < 1:
        raise PdocrlError(f"{by_door('target', '--target')} {target}: at least one episode must be kept.")
    problem = look_at(task, tuple(costs), cost_function)
    recipe = with_schedules(recipe_for(problem.name), tuple(schedules))
    settings = settings_for(problem, task, recipe, tuple(cost_max), cost_function, seed)
    wanted = Filter(
        recipe.target if target is None else target,
        recipe.reward_min if reward_min is None else reward_min,
        filter_seed,
    )
    return Wanted(problem, settings, wanted)


def collect(
    task: str,
    out: str | os.PathLike[str] | None = None,
    *,
    budget: str | int | None = None,
    store: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    target: int | None = None,
    seed: int = 0,
    reward_min: float | None = None,
    filter_seed: int = 0,
    schedules: Sequence[str] = (),
    costs: Sequence[str] = (),
    cost_function: str | None = None,
    cost_max: float | Sequence[float] = (),
) -> Dataset:
    """Train safe experts in an environment, keep every episode, and write an evenly spread part as a dataset.

    Args:
        task: a task's name or a Gymnasium id; `module:Name-v0` imports the module.
        out: the DSRL file to write, its picture beside it; TASK.hdf5 by default.
        budget: steps, or words like "800k" or "20min".
        store: folder for every episode; by default beside `out`. Calling again goes on where it stopped.
        workers: processes that simulate; by default one per core.
        target: episodes kept by the grid filter.
        seed: decides the experts and all their episodes.
        reward_min: the smallest return kept.
        filter_seed: decides which episodes are kept.
        schedules: one expert each: rising, falling, warmed, capped.
        costs: keys of `info` that hold the costs; by default the task's, or `cost`.
        cost_function: instead, module:function(obs, action, next_obs, info).
        cost_max: the largest episode cost wanted, one for all or one for each; by default the task's.
    """
    tops = (cost_max,) if isinstance(cost_max, int | float) else cost_max
    wanted = prepare(
        task,
        target=target,
        seed=seed,
        reward_min=reward_min,
        filter_seed=filter_seed,
        schedules=schedules,
        costs=costs,
        cost_function=cost_function,
        cost_max=tops,
    )
    words = str(budget) if isinstance(budget, int) else budget
    return run(
        wanted, None if out is None else Path(out), words, None if store is None else Path(store), workers
    ).dataset


@dataclasses.dataclass(frozen=True)
class CollectionPlan:
    """What would be played here, and how long it would take."""

    settings: Settings
    speed: Speed

    @property
    def minutes(self) -> float:
        return self.speed.minutes(self.settings.steps)


def plan(wanted: Wanted, budget: str | None = None, workers: int | None = None) -> CollectionPlan:
    """Measure the speed here; nothing is kept."""
    speed, asked = measure_speed(wanted.problem, wanted.settings, workers), parse_budget(budget) if budget else None
    if asked is None:
        return CollectionPlan(wanted.settings, speed)
    steps = asked.steps if asked.steps is not None else speed.steps(asked.minutes or 0)
    return CollectionPlan(dataclasses.replace(wanted.settings, steps=steps), speed)


def run(
    wanted: Wanted,
    out: Path | None = None,
    budget: str | None = None,
    folder: Path | None = None,
    workers: int | None = None,
    play: bool = True,
    live: bool = False,
) -> Collected:
    """Play, learn, filter, write. What was played before is not played again. `live`: redraw the picture meanwhile."""
    problem = wanted.problem
    out = out or Path(f"{problem.name.replace('/', '-').replace(':', '-')}.hdf5")
    folder = folder or out.with_suffix(".raw")
    if not play and not folder.is_dir():
        raise PdocrlError(
            f"{folder}: no collection here to write. Leave out {by_door('play=False', '--no-play')} to begin one."
        )
    settings = with_budget(wanted, budget, workers, folder)
    picture = out.with_suffix(".png")
    drawn = time.monotonic()
    with Store(folder, settings) as store:
        try:
            with console.progress() as bar:
                line = bar.add_task(problem.name, total=settings.steps)

                def seen(progress: CollectProgress) -> None:
                    nonlocal drawn
                    bar.update(line, completed=progress.steps, description=_describe(problem, progress))
                    if live and time.monotonic() - drawn > LIVE_EVERY_S:
                        draw_so_far(problem, store, picture)
                        drawn = time.monotonic()

                if play:
                    train_experts(problem, store, workers, seen)
        except KeyboardInterrupt:
            kept = f"{len(store.log.entries):,} episodes are safe in {folder}"
            raise PdocrlInterrupted(f"interrupted; {kept}. Go on with the same command line.") from None
        dataset = write_dataset(problem, store, out, wanted.filter)
        plot.save(plot.scatter(dataset, limits=limits(settings)), picture)
        entries = store.log.ordered()
        cells = grid.coverage(entries, settings.cost_max)
        return Collected(dataset, out, picture, folder, len(entries), sum(e.length for e in entries), cells)


def with_budget(wanted: Wanted, budget: str | None, workers: int | None, folder: Path) -> Settings:
    """Time becomes steps by a measurement; a collection taken up again keeps the steps it began with."""
    if budget is None:
        return wanted.settings
    asked = parse_budget(budget)
    steps = asked.steps
    if steps is None:
        measured = measure_speed(wanted.problem, wanted.settings, workers) if steps_begun_with(folder) is None else None
        steps = measured.steps(asked.minutes or 0) if measured else steps_begun_with(folder)
    assert steps is not None
    return dataclasses.replace(wanted.settings, steps=steps)


def draw_so_far(problem: ExpertProblem, store: Store, picture: Path) -> None:
    """The scatter of all episodes played, of those within the largest cost where there are any."""
    entries = grid.within(store.log.ordered(), store.settings.cost_max) or store.log.ordered()
    seen = grid.summary(entries, problem.name, problem.cost_names)
    title = f"{problem.name}   {len(entries):,} episodes so far"
    plot.save(plot.scatter(seen, limits(store.settings), title=title), picture)


def limits(settings: Settings) -> tuple[float, ...]:
    """Where the plot draws its lines: DSRL's 10, 20 and 40 where the costs reach that far, else shares of them."""
    top = max(settings.cost_max)
    return (10, 20, 40) if top >= 40 else (0.125 * top, 0.25 * top, 0.5 * top)


def _describe(problem: ExpertProblem, progress: CollectProgress) -> str:
    costs = ", ".join(
        f"{cost:.1f}/{'∞' if limit == float('inf') else f'{limit:.1f}'}"
        for cost, limit in zip(progress.cost, progress.limit, strict=True)
    )
    return (
        f"{problem.name} {progress.schedule}: {progress.episodes:,} episodes, reward {progress.reward:.0f}, "
        f"cost/limit {costs}, cells {progress.cells}/{grid.CELLS}"
    )
