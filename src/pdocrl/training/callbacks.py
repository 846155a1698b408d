"""What leaves a training on the way: policies to worker processes that play them, metrics to TensorBoard and W&B.

Results are written when they come. The sinks beside metrics.jsonl are there only when installed and asked for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from pdocrl.data.tasks import find_task
from pdocrl.errors import MissingExtraError, PdocrlError, UnknownNameError
from pdocrl.policies.policy import Policy


class DuringTraining:
    """One line per run and evaluation in evaluations.jsonl: step, mean reward and costs of its episodes.

    Roll-outs share the machine with the training on a CPU and cost it nothing on an accelerator; either way the loop
    never waits for them until the end.
    """

    def __init__(self, config: Any, folder: Path | None) -> None:
        self._plan, self._folder = config, folder
        self._pool: Any = None
        self._waiting: list[tuple[int, Future[Any]]] = []
        if config.evaluate_every:
            from pdocrl.envs.rollout import Rollouts

            task = find_task(config.task) if config.task else None
            if task is None or task.env_id is None:
                raise PdocrlError("evaluation during training needs a task with a simulator: give --task.")
            if folder is None:
                raise PdocrlError("evaluation during training needs a folder for its results: give --out.")
            self._pool = Rollouts(task.name, costs=tuple(config.cost_names))

    def submit(self, step: int, policies: list[Policy]) -> None:
        self._waiting.append((step, self._pool.submit(policies, self._plan.evaluate_episodes)))
        self._write(wait=False)

    def _write(self, wait: bool) -> None:
        while self._waiting and (wait or self._waiting[0][1].done()):
            step, future = self._waiting.pop(0)
            episodes = future.result()
            assert self._folder is not None
            with (self._folder / "evaluations.jsonl").open("a", encoding="utf-8") as file:
                for i, run in enumerate(self._plan.runs):
                    own = episodes.of_policy(i)
                    line = {
                        "step": step,
                        "run": i,
                        **run,
                        "reward": own.reward.mean(),
                        "cost": own.cost.mean(0).tolist(),
                    }
                    file.write(json.dumps(line) + "\n")

    def __enter__(self) -> DuringTraining:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            try:
                self._write(wait=kind is None)
            finally:
                self._pool.close()


KNOWN = ("tensorboard", "wandb")


class Logger(Protocol):
    """Takes the metric lines of one stop."""

    def write(self, step: int, lines: Sequence[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def open_loggers(names: Sequence[str], folder: Path | None, runs: Sequence[dict[str, Any]]) -> Iterator[list[Logger]]:
    """The sinks of these names, closed at the end."""
    opened: list[Logger] = []
    try:
        for name in names:
            if name not in KNOWN:
                raise UnknownNameError("logger", name, KNOWN)
            if folder is None:
                raise PdocrlError(f"{name} needs a folder: give --out.")
            opened.append(_TensorBoard(folder, runs) if name == "tensorboard" else _WandB(folder, runs))
        yield opened
    finally:
        for sink in opened:
            sink.close()


def _label(run: dict[str, Any]) -> str:
    return "_".join(f"{key}={value}" for key, value in run.items()).replace(" ", "")


class _TensorBoard:
    """One curve per run and metric, in folder/tensorboard."""

    def __init__(self, folder: Path, runs: Sequence[dict[str, Any]]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError("TensorBoard logging", "tensorboard") from None
        self._writers = [SummaryWriter(str(folder / "tensorboard" / _label(run))) for run in runs]

    def write(self, step: int, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:
            for name, value in line["metrics"].items():
                self._writers[line["run"]].add_scalar(name, value, step)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class _WandB:
    """One W&B run for the whole call; curves named run/metric. Mode and account are W&B's own settings."""

    def __init__(self, folder: Path, runs: Sequence[dict[str, Any]]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("Weights & Biases logging", "wandb") from None
        self._labels = [_label(run) for run in runs]
        self._run = wandb.init(project="pdocrl", dir=str(folder), config={"runs": list(runs)})

    def write(self, step: int, lines: Sequence[dict[str, Any]]) -> None:
        values = {f"{self._labels[line['run']]}/{n}": v for line in lines for n, v in line["metrics"].items()}
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()
