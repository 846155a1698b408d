"""The dial on every task: one training a seed, eight limits; and with parts of it left out.

    python benchmarks/dial.py --data FOLDER --out runs/dial

Five seeds, 100,000 steps, last checkpoint, 20 episodes a run, every episode counted, one setting for all tasks. What is
trained is not trained again, so the folder can be copied from a machine with an accelerator to one with the simulator.
Writes benchmarks/results/dial.csv; docs/agents/dial.md says which tasks were looked at while designing.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.agents.dial import NEVER, DialConfig
from pdocrl.data.tasks import find_task
from pdocrl.envs.rollout import Rollouts
from pdocrl.files import write_csv
from pdocrl.policies.policy import DialPolicy, in_world
from pdocrl.scores.normalise import normalised_reward
from pdocrl.training.folder import load_trained
from pdocrl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
LIMITS, FEWER, SEEDS = (3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0), (5.0, 10.0, 20.0, 40.0), (0, 5, 10, 15, 20)
STEPS, EPISODES = 100_000, 20
MARGIN = DialConfig().margin  # a policy holds its rehearsed costs with the margin, the table without


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/dial"))
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for file in sorted(arguments.data.glob("Safety*-v0-*.hdf5")):
        task = find_task(file.name.split("-v0")[0].removeprefix("Safety"))
        folder = arguments.out / task.name
        if not (folder / "policies.npz").exists():
            train(file, "dial", task=task, cost_limit=LIMITS[-1], seed=SEEDS, steps=STEPS, out=folder)
        if not arguments.train_only:
            rows += play(folder, task.name)
    if rows:
        write_csv(ROOT / "benchmarks/results/dial.csv", rows)


def play(folder: Path, task: str) -> list[dict[str, Any]]:
    """Every policy at every limit, whole and with a part left out."""
    found, asked = load_trained(folder), []
    for run, policy in zip(found.plan.runs, found.policies, strict=True):
        for variant, limits in {"dial": LIMITS, "no early stops": FEWER, "not rehearsed": FEWER}.items():
            for limit in limits:
                network = left_out(policy.network, variant, limit)
                asked.append((variant, run["seed"], limit, in_world(network, policy.scales).at_limit((limit,))))
    with Rollouts(task) as pool:
        played = pool.run([policy for *_, policy in asked], EPISODES)
    rows = []
    for i, (variant, seed, limit, policy) in enumerate(asked):
        own, network = played.of_policy(i), policy.network
        (setting,) = network.setting(np.asarray([[limit]]))
        rows.append({
            "task": task, "variant": variant, "seed": seed, "cost_limit": limit, "episodes": EPISODES,
            "normalized_reward": float(normalised_reward(task, own.reward).mean()),
            "normalized_cost": float(own.cost.mean()) / limit, "reward": float(own.reward.mean()),
            "cost": float(own.cost.mean()), "rehearsed_cost": float(network.cost[setting, 0]) * MARGIN,
            "length": float(own.length.mean()),
        })  # fmt: skip
    return rows


def left_out(dial: DialPolicy, part: str, limit: float) -> DialPolicy:
    """The dial without one of its parts."""
    if part == "dial":
        return dial
    keep = dial.stop[:, 0] >= NEVER * dial.largest[0] if part == "no early stops" else np.arange(len(dial.ask)) == 0
    tables = ("quality", "ask", "stop", "reward", "cost")
    some = dataclasses.replace(dial, **{table: getattr(dial, table)[keep] for table in tables})
    if part == "no early stops":
        return some
    one = np.ones((1, 1), np.float32)
    return dataclasses.replace(some, quality=one[0], ask=limit * one, stop=NEVER * dial.largest[0] * one)


if __name__ == "__main__":
    main()
