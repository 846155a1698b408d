"""What a benchmark consists of: tasks × methods, each pair a group of runs (limits × seeds) trained in one call.

name or TOML file ── suite_file.py ──▶ Suite ─▶ groups
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdocrl.bench.results import SuiteFile, SuiteMethod, SuiteTask
from pdocrl.data.load import EMBEDDED, data_folders, search
from pdocrl.data.tasks import BULLET, Task, find_task
from pdocrl.errors import DataError, UnknownNameError, by_door
from pdocrl.evaluation.protocols import CUSTOM, find_protocol, protocol_of
from pdocrl.evaluation.score import method_name

Limit = tuple[float, ...] | tuple[str, ...]  # allowed cost per episode, one per constraint; or limits in words


@dataclasses.dataclass(frozen=True)
class Method:
    """An agent with settings; the variant's name tells several of one agent apart."""

    agent: str
    variant: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None  # instead of the suite's
    seeds: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)  # by task, instead of the suite's
    tasks: tuple[str, ...] = ()  # of the suite's, those it is trained on; all without any

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
        own = {group.protocol for group in self.groups()}
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
            if (not methods or {method.agent, method.name} & set(methods))
            and (not chosen or entry.task.name in chosen)
            and (not method.tasks or entry.task.name in method.tasks)
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
                SuiteMethod(
                    agent=m.agent,
                    variant=m.variant,
                    settings=dict(m.settings),
                    steps=m.steps or self.steps,
                    seeds={task: list(seeds) for task, seeds in m.seeds.items()},
                    tasks=list(m.tasks),
                )
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
    def seeds(self) -> tuple[int, ...]:
        return self.method.seeds.get(self.task.name, self.suite.seeds)

    @property
    def runs(self) -> int:
        return len(self.limits) * len(self.seeds)

    @property
    def protocol(self) -> str:
        """Whose limits, seeds and episodes its own are, or "custom"."""
        return protocol_of(self.limits, self.seeds, self.suite.episodes)

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
                f"Run `pdocrl data fetch {self.task.name}`, or say where it lies with "
                f"{by_door('data=FOLDER', '--data FOLDER')}."
            )
        return found


DSRL = find_protocol("dsrl")
LIMITS = tuple((limit,) for limit in DSRL.limits)
# The benchmark's limits and those of the paper's appendix: 10, 20, 40 and 80. Tables are made for each protocol.
BOTH_LIMITS = tuple((limit,) for limit in sorted({*DSRL.limits, *find_protocol("paper").limits}))

BASELINES = (
    Method("bc"),
    Method("bc", "safe", {"episodes": "safe"}),
    Method("cdt", "by-cost", {"sampling": "published"}),  # its authors'; uniform draws of steps satisfy fewer limits
    Method("bcq_lag"),
    Method("bear_lag"),
    Method("cpq"),
    Method("coptidice"),
)
PDOCRL = (Method("pdocrl"), Method("pdocrl", "published", {"published": True}))
EXTRACTION = Method("pdocrl_extraction")  # the paper's second table
NEWER = (
    Method("caps_iql"),
    Method("caps_sac"),
    Method("bcrl"),
    Method("fisor"),
    Method("carl"),
    Method("o3srl"),
    Method("b2r"),
)
ANCHORED = (
    Method("pdocrl_anchored"),
    Method("pdocrl_anchored", "control", {"improvement": 0.0, "tilt": 0.0}),  # neither Q nor λ: what cloning alone does
)
ALL = (*BASELINES, *NEWER, *PDOCRL, EXTRACTION, *ANCHORED, Method("dial"))
STRICT = (Method("bc", "safe", {"episodes": "safe"}), BASELINES[2], Method("cpq"), *NEWER, Method("dial"))
TASKS = tuple(TaskEntry(task) for task in BULLET)
FIVE = tuple(TaskEntry(find_task(name)) for name in ("BallRun", "CarRun", "BallCircle", "CarCircle", "DroneRun"))
LENGTHS = (20_000, 50_000, 100_000)

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
    seeds, steps, episodes = DSRL.seeds, 100_000, DSRL.episodes
    at_lengths = tuple(
        dataclasses.replace(method, variant=f"{method.variant}-{length // 1000}k".lstrip("-"), steps=length)
        for method in PDOCRL
        for length in LENGTHS
    )
    suites = (
        Suite(
            "paper",
            "what the paper compares, with and without policy extraction, on eight tasks at the benchmark's limits "
            "(10, 20, 40) and its appendix's (20, 40, 80)",
            TASKS,
            (*BASELINES, *PDOCRL, EXTRACTION),
            BOTH_LIMITS,
            seeds,
            steps,
            episodes,
        ),
        Suite("eight", "eight Bullet tasks, every agent, protocol dsrl", TASKS, ALL, LIMITS, seeds, steps, episodes),
        Suite("five", "five Bullet tasks, every agent, protocol dsrl", FIVE, ALL, LIMITS, seeds, steps, episodes),
        Suite(
            "ablation",
            "with and without the policy extraction step, eight Bullet tasks, the limits of both protocols",
            TASKS,
            (PDOCRL[0], EXTRACTION),
            BOTH_LIMITS,
            seeds,
            steps,
            episodes,
        ),
        Suite(
            "lengths",
            "the paper's method and its published code at 20,000, 50,000 and 100,000 steps",
            TASKS,
            at_lengths,
            BOTH_LIMITS,
            seeds,
            steps,
            episodes,
        ),
        Suite(
            "strict",
            "eight Bullet tasks at limit 5, the methods published for it and those they are compared with",
            TASKS,
            STRICT,
            ((5.0,),),
            seeds,
            steps,
            episodes,
        ),
        _smoke(),
    )
    return {suite.name: suite for suite in suites}
