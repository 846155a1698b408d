"""What a training folder holds, read once and checked: the plan, its metrics, evaluations, scores, and its data.

folder ─▶ Record ─▶ figures ─▶ page
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from pdocrl.data import Dataset, find_task, load
from pdocrl.data.load import EMBEDDED
from pdocrl.errors import PdocrlError
from pdocrl.training.train import Plan, Trained, load_trained, read_lines


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone: one curve, one row of the table."""

    label: str  # "limit 10", with the settings that tell variants apart
    limit: tuple[float, ...]
    runs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Record:
    """One training as a reader wants to see it. Parts that were never made are empty or None."""

    trained: Trained
    evaluations: list[dict[str, Any]]  # lines of evaluations.jsonl: step, run, reward, cost [K]
    scores: dict[str, Any] | None  # what `evaluate` wrote
    dataset: Dataset | None  # the data it was trained on, when it can be found
    embedded: bool  # that data is the re-collected one inside the package

    @property
    def plan(self) -> Plan:
        return self.trained.plan

    @property
    def folder(self) -> Path:
        assert self.trained.folder is not None  # a record is read from a folder
        return self.trained.folder

    @property
    def groups(self) -> list[Group]:
        """The runs by limit and varied settings, in the plan's order."""
        found: dict[str, Group] = {}
        for i, run in enumerate(self.plan.runs):
            limit = tuple(run["cost_limit"])
            varied = [f"{name} {value}" for name, value in run.items() if name not in {"cost_limit", "seed"}]
            limits = ["limit " + ", ".join(f"{x:g}" for x in limit)] if limit else []
            label = "; ".join(limits + varied) or "no limit"
            known = found.get(label, Group(label, limit, ()))
            found[label] = dataclasses.replace(known, runs=(*known.runs, i))
        return list(found.values())

    def metric_names(self) -> list[str]:
        """Every metric some run reported, in the agent's order."""
        return list(dict.fromkeys(name for line in self.trained.metrics for name in line["metrics"]))


def read_record(folder: str | os.PathLike[str], dataset: Dataset | None = None) -> Record:
    """Read a folder that `train(out=…)` wrote. The data is looked for where the plan says, unless it is given."""
    trained = load_trained(folder)
    evaluations = read_lines(Path(folder) / "evaluations.jsonl")
    if dataset is None:
        dataset = _find_data(trained.plan)
    elif dataset.digest != trained.plan.data_digest:
        raise PdocrlError(f"{folder}: was trained on other data than {dataset.name}; give the file it was trained on.")
    return Record(trained, evaluations, _read_scores(Path(folder), len(trained.plan.runs)), dataset, _embedded(dataset))


def _read_scores(folder: Path, runs: int) -> dict[str, Any] | None:
    path = folder / "scores.json"
    if not path.exists():
        return None
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        there = len(scores["runs"])
        episodes = all(run["episodes"] for run in scores["runs"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PdocrlError(f"{path}: cannot be read ({error!r}). Make it again: pdocrl evaluate {folder}") from error
    if there != runs or not episodes:
        raise PdocrlError(f"{path}: holds {there} of {runs} runs. Make it again: pdocrl evaluate {folder}")
    return dict(scores)


def _find_data(plan: Plan) -> Dataset | None:
    """The training data where it was, or inside the package; only if it is still the same. None: a page without it."""
    for place in (plan.data, _embedded_file(plan.task)):
        if place is not None:
            try:
                dataset = load(place, plan.task)
            except PdocrlError:
                continue
            if dataset.digest == plan.data_digest:
                return dataset
    return None


def _embedded_file(task: str | None) -> Path | None:
    path = EMBEDDED / f"{(task or '').lower()}.hdf5"
    return path if path.is_file() else None


def _embedded(dataset: Dataset | None) -> bool:
    """Whether these are the bits of a file inside the package, by whatever path they were read."""
    return dataset is not None and any(load(path).digest == dataset.digest for path in EMBEDDED.glob("*.hdf5"))


def reference_scores(plan: Plan) -> tuple[float, float] | None:
    """(min, max) that normalise the task's reward, or None without a task."""
    task = find_task(plan.task) if plan.task else None
    return None if task is None else (task.reward_min, task.reward_max)
