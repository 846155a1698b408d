"""Where metrics go besides metrics.jsonl: TensorBoard and Weights & Biases, only when installed and asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pdocrl.errors import MissingExtraError, PdocrlError, UnknownNameError

KNOWN = ("tensorboard", "wandb")


class Sink(Protocol):
    """Takes the metric lines of one stop."""

    def write(self, step: int, lines: Sequence[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def open_sinks(names: Sequence[str], folder: Path | None, runs: Sequence[dict[str, Any]]) -> Iterator[list[Sink]]:
    """The sinks of these names, closed at the end."""
    opened: list[Sink] = []
    try:
        for name in names:
            if name not in KNOWN:
                raise UnknownNameError("sink", name, KNOWN)
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
