"""`evaluate`: trained policies in the simulator, every episode counted, scored under a named protocol."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdocrl.console import progress
from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import PdocrlError
from pdocrl.files import write_json
from pdocrl.scores.normalise import Limit, normalised_cost, normalised_reward
from pdocrl.scores.protocols import PROTOCOLS
from pdocrl.scores.score import score, score_limits
from pdocrl.training.train import Trained, load_trained

if TYPE_CHECKING:
    from pdocrl.envs.rollout import Episodes


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of every run of a training, and what they were made of."""

    task: str
    protocol: str  # the protocol whose limits and episodes these are, else "custom"
    data: dict[str, Any]  # name and digest of the training data
    step: int
    runs: list[dict[str, Any]]
    summary: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def evaluate(
    trained: Trained | str | os.PathLike[str],
    episodes: int = 20,
    *,
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> Evaluation:
    """Play `episodes` episodes of each policy (its mode, at the last checkpoint) and score them.

    The seeds of episodes depend on `seed` alone, so all policies meet the same starts. With a folder, the result is
    also written there as scores.json.
    """
    from pdocrl.envs.rollout import Rollouts

    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan = found.plan
    name = task or plan.task
    spec = find_task(name) if name else None
    if spec is None or spec.env_id is None:
        raise PdocrlError(f"{found.folder or plan.data}: no simulator known for this data; name the task with --task.")
    with progress() as bar, Rollouts(spec.name, workers, tuple(plan.cost_names)) as pool:
        row = bar.add_task(f"{spec.name}: episodes", total=len(found.policies) * episodes)
        played = pool.run(found.policies, episodes, seed, progress=lambda: bar.advance(row))
    return score_played(found, spec, played)


def score_played(found: Trained, spec: Task, played: Episodes) -> Evaluation:
    """Score the episodes of every policy of a training; with a folder, write scores.json there."""
    plan, runs = found.plan, []
    for i, run in enumerate(plan.runs):
        own = played.of_policy(i)
        limit = tuple(run["cost_limit"])
        scored = score(spec, own.reward, own.cost, limit)
        runs.append({
            "agent": plan.agent,
            **{key: value for key, value in run.items() if key != "cost_limit"},
            "cost_limit": _plain(limit),
            "reward": float(own.reward.mean()),
            "cost": _plain(own.cost.mean(0).tolist()),
            "normalized_reward": scored.reward,
            "normalized_cost": scored.cost,
            "safe": scored.safe,
            "failure": found.failures.get(i),
            "episodes": [
                {
                    "seed": record["seed"],
                    "reward": record["reward"],
                    "cost": _plain(record["cost"]),
                    "length": record["length"],
                    "normalized_reward": float(normalised_reward(spec, record["reward"])),
                    "normalized_cost": float(normalised_cost(record["cost"], limit).max(initial=0.0)),
                }
                for record in own.records()
            ],
        })  # fmt: skip
    result = Evaluation(
        task=spec.name,
        protocol=_protocol(plan.runs, len(played) // len(plan.runs)),
        data={"name": Path(plan.data).name, "digest": plan.data_digest},
        step=found.step,
        runs=runs,
        summary=_summary(spec.name, runs),
    )
    if found.folder is not None:
        write_json(found.folder / "scores.json", result.as_dict())
    return result


def _summary(task: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Per variant of settings: scores at each limit over its seeds, and the mean over limits."""
    told_apart = [k for k in runs[0] if k not in _NOT_SETTINGS]
    variants: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        variants.setdefault(tuple(str(run[k]) for k in told_apart), []).append(run)
    found = []
    for own in variants.values():
        limits: dict[tuple[float, ...], list[dict[str, Any]]] = {}
        for run in own:
            limit = run["cost_limit"]
            limits.setdefault((limit,) if isinstance(limit, float | int) else tuple(limit), []).append(run)
        table: dict[Limit, tuple[Any, Any]] = {
            limit: (
                [[e["reward"] for e in run["episodes"]] for run in same],
                [[listed(e["cost"]) for e in run["episodes"]] for run in same],
            )
            for limit, same in limits.items()
        }
        scores = score_limits(task, table).as_dict()
        found.append({"settings": {k: own[0][k] for k in told_apart}, **scores})
    return found[0] if len(found) == 1 else {"variants": found}


# what a run's record holds besides the settings that tell variants apart
_NOT_SETTINGS = {"agent", "seed", "cost_limit", "reward", "cost", "normalized_reward", "normalized_cost", "safe"}
_NOT_SETTINGS |= {"failure", "episodes"}


def _protocol(runs: list[dict[str, Any]], episodes: int) -> str:
    limits = set(itertools.chain.from_iterable(run["cost_limit"] for run in runs))
    for protocol in PROTOCOLS.values():
        if limits == set(protocol.limits) and episodes == protocol.episodes:
            return protocol.name
    return "custom"


def _plain(values: Any) -> Any:
    """One constraint's number as a number, several as a list."""
    return values[0] if len(values) == 1 else list(values)


def listed(value: Any) -> list[float]:
    """The costs or limits of a record, which holds a bare number where there is one constraint."""
    return list(value) if isinstance(value, list | tuple) else [value]
