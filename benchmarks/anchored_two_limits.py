"""pdocrl_anchored under two limits at once: the boundary and the speed of the Run tasks, each with a limit of its own.

    python benchmarks/anchored_two_limits.py --data FOLDER --out runs/two

The logged cost of a Run task is 1 when the boundary or the speed limit is passed; `split_run_costs` tells which. Seeds
0, 5, 10, 100,000 steps, last checkpoint, 20 episodes a run. Folders may be trained elsewhere
(`--train-only`) and copied. Writes benchmarks/results/anchored_two_limits.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

from pdocrl.console import print_table
from pdocrl.data import load
from pdocrl.data.tasks import find_task
from pdocrl.envs import split_run_costs
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.files import write_csv
from pdocrl.training.train import train

LIMITS, SEEDS, STEPS, EPISODES = ((2.0, 20.0), (5.0, 5.0), (10.0, 40.0)), (0, 5, 10), 100_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>Run-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/two"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--tasks", nargs="+", default=["BallRun", "CarRun", "DroneRun"])
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    rows = []
    for task in map(find_task, arguments.tasks):
        folder = arguments.out / task.name
        if not (folder / "policies.npz").exists():
            (file,) = arguments.data.glob(f"Safety{task.name}-v0-*.hdf5")
            one = load(file, task.name)
            both = dataclasses.replace(
                one, cost=split_run_costs(task.name, one.next_obs), cost_names=("cost_boundary", "cost_speed")
            )
            train(both, "pdocrl_anchored", task=task, cost_limit=LIMITS, seed=SEEDS, steps=arguments.steps, out=folder)
        if arguments.train_only:
            continue
        if not (folder / "scores.json").exists():
            evaluate(folder, EPISODES)
        scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        for run in scores["runs"]:
            rows.append(
                {
                    "task": task.name,
                    "limit_boundary": run["cost_limit"][0],
                    "limit_speed": run["cost_limit"][1],
                    "seed": run["seed"],
                    "step": scores["step"],
                    "normalized_reward": run["normalized_reward"],
                    "cost_boundary": run["cost"][0],
                    "cost_speed": run["cost"][1],
                    "safe": run["safe"],
                }
            )
    if not rows:
        return
    write_csv(Path(__file__).parent / "results/anchored_two_limits.csv", rows)
    table = []
    for task, boundary, speed in dict.fromkeys((r["task"], r["limit_boundary"], r["limit_speed"]) for r in rows):
        own = [r for r in rows if (r["task"], r["limit_boundary"], r["limit_speed"]) == (task, boundary, speed)]
        means = [np.mean([r[key] for r in own]) for key in ("normalized_reward", "cost_boundary", "cost_speed")]
        safe = means[1] <= boundary and means[2] <= speed
        table.append(
            [
                task,
                f"{boundary:g}, {speed:g}",
                f"{means[0]:.3f}",
                f"{means[1]:.1f}",
                f"{means[2]:.1f}",
                "yes" if safe else "no",
            ]
        )
    print_table(
        ["task", "limits: boundary, speed", "reward", "boundary", "speed", "safe"],
        table,
        title=f"pdocrl_anchored, two limits, {rows[0]['step']:,} steps, mean over seeds",
    )


if __name__ == "__main__":
    main()
