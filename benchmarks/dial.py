"""dial on every task: one training a seed, eight limits; and the same networks with a part of the selection left out.

    python benchmarks/dial.py --data FOLDER --out runs/dial     trains, plays, and writes results/dial.csv
    python benchmarks/dial.py --bench runs/dial-seven           rows of a folder of `pdocrl bench` in place of it
    python benchmarks/dial.py --summary                         what the committed rows come to

Five seeds, 100,000 steps, last checkpoint, 20 episodes a run, every episode counted, one setting for all tasks. What
is trained is not trained again, so the folder can be copied from a machine with an accelerator (`--train-only`) to one
with the simulator. Rows say by which version they were made, and replace those of the same version, task, variant and
seed; benchmarks/notes/agents/dial.md describes the designs and variants of earlier versions.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from numpy.typing import NDArray

from pdocrl.agents import dial as agent
from pdocrl.data import load
from pdocrl.data.tasks import find_task
from pdocrl.envs import split_run_costs
from pdocrl.envs.rollout import Rollouts
from pdocrl.evaluation.evaluate import read_scores
from pdocrl.evaluation.normalise import normalised_reward
from pdocrl.files import write_csv
from pdocrl.policies.policy import DialPolicy, with_normaliser
from pdocrl.provenance import UNKNOWN, versions
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import load_trained, restore
from pdocrl.training.train import train

RESULTS = Path(__file__).parent / "results" / "dial.csv"
OVER = 1.05  # of the limit: more than this is a broken statement
LIMITS, FEWER = (3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0), (5.0, 10.0, 20.0, 40.0)
BOTH = ((2.0, 20.0), (5.0, 5.0), (10.0, 40.0))  # boundary, speed
SEEDS, THREE, STEPS, EPISODES = (0, 5, 10, 15, 20), (0, 5, 10), 100_000, 20
LEFT_OUT = ("model alone", "critic alone", "targets alone", "no caps", "one relative return")
Asked = tuple[str, int, tuple[float, ...], Any]  # variant, seed, limits, policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="folder with one Safety<Task>-*.hdf5 per task")
    what.add_argument("--bench", type=Path, help="folder that `pdocrl bench` wrote")
    what.add_argument("--summary", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/dial"))
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    if arguments.summary:
        return summary(read())
    if arguments.bench:
        return write(rows_of_bench(arguments.bench))
    rows: list[dict[str, Any]] = []
    for file in sorted(arguments.data.glob("Safety*-v0-*.hdf5")):
        task = find_task(file.name.split("-v0")[0].removeprefix("Safety"))
        data = load(file, task.name)
        kinds: dict[str, Any] = {"dial": {"seed": SEEDS}}
        if task.name.endswith("Run") and task.name != "AntRun":
            kinds["two limits"] = {"seed": THREE}
        for variant, options in kinds.items():
            folder, own = arguments.out / task.name / variant.replace(" ", "_"), data
            limit: tuple[float, ...] = (LIMITS[-1],)
            if variant == "two limits":
                cost = split_run_costs(task.name, data.next_obs)
                own = dataclasses.replace(data, cost=cost, cost_names=("cost_boundary", "cost_speed"))
                limit = BOTH[-1]
            if not (folder / "policies.npz").exists():
                train(own, "dial", task=task, cost_limit=[limit], steps=STEPS, out=folder, **options)
            if not arguments.train_only:
                rows += play(task.name, list(asked(folder, variant, own)), own.cost_names)
    if rows:
        write(rows)


def read() -> list[dict[str, Any]]:
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, Any]]) -> None:
    """In place of the rows of the same version, task, variant and seed."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("version", "task", "variant", "seed"))

    fresh = {key(row) for row in rows}
    write_csv(RESULTS, [row for row in read() if key(row) not in fresh] + rows)


def rows_of_bench(folder: Path) -> list[dict[str, Any]]:
    """A row a run of every scored training of dial; the policies need not be there."""
    found = []
    for path in sorted((folder / "groups").glob("dial-*")):
        config, scores = TrainingConfig.read(path), read_scores(path)
        for run in scores.runs:
            for k, name in enumerate(config.cost_names):
                totals = np.asarray([(e.reward, e.cost[k], e.length) for e in run.episodes], float)
                said = (run.predicted_cost or [float("nan")] * (k + 1))[k], run.predicted_within
                found.append(
                    row_of(
                        scores.task, "dial", run.seed, (name, k), tuple(run.cost_limit), totals, said, version(config)
                    )
                )
    return found


def version(config: TrainingConfig) -> str:
    """Of the package, with the commit where it is known."""
    return f"{config.versions['pdocrl']} {config.commit}".removesuffix(f" {UNKNOWN}")


def summary(rows: list[dict[str, Any]]) -> None:
    """By version and task: limits satisfied, reward, how near to the limit, and what was predicted."""
    kept = [row for row in rows if row["variant"] == "dial"]
    for version in sorted({row["version"] for row in kept}):
        for limits in (FEWER, LIMITS):
            for task in [*sorted({row["task"] for row in kept}), None]:
                own = [
                    row
                    for row in kept
                    if row["version"] == version and float(row["cost_limit"]) in limits and task in (row["task"], None)
                ]
                if own:
                    print(version, f"{len(limits)} limits", task or "all", told(own), sep=" | ")


def told(rows: list[dict[str, Any]]) -> str:
    cells: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["task"], float(row["cost_limit"])), []).append(row)
    played = {key: np.mean([float(row["normalized_cost"]) for row in own]) for key, own in cells.items()}
    reward = {key: [float(row["normalized_reward"]) for row in own] for key, own in cells.items()}
    falls = [
        (
            max(0.0, float(np.mean(reward[task, small]) - np.mean(more))),
            float(np.std(more) + np.std(reward[task, small])),
        )
        for (task, limit), more in reward.items()
        for (other, small) in reward
        if other == task and small < limit
    ]
    worst, spread = max(falls, default=(0.0, 0.0))
    costs = np.asarray([[float(row["predicted_cost"]), float(row["cost"])] for row in rows])
    ratios = np.asarray([float(row["normalized_cost"]) for row in rows])
    within = np.asarray([row["predicted_within"] == "True" for row in rows])
    dsrl = [float(np.mean(own)) for (_, limit), own in reward.items() if limit in (10, 20, 40)]
    return (
        f"{sum(x <= 1 for x in played.values())} of {len(played)} limits, {(ratios <= 1).sum()} of {len(ratios)} runs; "
        f"reward at 10, 20, 40 {np.mean(dsrl):.3f}; largest mean / limit {max(played.values()):.2f}; "
        f"median |played / limit − 1| {np.median(np.abs(ratios - 1)):.2f}; "
        f"predicted at least what was played {(costs[:, 0] >= costs[:, 1]).mean():.2f}; "
        f"predicted within {within.sum()}, of them broken {(ratios[within] > OVER).sum()}; "
        f"a larger limit earns less by at most {worst:.3f} (seeds' spread {spread:.3f})"
    )


def asked(folder: Path, variant: str, data: Any) -> Iterator[Asked]:
    """What a training is played as."""
    found: Any = load_trained(folder)
    trainer: Any = restore(folder, found.plan, data) if variant == "dial" else None
    for i, (run, policy) in enumerate(zip(found.plan.runs, found.policies, strict=True)):
        for limit in BOTH if variant == "two limits" else [(x,) for x in LIMITS]:
            yield variant, run["seed"], limit, policy.at_limit(limit)
        if trainer is not None and run["seed"] in THREE:
            state = jax.tree.map(lambda x, i=i: np.asarray(x[int(trainer.training[i])]), trainer.state)
            for part in LEFT_OUT:
                network = left_out(trainer.runs[i].config, state, part)
                for x in FEWER:
                    yield part, run["seed"], (x,), with_normaliser(network.at_limit((x,)), policy.normaliser)


def left_out(config: agent.DialConfig, state: agent.DialState, part: str) -> DialPolicy:
    """The trained dial with its settings chosen without one part."""
    dial, whole = agent.Dial(), agent.select
    if part == "no caps":
        return dial.policy(dataclasses.replace(config, cost_caps=False), state)
    if part == "one relative return":
        return dial.policy(dataclasses.replace(config, relative_returns=(1.0,)), state)
    if part in {"model alone", "critic alone"}:

        def one(targets: Any, uncapped: Any, model: Any, critic: Any, *rest: Any) -> Any:
            kept = model if part == "model alone" else critic._replace(error=model.error)
            return whole(targets, uncapped, kept, kept, *rest)

        with mock.patch.object(agent, "select", one):
            return dial.policy(config, state)
    assert part == "targets alone"
    found = dial.policy(dataclasses.replace(config, relative_returns=(1.0,), cost_caps=False), state)
    return dataclasses.replace(found, reward=found.target_cost[:, 0], bound=found.target_cost / config.margin)


def play(task: str, policies: list[Asked], costs: tuple[str, ...]) -> list[dict[str, Any]]:
    with Rollouts(task, costs=costs) as pool:
        played = pool.run([policy for *_, policy in policies], EPISODES)
    rows = []
    for i, (variant, seed, limit, policy) in enumerate(policies):
        own, expected = played.of_policy(i), policy.network.predicted(limit)
        for k, name in enumerate(costs):
            totals = np.column_stack([own.reward, own.cost[:, k], own.length])
            said = float(expected.cost[k]), expected.within
            rows.append(row_of(task, variant, seed, (name, k), limit, totals, said, versions()["pdocrl"]))
    return rows


def row_of(
    task: str,
    variant: str,
    seed: int,
    constraint: tuple[str, int],
    limit: tuple[float, ...],
    episodes: NDArray[np.float64],
    said: tuple[float, bool | None],
    version: str,
) -> dict[str, Any]:
    """One run under one of its limits: `episodes` [n, 3] of return, cost, length; `said` is predicted: cost, within."""
    (name, k), (reward, cost, length) = constraint, episodes.T
    return {
        "version": version,
        "task": task,
        "variant": variant,
        "seed": seed,
        "constraint": name,
        "cost_limit": limit[k],
        "limits": " ".join(f"{y:g}" for y in limit),
        "episodes": len(episodes),
        "normalized_reward": float(normalised_reward(find_task(task), reward).mean()),
        "normalized_cost": float(cost.mean()) / limit[k],
        "reward": float(reward.mean()),
        "cost": float(cost.mean()),
        "predicted_cost": said[0],
        "predicted_within": said[1],
        "shortest": int(length.min()),
    }


if __name__ == "__main__":
    main()
