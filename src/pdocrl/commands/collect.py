"""`pdocrl collect`."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from pdocrl import console
from pdocrl.errors import PdocrlError, PdocrlInterrupted

if TYPE_CHECKING:
    from pdocrl.experts.collect import Filter, Progress
    from pdocrl.experts.problem import Problem
    from pdocrl.experts.settings import Settings
    from pdocrl.experts.store import Store

_LIVE_EVERY_S = 10.0


def collect(
    task: Positional[str],
    out: Path | None = None,
    budget: str | None = None,
    target: int | None = None,
    seed: int = 0,
    reward_min: float | None = None,
    filter_seed: int = 0,
    schedules: tuple[str, ...] = (),
    costs: tuple[str, ...] = (),
    cost_function: str | None = None,
    cost_max: tuple[float, ...] = (),
    workers: int | None = None,
    store: Path | None = None,
    live: bool = False,
    plan: bool = False,
    write_only: bool = False,
    tasks_file: Path | None = None,
    json: bool = False,
) -> None:
    """Collect a dataset as DSRL did: safe experts under changing limits, every episode kept, then a grid filter.

    Stop it whenever you like: the same line goes on where it stopped.

    Example: pdocrl collect BallRun --out ballrun.hdf5 --budget 1M

    Example: pdocrl collect Pendulum-v1 --cost-function my_costs:too_fast --cost-max 100

    Args:
        task: A task's name, or the id of a Gymnasium environment with real-valued actions (module:Name-v0 imports it).
        out: The DSRL file to write; TASK.hdf5 by default. The scatter plot goes beside it, as .png.
        budget: Steps (800000, 800k, 1.5M) or time (20min, 1.5h; turned into steps by a short measurement).
        target: Episodes the grid filter keeps.
        seed: Decides the experts and all their episodes.
        reward_min: The smallest return the filter keeps; by default DSRL's for its own tasks, else none.
        filter_seed: Decides which episodes the grid filter keeps.
        schedules: One expert each, with an equal share of the steps: rising, falling, warmed.
        costs: Keys of the environment's info that hold its costs; by default `cost`.
        cost_function: Instead, a function: module:function(obs, action, next_obs, info) → one cost or several.
        cost_max: The largest episode cost wanted, one for all or one for each; by default the task's.
        workers: Processes that simulate; by default one per core.
        store: Folder for every episode and the state of the training; by default beside `out`, as .raw.
        live: Redraw the scatter plot while collecting.
        plan: Only say what would be run, and how long it should take here.
        write_only: Play nothing; write what the store holds so far. The same line without it goes on.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object instead of tables.
    """
    from pdocrl.data.tasks import register_file
    from pdocrl.experts.collect import Filter
    from pdocrl.experts.problem import look_at
    from pdocrl.experts.recipes import recipe_for, with_schedules
    from pdocrl.experts.settings import settings_for

    if tasks_file is not None:
        register_file(tasks_file)
    if target is not None and target < 1:
        raise PdocrlError(f"--target {target}: at least one episode must be kept.")
    problem = look_at(task, costs, cost_function)
    recipe = with_schedules(recipe_for(problem.name), schedules)
    settings = settings_for(problem, task, recipe, cost_max, cost_function, seed)
    wanted = Filter(
        recipe.target if target is None else target,
        recipe.reward_min if reward_min is None else reward_min,
        filter_seed,
    )
    if plan:
        _plan(problem, settings, budget, wanted.target, workers, json)
        return
    out = out or Path(f"{problem.name.replace('/', '-')}.hdf5")
    folder = store or out.with_suffix(".raw")
    if write_only and not folder.is_dir():
        raise PdocrlError(f"{folder}: no collection here to write. Leave out --write-only to begin one.")
    settings = _with_budget(problem, settings, budget, workers, folder)
    _run(problem, settings, folder, out, wanted, workers, live, write_only, json)


def _run(
    problem: Problem,
    settings: Settings,
    folder: Path,
    out: Path,
    wanted: Filter,
    workers: int | None,
    live: bool,
    write_only: bool,
    json: bool,
) -> None:
    from pdocrl.data import plot
    from pdocrl.experts.collect import train_experts, write_dataset
    from pdocrl.experts.store import Store

    picture = out.with_suffix(".png")
    with Store(folder, settings) as store:
        try:
            with console.progress() as bar:
                line = bar.add_task(problem.name, total=settings.steps)
                drawn = time.monotonic()

                def watch(progress: Progress) -> None:
                    nonlocal drawn
                    bar.update(line, completed=progress.steps, description=_describe(problem, progress))
                    if live and time.monotonic() - drawn > _LIVE_EVERY_S:
                        plot.save(_scatter_so_far(problem, store), picture)
                        drawn = time.monotonic()

                if not write_only:
                    train_experts(problem, store, workers, watch)
        except KeyboardInterrupt:
            kept = f"{len(store.journal.entries):,} episodes are safe in {folder}"
            raise PdocrlInterrupted(f"interrupted; {kept}. Go on with the same command line.") from None
        dataset = write_dataset(problem, store, out, wanted)
        plot.save(plot.scatter(dataset, limits=_limits(settings)), picture)
        _report(store, out, picture, json)


def _report(store: Store, out: Path, picture: Path, json: bool) -> None:
    from pdocrl.commands.data import info
    from pdocrl.data.load import load
    from pdocrl.data.summary import summarise
    from pdocrl.experts import grid

    entries = store.journal.ordered()
    cells = grid.coverage(entries, store.settings.cost_max)
    if json:
        told: dict[str, Any] = {"out": str(out), "picture": str(picture), "store": str(store.folder)}
        told |= {"collected_episodes": len(entries), "collected_steps": sum(entry.length for entry in entries)}
        console.print_json(told | {"cells": cells} | summarise(load(str(out))))
        return
    info(str(out))
    console.log(
        f"wrote {out} and {picture}: chosen from {len(entries):,} episodes ({cells:,} of {grid.CELLS:,} cells) "
        f"in {store.folder}"
    )


def _plan(
    problem: Problem, settings: Settings, budget: str | None, target: int, workers: int | None, json: bool
) -> None:
    from pdocrl.experts.forecast import forecast, parse_budget

    speed = forecast(problem, settings, workers)
    asked = parse_budget(budget) if budget else None
    if asked:
        steps = asked.steps if asked.steps is not None else speed.steps(asked.minutes or 0)
        settings = dataclasses.replace(settings, steps=steps)
    minutes = speed.minutes(settings.steps)
    if json:
        told = {"task": problem.name, "steps": settings.steps, "minutes": minutes, "steps_per_second": speed.steps_s}
        told |= {"simulated_steps_per_second": speed.simulate_steps_s, "target": target}
        console.print_json(told | {"settings": settings.as_json()})
        return
    console.print_table(
        ["expert", "steps", f"limit on {problem.cost_names[0]}", "minutes"],
        [
            [
                schedule.name,
                settings.steps_each,
                schedule.words(settings.cost_max[0]),
                minutes / len(settings.schedules),
            ]
            for schedule in settings.schedules
        ],
        title=f"{problem.name}: {settings.steps:,} steps, about {minutes:.1f} minutes here "
        f"({speed.steps_s:,.0f} steps/s), {target:,} episodes kept",
    )


def _with_budget(
    problem: Problem, settings: Settings, budget: str | None, workers: int | None, folder: Path
) -> Settings:
    """Time becomes steps by a measurement; a collection taken up again keeps the steps it began with."""
    from pdocrl.experts.forecast import forecast, parse_budget
    from pdocrl.experts.store import steps_begun_with

    if budget is None:
        return settings
    asked = parse_budget(budget)
    steps = asked.steps
    if steps is None:
        steps = steps_begun_with(folder) or forecast(problem, settings, workers).steps(asked.minutes or 0)
    return dataclasses.replace(settings, steps=steps)


def _describe(problem: Problem, progress: Progress) -> str:
    from pdocrl.experts.grid import CELLS

    costs = ", ".join(
        f"{cost:.1f}/{'∞' if limit == float('inf') else f'{limit:.1f}'}"
        for cost, limit in zip(progress.cost, progress.limit, strict=True)
    )
    return (
        f"{problem.name} {progress.schedule}: {progress.episodes:,} episodes, reward {progress.reward:.0f}, "
        f"cost/limit {costs}, cells {progress.cells}/{CELLS}"
    )


def _scatter_so_far(problem: Problem, store: Store) -> Any:
    from pdocrl.data import plot
    from pdocrl.experts import grid

    entries = grid.within(store.journal.ordered(), store.settings.cost_max) or store.journal.ordered()
    title = f"{problem.name}   {len(entries):,} episodes so far"
    return plot.scatter(grid.summary(entries, problem.name, problem.cost_names), _limits(store.settings), title=title)


def _limits(settings: Settings) -> tuple[float, ...]:
    """Where the plot draws its lines: DSRL's 10, 20 and 40 where the costs reach that far, else shares of them."""
    top = max(settings.cost_max)
    return (10, 20, 40) if top >= 40 else (0.125 * top, 0.25 * top, 0.5 * top)
