"""`pdocrl train`."""

from __future__ import annotations

from typing import Annotated

import tyro

from pdocrl.commands.words import limit, many, pairs, settings, shown
from pdocrl.console import print_json, print_table
from pdocrl.errors import PdocrlError

Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …")]


def train(
    dataset: tyro.conf.Positional[str | None] = None,
    /,
    *,
    agent: str = "pdocrl",
    task: str | None = None,
    horizon: int | None = None,
    cost_limit: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LIMIT …")] = ("10", "20", "40"),
    seed: tuple[int, ...] = (0,),
    steps: int = 100_000,
    set: Words = (),
    vary: Words = (),
    out: str | None = None,
    resume: str | None = None,
    log_every: int = 1000,
    checkpoint_every: int = 10_000,
    evaluate_every: int = 0,
    evaluate_episodes: int = 5,
    window: int = 0,
    refresh_every: int = 0,
    sink: tuple[str, ...] = (),
    json: bool = False,
) -> None:
    """Train one policy per cost limit × seed, side by side, from logged data alone.

    Example:
        pdocrl train BallRun --agent pdocrl --cost-limit 10 20 40 --seed 0 5 10 --out runs/ballrun
        pdocrl train my.hdf5 --task CarRun --set gamma=0.98 --vary learning_rate=1e-4,3e-4 --out runs/mine
        pdocrl train --resume runs/ballrun

    Args:
        dataset: a task's name or a file (HDF5, npz, Parquet, CSV, Minari).
        agent: which method; `pdocrl agents` lists them.
        task: gives horizon, reference scores and simulator when the dataset is a file.
        horizon: steps of a full episode, when there is no task; default: the longest episode.
        cost_limit: undiscounted cost allowed per episode; with several costs write 10,5 for each limit.
        seed: one run per seed and limit.
        steps: gradient steps.
        set: settings of the agent, the same in all runs.
        vary: settings to vary, values separated by commas; every combination becomes a run.
        out: folder for checkpoints, policies and metrics.
        resume: go on with the training in this folder.
        log_every: steps between lines of metrics.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations in the simulator; 0 for none.
        evaluate_episodes: episodes of each such evaluation.
        window: hold only so many transitions of the file at a time, for files larger than memory; 0 for all.
        refresh_every: steps after which the window is drawn anew; default: when each was used about once.
        sink: also send metrics to tensorboard or wandb.
        json: print one JSON object.
    """
    from pdocrl.training import train as training

    if resume is not None:
        trained = training.resume(resume, dataset, sinks=sink)
    elif dataset is None:
        raise PdocrlError("which data? Give a task's name or a file, or --resume FOLDER.")
    else:
        trained = training.train(
            dataset, agent, task=task, horizon=horizon, cost_limit=[limit(word) for word in cost_limit], seed=seed,
            steps=steps, settings=settings(set), vary={k: many(v) for k, v in pairs(vary).items()}, out=out,
            log_every=log_every, checkpoint_every=checkpoint_every, evaluate_every=evaluate_every,
            evaluate_episodes=evaluate_episodes, sinks=sink, window=window, refresh_every=refresh_every,
        )  # fmt: skip
    last = {line["run"]: line for line in trained.metrics}
    rows = [
        {
            "run": i,
            **run,
            "step": trained.step,
            "failure": trained.failures.get(i),
            "metrics": last.get(i, {}).get("metrics"),
        }
        for i, run in enumerate(trained.plan.runs)
    ]
    if json:
        print_json({"agent": trained.plan.agent, "task": trained.plan.task, "data": trained.plan.data,
                    "digest": trained.plan.data_digest, "out": str(trained.folder) if trained.folder else None,
                    "runs": rows})  # fmt: skip
        return
    names = [name for name in (rows[0]["metrics"] or {})][:8]
    print_table(
        ["run", "cost limit", "seed", *names, "stopped"],
        [[r["run"], shown(r["cost_limit"]), r["seed"], *[(r["metrics"] or {}).get(n, "") for n in names],
          r["failure"] or ""] for r in rows],
        title=f"{trained.plan.agent} on {trained.plan.data}, {trained.step} steps",
    )  # fmt: skip
    if trained.folder is not None:
        print(f"policies in {trained.folder}; play them with: pdocrl evaluate {trained.folder}")
