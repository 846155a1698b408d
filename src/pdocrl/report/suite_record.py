"""What a benchmark folder holds, read once: its rows as runs, and the training folders behind them.

folder ─▶ SuiteRecord ─▶ tables, pictures ─▶ page
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.bench.results import GROUPS, SUITE, GroupStatus, Row, method_name, read_rows, read_status, read_suite
from pdocrl.bench.statistics import Cell, make_cells
from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import PdocrlError
from pdocrl.training.train import Plan, read_lines

Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]  # steps [T], values [T]


@dataclasses.dataclass(frozen=True)
class Run:
    """One policy and its episodes, all on the scales of the scores."""

    task: str
    method: str
    limit: str  # "10", or "10, 5" with two constraints
    seed: int
    reward: float
    cost: float
    episode_costs: Floats  # [E]

    @property
    def safe(self) -> bool:
        return self.cost <= 1


@dataclasses.dataclass(frozen=True)
class Training:
    """One folder under groups/, as far as it has come."""

    status: GroupStatus
    plan: Plan | None
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    ope: dict[str, Any] | None

    @property
    def task(self) -> str:
        return self.status.task

    @property
    def method(self) -> str:
        return method_name(self.status.agent, self.status.variant)

    def metric(self, name: str) -> dict[tuple[str, int], Curve]:
        """{(limit, seed): curve} of a metric; of the largest over the constraints where there are several."""
        names = {n for line in self.metrics for n in line["metrics"] if n == name or _is_part(n, name)}
        return self._curves(
            [line for line in self.metrics if names & set(line["metrics"])],
            lambda line: max(line["metrics"][n] for n in names if n in line["metrics"]),
        )

    def evaluated(self, value: Callable[[dict[str, Any]], float]) -> dict[tuple[str, int], Curve]:
        """{(limit, seed): curve} of something in the evaluations on the way."""
        return self._curves(self.evaluations, value)

    def _curves(
        self, lines: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]
    ) -> dict[tuple[str, int], Curve]:
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for line in lines:
            found.setdefault((limit_name(line["cost_limit"]), line["seed"]), []).append((line["step"], value(line)))
        return {run: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for run, pairs in found.items()}


@dataclasses.dataclass(frozen=True)
class SuiteRecord:
    """A benchmark as a reader wants to see it."""

    folder: Path
    suite: dict[str, Any]
    rows: list[Row]
    cells: list[Cell]  # one per task and method that was scored
    runs: list[Run]
    trainings: list[Training]

    @cached_property
    def tasks(self) -> list[str]:
        """In the suite's order, also those nothing was trained on."""
        return list(dict.fromkeys(training.task for training in self.trainings))

    @cached_property
    def methods(self) -> list[str]:
        """Agents with their variants, in the suite's order. The place in it is the method's colour and shape."""
        return list(dict.fromkeys(training.method for training in self.trainings))

    @cached_property
    def limits(self) -> list[str]:
        """From the tightest to the loosest."""
        return [limit_name(limit) for limit in sorted({row.cost_limit for row in self.rows})]

    def task(self, name: str) -> Task:
        """As the suite had it, so that a task registered elsewhere is known here, too."""
        fields = [field.name for field in dataclasses.fields(Task)]
        for entry in self.suite["tasks"]:
            if entry["name"] == name:
                return Task(**{key: entry[key] for key in fields if key != "files"})
        return find_task(name)

    def series(self, method: str) -> int:
        return self.methods.index(method)

    def runs_of(self, task: str) -> list[Run]:
        return [run for run in self.runs if run.task == task]


def read_suite_record(folder: str | os.PathLike[str]) -> SuiteRecord:
    """Read a folder that `pdocrl bench` wrote, finished or not."""
    folder = Path(folder)
    suite, rows = read_suite(folder), read_rows(folder)
    if not {"name", "tasks"} <= set(suite):
        raise PdocrlError(f"{folder / SUITE}: not a suite of this version of pdocrl. `pdocrl bench` writes it again.")
    trainings = [_training(folder / GROUPS / status.name, status) for status in read_status(folder)]
    return SuiteRecord(folder, suite, rows, make_cells(rows), _runs(rows), trainings)


def limit_name(limit: Any) -> str:
    """(10.0,) → "10"."""
    return ", ".join(f"{value:g}" for value in limit) or "none"


def _runs(rows: list[Row]) -> list[Run]:
    """Episodes by the policy that played them."""
    found: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.task, row.method, limit_name(row.cost_limit), row.seed), []).append(row)
    made = []
    for (task, method, limit, seed), own in found.items():
        (cell,) = make_cells(own)  # of one run: its means
        episodes = np.array([row.normalized_cost for row in own])
        made.append(Run(task, method, limit, seed, cell.reward, cell.cost, episodes))
    return made


def _training(folder: Path, status: GroupStatus) -> Training:
    """A group that was never begun has no folder; one that was killed may lack any of its parts."""
    plan = Plan.read(folder) if (folder / "run.json").exists() else None
    return Training(
        status,
        plan,
        read_lines(folder / "metrics.jsonl"),
        read_lines(folder / "evaluations.jsonl"),
        _read_ope(folder / "ope.json", plan),
    )


def _read_ope(path: Path, plan: Plan | None) -> dict[str, Any] | None:
    if plan is None or not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        there = len(found["runs"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PdocrlError(f"{path}: cannot be read ({error!r}). Make it again: pdocrl ope {path.parent}") from error
    if there != len(plan.runs):
        raise PdocrlError(f"{path}: holds {there} of {len(plan.runs)} runs. Make it again: pdocrl ope {path.parent}")
    return dict(found)


def _is_part(name: str, whole: str) -> bool:
    """`lambda_1` is a part of `lambda`, `w_at_clip` is none of `w`."""
    stem, _, number = name.rpartition("_")
    return stem == whole and number.isdigit()
