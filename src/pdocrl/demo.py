"""The whole way in a minute or two: embedded data → policies at three limits → the real simulator → a page.

Everything but the size is as in a real training: networks and batches are smaller than the paper's, and steps fewer.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from pdocrl.data import Dataset, load
from pdocrl.data.load import EMBEDDED
from pdocrl.data.plot import save
from pdocrl.errors import PdocrlError, PdocrlInterrupted
from pdocrl.report import figures, read_record, report
from pdocrl.scores.evaluate import Evaluation, evaluate
from pdocrl.training.train import Plan, Trained, resume, train

TASK = "BallRun"
LIMITS = (10.0, 20.0, 40.0)
SIZE: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256}  # a quarter of the paper's width, half its batch
STEPS = 6_000
EVALUATIONS = 20  # while training


@dataclasses.dataclass(frozen=True)
class Demo:
    """What came out: the scores, and where to look."""

    evaluation: Evaluation
    page: Path
    picture: Path


def demo(out: str | os.PathLike[str] = "demo", agent: str = "pdocrl", steps: int = STEPS, episodes: int = 20) -> Demo:
    """Train, evaluate and write OUT/index.html. Interrupted, the same call goes on where it stopped."""
    folder = Path(out)
    sizes = ["--steps", str(steps), "--episodes", str(episodes)]
    command = shlex.join(["pdocrl", "demo", "--out", str(folder), "--agent", agent, *sizes])
    dataset = embedded()
    try:
        _train(folder, dataset, agent, steps)
        evaluation = evaluate(folder, episodes)
        record = read_record(folder, dataset)
        page = report(record, command=command)
        picture = folder / "plane.png"
        title = f"{TASK}: {dataset.n_episodes} logged episodes, and policies learned from them"
        save(figures.plane(record, title, width=7.6), picture)
    except (KeyboardInterrupt, PdocrlInterrupted):
        raise PdocrlInterrupted(f"interrupted. Go on with the same command: {command}") from None
    return Demo(evaluation, page, picture)


def embedded() -> Dataset:
    """The package's own data under its task's name, whatever else PDOCRL_DATA holds."""
    return dataclasses.replace(load(EMBEDDED / f"{TASK.lower()}.hdf5", TASK), name=TASK)


def _train(folder: Path, dataset: Dataset, agent: str, steps: int) -> Trained:
    """Start, or go on with what an earlier call left in the folder."""
    if not (folder / "run.json").exists():
        every = max(1, steps // EVALUATIONS)
        return train(
            dataset, agent, task=TASK, cost_limit=LIMITS, steps=steps, settings=SIZE, out=folder,
            log_every=max(1, every // 2), checkpoint_every=every, evaluate_every=every,
        )  # fmt: skip
    plan = Plan.read(folder)
    if (plan.agent, plan.steps, plan.data_digest) != (agent, steps, dataset.digest):
        raise PdocrlError(f"{folder}: holds another training ({plan.agent}, {plan.steps} steps); choose another --out.")
    return resume(folder, dataset)
