"""`pdocrl tasks`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pdocrl import console


def tasks(json: bool = False, tasks_file: Path | None = None) -> None:
    """List the tasks: horizon, dimensions, reference scores, cost maximum, environment and known files.

    Your own come from a TOML file, named here or by the environment variable PDOCRL_TASKS, one table per task:

        [MyRobot]
        horizon = 400
        reward_max = 250.0

    Example: pdocrl tasks --json

    Args:
        json: Print one JSON object instead of a table.
        tasks_file: A TOML file with tasks of your own.
    """
    from pdocrl.data.tasks import all_tasks, register_file

    if tasks_file:
        register_file(tasks_file)
    known = all_tasks()
    if json:
        console.print_json({"tasks": [dataclasses.asdict(task) for task in known]})
        return
    columns = ["task", "horizon", "obs", "act", "reward min", "reward max", "cost max", "environment", "files"]
    rows = [
        [
            task.name,
            task.horizon,
            _or_dash(task.obs_dim),
            _or_dash(task.action_dim),
            task.reward_min,
            task.reward_max,
            _or_dash(task.cost_max),
            _or_dash(task.env_id),
            ", ".join(task.files) or "–",
        ]
        for task in known
    ]
    console.print_table(columns, rows)


def _or_dash(value: object) -> object:
    return "–" if value is None else value
