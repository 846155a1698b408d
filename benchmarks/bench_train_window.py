"""Training on a file several times larger than the memory allowed: peak memory, and the speed it costs.

    python benchmarks/bench_train_window.py --gigabytes 8 --cap-gigabytes 2

Writes a random DSRL file (deleted afterwards) and trains `pdocrl` at its default sizes on windows over it, in a process
that may hold no more data than the cap (RLIMIT_DATA: exceeding it fails). Turns of one whole window, the reading of the
next included, alternate with turns of as many steps on as many rows held in memory; the figures are medians over turns.
Writes results/train_window.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench_larger_than_memory import forget, memory, write_file


def measure(path: Path, cap: int, window: int, every: int, turns: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    from pdocrl.agents.base import make_config
    from pdocrl.agents.registry import find_agent
    from pdocrl.data.dataset import Dataset
    from pdocrl.training.buffer import open_buffers
    from pdocrl.training.trainer import Run, Trainer

    agent = find_agent("pdocrl")
    runs = [Run(make_config(agent, cost_limit=(20.0,), horizon=1000.0), 0)]
    fields = ("obs", "action", "reward", "cost", "next_obs", "terminal", "timeout")

    def rate(trainer: Trainer) -> float:
        began = time.perf_counter()
        trainer.advance(every)
        return every / (time.perf_counter() - began)

    with open_buffers(path, None, window, every) as sample:
        began = time.perf_counter()
        digest = sample.digest
        first_pass = time.perf_counter() - began
        first = sample.windows.read(0)
        held = Trainer(agent, Dataset(**{name: getattr(first, name) for name in fields}), runs)
        del first
        windowed = Trainer(agent, sample, runs)
        held.advance(1)
        windowed.advance(every)  # compilation and the first window
        pairs = [(rate(windowed), rate(held)) for _ in range(turns)]
    return {
        "first_pass_s": first_pass,
        "windowed_steps_per_s": median(w for w, _ in pairs),
        "held_steps_per_s": median(h for _, h in pairs),
        "ratio": median(w / h for w, h in pairs),
        "peak_rss_mb": memory("VmHWM") / 1e6,
        "digest": digest[:12],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--cap-gigabytes", type=float, default=2.0)
    parser.add_argument("--window", type=int, default=500_000, help="rows held at a time")
    parser.add_argument("--every", type=int, default=1000, help="steps a window serves")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the file may be written (default: the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "train_window.csv")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cap = int(options.cap_gigabytes * 1e9)
    if options.measure:
        print(json.dumps(measure(options.measure, cap, options.window, options.every, options.turns)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "large.hdf5"
        n = write_file(path, options.gigabytes, 8192)
        forget(path)
        command = [sys.executable, __file__, "--measure", path]
        for name in ("cap-gigabytes", "window", "every", "turns"):
            command += [f"--{name}", str(getattr(options, name.replace("-", "_")))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
        size = path.stat().st_size
    row = {"file_gb": size / 1e9, "cap_gb": options.cap_gigabytes, "transitions": n, "window": options.window}
    row |= {"every": options.every, **json.loads(done.stdout)}
    row = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
    for key, value in row.items():
        print(f"{key:26}{value}")
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
