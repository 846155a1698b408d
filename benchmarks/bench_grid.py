"""The paper's grid on one accelerator, end to end: eight tasks × three limits × three seeds of `pdocrl`.

    python benchmarks/bench_grid.py --data FOLDER --out grid.csv
    python benchmarks/bench_grid.py --steps 5000 --readings 1

All 72 runs train as one program, as `pdocrl bench paper --agents pdocrl --no-play` does. Timed is what the command
does once its data lie in memory: data to the device, compiling, all steps, metrics, checkpoints and policies of every
task. Later readings in one process compile again too. Tasks without a file in FOLDER learn from 100,000 random
transitions of their shape, which changes no time.
benchmarks/results/grid.csv has three readings on an H200; benchmarks/README.md says what they tell.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from bench_agents_cpu import random_data

from pdocrl.bench.rates import timed
from pdocrl.console import print_table
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import load, search
from pdocrl.data.tasks import BULLET, Task
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.files import write_csv
from pdocrl.training.grid import TaskPart, train_multi_task
from pdocrl.training.trainer import warm_up

PROTOCOL = find_protocol("dsrl")


def data_of(task: Task, folder: Path | None) -> Dataset:
    found = None if folder is None else search(task, [folder])
    if found is not None:
        return load(found, task)
    assert task.obs_dim is not None
    assert task.action_dim is not None
    return random_data(100_000, task.obs_dim, task.action_dim, task.horizon)


def reading(sets: dict[Task, Dataset], steps: int, folder: Path) -> dict[str, object]:
    """One grid, from data in memory to folders."""
    jax.clear_caches()
    parts = [TaskPart(data, task, folder / task.name, PROTOCOL.limits) for task, data in sets.items()]
    with timed() as clock:
        done = train_multi_task(parts, "pdocrl", seed=PROTOCOL.seeds, steps=steps, checkpoint_every=max(1, steps // 2))
    lines = [line for line in done[0].metrics if line["run"] == 0][1:]  # without the first, which compiles
    return {
        "device": jax.devices()[0].device_kind,
        "tasks": len(parts),
        "runs": sum(len(part.policies) for part in done),
        "steps": steps,
        "seconds": round(clock.seconds, 1),
        "steps_per_second": round(float(np.median([line["steps_per_second"] for line in lines] or [np.nan])), 1),
        "stopped_early": sum(len(part.failures) for part in done),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with dataset files")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--readings", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in BULLET])
    parser.add_argument("--keep", type=Path, help="a folder for the trained runs of the last reading")
    parser.add_argument("--out", type=Path, help="a CSV of the readings")
    arguments = parser.parse_args()
    began = time.perf_counter()
    warm_up()
    sets = {task: data_of(task, arguments.data) for task in BULLET if task.name in arguments.tasks}
    print(f"data in memory after {time.perf_counter() - began:.1f} s", flush=True)
    rows = []
    for number in range(arguments.readings):
        folder = Path(tempfile.mkdtemp())
        rows.append({"reading": number, **reading(sets, arguments.steps, folder)})
        print_table(list(rows[0]), [list(row.values()) for row in rows])
        if arguments.out is not None:
            write_csv(arguments.out, rows)
        if arguments.keep is not None and number == arguments.readings - 1:
            shutil.copytree(folder, arguments.keep, dirs_exist_ok=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
