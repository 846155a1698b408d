"""The task table: what a name like `BallRun` means. Horizon, dimensions, reference scores, known files.

Users add their own from a TOML file (`PDOCRL_TASKS=my.toml`) or with `register`; nothing in the package needs touching.
"""

from __future__ import annotations

import dataclasses

from pdocrl.errors import UnknownNameError


@dataclasses.dataclass(frozen=True)
class Task:
    """One decision problem with the numbers needed to score a policy on it."""

    name: str  # e.g. BallRun
    horizon: int  # steps of a full episode; cost_rate = cost_limit / horizon
    env_id: str | None = None  # Gymnasium id; None: no simulator, data only
    obs_dim: int | None = None
    action_dim: int | None = None
    reward_min: float = 0.0  # reference scores: normalised reward is (R − min)/(max − min)
    reward_max: float = 1.0
    cost_max: float | None = None  # largest episode cost in the reference data
    files: tuple[str, ...] = ()  # known dataset files, the preferred one first


def _bullet(name: str, horizon: int, obs: int, act: int, low: float, high: float, cost: int, trajectories: int) -> Task:
    file = f"Safety{name}-v0-{cost}-{trajectories}.hdf5"
    return Task(name, horizon, f"Safety{name}-v0", obs, act, low, high, float(cost), (file,))


_TASKS: dict[str, Task] = {
    t.name: t
    for t in (
        _bullet("BallRun", 100, 7, 2, 26.339754104614258, 1327.445556640625, 80, 940),
        _bullet("CarRun", 200, 7, 2, 204.28726196289062, 574.6533203125, 40, 651),
        _bullet("DroneRun", 200, 17, 4, 10.557029724121094, 682.8330078125, 140, 1990),
        _bullet("AntRun", 200, 33, 8, 0.001767391717990563, 955.4818725585938, 150, 1816),
        _bullet("BallCircle", 200, 8, 2, 0.38312244415283203, 881.46337890625, 80, 886),
        _bullet("CarCircle", 300, 8, 2, 3.484419822692871, 534.3060913085938, 100, 1450),
        _bullet("DroneCircle", 300, 18, 4, 207.794189453125, 996.38916015625, 100, 1923),
        _bullet("AntCircle", 500, 34, 8, 0.0177031010389328, 460.7091979980469, 200, 5728),
    )
}


def find_task(name: str) -> Task:
    """The task of that name, in any spelling of case; an unknown one raises with a suggestion."""
    for task in all_tasks():
        if task.name.lower() == name.lower() or (task.env_id or "").lower() == name.lower():
            return task
    raise UnknownNameError("task", name, [t.name for t in all_tasks()], "`pdocrl tasks` lists all.")


def all_tasks() -> tuple[Task, ...]:
    """Every task known here: built in and registered."""
    return tuple(_TASKS.values())


def register(task: Task) -> Task:
    """Make a task known under its name for this process."""
    _TASKS[task.name] = task
    return task
