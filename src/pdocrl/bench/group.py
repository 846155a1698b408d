"""One group on disk: how far it is, the work still to do, and its episodes as rows.

A group's folder is an ordinary training folder, made here, by hand, or on another machine and copied. It is believed
only as far as it is what the suite asks for: the agent with its full settings, the limits, seeds and steps.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pdocrl.agents.registry import find_agent
from pdocrl.bench.player import EVALUATION_SEED
from pdocrl.bench.results import GROUPS, GroupStatus, Row, Status, make_rows, plain_settings
from pdocrl.bench.suite import Group
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import load
from pdocrl.data.tasks import BUILT_IN, find_task, register
from pdocrl.envs.rollout import episode_seeds
from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.evaluate import FILE as SCORES
from pdocrl.evaluation.evaluate import read_scores
from pdocrl.files import atomic_path
from pdocrl.provenance import commit, versions
from pdocrl.records import write_record
from pdocrl.training.config import FILE, TrainingConfig, limits_of, run_limits, runs_of
from pdocrl.training.folder import CHECKPOINT, METRICS, Trained, load_trained, read_lines, train_seconds
from pdocrl.training.grid import TaskPart, train_multi_task
from pdocrl.training.train import resume, train
from pdocrl.training.trainer import warm_up


def folder_of(group: Group, out: Path) -> Path:
    """Where a group lies in a benchmark folder."""
    return out / GROUPS / group.name


def look(group: Group, out: Path, data: Path | None) -> GroupStatus:
    """How far a group is; a folder that holds something else is told, not touched."""
    folder = folder_of(group, out)
    try:
        status = _progress(group, folder)
        if status == "waiting":
            group.find_data(data)
    except PdocrlError as error:
        missing = not (folder / FILE).exists()
        return told(group, "missing" if missing else "failed", str(error))
    if status == "trained" and group.task.env_id is None:
        return told(group, status, f"task {group.task.name} has no simulator; it is trained, not scored.")
    return told(group, status)


def told(group: Group, status: Status, reason: str = "") -> GroupStatus:
    """A line for status.json."""
    line = " ".join(reason.split())
    return GroupStatus(group.name, group.task.name, group.method.agent, group.method.variant, group.runs, status, line)


def read_data(group: Group, data: Path | None) -> Dataset:
    """The group's dataset, named by its whole path, so that its training folder says where it came from."""
    path = group.find_data(data)
    return dataclasses.replace(load(path, group.task), name=str(path))


def know_task(group: Group) -> None:
    """Make a task that only the suite's file describes known to this process."""
    if group.task.name not in {task.name for task in BUILT_IN}:
        register(group.task)


def take_up_shorter(group: Group, out: Path) -> bool:
    """Begin a group that nobody began where the same one of fewer steps has ended, if `out` holds one.

    No agent knows how many steps it will have, so both are one training, looked at twice: the bits are the same.
    """
    folder, shorter = folder_of(group, out), [other for other in group.suite.groups() if _is_shorter(other, group)]
    for other in sorted(shorter, key=lambda other: -other.steps) if not (folder / FILE).exists() else []:
        source = folder_of(other, out)
        try:
            ended = (source / CHECKPOINT).exists() and _progress(other, source) in {"trained", "done"}
        except PdocrlError:  # holds something else, which is told where its own turn comes
            continue
        config = TrainingConfig.read(source) if ended else None
        if config is None or (config.commit, config.versions) != (commit(), versions()):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CHECKPOINT, METRICS):
            with atomic_path(folder / name) as path:
                shutil.copyfile(source / name, path)
        write_record(folder / FILE, msgspec.structs.replace(config, steps=group.steps))
        return True
    return False


def _is_shorter(one: Group, other: Group) -> bool:
    """Whether two groups differ in their steps (and so in their names), and in nothing else."""
    alike = (one.task, one.method.agent, one.limits, one.seeds) == (
        other.task,
        other.method.agent,
        other.limits,
        other.seeds,
    )
    return alike and one.method.settings == other.method.settings and one.steps < other.steps


def train_group(group: Group, folder: Path, dataset: Dataset) -> Trained:
    """Train all runs, or go on where an earlier attempt stopped."""
    if (folder / FILE).exists():
        return resume(folder, dataset)
    every = max(1, min(1000, group.steps // 20))
    limits = group.limits if dataset.n_costs else [()]
    return train(
        dataset,
        group.method.agent,
        task=group.task,
        cost_limit=limits,
        seed=group.seeds,
        steps=group.steps,
        settings=group.method.settings,
        out=folder,
        log_every=every,
        checkpoint_every=10 * every,
    )


def train_groups(groups: Sequence[Group], folders: Sequence[Path], data: Path | None) -> list[Trained]:
    """Train all runs of one method's groups as one program."""
    for group in groups:
        know_task(group)
    warm_up()
    first = groups[0]
    parts = [
        TaskPart(read_data(group, data), group.task, folder, group.limits)
        for group, folder in zip(groups, folders, strict=True)
    ]
    return train_multi_task(
        parts,
        first.method.agent,
        seed=first.seeds,
        steps=first.steps,
        settings=first.method.settings,
        log_every=max(1, min(1000, first.steps // 20)),
        checkpoint_every=max(1, first.steps // 2),
    )


def rows_of(group: Group, out: Path) -> list[Row]:
    """The episodes of a group that is done: as many per run as the suite asks for, if more were played."""
    folder = folder_of(group, out)
    return make_rows(
        TrainingConfig.read(folder),
        read_scores(folder),
        group.task,
        suite=group.suite.name,
        protocol=group.protocol,
        variant=group.method.variant,
        seconds=train_seconds(read_lines(folder / METRICS)),
        episodes=group.suite.episodes,
    )


def _progress(group: Group, folder: Path) -> Status:
    if not (folder / FILE).exists():
        return "waiting"
    plan = TrainingConfig.read(folder)
    _refuse_another(group, plan, folder)
    if not (folder / "policies.npz").exists():
        return "waiting"
    trained = load_trained(folder)
    if trained.step < group.steps and len(trained.failures) < len(plan.runs):
        return "waiting"
    return "done" if _is_scored(group, plan, trained.step, folder) else "trained"


def _refuse_another(group: Group, plan: TrainingConfig, folder: Path) -> None:
    """Compare with what the suite asks for, defaults and all, so that spelling out a default is no difference."""
    remedy = f"Move the folder away, or choose another {by_door('out=…', '--out')}."
    asked: dict[str, Any] = {"agent": group.method.agent, "steps": group.steps, "task": group.task.name}
    for what, wanted in asked.items():
        if getattr(plan, what) != wanted:
            raise PdocrlError(f"{folder}: {what} is {getattr(plan, what)}, the suite asks for {wanted}. {remedy}")
    agent, limits = find_agent(plan.agent), group.limits if plan.cost_names else ((),)
    runs = runs_of(run_limits(limits_of(limits), plan.cost_names, group.task.horizon, agent), group.seeds, {})
    settings = dict(group.method.settings)
    wanted_plan = msgspec.structs.replace(plan, settings=settings, runs=runs, horizon=group.task.horizon)
    have = [(plain_settings(run.config), run.seed) for run in plan.make_runs(agent)]
    want = [(plain_settings(run.config), run.seed) for run in wanted_plan.make_runs(agent)]
    if have == want and [run.get("limits", []) for run in plan.runs] == [run.get("limits", []) for run in runs]:
        return
    if len(have) != len(want):
        raise PdocrlError(f"{folder}: holds {len(have)} runs, the suite asks for {len(want)}. {remedy}")
    for (config, seed), (wanted_config, wanted_seed) in zip(have, want, strict=True):
        if seed != wanted_seed:
            raise PdocrlError(f"{folder}: holds seed {seed} where the suite asks for {wanted_seed}. {remedy}")
        for key in config:
            if config[key] != wanted_config[key]:
                raise PdocrlError(
                    f"{folder}: {key} is {config[key]}, the suite asks for {wanted_config[key]}. {remedy}"
                )
    raise PdocrlError(f"{folder}: holds other limits than the suite asks for. {remedy}")


def _is_scored(group: Group, plan: TrainingConfig, step: int, folder: Path) -> bool:
    """Whether scores.json holds enough episodes, from the right starts, of these policies."""
    if not (folder / SCORES).exists():
        return False
    try:
        scores = read_scores(folder)
        same_task = find_task(scores.task).name == group.task.name
    except PdocrlError:
        return False
    starts = episode_seeds(EVALUATION_SEED, group.suite.episodes)
    return (
        same_task
        and scores.step == step
        and scores.data.digest == plan.data_digest
        and [run.cost_limit for run in scores.runs] == [run["cost_limit"] for run in plan.runs]
        and all([e.seed for e in run.episodes][: len(starts)] == starts for run in scores.runs)
    )
