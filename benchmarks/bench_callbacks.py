"""Steps per second with and without callbacks, in one run: turns alternate, so that both meet the same machine.

    python benchmarks/bench_callbacks.py --agent bc --steps 4000 --rounds 5

Callbacks here are called every 100 steps, read all metrics and the whole state. Time is wall-clock of `train` after a
first call that compiles, with 64 × 64 units and mini-batches of 256.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import pdocrl
from pdocrl.console import print_table
from pdocrl.files import write_csv

SMALL: dict[str, Any] = {"hidden": (64, 64), "batch_size": 256}


class Look(pdocrl.Callback):
    """Reads metrics, and the state where asked to."""

    def __init__(self, every: int, state: bool) -> None:
        self.every, self.state, self.calls = every, state, 0

    def __call__(self, view: Any) -> None:
        self.calls += 1
        assert all(np.isfinite(values).all() for values in view.metrics.values())
        if self.state:
            _ = view.state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", default="bc")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="callbacks.csv")
    arguments = parser.parse_args()
    data = pdocrl.load("BallRun")

    def seconds(callbacks: list[Any]) -> float:
        begun = time.perf_counter()
        pdocrl.train(
            data, arguments.agent, cost_limit=20, steps=arguments.steps, log_every=1000, callbacks=callbacks, **SMALL
        )
        return time.perf_counter() - begun

    ways: dict[str, Any] = {
        "no callback": lambda: [],
        "every 1000 steps": lambda: [Look(1000, False)],
        "every 100 steps": lambda: [Look(100, False)],
        "every 100 steps, with the state": lambda: [Look(100, True)],
    }
    seconds([])
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, make in ways.items():
            taken[name].append(seconds(make()))
    base = statistics.median(taken["no callback"])
    rows = [
        {
            "agent": arguments.agent,
            "callbacks": name,
            "steps": arguments.steps,
            "rounds": arguments.rounds,
            "steps_per_second": round(arguments.steps / statistics.median(times), 1),
            "relative": round(base / statistics.median(times), 3),
        }
        for name, times in taken.items()
    ]
    write_csv(arguments.out, rows)
    print_table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
