"""The whole way in two minutes: embedded data → policies → would they be safe? → the real simulator → a page.

The recommended agent is compared with behaviour cloning, which knows no limit, in the same episodes. Only the size
differs from a real training: networks and batches are smaller, and steps fewer.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from pdocrl.agents.common.dial_estimates import STARTS
from pdocrl.console import log
from pdocrl.data import Dataset, load
from pdocrl.data.load import EMBEDDED
from pdocrl.data.plot import INK, POINT_COLOURS, save, scatter
from pdocrl.dynamics.rollouts import error_of_mean, rollouts_of_policy
from pdocrl.errors import PdocrlError, PdocrlInterrupted, by_door
from pdocrl.evaluation.evaluate import Scores, evaluate
from pdocrl.evaluation.score import limit_name
from pdocrl.policies.policy import NormalisedPolicy
from pdocrl.records import write_record
from pdocrl.report import Results, read_results, report
from pdocrl.report.comparison import PredictedRun, Predictions, comparison
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained, load_trained, restore
from pdocrl.training.train import resume, train

TASK = "BallRun"
LIMITS = (10.0, 50.0, 80.0)  # where the best behaviour in this data differs
SIZE: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256}  # far below a real training's
MORE: dict[str, dict[str, Any]] = {"dial": {"hidden": (128, 128), "model_hidden": (64, 64)}}
STEPS = 6_000
EVALUATIONS = 5  # while training
BASELINE, BASELINE_STEPS = "bc", 2_000  # what the agent is compared with
PREDICTIONS = "predictions.json"  # of every policy, before anything was played


@dataclasses.dataclass(frozen=True)
class Demo:
    """What came out: the scores, and where to look."""

    scores: Scores
    baselines: list[Scores]  # of what it is compared with, in the same episodes
    page: Path
    picture: Path


def demo(out: str | os.PathLike[str] = "demo", agent: str = "dial", steps: int = STEPS, episodes: int = 20) -> Demo:
    """Train, evaluate and write OUT/index.html. Interrupted, the same call goes on where it stopped."""
    folder = Path(out)
    sizes = ["--steps", str(steps), "--episodes", str(episodes)]
    command = shlex.join(["pdocrl", "demo", "--out", str(folder), "--agent", agent, *sizes])
    dataset = embedded()
    folders = [folder, *([folder / BASELINE] if agent != BASELINE else [])]
    try:
        _train(folder, dataset, agent, steps)
        if len(folders) > 1:
            log(f"training {BASELINE} for comparison …")
            _train(folders[1], dataset, BASELINE, min(steps, BASELINE_STEPS))
        predictions = predict(folders, dataset)
        scores = [evaluate(place, episodes) for place in folders]
        records = [read_results(place, dataset) for place in folders]
        page = report(records[0], command=command, opening=comparison(records, predictions))
        picture = folder / "plane.png"
        save(_plane(dataset, records), picture)
    except (KeyboardInterrupt, PdocrlInterrupted):
        raise PdocrlInterrupted(f"interrupted. Go on with the same command: {command}") from None
    return Demo(scores[0], scores[1:], page, picture)


def predict(folders: Sequence[Path], dataset: Dataset) -> Predictions | None:
    """Would the policies satisfy their limits? Predicted by dial, and by rollouts in its models; None without a dial.

    dial chose its settings by such predictions; the other policies play in the same models, under the same margin.
    """
    first, *others = (load_trained(folder) for folder in folders)
    network: Any
    config: Any
    if first.config.agent != "dial":
        return None
    log("would they be safe? Rollouts in the models that dial learned from the data …")
    trainer = restore(folders[0], first.config, dataset)
    state, config = jax.tree.map(lambda leaf: leaf[0], trainer.state), trainer.runs[0].config
    said = []
    for found in (first, *others):
        for run, policy in zip(found.config.runs, found.policies, strict=True):
            limit, network = tuple(run["cost_limit"]), cast(NormalisedPolicy, policy).network
            if found is first:
                predicted = network.predicted(limit)
                reward, cost = predicted.reward, predicted.bound
            else:
                drawn = rollouts_of_policy(
                    state.models_average, state.normaliser, network, state.starts, found.config.horizon, STARTS
                )
                paid = np.asarray(drawn.cost).reshape(-1, drawn.cost.shape[-1])
                error = error_of_mean(paid, float(config.confidence), float(config.episodes), len(state.starts))
                reward, cost = float(drawn.reward.mean()), (paid.mean(0) + error) / np.float32(config.margin)
            safe = bool((cost <= np.asarray(limit)).all())
            told = PredictedRun(
                agent=found.config.agent, cost_limit=list(limit), reward=reward, cost=cost.tolist(), safe=safe
            )
            log(f"  {told.agent} at limit {limit_name(limit)}: {'yes' if safe else 'NO'}, cost at most {cost[0]:.0f}")
            said.append(told)
    predictions = Predictions(step=first.step, policies=said)
    write_record(folders[0] / PREDICTIONS, predictions)
    return predictions


def embedded() -> Dataset:
    """The package's own data under its task's name, whatever else PDOCRL_DATA holds."""
    return dataclasses.replace(load(EMBEDDED / f"{TASK.lower()}.hdf5", TASK), name=TASK)


def _plane(dataset: Dataset, records: Sequence[Results]) -> Any:
    """The data in the plane of cost and return, and on it discs that shrink from limit to limit: none hides another."""
    title = f"{TASK}: {dataset.n_episodes} logged episodes, and policies learned from them"
    figure = scatter(dataset, LIMITS, title=title)
    figure.set_size_inches(7.6, 5.3)
    (panel,) = figure.axes
    for i, run in enumerate(records[0].runs):
        panel.scatter(
            run.cost[0],
            run.reward,
            s=260 - 105 * i,
            color=POINT_COLOURS[i],
            edgecolors="white",
            linewidths=1.2,
            zorder=7 + i,
            clip_on=False,
            label=f"{run.method}, limit {run.limit}",
        )
    for run in [record.runs[0] for record in records[1:]]:
        panel.scatter(
            run.cost[0],
            run.reward,
            s=150,
            color=INK,
            marker="X",
            edgecolors="white",
            linewidths=1.2,
            zorder=12,
            clip_on=False,
            label=f"{run.method}, which knows no limit",
        )
    panel.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9, labelcolor=INK)
    return figure


def _train(folder: Path, dataset: Dataset, agent: str, steps: int) -> Trained:
    """Start, or go on with what an earlier call left in the folder."""
    if not (folder / "run.json").exists():
        every = max(1, steps // EVALUATIONS)
        return train(
            dataset,
            agent,
            task=TASK,
            cost_limit=LIMITS,
            steps=steps,
            settings=SIZE | MORE.get(agent, {}),
            out=folder,
            log_every=max(1, every // 2),
            checkpoint_every=every,
            evaluate_every=every,
        )
    plan = TrainingConfig.read(folder)
    if (plan.agent, plan.steps, plan.data_digest) != (agent, steps, dataset.digest):
        told = f"{folder}: holds another training ({plan.agent}, {plan.steps} steps)"
        raise PdocrlError(f"{told}; choose another {by_door('out', '--out')}.")
    return resume(folder, dataset)
