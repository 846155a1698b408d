"""What a benchmark consists of: tasks × methods, each pair a group of runs (limits × seeds) trained in one call.

name or TOML file ── suite_file.py ──▶ Suite ─▶ groups
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.bench.results import SuiteFile, SuiteMethod, SuiteTask, method_name
from pdocrl.data.load import EMBEDDED, data_folders, search
from pdocrl.data.tasks import BULLET, Task, find_task
from pdocrl.errors import DataError, UnknownNameError
from pdocrl.evaluation.protocols import CUSTOM, find_protocol, protocol_of

Limit = tuple[float, ...]  # allowed cost per episode, one per constraint


@dataclasses.dataclass(frozen=True)
class Method:
    """An agent with settings; the variant's name tells several of one agent apart."""

    agent: str
    variant: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None  # instead of the suite's

    @property
    def name(self) -> str:
        return method_name(self.agent, self.variant)


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """A task with its data."""

    task: Task
    data: Path | None = None  # None: looked for by the task's name
    limits: tuple[Limit, ...] = ()  # instead of the suite's


@dataclasses.dataclass(frozen=True)
class Suite:
    """Everything that decides a benchmark's numbers, but for the data's bytes and the versions."""

    name: str
    about: str
    entries: tuple[TaskEntry, ...]
    methods: tuple[Method, ...]
    limits: tuple[Limit, ...]
    seeds: tuple[int, ...]
    steps: int
    episodes: int

    @property
    def protocol(self) -> str:
        """The protocol whose limits, seeds and episodes these are, or "custom"."""
        own = {protocol_of(entry.limits or self.limits, self.seeds, self.episodes) for entry in self.entries}
        return own.pop() if len(own) == 1 else CUSTOM

    def groups(self, methods: Sequence[str] = (), tasks: Sequence[str] = ()) -> list[Group]:
        """Task after task, every method; only the named ones where names are given. `bc` names all variants of bc."""
        known = {name for method in self.methods for name in (method.agent, method.name)}
        for name in methods:
            if name not in known:
                raise UnknownNameError(
                    f"agent of suite {self.name}", name, known, f"It has: {', '.join(sorted(known))}."
                )
        chosen = {find_task(name).name for name in tasks}
        there = {entry.task.name for entry in self.entries}
        for name in chosen - there:
            raise UnknownNameError(f"task of suite {self.name}", name, there, f"It has: {', '.join(sorted(there))}.")
        return [
            Group(self, entry, method)
            for entry in self.entries
            for method in self.methods
            if (not methods or {method.agent, method.name} & set(methods)) and (not chosen or entry.task.name in chosen)
        ]

    @property
    def record(self) -> SuiteFile:
        """As suite.json holds it."""
        return SuiteFile(
            name=self.name,
            kind="control",
            about=self.about,
            protocol=self.protocol,
            cost_limits=[list(limit) for limit in self.limits],
            seeds=list(self.seeds),
            steps=self.steps,
            episodes=self.episodes,
            tasks=[
                SuiteTask(
                    task=entry.task,
                    data=None if entry.data is None else str(entry.data),
                    cost_limits=[list(limit) for limit in entry.limits or self.limits],
                )
                for entry in self.entries
            ],
            agents=[
                SuiteMethod(agent=m.agent, variant=m.variant, settings=dict(m.settings), steps=m.steps or self.steps)
                for m in self.methods
            ],
        )


@dataclasses.dataclass(frozen=True)
class Group:
    """All runs of one method on one task: one call of `train`, one folder."""

    suite: Suite
    entry: TaskEntry
    method: Method

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.method.name}-{self.task.name}"

    @property
    def task(self) -> Task:
        return self.entry.task

    @property
    def limits(self) -> tuple[Limit, ...]:
        return self.entry.limits or self.suite.limits

    @property
    def steps(self) -> int:
        return self.method.steps or self.suite.steps

    @property
    def runs(self) -> int:
        return len(self.limits) * len(self.suite.seeds)

    def find_data(self, folder: Path | None) -> Path:
        """The file to learn from: the suite's own, else the task's in `folder`, else where `load` looks.

        Never the sample inside the package, unless the suite names it: its scores are not the task's.
        """
        if self.entry.data is not None:
            return self.entry.data
        found = search(self.task, data_folders() if folder is None else [folder])
        if found is None:
            where = f" in {folder}" if folder is not None else ""
            raise DataError(
                f"no data for task {self.task.name}{where}. "
                f"Run `pdocrl data fetch {self.task.name}`, or say where it lies with --data FOLDER."
            )
        return found


DSRL = find_protocol("dsrl")
LIMITS = tuple((limit,) for limit in DSRL.limits)
BASELINES = (
    Method("bc"),
    Method("bc", "safe", {"episodes": "safe"}),
    Method("cdt"),
    Method("bcq_lag"),
    Method("bear_lag"),
    Method("cpq"),
    Method("coptidice"),
)
PAPERS = (Method("pdocrl"), Method("pdocrl_extraction"))
NEWER = (
    Method("caps_iql"),
    Method("caps_sac"),
    Method("bcrl"),
    Method("fisor"),
    Method("carl"),
    Method("o3srl"),
    Method("b2r"),
)
ALL = (*BASELINES, *NEWER, *PAPERS, Method("pdocrl_anchored"), Method("dial"))
STRICT = (Method("bc", "safe", {"episodes": "safe"}), Method("cdt"), Method("cpq"), *NEWER, Method("dial"))
TASKS = tuple(TaskEntry(task) for task in BULLET)

# An eighth of the paper's width, to go the whole way with every agent.
SMALL: dict[str, Any] = {"hidden": (32, 32), "batch_size": 64}
SMALL_TOO: dict[str, dict[str, Any]] = {
    "dial": {"model_hidden": (32, 32)},
    "cdt": {"embedding": 32, "heads": 2, "layers": 1, "context": 5, "batch_size": 16},
    "b2r": {"embedding": 32, "heads": 2, "layers": 1, "batch_size": 16},
    **{agent: {"vae_hidden": (32, 32)} for agent in ("bcq_lag", "bear_lag", "cpq")},
}


def _smoke() -> Suite:
    entry = TaskEntry(find_task("BallRun"), EMBEDDED / "ballrun.hdf5")
    small = [
        dataclasses.replace(method, settings={**method.settings, **SMALL, **SMALL_TOO.get(method.agent, {})})
        for method in ALL
    ]
    about = "every agent in minutes, small, on the data inside the package: that all works, not how well"
    return Suite("smoke", about, (entry,), tuple(small), ((20.0,), (40.0,)), (0, 1), 300, 5)


def named_suites() -> dict[str, Suite]:
    """The suites of the package."""
    paper = Suite(
        "paper",
        "eight Bullet tasks, every agent, protocol dsrl",
        TASKS,
        ALL,
        LIMITS,
        DSRL.seeds,
        100_000,
        DSRL.episodes,
    )
    about = "with and without the policy extraction step, eight Bullet tasks, protocol dsrl"
    tight = "eight Bullet tasks at limit 5, the methods published for it and those they are compared with"
    return {
        "paper": paper,
        "ablation": dataclasses.replace(paper, name="ablation", about=about, methods=PAPERS),
        "strict": dataclasses.replace(paper, name="strict", about=tight, methods=STRICT, limits=((5.0,),)),
        "smoke": _smoke(),
    }
