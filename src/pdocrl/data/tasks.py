"""The task table: what a name like `BallRun` means. Horizon, dimensions, reference scores, known files.

Users add their own with `register` or from a TOML file (`PDOCRL_TASKS=my.toml`), without touching the package:

    [MyRobot]
    horizon = 400
    env_id = "my_package:MyRobot-v0"  # optional, as are all below
    obs_dim = 12
    action_dim = 3
    reward_min = 0.0                  # reference scores for normalisation
    reward_max = 250.0
    cost_max = 60.0
    costs = ["cost_speed"]            # keys of `info` that hold the costs, where it is not `cost`
    cost_function = "my_costs:heat"   # or a function of (obs, action, next_obs, info)
    render_mode = "rgb_array"         # for films; without it there are none
    files = ["my_robot.hdf5"]         # beside the TOML file, in PDOCRL_DATA, or in the download cache
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError, UnknownNameError, by_door, did_you_mean
from pdocrl.files import read_toml


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
    cost_max: float | None = None  # largest episode cost in the reference data; None: no constraint known
    files: tuple[str, ...] = ()  # known dataset files, the preferred one first
    costs: tuple[str, ...] = ()  # keys of `info` that hold the costs; empty: `cost`
    cost_function: str | None = None  # instead, module:function(obs, action, next_obs, info)
    render_mode: str | None = None  # asked of the environment

    def __post_init__(self) -> None:
        for field in ("horizon", "obs_dim", "action_dim"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise PdocrlError(f"task {self.name}: `{field}` is {value}, must be at least 1.")
        if self.costs and self.cost_function is not None:
            raise PdocrlError(f"task {self.name}: give either `costs` or `cost_function`, not both.")
        if not self.reward_min < self.reward_max:
            raise PdocrlError(
                f"task {self.name}: `reward_min` {self.reward_min} must be below `reward_max` {self.reward_max}."
            )


def _bullet(name: str, horizon: int, obs: int, act: int, low: float, high: float, cost: int, trajectories: int) -> Task:
    file = f"Safety{name}-v0-{cost}-{trajectories}.hdf5"
    return Task(name, horizon, f"Safety{name}-v0", obs, act, low, high, float(cost), (file,))


def _gymnasium(name: str, horizon: int, obs: int, act: int, low: float, high: float, cost: float, file: str) -> Task:
    """`file`: the cost and the number of trajectories in the public file's name."""
    env_id = f"Safety{name}Gymnasium-v{int(name.endswith('Velocity'))}"
    return Task(name, horizon, env_id, obs, act, low, high, float(cost), (f"{env_id}-{file}.hdf5",))


BULLET = (
    _bullet("BallRun", 100, 7, 2, 26.339754104614258, 1327.445556640625, 80, 940),
    _bullet("CarRun", 200, 7, 2, 204.28726196289062, 574.6533203125, 40, 651),
    _bullet("DroneRun", 200, 17, 4, 10.557029724121094, 682.8330078125, 140, 1990),
    _bullet("AntRun", 200, 33, 8, 0.001767391717990563, 955.4818725585938, 150, 1816),
    _bullet("BallCircle", 200, 8, 2, 0.38312244415283203, 881.46337890625, 80, 886),
    _bullet("CarCircle", 300, 8, 2, 3.484419822692871, 534.3060913085938, 100, 1450),
    _bullet("DroneCircle", 300, 18, 4, 207.794189453125, 996.38916015625, 100, 1923),
    _bullet("AntCircle", 500, 34, 8, 0.0177031010389328, 460.7091979980469, 200, 5728),
)
# Reference scores as DSRL has them; the smallest return of CarButton2 is AntRun's there, and so it is here.
SAFETY_GYMNASIUM = (
    _gymnasium("PointButton1", 1000, 76, 2, 0.008822109034937853, 41.19301568767707, 200, "200-2268"),
    _gymnasium("PointButton2", 1000, 76, 2, 0.014114166087574098, 42.8985953616709, 250, "250-3288"),
    _gymnasium("PointCircle1", 500, 28, 2, 20.067626953125, 61.72819519042969, 200, "200-1098"),
    _gymnasium("PointCircle2", 500, 28, 2, 20.478347778320312, 54.02184295654297, 299, "300-895"),
    _gymnasium("PointGoal1", 1000, 60, 2, 0.01196012764197707, 30.071114857340543, 100, "100-2022"),
    _gymnasium("PointGoal2", 1000, 60, 2, 0.002616959830266108, 27.717709787852737, 200, "200-3442"),
    _gymnasium("PointPush1", 1000, 76, 2, 0.0014001545292344209, 16.518654299293367, 150, "150-2379"),
    _gymnasium("PointPush2", 1000, 76, 2, 0.0012438183001730607, 14.691039145644403, 200, "200-3242"),
    _gymnasium("CarButton1", 1000, 88, 2, 0.0028926206826067613, 44.420003345738984, 250, "250-2656"),
    _gymnasium("CarButton2", 1000, 88, 2, 0.001767391717990563, 41.99513815522894, 300, "300-3755"),
    _gymnasium("CarCircle1", 500, 40, 2, 8.037073135375977, 24.94155502319336, 250, "250-1271"),
    _gymnasium("CarCircle2", 500, 40, 2, 5.113386154174805, 25.950098037719727, 398, "400-940"),
    _gymnasium("CarGoal1", 1000, 72, 2, 0.012232819540852091, 39.907809198384705, 120, "120-1671"),
    _gymnasium("CarGoal2", 1000, 72, 2, 0.001032874531954775, 28.902897990056502, 200, "200-4105"),
    _gymnasium("CarPush1", 1000, 88, 2, 0.013700173533941762, 16.304467598905237, 200, "200-2871"),
    _gymnasium("CarPush2", 1000, 88, 2, 0.00029391133526335267, 15.141648491514314, 250, "250-4407"),
    _gymnasium("AntVelocity", 1000, 27, 8, 6.1519012451171875, 2976.276611328125, 250, "250-2249"),
    _gymnasium("HalfCheetahVelocity", 1000, 17, 6, 5.7509765625, 2806.93310546875, 250, "250-2495"),
    _gymnasium("HopperVelocity", 1000, 11, 3, 37.05154800415039, 1911.396728515625, 250, "250-2240"),
    _gymnasium("SwimmerVelocity", 1000, 8, 2, 0.07114458084106445, 238.95831298828125, 200, "200-1686"),
    _gymnasium("Walker2dVelocity", 1000, 17, 6, 18.668498992919922, 3418.223876953125, 300, "300-2729"),
)
METADRIVE = tuple(
    Task(name, 1000, None, 259, 2, low, high, cost, (f"SafeMetaDrive-{name}-v0-{file}.hdf5",))
    for name, low, high, cost, file in (
        ("easysparse", 20.094310760498047, 425.8006286621094, 82.42418670654297, "85-1000"),
        ("easymean", 22.142553329467773, 425.82440185546875, 82.38601684570312, "85-1000"),
        ("easydense", 19.71139144897461, 425.81732177734375, 80.36358642578125, "85-1000"),
        ("mediumsparse", 17.446578979492188, 269.80084228515625, 46.46459197998047, "50-1000"),
        ("mediummean", 17.032529830932617, 269.8221435546875, 46.46154022216797, "50-1000"),
        ("mediumdense", 15.102348327636719, 269.7813415527344, 46.45858383178711, "50-1000"),
        ("hardsparse", 17.247974395751953, 486.80523681640625, 85.010009765625, "85-1000"),
        ("hardmean", 19.387981414794922, 486.9967956542969, 84.33995056152344, "85-1000"),
        ("harddense", 15.386894226074219, 486.63616943359375, 84.76679229736328, "85-1000"),
    )
)  # data only: no simulator is known here
BUILT_IN = BULLET + SAFETY_GYMNASIUM + METADRIVE
_registered: dict[str, Task] = {}


def find_task(name: str) -> Task:
    """The task of that name or environment id, in any spelling of case; an unknown one raises with a suggestion."""
    tasks = all_tasks()
    for task in tasks:
        env_id = task.env_id or task.name  # Safety-Gymnasium's own ids are without "Gymnasium"
        if name.lower() in (task.name.lower(), env_id.lower(), env_id.replace("Gymnasium", "").lower()):
            return task
    raise UnknownNameError("task", name, [task.name for task in tasks], "`pdocrl tasks` lists all.")


def refuse_other_task(name: str, own: str | None, given: Task) -> None:
    """Refuse data that is known to be of another environment than the given task's."""
    try:
        known = find_task(own) if own else given
    except UnknownNameError:
        return
    if known.env_id and given.env_id and known.env_id != given.env_id:
        raise PdocrlError(
            f"{name} is data of task {known.name}, not of {given.name}. Leave out {by_door('task', '--task')}, or name "
            "its own."
        )


def all_tasks() -> tuple[Task, ...]:
    """Every task known here: built in, from the file `PDOCRL_TASKS` names, and registered in this process."""
    named = os.environ.get("PDOCRL_TASKS")
    from_file = {task.name: task for task in read_tasks(named)} if named else {}
    return (*BUILT_IN, *(from_file | _registered).values())


def register(task: Task) -> Task:
    """Make a task known under its name for this process. Built-in ones stay as they are, so that scores compare."""
    if task.name.lower() in {known.name.lower() for known in BUILT_IN}:
        raise PdocrlError(f"task {task.name} is built in. Choose another name.")
    _registered[task.name] = task
    return task


def register_file(path: str | os.PathLike[str]) -> None:
    """Register every task of a TOML file."""
    for task in read_tasks(path):
        register(task)


def read_tasks(path: str | os.PathLike[str]) -> tuple[Task, ...]:
    """The tasks of a TOML file, one table each."""
    path = Path(path)
    return tuple(task_from(path, name, table) for name, table in read_toml(path, "task file").items())


def task_from(path: Path, name: str, table: Any) -> Task:
    """The task one table of a file describes; anything wrong with it raises with the file, the key and the remedy."""
    if not isinstance(table, dict):
        raise PdocrlError(f"{path}: `{name}` stands outside a task. Begin each task with a line like [MyTask].")
    if name.lower() in {known.name.lower() for known in BUILT_IN}:
        raise PdocrlError(f"{path}: task {name} is built in. Choose another name.")
    kinds: dict[str, tuple[type, ...]] = {
        "horizon": (int,),
        "env_id": (str,),
        "obs_dim": (int,),
        "action_dim": (int,),
        "reward_min": (int, float),
        "reward_max": (int, float),
        "cost_max": (int, float),
        "files": (list,),
        "costs": (list,),
        "cost_function": (str,),
        "render_mode": (str,),
    }
    for key, value in table.items():
        if key not in kinds:
            raise PdocrlError(f"{path}: task {name} has an unknown key `{key}`.{did_you_mean(key, kinds)}")
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            raise PdocrlError(f"{path}: task {name}: `{key}` is {value!r}, expected {kinds[key][-1].__name__}.")
    if "horizon" not in table:
        raise PdocrlError(f"{path}: task {name} has no `horizon` (steps of a full episode).")
    files = table.get("files", [])
    if not all(isinstance(file, str) for file in files):
        raise PdocrlError(f"{path}: task {name}: `files` must be a list of file names.")
    costs = table.get("costs", [])
    if not all(isinstance(key, str) for key in costs):
        raise PdocrlError(f"{path}: task {name}: `costs` must be a list of keys of `info`.")
    beside = [path.parent.resolve() / file for file in files]
    found = tuple(str(full) if full.exists() else file for full, file in zip(beside, files, strict=True))
    try:
        return Task(name=name, **(table | {"files": found, "costs": tuple(costs)}))
    except PdocrlError as error:
        raise PdocrlError(f"{path}: {error}") from error
