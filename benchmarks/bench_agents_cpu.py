"""Training steps per second of every agent on this CPU, at its default sizes, one run.

    python benchmarks/bench_agents_cpu.py --steps 200 --out benchmarks/results/agents_cpu.csv

Compilation is not counted. Agents take turns, and each is measured `--rounds` times; the best round counts, because a
shared machine can only make a round slower.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np

from pdocrl.agents.agent import BUILT_IN, find_agent, make_config
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.training.loop import Run, Trainer


def random_data(n: int, obs_dim: int = 7, action_dim: int = 2, horizon: int = 100) -> Dataset:
    """Data of BallRun's shape; what it holds does not change the speed."""
    rng = np.random.default_rng(0)
    return make_dataset(
        rng.normal(size=(n, obs_dim)), rng.uniform(-1, 1, (n, action_dim)), rng.normal(size=n), rng.random(n) < 0.1,
        rng.normal(size=(n, obs_dim)), np.zeros(n), np.arange(n) % horizon == horizon - 1,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(BUILT_IN))
    parser.add_argument("--steps", type=int, default=200, help="per round; CDT takes a tenth of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()

    dataset = random_data(100_000)
    trainers = {}
    for name in arguments.agents:
        agent = find_agent(name)
        trainers[name] = Trainer(agent, dataset, [Run(make_config(agent, cost_limit=(20.0,), horizon=100.0), 0)])
        trainers[name].advance(1)
    best = dict.fromkeys(trainers, 0.0)
    for _ in range(arguments.rounds):
        for name, trainer in trainers.items():
            steps = max(1, arguments.steps // 10) if name == "cdt" else arguments.steps
            began = time.perf_counter()
            trainer.advance(steps)
            best[name] = max(best[name], steps / (time.perf_counter() - began))
    rows = [{"agent": name, "steps_per_second": round(rate, 1), "cores": os.cpu_count()} for name, rate in best.items()]
    for row in rows:
        print(f"{row['agent']:20} {row['steps_per_second']:10.1f} steps/s")
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
