"""`train`: from a dataset and a few choices to trained policies in a folder, with resume.

out/run.json                what was asked: agent, settings, runs, data and its digest, versions
out/checkpoint.safetensors  the whole state, the last one written
out/policies.npz            the policies of that moment, all that evaluation and export need
out/metrics.jsonl           one line per run and stop: step, metrics
out/evaluations.jsonl       one line per run and evaluation in the simulator, when asked for
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.agents.agent import Agent, find_agent, make_config
from pdocrl.console import log, progress
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import PdocrlError, PdocrlInterrupted
from pdocrl.files import atomic_path, write_json
from pdocrl.policies import policy as policies
from pdocrl.policies.policy import Policy
from pdocrl.training import checkpoint
from pdocrl.training.evaluate_during import DuringTraining
from pdocrl.training.loop import BLOCK, Progress, Run, Trainer
from pdocrl.training.sinks import Sink, open_sinks
from pdocrl.training.window import open_windows

CHECKPOINT = "checkpoint.safetensors"
POLICIES = "policies.npz"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that makes a training what it is; stored as run.json and enough to start it again."""

    data: str  # task name or path, as given
    data_digest: str
    task: str | None
    horizon: int
    cost_names: list[str]
    agent: str
    settings: dict[str, Any]  # the same in all runs
    runs: list[dict[str, Any]]  # per run: cost_limit, seed and the settings it varies
    steps: int
    log_every: int
    checkpoint_every: int
    evaluate_every: int
    evaluate_episodes: int
    versions: dict[str, str]
    window: int = 0  # rows of the file kept on the device at a time; 0: all of them
    refresh_every: int = 0  # steps a window serves

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Plan:
        path = Path(folder) / "run.json"
        try:
            return Plan(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise PdocrlError(f"{folder}: no run.json here; give the folder that `pdocrl train --out` wrote.") from None
        except (ValueError, TypeError) as error:
            raise PdocrlError(f"{path}: not a run of this version of pdocrl ({error}).") from error

    def make_runs(self, agent: Agent[Any, Any]) -> list[Run]:
        """The runs as the loop takes them."""
        made = []
        for run in self.runs:
            varied = {name: value for name, value in run.items() if name not in {"cost_limit", "seed"}}
            settings = {
                **self.settings,
                **varied,
                "cost_limit": tuple(run["cost_limit"]),
                "horizon": float(self.horizon),
            }
            settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
            made.append(Run(make_config(agent, **settings), run["seed"]))
        return made


@dataclasses.dataclass
class Trained:
    """A finished (or loaded) training: one policy per run, and how they came about."""

    plan: Plan
    step: int
    policies: list[Policy]
    failures: dict[int, str]  # run → why it stopped early; its policy is the last whole one
    metrics: list[dict[str, Any]]  # the lines of metrics.jsonl
    folder: Path | None = None


def train(
    data: str | os.PathLike[str] | Dataset,
    agent: str = "pdocrl",
    *,
    task: str | Task | None = None,
    horizon: int | None = None,
    cost_limit: Sequence[float | Sequence[float]] = (10.0, 20.0, 40.0),
    seed: Sequence[int] = (0,),
    steps: int = 100_000,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    out: str | os.PathLike[str] | None = None,
    log_every: int = 1000,
    checkpoint_every: int = 10_000,
    evaluate_every: int = 0,
    evaluate_episodes: int = 5,
    sinks: Sequence[str] = (),
    window: int = 0,
    refresh_every: int = 0,
) -> Trained:
    """Train one policy per cost limit × seed × variant, side by side.

    A limit is the undiscounted cost allowed per episode; with K constraints each limit is a sequence of K numbers. The
    horizon is the task's, or the longest episode in the data. With `out`, everything is kept there and can be resumed.

    With `window`, only so many transitions of the file are held at a time, for files larger than memory. They are drawn
    anew every `refresh_every` steps; by default when a run has used each about once. See `pdocrl.training.window`.
    """
    chosen = find_agent(agent)
    # A misspelt setting is told before any data is read.
    batch_size = make_config(chosen, **dict(settings or {})).batch_size
    if window and not refresh_every:
        refresh_every = -(-window // (batch_size * BLOCK)) * BLOCK
    limits = [(float(c),) if isinstance(c, int | float) else tuple(float(x) for x in c) for c in cost_limit]
    if any(value < 0 or not np.isfinite(value) for limit in limits for value in limit):
        raise PdocrlError(f"cost limits must be numbers of at least 0: {limits}.")
    if steps < 1:
        raise PdocrlError(f"steps is {steps}, must be at least 1.")
    with _open(data, task, window, refresh_every) as dataset:
        spec = _task(data, task)
        varied: dict[str, Sequence[Any]] = dict(vary or {})
        runs: list[dict[str, Any]] = [
            {"cost_limit": list(limit), "seed": int(s), **dict(zip(varied, choice, strict=True))}
            for limit in (limits if dataset.n_costs else [()])
            for choice in itertools.product(*varied.values())
            for s in seed
        ]
        plan = Plan(
            data=dataset.name if isinstance(data, Dataset) else os.fspath(data),
            data_digest=dataset.digest,
            task=spec.name if spec else None,
            horizon=horizon or (spec.horizon if spec else dataset.longest_episode),
            cost_names=list(dataset.cost_names),
            agent=agent,
            settings=dict(settings or {}),
            runs=runs,
            steps=steps,
            log_every=log_every,
            checkpoint_every=checkpoint_every,
            evaluate_every=evaluate_every,
            evaluate_episodes=evaluate_episodes,
            versions=versions(),
            window=window,
            refresh_every=refresh_every,
        )
        trainer = Trainer(chosen, dataset, plan.make_runs(chosen))
        folder = None if out is None else Path(out)
        if folder is not None and (folder / CHECKPOINT).exists():
            raise PdocrlError(f"{folder}: holds a training already. Go on with `pdocrl train --resume {folder}`.")
        return _drive(plan, trainer, folder, sinks)


def resume(
    folder: str | os.PathLike[str], data: str | os.PathLike[str] | Dataset | None = None, sinks: Sequence[str] = ()
) -> Trained:
    """Go on with a training that was stopped, to the same bits as if it had not been."""
    folder = Path(folder)
    plan = Plan.read(folder)
    with _open(plan.data if data is None else data, plan.task, plan.window, plan.refresh_every) as dataset:
        trainer = restore(folder, plan, dataset) if (folder / CHECKPOINT).exists() else None
        if trainer is None:
            _check_data(folder, plan, dataset)
            agent = find_agent(plan.agent)
            trainer = Trainer(agent, dataset, plan.make_runs(agent))
        return _drive(plan, trainer, folder, sinks)


def restore(folder: Path, plan: Plan, dataset: Dataset) -> Trainer:
    """The trainer as its checkpoint left it; refused when the data, the agent or the version is another."""
    _check_data(folder, plan, dataset)
    story = checkpoint.read_story(folder / CHECKPOINT)
    for what, here in {"agent": plan.agent, "data_digest": plan.data_digest, "runs": plan.runs}.items():
        if story[what] != here:
            raise PdocrlError(f"{folder}: the checkpoint's {what} is not that of run.json; they are of two trainings.")
    if story["versions"]["pdocrl"] != version("pdocrl"):
        made_by = story["versions"]["pdocrl"]
        raise PdocrlError(f"{folder}: made by pdocrl {made_by}, this is {version('pdocrl')}. Go on with that version.")
    agent = find_agent(plan.agent)
    trainer = Trainer(agent, dataset, plan.make_runs(agent))
    trainer.state, _ = checkpoint.load(folder / CHECKPOINT, trainer.state)
    trainer.step = story["step"]
    trainer.failures = {int(run): why for run, why in story["failures"].items()}
    return trainer


def load_trained(folder: str | os.PathLike[str]) -> Trained:
    """The policies a training has reached. Needs neither the dataset nor the optimisers' state."""
    folder = Path(folder)
    plan = Plan.read(folder)
    try:
        found, story = policies.load_all(folder / POLICIES)
    except FileNotFoundError:
        raise PdocrlError(f"{folder}: no policies yet. Was the training stopped before its first checkpoint?") from None
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise PdocrlError(f"{folder / POLICIES}: cannot be read ({error}).") from error
    failures = {int(run): why for run, why in story["failures"].items()}
    return Trained(plan, story["step"], found, failures, read_lines(folder / "metrics.jsonl"), folder)


def _drive(plan: Plan, trainer: Trainer, folder: Path | None, sinks: Sequence[str]) -> Trained:
    """Run the loop and do between its calls what people want to see: progress, metrics, checkpoints, evaluations."""
    lines = _keep_lines(folder, trainer.step)
    every = int(np.gcd.reduce([n for n in (plan.log_every, plan.checkpoint_every, plan.evaluate_every) if n > 0]))
    stop = threading.Event()
    with (
        _on_interrupt(stop),
        open_sinks(sinks, folder, plan.runs) as outputs,
        DuringTraining(plan, folder) as evaluations,
        progress("{task.description}") as bar,
    ):
        if folder is not None:  # not before: what cannot begin leaves nothing behind
            write_json(folder / "run.json", dataclasses.asdict(plan))
        row = bar.add_task(plan.agent, total=plan.steps, completed=trainer.step)
        pending: list[Progress] = []
        for stage in trainer.train(plan.steps, every, stop.is_set):
            pending.append(stage)
            finished = stage.step >= plan.steps or len(trainer.failures) == len(trainer.runs)
            if stage.step % plan.log_every == 0 or finished or stop.is_set():
                _record(_mean(pending), plan, folder, lines, outputs)
                pending = []
            bar.update(row, completed=stage.step, description=_describe(plan, stage))
            if plan.evaluate_every and (stage.step % plan.evaluate_every == 0 or finished):
                evaluations.submit(stage.step, trainer.policies())
            if folder is not None and (stage.step % plan.checkpoint_every == 0 or finished or stop.is_set()):
                _save(plan, trainer, folder)
    for run, why in trainer.failures.items():
        log(f"run {run} ({plan.runs[run]}) stopped at {why}; its policy is the last whole one.")
    if stop.is_set() and trainer.step < plan.steps:
        if folder is None:
            raise PdocrlInterrupted(
                f"interrupted at step {trainer.step}; nothing was kept, because no --out was given."
            )
        _save(plan, trainer, folder)
        raise PdocrlInterrupted(f"interrupted at step {trainer.step}. Go on with: pdocrl train --resume {folder}")
    return Trained(plan, trainer.step, trainer.policies(), trainer.failures, lines, folder)


def _save(plan: Plan, trainer: Trainer, folder: Path) -> None:
    story = {
        "agent": plan.agent,
        "data_digest": plan.data_digest,
        "runs": plan.runs,
        "step": trainer.step,
        "failures": trainer.failures,
        "problem": dataclasses.asdict(trainer.problem),
        "versions": plan.versions,
    }
    with atomic_path(folder / POLICIES) as path:
        policies.save(path, trainer.policies(), {"step": trainer.step, "failures": trainer.failures})
    checkpoint.save(folder / CHECKPOINT, trainer.state, story)


def _record(
    stage: Progress, plan: Plan, folder: Path | None, lines: list[dict[str, Any]], outputs: Sequence[Sink]
) -> None:
    """One line per living run."""
    new = []
    for i, run in enumerate(plan.runs):
        values = {name: float(value[i]) for name, value in stage.metrics.items()}
        if all(np.isfinite(value) for value in values.values()):
            new.append(
                {"step": stage.step, "run": i, **run, "steps_per_second": stage.steps_per_second, "metrics": values}
            )
    lines += new
    if folder is not None:
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in new)
    for output in outputs:
        output.write(stage.step, new)


def _mean(stages: Sequence[Progress]) -> Progress:
    """Several stops as one; they are equally long, but for the last."""
    metrics = {name: np.mean([s.metrics[name] for s in stages], axis=0) for name in stages[-1].metrics}
    return Progress(stages[-1].step, metrics, float(np.mean([s.steps_per_second for s in stages])))


def _describe(plan: Plan, stage: Progress) -> str:
    shown = [n for n in ("lambda", "lambda_0", "q", "w", "actor_loss") if n in stage.metrics][:3]
    values = " ".join(f"{name} {np.nanmean(stage.metrics[name]):.3g}" for name in shown)
    return f"{plan.agent} × {len(plan.runs)}  {stage.steps_per_second:.0f} steps/s  {values}"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a last line cut by a kill is dropped."""
    found: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def train_seconds(metrics: list[dict[str, Any]]) -> float | None:
    """Time in the training loop, from the rates it logged; None where it logged none."""
    seconds, before = 0.0, 0
    for line in metrics:
        if line["step"] > before:
            seconds += (line["step"] - before) / line["steps_per_second"]
            before = line["step"]
    return seconds if before else None


def _keep_lines(folder: Path | None, step: int) -> list[dict[str, Any]]:
    """Forget the lines a killed training wrote after its last checkpoint: they will be written again."""
    if folder is None:
        return []
    kept: list[dict[str, Any]] = []
    for name in ("evaluations.jsonl", "metrics.jsonl"):
        path = folder / name
        kept = [line for line in read_lines(path) if line["step"] <= step]
        if path.exists():
            path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return kept


@contextlib.contextmanager
def _on_interrupt(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C asks the loop to stop at the next call; a second one breaks off at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log("stopping after this call; once more breaks off at once …")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _open(
    data: str | os.PathLike[str] | Dataset, task: str | Task | None, window: int, refresh_every: int
) -> Iterator[Dataset]:
    """The dataset in memory, or with `window` the windows over its file."""
    if not window:
        yield data if isinstance(data, Dataset) else load(data, task)
    elif isinstance(data, Dataset):
        raise PdocrlError(f"{data.name}: is in memory already; a window is for files. Train without one.")
    else:
        with open_windows(data, task, window, refresh_every) as sample:
            yield sample


def _task(data: str | os.PathLike[str] | Dataset, task: str | Task | None) -> Task | None:
    """The task given, or the one whose name the data was asked by, or whose file it is."""
    if task is not None:
        return task if isinstance(task, Task) else find_task(task)
    name = data.name if isinstance(data, Dataset) else os.fspath(data)
    stem = Path(name).stem.split("-v")[0].removeprefix("Safety")
    try:
        return find_task(stem)
    except PdocrlError:
        return None


def _check_data(folder: Path, plan: Plan, dataset: Dataset) -> None:
    if dataset.digest != plan.data_digest:
        raise PdocrlError(
            f"{folder}: trained on data of digest {plan.data_digest[:12]}…, {dataset.name} has {dataset.digest[:12]}…; "
            "give the file it was trained on."
        )


def versions() -> dict[str, str]:
    """The versions a result depends on."""
    return {name: version(name) for name in ("pdocrl", "jax", "equinox", "optax", "numpy")}
