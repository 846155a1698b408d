"""dial under a limit on the tail and under limits on the mean, of the very same short trainings, on the Bullet tasks.

    python benchmarks/dial_tails.py --data FOLDER [--tasks BallRun …] [--seeds 0] [--steps 4000] [--out FILE]

Networks of 128. One training is asked for a mean cost of 5, 10, 20 and 40 and for P(cost>20)<=0.1. A row
is one of them: what was predicted, and what 20 episodes (of the limit on the tail, 40) came to. Trainings that lie in
--runs are not made again.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import pdocrl
from pdocrl.data.tasks import find_task
from pdocrl.evaluation.normalise import normalised_reward
from pdocrl.limits import Limit
from pdocrl.policies.dial import prediction
from pdocrl.training.folder import load_trained

MEANS, TAIL = (5.0, 10.0, 20.0, 40.0), "P(cost>20)<=0.1"
SMALL: dict[str, Any] = {"hidden": (128, 128), "model_hidden": (128, 128)}
HERE = Path(__file__).parent


def rows_of(file: Path, task: str, seed: int, runs: Path, steps: int) -> list[dict[str, Any]]:
    """Train once, or take what is there, and play five limits."""
    folder = runs / f"{task}-{seed}-{steps}"
    if not (folder / "policies.npz").exists():
        data = pdocrl.load(file, task)
        pdocrl.train(data, "dial", cost_limit=20, seed=seed, steps=steps, out=folder, **SMALL)
    trained = load_trained(folder)
    seconds = (folder / "policies.npz").stat().st_mtime - (folder / "run.json").stat().st_mtime
    found, earlier = [], [float("-inf")]
    for limit, episodes in [(f"cost<={x:g}", 20) for x in MEANS] + [(TAIL, 40)]:
        asked: Any = limit if limit == TAIL else Limit.parse(limit).value
        (run,) = pdocrl.evaluate(trained, episodes, cost_limit=[asked], task=task, workers=0).runs
        said: Any = prediction(trained.policy(cost_limit=asked))
        value, bound = said.tails[0][1:3] if said.tails else (float(said.cost[0]), float(said.bound[0]))
        costs = [episode.cost[0] for episode in run.episodes]
        one = Limit.parse(limit)
        row: dict[str, Any] = {"task": task, "seed": seed, "steps": steps, "limit": limit, "episodes": episodes}
        row |= {"predicted_within": said.within, "predicted": value, "bound": bound}
        row |= {"played": one.of(costs), "satisfied": one.satisfied(costs), "mean_cost": sum(costs) / len(costs)}
        row |= {"share_over_20": Limit.parse(TAIL).of(costs), "cvar90": Limit.parse("CVaR90(cost)<=20").of(costs)}
        row |= {"normalized_reward": run.normalized_reward}
        row |= {"predicted_reward": float(normalised_reward(find_task(task), said.reward))}
        row |= {"less_than_at_smaller": max(0.0, max(earlier) - run.normalized_reward) if limit != TAIL else None}
        row |= {"seconds": seconds}
        earlier.append(run.normalized_reward)
        found.append({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one HDF5 file per task, named by it")
    parser.add_argument("--tasks", nargs="+", default=["BallRun", "CarRun", "DroneRun", "BallCircle", "CarCircle"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--runs", type=Path, default=Path("runs/dial_tails"))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "dial_tails.csv")
    given = parser.parse_args()
    for seed in given.seeds:
        for task in given.tasks:
            (file,) = [x for x in given.data.glob("*.hdf5") if task.lower() in x.name.lower()]
            rows = rows_of(file, task, seed, given.runs, given.steps)
            fresh = not given.out.exists()
            with given.out.open("a", newline="") as out:
                writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerows(rows)
            for row in rows:
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
