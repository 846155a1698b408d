"""dial on every task: one training a seed, eight limits; and the same networks with a part of the selection left out.

    python benchmarks/dial.py --data FOLDER --out runs/dial

Five seeds, 100,000 steps, last checkpoint, 20 episodes a run, every episode counted, one setting for all tasks. What
is trained is not trained again, so the folder can be copied from a machine with an accelerator (`--train-only`) to one
with the simulator. Writes benchmarks/results/dial.csv; the rows committed there are of version 0.2, whose design and
variants benchmarks/notes/agents/dial.md describes.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from pdocrl.agents import dial as agent
from pdocrl.data import load
from pdocrl.data.tasks import find_task
from pdocrl.envs import split_run_costs
from pdocrl.envs.rollout import Rollouts
from pdocrl.evaluation.normalise import normalised_reward
from pdocrl.files import write_csv
from pdocrl.policies.policy import DialPolicy, with_normaliser
from pdocrl.training.folder import load_trained, restore
from pdocrl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
LIMITS, FEWER = (3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0), (5.0, 10.0, 20.0, 40.0)
BOTH = ((2.0, 20.0), (5.0, 5.0), (10.0, 40.0))  # boundary, speed
SEEDS, THREE, STEPS, EPISODES = (0, 5, 10, 15, 20), (0, 5, 10), 100_000, 20
LEFT_OUT = ("model alone", "critic alone", "targets alone", "no caps", "one relative return")
Asked = tuple[str, int, tuple[float, ...], Any]  # variant, seed, limits, policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/dial"))
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
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
        write_csv(ROOT / "benchmarks/results/dial.csv", rows)


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
        own = played.of_policy(i)
        expected = policy.network.predicted(limit)
        for k, x in enumerate(limit):
            rows.append(
                {
                    "task": task,
                    "variant": variant,
                    "seed": seed,
                    "constraint": costs[k],
                    "cost_limit": x,
                    "limits": " ".join(f"{y:g}" for y in limit),
                    "episodes": EPISODES,
                    "normalized_reward": float(normalised_reward(task, own.reward).mean()),
                    "normalized_cost": float(own.cost[:, k].mean()) / x,
                    "reward": float(own.reward.mean()),
                    "cost": float(own.cost[:, k].mean()),
                    "predicted_cost": float(expected.cost[k]),
                    "predicted_within": expected.within,
                    "shortest": int(own.length.min()),
                }
            )
    return rows


if __name__ == "__main__":
    main()
