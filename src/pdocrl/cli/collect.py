"""`pdocrl collect`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional

from pdocrl import console

if TYPE_CHECKING:
    from pdocrl.collect.pipeline import Collected, Wanted


@dataclasses.dataclass(frozen=True)
class Filtering:
    """Which of the episodes are kept in the file."""

    target: int | None = None
    """How many the grid filter keeps."""
    reward_min: float | None = None
    """The smallest return it keeps; by default DSRL's for its own tasks, else none."""
    filter_seed: int = 0
    """Decides which it keeps."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """What the environment costs."""

    costs: tuple[str, ...] = ()
    """Keys of its info that hold them; by default `cost`."""
    cost_function: str | None = None
    """Instead, a function: module:function(obs, action, next_obs, info) → one cost or several."""
    cost_max: tuple[float, ...] = ()
    """The largest episode cost wanted, one for all or one for each; by default the task's."""


_FILTERING, _COSTS = Filtering(), Costs()


def collect(
    task: Positional[str],
    out: Path | None = None,
    budget: str | None = None,
    seed: int = 0,
    schedules: tuple[str, ...] = (),
    workers: int | None = None,
    store: Path | None = None,
    live: bool = False,
    plan: bool = False,
    play: bool = True,
    tasks_file: Path | None = None,
    json: bool = False,
    filtering: Annotated[Filtering, OmitArgPrefixes] = _FILTERING,
    costs: Annotated[Costs, OmitArgPrefixes] = _COSTS,
) -> None:
    """Collect a dataset as DSRL did: safe experts under changing limits, every episode stored, then a grid filter.

    Stop it whenever you like: the same line goes on where it stopped.

    Example: pdocrl collect BallRun --out ballrun.hdf5 --budget 1M

    Example: pdocrl collect Pendulum-v1 --cost-function my_costs:too_fast --cost-max 100

    Args:
        task: A task's name, or the id of a Gymnasium environment with real-valued actions (module:Name-v0 imports it).
        out: The DSRL file to write; TASK.hdf5 by default. The scatter plot goes beside it, as .png.
        budget: Steps (800000, 800k, 1.5M) or time (20min, 1.5h; turned into steps by a short measurement).
        seed: Decides the experts and all their episodes.
        schedules: One expert each, with an equal share of the steps: rising, falling, warmed.
        workers: Processes that simulate; by default one per core.
        store: Folder for every episode and the state of the training; by default beside `out`, as .raw.
        live: Redraw the scatter plot while collecting.
        plan: Only say what would be run, and how long it should take here.
        play: Only write what the store holds so far. The same line without it goes on.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object instead of tables.
    """
    from pdocrl.collect import pipeline
    from pdocrl.data.tasks import register_file

    if tasks_file is not None:
        register_file(tasks_file)
    wanted = pipeline.prepare(
        task,
        seed=seed,
        schedules=schedules,
        **dataclasses.asdict(filtering),
        **dataclasses.asdict(costs),
    )
    if plan:
        _plan(wanted, budget, workers, json)
        return
    _report(pipeline.run(wanted, out, budget, store, workers, play, live), json)


def _report(found: Collected, json: bool) -> None:
    from pdocrl.cli.data import info
    from pdocrl.collect import grid

    if json:
        told: dict[str, Any] = {"out": str(found.out), "picture": str(found.picture), "store": str(found.store)}
        told |= {"collected_episodes": found.episodes, "collected_steps": found.steps}
        console.print_json(told | {"cells": found.cells} | found.dataset.summary())
        return
    info(str(found.out))
    console.log(
        f"wrote {found.out} and {found.picture}: chosen from {found.episodes:,} episodes "
        f"({found.cells:,} of {grid.CELLS:,} cells) in {found.store}"
    )


def _plan(wanted: Wanted, budget: str | None, workers: int | None, json: bool) -> None:
    from pdocrl.collect import pipeline

    plan = pipeline.plan(wanted, budget, workers)
    problem, settings, speed, target = wanted.problem, plan.settings, plan.speed, wanted.filter.target
    if json:
        told = {
            "task": problem.name,
            "steps": settings.steps,
            "minutes": plan.minutes,
            "steps_per_second": speed.steps_s,
        }
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
                plan.minutes / len(settings.schedules),
            ]
            for schedule in settings.schedules
        ],
        title=f"{problem.name}: {settings.steps:,} steps, about {plan.minutes:.1f} minutes here "
        f"({speed.steps_s:,.0f} steps/s), {target:,} episodes kept",
    )
