"""Training steps per second of nine runs side by side (three limits × three seeds) on the device JAX finds.

    python benchmarks/bench_agents_device.py --out speeds.csv         # every agent
    python benchmarks/bench_agents_device.py --agents cdt --steps 150 --profile kernels.csv
    PDOCRL_PRECISION=mixed python benchmarks/bench_agents_device.py   # every agent; or float32
    python benchmarks/bench_agents_device.py --agents pdocrl --grid   # 72 runs of AntCircle's shape, the paper's grid

Default sizes, on 100,000 random transitions of BallRun's shape. Compilation and a first round are not counted. Nothing
else may run on the device meanwhile: agents are measured one after another. `--profile` has the ten kernels that take
longest, by JAX's profiler. benchmarks/results/agents_device.csv holds speeds on an H200, device_kernels.csv profiles.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import jax
from bench_agents_cpu import random_data
from jax.profiler import ProfileData

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import BUILT_IN, find_agent
from pdocrl.bench.rates import timed
from pdocrl.console import print_table
from pdocrl.data.dataset import Dataset
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.files import write_csv
from pdocrl.nn import precision
from pdocrl.training.trainer import Run, Trainer

PROTOCOL = find_protocol("dsrl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(BUILT_IN), choices=list(BUILT_IN))
    parser.add_argument("--steps", type=int, default=1000, help="steps that are timed")
    parser.add_argument("--rows", type=int, default=100_000, help="transitions to draw from")
    parser.add_argument("--out", type=Path, help="a CSV of the table")
    parser.add_argument("--grid", action="store_true", help="eight times as many runs, wider observations")
    parser.add_argument("--profile", type=Path, help="a CSV of the kernels that take longest")
    arguments = parser.parse_args()
    dataset = random_data(arguments.rows, 34, 8) if arguments.grid else random_data(arguments.rows)
    rows, kernels = [], []
    for name in arguments.agents:
        trainer = make_trainer(name, dataset, 8 if arguments.grid else 1)
        rows.append(measure(name, trainer, arguments.steps))
        print_table(list(rows[0]), [list(row.values()) for row in rows])
        if arguments.out is not None:
            write_csv(arguments.out, rows)
        if arguments.profile is not None:
            which = {key: rows[-1][key] for key in ("agent", "mixed", "trainings")}
            kernels += [which | row for row in profile(trainer)]
            write_csv(arguments.profile, kernels)


def make_trainer(name: str, dataset: Dataset, times: int) -> Trainer:
    """So many times nine runs."""
    agent = find_agent(name)
    runs = [Run(make_config(agent, cost_limit=(c,), horizon=100.0), s) for c in PROTOCOL.limits for s in PROTOCOL.seeds]
    return Trainer(agent, dataset, runs * times)


def measure(name: str, trainer: Trainer, steps: int) -> dict[str, object]:
    trainer.advance(steps)  # compiles
    with timed() as clock:
        trainer.advance(steps)
    with precision.training(trainer.agent.mixed_precision):
        mixed = precision.for_training()
    return {
        "agent": name,
        "device": jax.devices()[0].device_kind,
        "mixed": int(mixed),
        "runs": len(trainer.runs),
        "trainings": len(trainer.seeds),
        "steps": steps,
        "steps_per_second": round(steps / clock.seconds, 1),
        "seconds_per_100_000": round(1e5 * clock.seconds / steps),
    }


def profile(trainer: Trainer, steps: int = 50) -> list[dict[str, object]]:
    """All kernels of a step together, and those that take longest."""
    count, spent = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            trainer.advance(steps)
        (path,) = Path(folder).rglob("*.xplane.pb")
        for plane in ProfileData.from_file(str(path)).planes:
            for line in (line for line in plane.lines if "/device:GPU" in plane.name and "Stream" in line.name):
                for event in line.events:
                    count[event.name] += 1
                    spent[event.name] += event.duration_ns
    top = [("all", sum(count.values()), sum(spent.values()))]
    top += [(name, count[name], duration) for name, duration in spent.most_common(10)]
    return [
        {"kernel": name[:60], "times_a_step": number / steps, "us_a_step": round(duration / steps / 1e3, 1)}
        for name, number, duration in top
    ]


if __name__ == "__main__":
    main()
