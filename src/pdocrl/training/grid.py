"""One agent on several tasks, trained as one program where that can be; each task has a folder of its own.

The folders are those `train` writes: they can be resumed, played, exported and reported one by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from pdocrl.agents.base import Agent
from pdocrl.agents.registry import as_agent
from pdocrl.console import log, progress
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError, PdocrlInterrupted
from pdocrl.training import folder as folders
from pdocrl.training.config import FILE, Limits, TrainingConfig, limits_of, place_of, run_limits, runs_of, seeds_of
from pdocrl.training.folder import Trained, locked
from pdocrl.training.multi_task import MultiTaskTrainer
from pdocrl.training.train import on_interrupt, record
from pdocrl.training.trainer import StageMetrics


@dataclasses.dataclass(frozen=True)
class TaskPart:
    """What is learnt on one task, and where it goes."""

    dataset: Dataset
    task: Task
    out: Path
    cost_limit: Limits = (10.0, 20.0, 40.0)


def train_multi_task(
    parts: Sequence[TaskPart],
    agent: str | type[Agent[Any, Any]] | Agent[Any, Any] = "pdocrl",
    *,
    seed: int | Sequence[int] = 0,
    steps: int = 100_000,
    settings: Mapping[str, Any] | None = None,
    log_every: int = 1000,
    checkpoint_every: int = 50_000,
) -> list[Trained]:
    """Train all runs of all parts at once; refused for an agent that cannot (`Agent.zero_padded`).

    Folders that hold the same trainings, all of them after as many steps, are gone on with.
    """
    chosen, seeds = as_agent(agent), seeds_of(seed)
    with contextlib.ExitStack() as stack:
        configs = []
        for part in parts:
            stack.enter_context(locked(part.out))
            config = TrainingConfig.of(
                part.dataset,
                place_of(part.dataset),
                part.task,
                chosen,
                settings=dict(settings or {}),
                runs=runs_of(
                    run_limits(
                        limits_of(part.cost_limit),
                        part.dataset.cost_names,
                        part.task.horizon,
                        chosen,
                    ),
                    seeds,
                    {},
                ),
                steps=steps,
                log_every=log_every,
                checkpoint_every=checkpoint_every,
            )
            configs.append(_begun(config, chosen, part.out) or config)
        with ThreadPoolExecutor() as pool:
            trainers = list(
                pool.map(lambda part, config: folders.restore(part.out, config, part.dataset, chosen), parts, configs)
            )
        return _drive(configs, MultiTaskTrainer(trainers), [part.out for part in parts])


def _begun(asked: TrainingConfig, agent: Agent[Any, Any], folder: Path) -> TrainingConfig | None:
    """The config of a training of fewer steps in this folder, to be gone on with; another one is refused."""
    if not (folder / FILE).exists():
        return None
    there = TrainingConfig.read(folder)
    if there.agent != asked.agent or there.make_runs(agent) != asked.make_runs(agent):
        raise PdocrlError(f"{folder}: holds a training of another agent, other settings or other runs.")
    return msgspec.structs.replace(there, steps=asked.steps)


def _drive(configs: Sequence[TrainingConfig], together: MultiTaskTrainer, outs: Sequence[Path]) -> list[Trained]:
    """The loop, and between its calls progress, metrics and checkpoints of every part.

    They are written while the loop goes on: metrics, and checkpoints, which are of the state handed back.
    """
    first, stop = configs[0], threading.Event()
    with on_interrupt(stop), progress("{task.description}") as bar, ThreadPoolExecutor(1) as writer:
        writing: list[Future[None]] = []  # one after another
        lines = [folders.begin(config, out, together.step) for config, out in zip(configs, outs, strict=True)]
        row = bar.add_task(first.agent, total=first.steps, completed=together.step)
        for stage in together.train(
            first.steps, lambda step: (step // first.log_every + 1) * first.log_every, stop.is_set
        ):
            writing.append(writer.submit(_record, configs, outs, lines, stage))
            words = (
                f"{first.agent} × {len(together.runs)} on {len(configs)} tasks  {stage.steps_per_second:.0f} steps/s"
            )
            bar.update(row, completed=stage.step, description=words)
            finished = stage.step >= first.steps or len(together.failures) == len(together.runs)
            if stage.step % first.checkpoint_every == 0 or finished or stop.is_set():
                _finish(writing)
                together.hand_back()
                writing.append(writer.submit(_save, configs, together, outs, finished or stop.is_set()))
        _finish(writing)
    done = [
        Trained(config, trainer.step, [*trainer.policies()], trainer.failures, known, out)
        for config, trainer, known, out in zip(configs, together.parts, lines, outs, strict=True)
    ]
    for trained in done:
        for run, why in trained.failures.items():
            log(f"{trained.config.task}: run {run} ({trained.config.runs[run]}) stopped at {why}.")
    if together.step < first.steps and stop.is_set():
        raise PdocrlInterrupted(f"interrupted at step {together.step}; each folder can be resumed.")
    return done


def _finish(writing: list[Future[None]]) -> None:
    """Wait for what is being written; what went wrong is raised here."""
    while writing:
        writing.pop(0).result()


def _record(
    configs: Sequence[TrainingConfig], outs: Sequence[Path], lines: Sequence[list[dict[str, Any]]], stage: StageMetrics
) -> None:
    for config, out, known, own in zip(configs, outs, lines, _split(stage, configs), strict=True):
        record(own.step, own.metrics, own.steps_per_second, config, out, known, ())


def _save(configs: Sequence[TrainingConfig], together: MultiTaskTrainer, outs: Sequence[Path], last: bool) -> None:
    """All folders at once: digests, files and disks do not wait for one another."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(functools.partial(folders.save, last=last), configs, together.parts, outs))


def _split(stage: StageMetrics, configs: Sequence[TrainingConfig]) -> list[StageMetrics]:
    """Each part's share of a stop."""
    found, start = [], 0
    for config in configs:
        runs = slice(start, start + len(config.runs))
        own = {name: values[runs] for name, values in stage.metrics.items()}
        found.append(StageMetrics(stage.step, stage.steps, own, stage.steps_per_second))
        start += len(config.runs)
    return found
