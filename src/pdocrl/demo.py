"""The whole way in a minute or two: embedded data → policies at three limits → the real simulator → a page.

Everything but the size is as in a real training: networks and batches are smaller, and steps fewer.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from pdocrl.data import Dataset, load
from pdocrl.data.load import EMBEDDED
from pdocrl.data.plot import INK, POINT_COLOURS, save, scatter
from pdocrl.errors import PdocrlError, PdocrlInterrupted
from pdocrl.report import Results, read_results, report
from pdocrl.scores.evaluate import Scores, evaluate
from pdocrl.training.folder import Trained
from pdocrl.training.plan import Plan
from pdocrl.training.train import resume, train

TASK = "BallRun"
LIMITS = (10.0, 50.0, 80.0)  # where the best behaviour in this data differs
SIZE: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256}  # far below a real training's
MORE: dict[str, dict[str, Any]] = {"dial": {"hidden": (128, 128), "model_hidden": (64, 64)}}
STEPS = 6_000
EVALUATIONS = 5  # while training


@dataclasses.dataclass(frozen=True)
class Demo:
    """What came out: the scores, and where to look."""

    scores: Scores
    page: Path
    picture: Path


def demo(out: str | os.PathLike[str] = "demo", agent: str = "dial", steps: int = STEPS, episodes: int = 20) -> Demo:
    """Train, evaluate and write OUT/index.html. Interrupted, the same call goes on where it stopped."""
    folder = Path(out)
    sizes = ["--steps", str(steps), "--episodes", str(episodes)]
    command = shlex.join(["pdocrl", "demo", "--out", str(folder), "--agent", agent, *sizes])
    dataset = embedded()
    try:
        _train(folder, dataset, agent, steps)
        scores = evaluate(folder, episodes)
        record = read_results(folder, dataset)
        page = report(record, command=command)
        picture = folder / "plane.png"
        save(_plane(dataset, record), picture)
    except (KeyboardInterrupt, PdocrlInterrupted):
        raise PdocrlInterrupted(f"interrupted. Go on with the same command: {command}") from None
    return Demo(scores, page, picture)


def embedded() -> Dataset:
    """The package's own data under its task's name, whatever else PDOCRL_DATA holds."""
    return dataclasses.replace(load(EMBEDDED / f"{TASK.lower()}.hdf5", TASK), name=TASK)


def _plane(dataset: Dataset, record: Results) -> Any:
    """The data in the plane of cost and return, and on it discs that shrink from limit to limit: none hides another."""
    title = f"{TASK}: {dataset.n_episodes} logged episodes, and policies learned from them"
    figure = scatter(dataset, LIMITS, title=title)
    figure.set_size_inches(7.6, 5.3)
    (panel,) = figure.axes
    for i, run in enumerate(record.runs):
        panel.scatter(
            run.costs.mean(), run.returns.mean(), s=260 - 105 * i, color=POINT_COLOURS[i], edgecolors="white",
            linewidths=1.2, zorder=7 + i, clip_on=False, label=f"{run.method}, limit {run.limit}",
        )  # fmt: skip
    panel.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9, labelcolor=INK)
    return figure


def _train(folder: Path, dataset: Dataset, agent: str, steps: int) -> Trained:
    """Start, or go on with what an earlier call left in the folder."""
    if not (folder / "run.json").exists():
        every = max(1, steps // EVALUATIONS)
        return train(
            dataset, agent, task=TASK, cost_limit=LIMITS, steps=steps, settings=SIZE | MORE.get(agent, {}), out=folder,
            log_every=max(1, every // 2), checkpoint_every=every, evaluate_every=every,
        )  # fmt: skip
    plan = Plan.read(folder)
    if (plan.agent, plan.steps, plan.data_digest) != (agent, steps, dataset.digest):
        raise PdocrlError(f"{folder}: holds another training ({plan.agent}, {plan.steps} steps); choose another --out.")
    return resume(folder, dataset)
