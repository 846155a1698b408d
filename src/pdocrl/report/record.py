"""What a folder holds, read once and checked: a benchmark, or a training, which is a benchmark of one.

folder ─▶ Results ─▶ findings, tables, pictures ─▶ page
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from pdocrl.bench.results import (
    GROUPS,
    SUITE,
    GroupStatus,
    Row,
    SuiteFile,
    make_runs,
    read_rows,
    read_status,
)
from pdocrl.bench.results import read_suite as read_suite_file
from pdocrl.data import Dataset, find_task, load
from pdocrl.data.load import EMBEDDED
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.evaluate import FILE as SCORES
from pdocrl.evaluation.evaluate import Scores, read_scores
from pdocrl.evaluation.intervals import Floats
from pdocrl.evaluation.score import RunScore, Summary, limit_name, method_name, summarise, variant_of
from pdocrl.ope.result import FILE as OPE
from pdocrl.ope.result import OffPolicy, read_ope
from pdocrl.records import Part, from_plain
from pdocrl.report.statistics import standings
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained, load_trained, read_lines

Curve = tuple[Floats, Floats]  # steps [T], values [T]
Run = tuple[str, str, int]  # method, limit and seed


class MetricLine(Part, frozen=True, kw_only=True):
    """A line of metrics.jsonl."""

    step: int
    run: int
    metrics: dict[str, float]
    steps_per_second: float = 0.0


class EvaluationLine(Part, frozen=True, kw_only=True):
    """A line of evaluations.jsonl."""

    step: int
    run: int
    reward: float
    cost: list[float]


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """One training folder, as far as it has come."""

    status: GroupStatus
    folder: Path
    plan: TrainingConfig | None
    metrics: list[MetricLine]
    evaluations: list[EvaluationLine]
    ope: OffPolicy | None
    methods: tuple[str, ...]  # of each run

    @property
    def task(self) -> str:
        return self.status.task

    @property
    def method(self) -> str:
        return method_name(self.status.agent, self.status.variant)

    @property
    def runs(self) -> list[Run]:
        """Of each run of the plan: method, limit and seed."""
        if self.plan is None:
            return []
        plan = zip(self.methods, self.plan.runs, strict=True)
        return [(method, limit_name(run["cost_limit"]), run["seed"]) for method, run in plan]

    @cached_property
    def ratio_bound(self) -> float | None:
        """The upper bound of w in the agent's settings; None for an agent without one, or not installed here."""
        from pdocrl.agents.registry import find_agent

        if self.plan is None:
            return None
        try:
            config = self.plan.make_runs(find_agent(self.plan.agent))[0].config
        except PdocrlError:
            return None
        bound = getattr(config, "w_max", None)
        return None if bound is None else float(bound)

    def metric_names(self) -> list[str]:
        """Every metric some run reported, in the agent's order."""
        return list(dict.fromkeys(name for line in self.metrics for name in line.metrics))

    def metric(self, name: str) -> dict[Run, Curve]:
        """{run: curve} of a metric; empty without it."""
        lines = [line for line in self.metrics if name in line.metrics]
        return self._curves([(line.run, line.step, line.metrics[name]) for line in lines])

    def evaluated(self, value: Callable[[EvaluationLine, Sequence[float]], float]) -> dict[Run, Curve]:
        """{run: curve} of something in the evaluations on the way, given a line and its run's limit."""
        limits = [] if self.plan is None else [run["cost_limit"] for run in self.plan.runs]
        return self._curves([(line.run, line.step, value(line, limits[line.run])) for line in self.evaluations])

    def _curves(self, points: list[tuple[int, int, float]]) -> dict[Run, Curve]:
        found: dict[Run, list[tuple[float, float]]] = {}
        for run, step, value in points:
            found.setdefault(self.runs[run], []).append((step, value))
        return {run: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for run, pairs in found.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """A benchmark, or a training, as a reader wants to see it. Parts that were never made are empty or None."""

    folder: Path
    suite: SuiteFile
    rows: list[Row]  # of a benchmark
    summaries: list[Summary]  # one per task and method that was scored
    runs: list[RunScore]
    trainings: list[Training]
    trained: Trained | None = None  # of a training on its own: its policies
    scores: Scores | None = None
    dataset: Dataset | None = None  # the data it was trained on, when it can be found
    embedded: bool = False  # that data is the re-collected one inside the package

    @property
    def alone(self) -> bool:
        """A training on its own."""
        return self.trained is not None

    @cached_property
    def tasks(self) -> list[str]:
        """In the suite's order, also those nothing was trained on."""
        return list(dict.fromkeys(training.task for training in self.trainings))

    @cached_property
    def scored_tasks(self) -> list[str]:
        there = {one.task for one in self.summaries}
        return [task for task in self.tasks if task in there]

    @cached_property
    def methods(self) -> list[str]:
        """Agents with their variants, in the suite's order, which gives them their colours and shapes."""
        return list(dict.fromkeys(m for training in self.trainings for m in training.methods or (training.method,)))

    @cached_property
    def ranked(self) -> list[str]:
        """Methods, the best first; those without scores last."""
        order = [standing.method for standing in standings(self.runs)]
        return order + [method for method in self.methods if method not in order]

    @cached_property
    def limits(self) -> list[str]:
        """From the tightest to the loosest: those played, and of a training on its own those trained for."""
        played = {tuple(run.cost_limit) for run in self.runs}
        if played and not self.alone:
            return [limit_name(limit) for limit in sorted(played)]
        plans = [training.plan for training in self.trainings if training.plan is not None]
        trained = {tuple(run["cost_limit"]) for plan in plans for run in plan.runs}
        return [limit_name(limit) for limit in sorted(played | trained)]

    @property
    def by_limit(self) -> bool:
        """One method only: then limits have colours and shapes of their own."""
        return len(self.methods) == 1

    @property
    def keys(self) -> list[str]:
        """What has a colour and a shape."""
        return [f"limit {limit}" for limit in self.limits] if self.by_limit else self.methods

    def key(self, method: str, limit: str) -> str:
        return f"limit {limit}" if self.by_limit else method

    def series(self, method: str, limit: str = "") -> int:
        """The number of its colour and shape."""
        return self.keys.index(self.key(method, limit)) if not self.by_limit or limit else 0

    def task(self, name: str) -> Task | None:
        """As the suite had it, so that a task registered elsewhere is known here, too."""
        for entry in self.suite.tasks:
            if entry.task.name == name:
                return entry.task
        try:
            return find_task(name)
        except PdocrlError:
            return None

    def runs_of(self, task: str) -> list[RunScore]:
        return [run for run in self.runs if run.task == task]


def is_suite(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl bench` wrote this folder."""
    return (Path(folder) / SUITE).is_file()


def read_results(folder: str | os.PathLike[str], dataset: Dataset | None = None) -> Results:
    """Read a folder that `pdocrl bench` or `pdocrl train` wrote, finished or not.

    The data of a training is looked for where its plan says, unless it is given.
    """
    folder = Path(folder)
    if is_suite(folder):
        rows = read_rows(folder)
        trainings = [read_training(folder / GROUPS / status.name, status) for status in read_status(folder)]
        runs = make_runs(rows)
        return Results(folder, read_suite_file(folder), rows, summarise(runs), runs, trainings)
    return _read_alone(folder, dataset)


def _read_alone(folder: Path, dataset: Dataset | None) -> Results:
    """A training as a benchmark of one."""
    trained = load_trained(folder)
    plan = trained.config
    if dataset is None:
        dataset = _find_data(plan)
    elif dataset.digest != plan.data_digest:
        raise PdocrlError(f"{folder}: was trained on other data than {dataset.name}; give the file it was trained on.")
    scores = read_scores(folder) if (folder / SCORES).exists() else None
    name = scores.task if scores is not None else plan.task or Path(plan.data).name
    status = GroupStatus(folder.name, name, plan.agent, "", len(plan.runs), "trained" if scores is None else "done")
    variants = [
        variant_of({name: value for name, value in run.items() if name not in {"cost_limit", "seed"}})
        for run in plan.runs
    ]
    training = read_training(folder, status, tuple(method_name(plan.agent, variant) for variant in variants))
    suite = SuiteFile(name=folder.name, kind="control", steps=plan.steps)
    embedded = dataset is not None and any(load(path).digest == dataset.digest for path in EMBEDDED.glob("*.hdf5"))
    runs, summaries = ([], []) if scores is None else (scores.runs, scores.summary)
    return Results(folder, suite, [], summaries, runs, [training], trained, scores, dataset, embedded)


def read_training(folder: Path, status: GroupStatus, methods: tuple[str, ...] = ()) -> Training:
    """A group that was never begun has no folder; one that was killed may lack any of its parts."""
    plan = TrainingConfig.read(folder) if (folder / "run.json").exists() else None
    own = method_name(status.agent, status.variant)
    runs = len(plan.runs) if plan is not None else status.runs if status.status == "done" else 0  # played elsewhere
    return Training(
        status,
        folder,
        plan,
        _lines(folder / "metrics.jsonl", MetricLine),
        _lines(folder / "evaluations.jsonl", EvaluationLine),
        _read_ope(folder, plan),
        methods or (own,) * runs,
    )


def _lines(path: Path, kind: type[Part]) -> list:  # type: ignore[type-arg]
    try:
        return from_plain(read_lines(path), list[kind])  # type: ignore[valid-type]
    except PdocrlError as error:
        raise PdocrlError(f"{path}: {error}") from error


def _read_ope(folder: Path, plan: TrainingConfig | None) -> OffPolicy | None:
    path = folder / OPE
    if plan is None or not path.exists():
        return None
    found = read_ope(folder)
    if len(found.runs) != len(plan.runs):
        raise PdocrlError(
            f"{path}: holds {len(found.runs)} of {len(plan.runs)} runs. Make it again: pdocrl ope {folder}"
        )
    return found


def _find_data(plan: TrainingConfig) -> Dataset | None:
    """The training data where it was, or inside the package; only if it is still the same. None: a page without it."""
    inside = EMBEDDED / f"{(plan.task or '').lower()}.hdf5"
    for place in (plan.data, inside if inside.is_file() else None):
        if place is not None:
            try:
                dataset = load(place, plan.task)
            except PdocrlError:
                continue
            if dataset.digest == plan.data_digest:
                return dataset
    return None
