"""The training config: agent, settings, runs and data, checked before anything is read or written; run.json.

arguments ── refused in one line where they cannot be ──▶ (with the data) `TrainingConfig` ─▶ runs of the trainer
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import msgspec
import numpy as np

from pdocrl import deprecations
from pdocrl.agents.base import Agent, AgentConfig, make_config
from pdocrl.agents.registry import BUILT_IN, class_path, import_agent, is_packaged
from pdocrl.console import log
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import place_of as place_of_file
from pdocrl.data.tasks import Task, find_task, refuse_other_task
from pdocrl.errors import PdocrlError, UnknownNameError, by_door
from pdocrl.limits import Limit, amounts, as_limits, in_words
from pdocrl.provenance import UNKNOWN, commit, machine, versions
from pdocrl.records import Record, read_record
from pdocrl.training.buffer import Buffer
from pdocrl.training.trainer import Run

FILE = "run.json"
# One limit, or several, each for runs of its own: numbers, or words of which several may hold together
Limits = float | str | Limit | Sequence[float | str | Limit | Sequence[float] | Sequence[str | Limit]]
BENCHMARK_LIMITS = (10.0, 20.0, 40.0)  # DSRL's
BENCHMARK: Literal["benchmark"] = "benchmark"  # asks for them, where data has costs


class TrainingConfig(Record, frozen=True, kw_only=True):
    """Everything that makes a training what it is; stored as run.json and enough to start it again."""

    FORMAT: ClassVar[int] = 2  # 1, of version 0.2, has other names: see `pdocrl.deprecations.FIELDS`

    data: str  # a task's name, or the whole path of a file
    data_digest: str
    task: str | None
    horizon: int
    cost_names: list[str]
    agent: str
    agent_class: str = ""  # module:Class, of an agent that is not built in
    agent_packaged: bool = True  # False: its code is in no installed package; no version names it
    training: list[int] = msgspec.field(default_factory=list)  # [R] runs of one number share a training
    default_limit: bool = False  # no limit was given: the runs have the data's mean cost per episode
    settings: dict[str, Any]  # the same in all runs
    # per run: cost_limit, seed, the settings it varies, and where some are asked for limits on tails, "limits"
    runs: list[dict[str, Any]]
    steps: int
    log_every: int
    checkpoint_every: int
    evaluate_every: int
    evaluate_episodes: int
    versions: dict[str, str]
    commit: str = UNKNOWN  # of the source that trained it
    machine: str = ""
    buffer_size: int = 0  # rows of the file kept on the device at a time; 0: all of them
    refresh_every: int = 0  # steps between resamplings of these rows
    action_low: list[float] = msgspec.field(default_factory=list)  # [A] what −1 stands for in the environment
    action_high: list[float] = msgspec.field(default_factory=list)  # [A] … and 1
    discrete_actions: list[int] = msgspec.field(default_factory=list)  # [A] of the one-hot columns

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Files of the first versions have no number; format 1 has the names of version 0.2."""
        return deprecations.fields(FILE, fields) if number in (0, 1) and "data_digest" in fields else None

    @staticmethod
    def of(
        dataset: Dataset,
        place: str,
        task: Task | None,
        agent: Agent[Any, Any],
        *,
        horizon: int | None = None,
        evaluate_every: int = 0,
        evaluate_episodes: int = 5,
        **rest: Any,
    ) -> TrainingConfig:
        """With what the data, the task and this installation say of themselves."""
        return TrainingConfig(
            data=place,
            data_digest=dataset.digest,
            task=task.name if task else None,
            horizon=horizon or (task.horizon if task else dataset.longest_episode),
            cost_names=list(dataset.cost_names),
            agent=agent.name,
            agent_class="" if agent.name in BUILT_IN else class_path(agent),
            agent_packaged=agent.name in BUILT_IN or is_packaged(agent),
            evaluate_every=evaluate_every,
            evaluate_episodes=evaluate_episodes,
            versions=versions(),
            commit=commit(),
            machine=machine("" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind),
            action_low=list(dataset.action_low),
            action_high=list(dataset.action_high),
            discrete_actions=list(dataset.discrete_actions),
            **rest,
        )

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> TrainingConfig:
        wrote = by_door("`train(…, out=folder)`", "`pdocrl train --out`")
        return read_record(Path(folder) / FILE, TrainingConfig, f"Give the folder that {wrote} wrote.")

    def find_agent(self) -> Agent[Any, Any]:
        """The agent, by name or by its class."""
        return import_agent(self.agent, self.agent_class)

    def limits_of(self, run: int) -> tuple[Limit, ...]:
        """The limits a run was asked for, where one of them is on a tail; none where amounts limit the means."""
        return tuple(Limit.parse(text) for text in self.runs[run].get("limits", ()))

    def make_runs(self, agent: Agent[Any, Any]) -> list[Run]:
        """The runs as the trainer takes them."""
        made = []
        for run in self.runs:
            varied = {name: value for name, value in run.items() if name not in {"cost_limit", "seed", "limits"}}
            settings = {
                **self.settings,
                **varied,
                "cost_limit": tuple(run["cost_limit"]),
                "horizon": float(self.horizon),
            }
            made.append(Run(make_config(agent, **settings), run["seed"], tuple(run.get("limits", ()))))
        return made


class RunLimit(NamedTuple):
    """What one run is asked to keep."""

    cost_limit: tuple[float, ...]  # [K] on means; of limits in words the amounts of cost in them
    words: tuple[str, ...] = ()  # where one of them is on a tail


def limits_of(cost_limit: Limits) -> list[tuple[float, ...] | tuple[Limit, ...]]:
    """One tuple per limit, of numbers or in words; a bare number is one limit of one cost."""
    given: Any = [cost_limit] if _alone(cost_limit) else cost_limit
    limits: list[Any] = []
    for one in given:
        several = (one,) if _alone(one) else tuple(one)
        limits.append(as_limits(several) if in_words(several) else tuple(float(x) for x in several))
    if any(not isinstance(x, Limit) and (x < 0 or not np.isfinite(x)) for limit in limits for x in limit):
        raise PdocrlError(f"cost limits must be numbers of at least 0: {limits}.")
    _refuse_twice("cost limit", limits)
    return limits


def _alone(limit: object) -> bool:
    """Whether it is one number or one limit in words, and no sequence of them."""
    return isinstance(limit, str | Limit) or not hasattr(limit, "__len__")


def run_limits(
    limits: Sequence[tuple[float, ...] | tuple[Limit, ...]], names: Sequence[str], horizon: int, agent: Agent[Any, Any]
) -> list[RunLimit]:
    """The limits runs are asked for, with the data's cost columns; those on tails are refused where none are served."""
    found = []
    for limit in limits:
        if not in_words(limit):
            found.append(RunLimit(tuple(float(x) for x in limit)))  # type: ignore[arg-type]
            continue
        words = as_limits(limit)
        tail = next((one for one in words if one.tail), None)
        if tail is not None and not agent.tail_limits:
            raise PdocrlError(
                f"{agent.name} serves limits on the mean cost alone, not {tail}; `dial` serves limits on tails. "
                "(`pdocrl evaluate --limits`, in Python `evaluate(limits=…)`, scores any agent on them.)"
            )
        told = tuple(map(str, words)) if tail is not None else ()
        found.append(RunLimit(amounts(words, names, horizon), told))
    _refuse_twice("cost limit", found)
    return found


def default_limits(
    agent: Agent[Any, Any], config: AgentConfig, dataset: Dataset, benchmark: bool
) -> list[tuple[float, ...]]:
    """The limits of runs where none is given.

    The benchmark's, where they are asked for. Else, for an agent that trains without the limit, the mean logged cost
    per episode, which its policy satisfies until it is told another; every other agent refuses.
    """
    if not dataset.n_costs:
        return [()]
    if benchmark:
        log("no cost limit was given: 10, 20 and 40 per episode, the benchmark's.")
        return [(limit,) for limit in BENCHMARK_LIMITS]
    says = "ignores_limit" in vars(type(agent)) and agent.ignores_limit(config)
    if not says or isinstance(dataset, Buffer):
        each = "" if dataset.n_costs == 1 else f", one number for each of {', '.join(dataset.cost_names)}"
        raise PdocrlError(
            f"{agent.name} trains for a cost limit: give {by_door('cost_limit=…', '--cost-limit')}, the undiscounted "
            f"cost allowed per episode{each}. ({by_door('`data.cost_return`', '`pdocrl data info`')} shows what "
            "episodes cost; `dial`, `caps_iql`, `caps_sac` and `bcrl` serve every limit.)"
        )
    mean = tuple(float(f"{cost:.6g}") for cost in dataset.cost_return.mean(0))
    shown = ", ".join(f"{cost:g}" for cost in mean)
    log(f"no cost limit was given: policies act for {shown}, the mean logged cost, unless given another.")
    return [mean]


def seeds_of(seed: int | Sequence[int]) -> list[int]:
    """One run each; a bare number is one."""
    seeds = [int(s) for s in ([seed] if isinstance(seed, int | np.integer) else seed)]
    for s in seeds:
        if not 0 <= s < 2**32:
            raise PdocrlError(f"seed {s} must be between 0 and {2**32 - 1}.")
    _refuse_twice("seed", seeds)
    return seeds


def refuse_numbers(**numbers: tuple[int | None, int]) -> None:
    """Refuse each number (value, smallest) that is too small, under the name it was given by."""
    for name, (value, smallest) in numbers.items():
        if value is not None and value < smallest:
            raise PdocrlError(f"{name} is {value}, must be at least {smallest}.")


def runs_of(
    limits: Sequence[RunLimit], seeds: Sequence[int], vary: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """One dict per run: every limit × variant × seed."""
    tails = any(limit.words for limit in limits)
    for name, values in vary.items():
        _refuse_twice(f"value of {name}", list(values))
    return [
        {"cost_limit": list(limit.cost_limit), "seed": s, **dict(zip(vary, choice, strict=True))}
        | ({"limits": list(limit.words)} if tails else {})
        for limit in limits
        for choice in itertools.product(*vary.values())
        for s in seeds
    ]


def _refuse_twice(what: str, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        if value in values[:i]:
            shown = value[0] if isinstance(value, tuple) and len(value) == 1 else value
            shown = ", ".join(value.words) or value.cost_limit if isinstance(value, RunLimit) else shown
            raise PdocrlError(f"{what} {shown} is given twice; give each once.")


def task_of(data: str | os.PathLike[str] | Dataset, task: str | Task | None) -> Task | None:
    """The task given, or the one whose name the data was asked by, or whose file it is; refused where they differ."""
    name = data.name if isinstance(data, Dataset) else os.fspath(data)
    stem = Path(name).stem.split("-v")[0].removeprefix("SafeMetaDrive-").removeprefix("Safety")
    stem = stem.removesuffix("Gymnasium")
    try:
        own = find_task(stem)
    except UnknownNameError:
        own = None
    if task is None:
        return own
    given = task if isinstance(task, Task) else find_task(task)
    if own is not None:
        refuse_other_task(name, own.name, given)
    return given


def refuse_other_dimensions(dataset: Dataset, task: Task | None) -> None:
    """Data in memory was not checked against the task when it was read."""
    for what, have in (("obs_dim", dataset.obs_dim), ("action_dim", dataset.action_dim)):
        want = getattr(task, what, None)
        if want is not None and want != have:
            assert task is not None
            raise PdocrlError(f"{dataset.name}: {what} is {have}, task {task.name} has {want}. Is it of another task?")


def place_of(data: str | os.PathLike[str] | Dataset) -> str:
    """How to find the data again: where it was loaded from, else its name, which does not lead there."""
    return (data.path or data.name) if isinstance(data, Dataset) else place_of_file(data)
