"""`pdocrl train`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tyro

from pdocrl.cli.words import any_limit, many, pairs, settings
from pdocrl.console import print_json
from pdocrl.errors import PdocrlError

Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …")]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What happens how often."""

    log_every: int | None = None
    """Steps between lines of metrics; default: 1000."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; default: 10000."""
    evaluate_every: int | None = None
    """Steps between evaluations in the simulator; default: none."""
    evaluate_episodes: int | None = None
    """Episodes of each such evaluation; default: 5."""
    buffer_size: int | None = None
    """Train on a random subset of so many rows, resampled periodically, for files larger than memory."""
    refresh_every: int | None = None
    """Steps between resamplings of the subset; default: when each row was used about once."""


_SCHEDULE = Schedule()


def train(
    dataset: tyro.conf.Positional[str | None] = None,
    /,
    *,
    agent: str | None = None,
    task: str | None = None,
    horizon: int | None = None,
    cost_limit: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="LIMIT …")] = None,
    seed: tuple[int, ...] | None = None,
    steps: int | None = None,
    set: Words = (),
    vary: Words = (),
    out: str | None = None,
    resume: str | None = None,
    logger: tuple[str, ...] = (),
    json: bool = False,
    schedule: Annotated[Schedule, tyro.conf.OmitArgPrefixes] = _SCHEDULE,
) -> None:
    """Train one policy per cost limit × seed, side by side, from logged data alone.

    Example:
        pdocrl train BallRun --cost-limit 10 20 40 --seed 0 5 10 --out runs/ballrun
        pdocrl train my.hdf5 --task CarRun --set gamma=0.98 --vary learning_rate=1e-4,3e-4 --out runs/mine
        pdocrl train --resume runs/ballrun --steps 200000

    Args:
        dataset: a task's name or a file (HDF5, npz, Parquet, CSV, Minari).
        agent: which method; `pdocrl agents` lists them; default: dial.
        task: gives horizon, reference scores and simulator when the dataset is a file.
        horizon: steps of a full episode, when there is no task; default: the longest episode.
        cost_limit: undiscounted cost allowed per episode; with several costs write 10,5 for each; of `dial` also
            a limit on the tail, 'P(cost>20)<=0.1'; default: 10 20 40.
        seed: one run per seed and limit; default: 0.
        steps: gradient steps; default: 100000. With --resume: go on to so many.
        set: settings of the agent, the same in all runs.
        vary: settings to vary, values separated by commas; every combination becomes a run.
        out: folder for checkpoints, policies and metrics.
        resume: go on with the training in this folder, as it was begun; of its options only --steps may grow.
        logger: also send metrics to tensorboard or wandb.
        json: print one JSON object.
    """
    from pdocrl.data.tasks import find_task
    from pdocrl.training.config import BENCHMARK
    from pdocrl.training.train import resume as go_on
    from pdocrl.training.train import train as begin

    # What was not given is left to `begin`, where the defaults stand.
    given: dict[str, Any] = {
        "agent": agent,
        "task": task,
        "horizon": horizon,
        "seed": seed,
        "steps": steps,
        "out": out,
        "cost_limit": [any_limit(word) for word in cost_limit] if cost_limit else None,
        "settings": settings(set) or None,
        "vary": {k: many(v) for k, v in pairs(vary).items()} or None,
        **dataclasses.asdict(schedule),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        others = [name for name in given if name != "steps"]
        if others:
            option = "--" + {"settings": "set"}.get(others[0], others[0]).replace("_", "-")
            raise PdocrlError(f"{option} cannot be changed: --resume goes on as {resume} was begun. Leave it out.")
        trained = go_on(resume, dataset, steps=steps, loggers=logger)
    elif dataset is None:
        raise PdocrlError("which data? Give a task's name or a file, or --resume FOLDER.")
    else:
        trained = begin(dataset, loggers=logger, **{"cost_limit": BENCHMARK, **given})
    rows = trained.records()
    if json:
        print_json(
            {
                "agent": trained.config.agent,
                "task": trained.config.task,
                "data": trained.config.data,
                "digest": trained.config.data_digest,
                "out": str(trained.folder) if trained.folder else None,
                "runs": rows,
            }
        )
        return
    trained.table().show()
    for row in rows:
        if row["predicted_within"] is not None:
            print(_predicted(row))
    if trained.folder is not None:
        playable = trained.config.task is not None and find_task(trained.config.task).env_id is not None
        how = "play them with: pdocrl evaluate" if playable else "judge them from the data with: pdocrl ope"
        print(f"policies in {trained.folder}; {how} {trained.folder}")


def _predicted(row: Mapping[str, Any]) -> str:
    """What a policy predicts of its own limit, in words."""
    from pdocrl.evaluation.score import limit_name

    means = zip(row["predicted_cost"], row["predicted_bound"], strict=True)
    costs = [f"{cost:.3g} (bound {most:.3g})" for cost, most in means]
    costs += [f"{x['limit']} at {x['value']:.3g} (bound {x['bound']:.3g})" for x in row["predicted_tails"]]
    limit = ", ".join(row.get("limits", ())) or limit_name(row["cost_limit"])
    said = "is predicted to be satisfied:"
    if not row["predicted_within"]:
        said = "is not predicted to be satisfied; the setting that exceeds it least acts:"
    return f"run {row['run']}: cost limit {limit} {said} predicted cost {', '.join(costs)}."
