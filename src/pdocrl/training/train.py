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
from typing import Any, Literal

import msgspec
import numpy as np

from pdocrl import deprecations
from pdocrl.agents.base import Agent, AgentConfig, changed_settings, make_config
from pdocrl.agents.registry import as_agent
from pdocrl.console import log
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import place_exists
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError, PdocrlInterrupted, by_door
from pdocrl.policies.policy import Policy
from pdocrl.training import folder as folders
from pdocrl.training.buffer import open_buffers
from pdocrl.training.callbacks import Callback, Evaluate, EvaluateTask, Metrics, Progress, TrainingView, as_callbacks
from pdocrl.training.config import (
    BENCHMARK,
    Limits,
    TrainingConfig,
    default_limits,
    limits_of,
    place_of,
    refuse_numbers,
    refuse_other_dimensions,
    run_limits,
    runs_of,
    seeds_of,
    task_of,
)
from pdocrl.training.final_state import FinalState
from pdocrl.training.folder import CHECKPOINT, Trained, locked
from pdocrl.training.loggers import Logger, open_loggers
from pdocrl.training.schedule import Schedule
from pdocrl.training.trainer import BLOCK, Trainer, check_data, multiples, warm_up


def train(
    data: str | os.PathLike[str] | Dataset,
    agent: str | type[Agent[Any, Any]] | Agent[Any, Any] = "dial",
    *,
    config: AgentConfig | None = None,
    cost_limit: Limits | Literal["benchmark"] | None = None,
    seed: int | Sequence[int] = 0,
    steps: int = 100_000,
    vary: Mapping[str, Sequence[Any]] | None = None,
    task: str | Task | None = None,
    horizon: int | None = None,
    out: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    loggers: Sequence[str | Logger] = (),
    eval_env: Any = None,
    evaluate_every: int = 0,
    evaluate_episodes: int = 5,
    log_every: int = 1000,
    checkpoint_every: int = 10_000,
    buffer_size: int = 0,
    refresh_every: int = 0,
    settings: Mapping[str, Any] | None = None,
    **more_settings: Any,
) -> Trained:
    """Train one policy per cost limit × seed × variant, side by side.

        trained = pdocrl.train(data, "cpq", cost_limit=[10, 20], seed=[0, 1], steps=50_000, hidden=[128, 128])
        trained = pdocrl.train(data, MyAgent, config=MyConfig(pull=2.0), callbacks=[...], eval_env=make_env)

    Args:
        data: a dataset, a task's name, or a file.
        agent: the method: a name of `pdocrl agents`, a class derived from `pdocrl.Agent`, or an instance of one.
        config: the agent's config; the same as giving its fields as keywords (`hidden=(64, 64)`), which win over it.
        cost_limit: undiscounted cost allowed per episode. One number; a sequence, for one run each; with K
            constraints a sequence of sequences of K numbers. Of `dial` also limits on tails, "P(cost>20)<=0.1", and
            lists of limits that hold together. "benchmark": DSRL's 10, 20 and 40. None: agents that
            serve every limit are trained once, and their policy is told the limit when it acts; others refuse.
        seed: one run per seed and limit.
        steps: gradient steps.
        vary: settings with several values each; every combination becomes a run.
        task: gives horizon, reference scores and simulator when the data is not a task's own.
        horizon: steps of a full episode; default: the task's, or the longest episode in the data.
        out: folder for checkpoints, policies and metrics; it can be resumed.
        callbacks: `pdocrl.callbacks.Callback` objects, or functions of the view, called every `log_every` steps.
        loggers: names ("tensorboard", "wandb") or `pdocrl.loggers.Logger` objects.
        eval_env: a function that makes an environment (or an id), played every `evaluate_every` steps; without it the
            task's simulator is.
        evaluate_every: steps between evaluations; 0: none, or 10 in all where `eval_env` is given.
        evaluate_episodes: episodes of each evaluation and policy.
        log_every: steps between lines of metrics.
        checkpoint_every: steps between checkpoints.
        buffer_size: train on a random subset of so many rows, for files larger than memory; see
            `pdocrl.training.buffer`.
        refresh_every: steps between resamplings of that subset; default: when each row was used about once.
        settings: settings of the agent in one mapping, for names that are also arguments here.
        more_settings: settings of the agent, the same in all runs.
    """
    chosen = as_agent(agent)
    given = _settings(chosen, config, {**(settings or {}), **more_settings})
    # What cannot be is told before any data is read.
    batch_size = make_config(chosen, **given).batch_size
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
    if cost_limit is None and config is not None and config.cost_limit:
        cost_limit = [config.cost_limit]
    if horizon is None and config is not None and config.horizon != type(config)().horizon:
        horizon = int(config.horizon)
    asked = None if cost_limit is None or cost_limit == BENCHMARK else limits_of(cost_limit)
    seeds, spec = seeds_of(seed), task_of(data, task)
    if buffer_size and not refresh_every:
        refresh_every = -(-buffer_size // (batch_size * BLOCK)) * BLOCK
    callbacks = list(callbacks)
    if eval_env is not None:
        callbacks.insert(0, Evaluate(eval_env, evaluate_every or max(1, steps // 10), evaluate_episodes))
        evaluate_every = 0
    elif evaluate_every and out is None and spec is not None and spec.env_id is not None:
        callbacks.insert(0, Evaluate(spec.name, evaluate_every, evaluate_episodes))  # kept in memory
        evaluate_every = 0
    folder = None if out is None else Path(out)
    with locked(folder):
        if folder is not None and (folder / CHECKPOINT).exists():
            raise PdocrlError(f"{folder}: holds a training already. Go on with {folders.how_to_resume(folder)}.")
        with _open(data, task, buffer_size, refresh_every) as dataset:
            refuse_other_dimensions(dataset, spec)
            check_data(chosen, dataset)
            limits = asked or default_limits(chosen, make_config(chosen, **given), dataset, cost_limit == BENCHMARK)
            longest = horizon or (spec.horizon if spec else dataset.longest_episode)
            told = run_limits(limits, dataset.cost_names, longest, chosen)
            planned = TrainingConfig.of(
                dataset,
                place_of(data),
                spec,
                chosen,
                settings=given,
                horizon=horizon,
                steps=steps,
                runs=runs_of(told, seeds, dict(vary or {})),
                default_limit=cost_limit is None,
                log_every=log_every,
                checkpoint_every=checkpoint_every,
                evaluate_every=evaluate_every,
                evaluate_episodes=evaluate_episodes,
                buffer_size=buffer_size,
                refresh_every=refresh_every,
            )
            if dataset.longest_episode > planned.horizon:
                log(
                    f"{dataset.name}: some episodes are longer than the horizon of {planned.horizon} steps (longest: "
                    f"{dataset.longest_episode}). A limit is for a whole episode: is the horizon right?"
                )
            trainer = Trainer(chosen, dataset, planned.make_runs(chosen))
            planned = msgspec.structs.replace(planned, training=trainer.training.tolist())
            return _drive(planned, trainer, folder, loggers, callbacks)


def _settings(agent: Agent[Any, Any], config: AgentConfig | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config object and of keywords, under their names of today."""
    if config is None:
        return deprecations.settings(agent.name, given)
    if not isinstance(config, agent.Config):
        raise PdocrlError(
            f"config is a {type(config).__name__}, {agent.name} takes a {agent.Config.__name__}: "
            f"config={agent.Config.__name__}(…)."
        )
    return changed_settings(config) | deprecations.settings(agent.name, given)


def resume(
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | Dataset | None = None,
    *,
    steps: int | None = None,
    callbacks: Sequence[Any] = (),
    loggers: Sequence[str | Logger] = (),
    agent: Any = None,
) -> Trained:
    """Go on with a training that was stopped, to the same bits as if it had not been.

    Args:
        folder: what `train(out=…)` wrote.
        data: the dataset it was trained on, where the record cannot find it again.
        steps: go on to so many; default: as many as were asked for.
        callbacks: as of `train`; those of the same kinds go on with what they remembered.
        loggers: as of `train`.
        agent: the class, of an agent that is in no package and not defined in this process.
    """
    folder = Path(folder)
    config = TrainingConfig.read(folder)
    if data is None and not place_exists(config.data):
        gone = "is not there any more" if os.path.isabs(config.data) else "was in memory, or a part of a file"
        raise PdocrlError(f"{folder}: its data, {config.data}, {gone}; give it: pdocrl.resume({str(folder)!r}, data).")
    with (
        locked(folder),
        _open(config.data if data is None else data, config.task, config.buffer_size, config.refresh_every) as dataset,
    ):
        trainer = folders.restore(folder, config, dataset, None if agent is None else as_agent(agent))
        if steps is not None:
            if steps < trainer.step:
                raise PdocrlError(f"{folder}: is at step {trainer.step} already, beyond the {steps} asked for.")
            config = msgspec.structs.replace(config, steps=steps)
        return _drive(config, trainer, folder, loggers, callbacks)


class _Record(Callback):
    """The lines of metrics.jsonl, and of the loggers."""

    def __init__(self, every: int, lines: list[dict[str, Any]], loggers: Sequence[Logger]) -> None:
        self.every, self._lines, self._loggers = every, lines, loggers

    def __call__(self, view: TrainingView) -> None:
        record(view.step, view.recent, view.steps_per_second, view.config, view.folder, self._lines, self._loggers)
        view.unwritten.clear()


def _drive(
    config: TrainingConfig,
    trainer: Trainer,
    folder: Path | None,
    loggers: Sequence[str | Logger],
    callbacks: Sequence[Any],
) -> Trained:
    """Run the trainer and call what is due between its steps: callbacks, metrics, progress, checkpoints."""
    own = as_callbacks(callbacks, config.log_every)
    if config.evaluate_every:
        own.append(EvaluateTask(config.evaluate_every, config.evaluate_episodes))
    checkpoints = [] if folder is None else folders.read_callbacks(folder)
    view = TrainingView(config, trainer, folder)
    stop = threading.Event()
    with on_interrupt(stop), open_loggers(loggers, folder, config.runs) as outputs:
        lines: list[dict[str, Any]] = []
        own += [_Record(config.log_every, lines, outputs), Progress()]
        schedule = Schedule(own)
        schedule.recall(checkpoints)
        with contextlib.ExitStack() as ends:
            view.failed = True
            for callback in own:
                callback.begin(view)
                ends.callback(callback.end, view)
            lines += folders.begin(config, folder, trainer.step)  # not before: what cannot begin leaves nothing behind
            saved = multiples(config.checkpoint_every)
            for stage in trainer.train(
                config.steps,
                lambda step: min(schedule.next_stop(step), saved(step)),
                stop.is_set,
            ):
                interrupted = stop.is_set() and stage.step < config.steps
                done = stage.step >= config.steps or len(trainer.failures) == len(trainer.runs)
                view.steps_per_second = stage.steps_per_second
                schedule.call(view, stage, finished=done and not interrupted, skip=interrupted)
                if view.stopped and not done:
                    schedule.finish(view)
                    done = True
                if folder is not None and (done or interrupted or stage.step % config.checkpoint_every == 0):
                    folders.save(config, trainer, folder, last=done or interrupted, callbacks=schedule.memory())
                if done or interrupted:
                    break
            view.failed = stop.is_set() and trainer.step < config.steps and not view.stopped
    for run, why in trainer.failures.items():
        log(f"run {run} ({config.runs[run]}) stopped at {why}; its policy is the last whole one.")
    if view.failed:
        if folder is None:
            raise PdocrlInterrupted(
                f"interrupted at step {trainer.step}; nothing was kept, because no folder was given "
                f"({by_door('out=…', '--out')})."
            )
        raise PdocrlInterrupted(f"interrupted at step {trainer.step}. Go on with {folders.how_to_resume(folder)}")
    if view.stopped:
        log(f"stopped at step {trainer.step:,}: {view.stopped}.")
    made: list[Policy] = [*trainer.policies()]
    return Trained(config, trainer.step, made, trainer.failures, lines, folder, view.stopped, FinalState.of(trainer))


def record(
    step: int,
    metrics: Metrics,
    rate: float,
    config: TrainingConfig,
    folder: Path | None,
    lines: list[dict[str, Any]],
    outputs: Sequence[Logger],
) -> None:
    """One line per run whose metrics are finite."""
    new = []
    for i, run in enumerate(config.runs):
        values = {name: float(value[i]) for name, value in metrics.items()}
        if values and all(np.isfinite(value) for value in values.values()):
            new.append({"step": step, "run": i, **run, "steps_per_second": rate, "metrics": values})
    lines += new
    if folder is not None:
        folders.add_lines(folder, folders.METRICS, new)
    for output in outputs:
        output.write(step, new)


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
