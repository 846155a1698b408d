"""`train` and `resume`: from a dataset and a few settings to trained policies, in a folder that can be resumed.

plan.py (what is asked) → folder.py (where it lies) → loop.py (how it runs) → here: progress, metrics, checkpoints
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.console import log, progress
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError, PdocrlInterrupted
from pdocrl.training import folder as folders
from pdocrl.training.buffer import open_buffers
from pdocrl.training.callbacks import DuringTraining, Logger, open_loggers
from pdocrl.training.config import (
    Limits,
    TrainingConfig,
    limits_of,
    place_of,
    refuse_numbers,
    refuse_other_dimensions,
    runs_of,
    seeds_of,
    task_of,
)
from pdocrl.training.folder import CHECKPOINT, Trained, locked
from pdocrl.training.trainer import BLOCK, Progress, Trainer, warm_up

LIMITS = (10.0, 20.0, 40.0)  # DSRL's, where none is asked for


def train(
    data: str | os.PathLike[str] | Dataset,
    agent: str = "dial",
    *,
    task: str | Task | None = None,
    horizon: int | None = None,
    cost_limit: Limits = LIMITS,
    seed: int | Sequence[int] = 0,
    steps: int = 100_000,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    out: str | os.PathLike[str] | None = None,
    log_every: int = 1000,
    checkpoint_every: int = 10_000,
    evaluate_every: int = 0,
    evaluate_episodes: int = 5,
    loggers: Sequence[str] = (),
    buffer_size: int = 0,
    refresh_every: int = 0,
) -> Trained:
    """Train one policy per cost limit × seed × variant, side by side.

    A limit is the undiscounted cost allowed per episode; with K constraints each limit is a sequence of K numbers. The
    horizon is the task's, or the longest episode in the data. With `out`, everything is kept there and can be resumed.

    With `buffer_size`, training uses a random subset of so many rows of the file, for files larger than memory. It is
    resampled every `refresh_every` steps; by default when a run has used each row about once. See
    `pdocrl.training.buffer`.
    """
    chosen = find_agent(agent)
    # What cannot be is told before any data is read.
    batch_size = make_config(chosen, **dict(settings or {})).batch_size
    refuse_numbers(
        steps=(steps, 1),
        log_every=(log_every, 1),
        checkpoint_every=(checkpoint_every, 1),
        horizon=(horizon, 1),
        evaluate_every=(evaluate_every, 0),
        evaluate_episodes=(evaluate_episodes, 1),
        buffer_size=(buffer_size, 0),
        refresh_every=(refresh_every, 0),
    )
    limits, seeds, spec = limits_of(cost_limit), seeds_of(seed), task_of(data, task)
    if buffer_size and not refresh_every:
        refresh_every = -(-buffer_size // (batch_size * BLOCK)) * BLOCK
    folder = None if out is None else Path(out)
    with locked(folder):
        if folder is not None and (folder / CHECKPOINT).exists():
            raise PdocrlError(f"{folder}: holds a training already. Go on with `pdocrl train --resume {folder}`.")
        with _open(data, task, buffer_size, refresh_every) as dataset:
            refuse_other_dimensions(dataset, spec)
            if not dataset.n_costs and cost_limit == LIMITS:
                limits = [()]  # a limit that was asked for is not left out in silence
            config = TrainingConfig.of(
                dataset,
                place_of(data),
                spec,
                agent,
                settings=dict(settings or {}),
                horizon=horizon,
                steps=steps,
                runs=runs_of(limits, seeds, dict(vary or {})),
                log_every=log_every,
                checkpoint_every=checkpoint_every,
                evaluate_every=evaluate_every,
                evaluate_episodes=evaluate_episodes,
                buffer_size=buffer_size,
                refresh_every=refresh_every,
            )
            if dataset.longest_episode > config.horizon:
                log(
                    f"{dataset.name}: some episodes are longer than the horizon of {config.horizon} steps (longest: "
                    f"{dataset.longest_episode}). A limit is for a whole episode: is the horizon right?"
                )
            trainer = Trainer(chosen, dataset, config.make_runs(chosen))
            return _drive(config, trainer, folder, loggers)


def resume(
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | Dataset | None = None,
    *,
    steps: int | None = None,
    loggers: Sequence[str] = (),
) -> Trained:
    """Go on with a training that was stopped, to the same bits as if it had not been; to more `steps`, where given."""
    folder = Path(folder)
    config = TrainingConfig.read(folder)
    with (
        locked(folder),
        _open(config.data if data is None else data, config.task, config.buffer_size, config.refresh_every) as dataset,
    ):
        trainer = folders.restore(folder, config, dataset)
        if steps is not None:
            if steps < trainer.step:
                raise PdocrlError(f"{folder}: is at step {trainer.step} already, beyond the {steps} asked for.")
            config = msgspec.structs.replace(config, steps=steps)
        return _drive(config, trainer, folder, loggers)


def _drive(config: TrainingConfig, trainer: Trainer, folder: Path | None, loggers: Sequence[str]) -> Trained:
    """Run the loop and do between its calls what people want to see: progress, metrics, checkpoints, evaluations."""
    every = int(np.gcd.reduce([n for n in (config.log_every, config.checkpoint_every, config.evaluate_every) if n > 0]))
    stop = threading.Event()
    with (
        on_interrupt(stop),
        open_loggers(loggers, folder, config.runs) as outputs,
        DuringTraining(config, folder) as evaluations,
        progress("{task.description}") as bar,
    ):
        lines = folders.begin(config, folder, trainer.step)  # not before: what cannot begin leaves nothing behind
        row = bar.add_task(config.agent, total=config.steps, completed=trainer.step)
        pending: list[Progress] = []
        for stage in trainer.train(config.steps, every, stop.is_set):
            pending.append(stage)
            finished = stage.step >= config.steps or len(trainer.failures) == len(trainer.runs)
            if stage.step % config.log_every == 0 or finished or stop.is_set():
                record(_mean(pending), config, folder, lines, outputs)
                pending = []
            bar.update(row, completed=stage.step, description=_describe(config, stage))
            if config.evaluate_every and (stage.step % config.evaluate_every == 0 or finished):
                evaluations.submit(stage.step, [*trainer.policies()])
            if folder is not None and (stage.step % config.checkpoint_every == 0 or finished):
                folders.save(config, trainer, folder, last=finished)
    for run, why in trainer.failures.items():
        log(f"run {run} ({config.runs[run]}) stopped at {why}; its policy is the last whole one.")
    if stop.is_set() and trainer.step < config.steps:
        if folder is None:
            raise PdocrlInterrupted(
                f"interrupted at step {trainer.step}; nothing was kept, because no --out was given."
            )
        folders.save(config, trainer, folder, last=True)
        raise PdocrlInterrupted(f"interrupted at step {trainer.step}. Go on with: pdocrl train --resume {folder}")
    return Trained(config, trainer.step, [*trainer.policies()], trainer.failures, lines, folder)


def record(
    stage: Progress, config: TrainingConfig, folder: Path | None, lines: list[dict[str, Any]], outputs: Sequence[Logger]
) -> None:
    """One line per living run."""
    new = []
    for i, run in enumerate(config.runs):
        values = {name: float(value[i]) for name, value in stage.metrics.items()}
        if all(np.isfinite(value) for value in values.values()):
            new.append(
                {"step": stage.step, "run": i, **run, "steps_per_second": stage.steps_per_second, "metrics": values}
            )
    lines += new
    if folder is not None:
        folders.add_lines(folder, folders.METRICS, new)
    for output in outputs:
        output.write(stage.step, new)


def _mean(stages: Sequence[Progress]) -> Progress:
    """Several stops as one; they are equally long, but for the last."""
    metrics = {name: np.mean([s.metrics[name] for s in stages], axis=0) for name in stages[-1].metrics}
    return Progress(stages[-1].step, metrics, float(np.mean([s.steps_per_second for s in stages])))


def _describe(config: TrainingConfig, stage: Progress) -> str:
    shown = [n for n in ("lambda", "lambda_0", "q", "w", "actor_loss") if n in stage.metrics][:3]
    values = " ".join(f"{name} {np.nanmean(stage.metrics[name]):.3g}" for name in shown)
    return f"{config.agent} × {len(config.runs)}  {stage.steps_per_second:.0f} steps/s  {values}"


@contextlib.contextmanager
def on_interrupt(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C, or a polite request to end (SIGTERM), asks the loop to stop at the next call; a second one
    breaks off at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log("stopping after this call; once more breaks off at once …")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _open(
    data: str | os.PathLike[str] | Dataset, task: str | Task | None, buffer_size: int, refresh_every: int
) -> Iterator[Dataset]:
    """The dataset in memory, or with `buffer_size` random subsets of its file."""
    if not isinstance(data, Dataset):
        warm_up()
    if not buffer_size:
        yield data if isinstance(data, Dataset) else load(data, task)
    elif isinstance(data, Dataset):
        raise PdocrlError(f"{data.name}: is in memory already; buffer_size is for files. Leave it out.")
    else:
        with open_buffers(data, task, buffer_size, refresh_every) as sample:
            yield sample
