"""Metric loggers: where the metrics of a training go beside metrics.jsonl.

    train(data, loggers=["tensorboard", History(), CSVLogger("curves.csv")])

A logger is given the lines of metrics each time they are written, one line per run:

    {"step": 2000, "run": 0, "cost_limit": [20.0], "seed": 0, "metrics": {"critic_loss": 0.31, "q": 8.2}}
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import MissingExtraError, PdocrlError, UnknownNameError, by_door
from pdocrl.files import naming

Line = Mapping[str, Any]


class Logger:
    """Takes the lines of metrics. `open` is called once before training, `close` once after it, also on an error."""

    def open(self, runs: Sequence[dict[str, Any]], folder: Path | None) -> None:
        """Called before training with the runs (cost limit, seed, varied settings) and the folder, if there is one."""

    def write(self, step: int, lines: Sequence[Line]) -> None:
        """Called with one line per run that has finite metrics."""
        raise NotImplementedError(f"logger {type(self).__name__} has no `write`")

    def close(self) -> None:
        """Called after training."""


class History(Logger):
    """Metrics in memory: `history["q"]` is [T, R], one row per logged step and one column per run; NaN where none."""

    def __init__(self, lines: Sequence[Line] = ()) -> None:
        self.lines = list(lines)

    def write(self, step: int, lines: Sequence[Line]) -> None:
        self.lines.extend(lines)

    @property
    def steps(self) -> NDArray[np.int64]:
        """[T] the logged steps."""
        return np.unique([int(line["step"]) for line in self.lines]).astype(np.int64)

    @property
    def names(self) -> list[str]:
        """The metrics' names."""
        return list(dict.fromkeys(name for line in self.lines for name in line["metrics"]))

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """[T, R] one metric."""
        if name not in self.names:
            raise UnknownNameError("metric", name, self.names)
        steps = {int(step): row for row, step in enumerate(self.steps)}
        found = np.full((len(steps), 1 + max(line["run"] for line in self.lines)), np.nan)
        for line in self.lines:
            if name in line["metrics"]:
                found[steps[line["step"]], line["run"]] = line["metrics"][name]
        return found

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"History({len(self)} steps: {', '.join(self.names)})"

    def plot(self, name: str, axes: Any = None) -> Any:
        """A metric over steps, one line per run, on Matplotlib axes (the current ones by default); returns them."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.gca()
        runs = {line["run"]: line for line in self.lines}
        for run, values in enumerate(self[name].T):
            told = (
                {key: value for key, value in runs[run].items() if key in ("cost_limit", "seed")} if run in runs else {}
            )
            axes.plot(self.steps, values, label=", ".join(f"{key} {_bare(value)}" for key, value in told.items()))
        axes.set(xlabel="step", ylabel=name)
        return axes

    def dataframe(self) -> Any:
        """A pandas DataFrame with one row per step and run."""
        try:
            import pandas
        except ImportError:
            raise PdocrlError("a DataFrame needs pandas: pip install pandas") from None
        return pandas.DataFrame([flat(line) for line in self.lines])


class JSONLinesLogger(Logger):
    """One JSON object per line in a file of its own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def open(self, runs: Sequence[dict[str, Any]], folder: Path | None) -> None:
        with naming(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, step: int, lines: Sequence[Line]) -> None:
        self._file.writelines(json.dumps(line) + "\n" for line in lines)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class CSVLogger(JSONLinesLogger):
    """One row per step and run; the columns are those of the first lines."""

    def open(self, runs: Sequence[dict[str, Any]], folder: Path | None) -> None:
        super().open(runs, folder)
        self._writer: csv.DictWriter[str] | None = None

    def write(self, step: int, lines: Sequence[Line]) -> None:
        rows = [flat(line) for line in lines]
        if rows and self._writer is None:
            self._writer = csv.DictWriter(self._file, list(rows[0]), extrasaction="ignore", restval="")
            if self._file.tell() == 0:
                self._writer.writeheader()
        if self._writer is not None:
            self._writer.writerows(rows)
        self._file.flush()


class TensorBoardLogger(Logger):
    """One curve per run and metric, in `path`, or in folder/tensorboard."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)

    def open(self, runs: Sequence[dict[str, Any]], folder: Path | None) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError("TensorBoard logging", "tensorboard") from None
        if self._path is None and folder is None:
            raise PdocrlError(
                f"tensorboard needs a folder: give {by_door('TensorBoardLogger(path), or out=…', '--out')}."
            )
        path = self._path or Path(str(folder)) / "tensorboard"
        self._writers = [SummaryWriter(str(path / label(run))) for run in runs]

    def write(self, step: int, lines: Sequence[Line]) -> None:
        for line in lines:
            for name, value in line["metrics"].items():
                self._writers[line["run"]].add_scalar(name, value, step)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class WandBLogger(Logger):
    """One W&B run for the whole call; curves named run/metric. Mode and account are W&B's own settings."""

    def __init__(self, project: str = "pdocrl", **settings: Any) -> None:
        self._project, self._settings = project, settings

    def open(self, runs: Sequence[dict[str, Any]], folder: Path | None) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("Weights & Biases logging", "wandb") from None
        if folder is not None:
            self._settings = {"dir": str(folder), **self._settings}
        self._labels = [label(run) for run in runs]
        self._run = wandb.init(project=self._project, config={"runs": list(runs)}, **self._settings)

    def write(self, step: int, lines: Sequence[Line]) -> None:
        values = {f"{self._labels[line['run']]}/{n}": v for line in lines for n, v in line["metrics"].items()}
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


NAMED = {"tensorboard": TensorBoardLogger, "wandb": WandBLogger}


@contextlib.contextmanager
def open_loggers(
    given: Sequence[str | Logger], folder: Path | None, runs: Sequence[dict[str, Any]]
) -> Iterator[list[Logger]]:
    """The loggers, those given by name made here; closed at the end."""
    with contextlib.ExitStack() as stack:
        opened: list[Logger] = []
        for one in given:
            if isinstance(one, str):
                if one not in NAMED:
                    raise UnknownNameError("logger", one, NAMED)
                one = NAMED[one]()
            one.open(runs, folder)
            stack.callback(one.close)
            opened.append(one)
        yield opened


def label(run: Mapping[str, Any]) -> str:
    """cost_limit=[20.0]_seed=0."""
    return "_".join(f"{key}={value}" for key, value in run.items()).replace(" ", "")


def flat(line: Line) -> dict[str, Any]:
    """A line of metrics as one row of a table."""
    others = {key: value for key, value in line.items() if key != "metrics"}
    return {**{key: _bare(value) for key, value in others.items()}, **line["metrics"]}


def _bare(value: Any) -> Any:
    """A list of one number as the number."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
