"""What `bcrl`, `caps_sac` and `b2r` do after a training that two cores finish in minutes.

    python benchmarks/small.py --data FOLDER [--agents bcrl] [--out runs/small]

Three seeds, networks of 128 × 128 and batches of 256, 8,000 steps (`bcrl` 24,000); `b2r` two blocks of width 64, 5,000
steps, limit 20 and three tasks alone, since it trains for each limit. Far from the published sizes: behaviour, not a
measurement of the methods. Writes benchmarks/results/small.csv, one row a policy and limit; rows of other agents stay.
What is trained in OUT already is not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pdocrl.data.load import search
from pdocrl.data.tasks import find_task
from pdocrl.evaluation.evaluate import evaluate, read_scores
from pdocrl.files import read_csv, write_csv
from pdocrl.training.train import train

ROWS = Path(__file__).parent / "results" / "small.csv"
SEEDS = (0, 5, 10)
TASKS = ("BallRun", "CarRun", "BallCircle", "CarCircle", "DroneRun")
NETWORKS: dict[str, Any] = {"hidden": (128, 128), "batch_size": 256}
TRANSFORMER: dict[str, Any] = {"embedding": 64, "heads": 4, "layers": 2, "batch_size": 256, "warmup": 500.0}
AGENTS: dict[str, tuple[dict[str, Any], list[float], int, int]] = {  # settings, limits, steps, tasks
    "caps_sac": (NETWORKS, [10, 20, 40], 8000, 5),
    "bcrl": (NETWORKS | {"decay": 24_000.0}, [10, 20, 40], 24_000, 5),
    "b2r": (TRANSFORMER, [20], 5000, 3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/small"))
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=list(AGENTS))
    given = parser.parse_args()
    rows = [row for row in read_csv(ROWS) if row["agent"] not in given.agents]
    for agent in given.agents:
        settings, limits, steps, tasks = AGENTS[agent]
        for task in TASKS[:tasks]:
            folder = given.out / f"{agent}-{task}"
            if not (folder / "scores.json").exists():
                data = search(find_task(task), [given.data])
                train(data, agent, task=task, cost_limit=limits, seed=SEEDS, steps=steps, settings=settings, out=folder)
                evaluate(folder, 20)
            rows += [
                {
                    "agent": agent,
                    "task": task,
                    "cost_limit": run.cost_limit[0],
                    "seed": run.seed,
                    "step": steps,
                    "episodes": len(run.episodes),
                    "normalized_reward": round(run.normalized_reward, 6),
                    "normalized_cost": round(run.normalized_cost, 6),
                    "safe": run.safe,
                }
                for run in read_scores(folder).runs
            ]
    write_csv(ROWS, rows)


if __name__ == "__main__":
    main()
