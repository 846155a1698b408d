"""Training steps per second of nine runs side by side (three limits × three seeds) on the device JAX finds.

    python benchmarks/bench_agents_device.py --out speeds.csv         # every agent
    python benchmarks/bench_agents_device.py --agents cdt --steps 150

Default sizes, on 100,000 random transitions of BallRun's shape. Compilation and a first round are not counted. Nothing
else may run on the device meanwhile: agents are measured one after another.
benchmarks/results/agents_device.csv holds speeds on an H200.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
from bench_agents_cpu import random_data

from pdocrl.agents.agent import BUILT_IN, find_agent, make_config
from pdocrl.bench.rates import timed
from pdocrl.console import print_table
from pdocrl.data.dataset import Dataset
from pdocrl.files import write_csv
from pdocrl.scores.protocols import find_protocol
from pdocrl.training.loop import Run, Trainer

PROTOCOL = find_protocol("dsrl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(BUILT_IN), choices=list(BUILT_IN))
    parser.add_argument("--steps", type=int, default=1000, help="steps that are timed")
    parser.add_argument("--rows", type=int, default=100_000, help="transitions to draw from")
    parser.add_argument("--out", type=Path, help="a CSV of the table")
    arguments = parser.parse_args()
    dataset, rows = random_data(arguments.rows), []
    for name in arguments.agents:
        rows.append(measure(name, dataset, arguments.steps))
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    if arguments.out is not None:
        write_csv(arguments.out, rows)


def measure(name: str, dataset: Dataset, steps: int) -> dict[str, object]:
    agent = find_agent(name)
    runs = [Run(make_config(agent, cost_limit=(c,), horizon=100.0), s) for c in PROTOCOL.limits for s in PROTOCOL.seeds]
    trainer = Trainer(agent, dataset, runs)
    trainer.advance(steps)  # compiles
    with timed() as clock:
        trainer.advance(steps)
    return {
        "agent": name,
        "device": jax.devices()[0].device_kind,
        "runs": len(runs),
        "trainings": len(trainer.seeds),
        "steps": steps,
        "steps_per_second": round(steps / clock.seconds, 1),
        "seconds_per_100_000": round(1e5 * clock.seconds / steps),
    }


if __name__ == "__main__":
    main()
