"""How long `pdocrl ope` takes: one fit of a dataset, then nine policies on it.

    python benchmarks/bench_ope.py --data FILE [--task DroneRun] [--agent bc]

Nine policies, three limits by three seeds, of a short training: how good they are does not change the time. Nothing is
kept in the cache. Wall and CPU seconds, compilation included.
"""

from __future__ import annotations

import argparse
import os
import time

from pdocrl import train
from pdocrl.data import load
from pdocrl.ope import Prepared, estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--task", default="DroneRun")
    parser.add_argument("--agent", default="bc")
    asked = parser.parse_args()
    data = load(asked.data, asked.task)
    trained = train(data, asked.agent, task=asked.task, cost_limit=[10.0, 20.0, 40.0], seed=[0, 1, 2], steps=200)
    ready = Prepared.of(data, cache=False)
    for what, work in (("fit", lambda: ready.learned), ("nine policies", lambda: estimate(trained, ready))):
        wall, cpu = time.monotonic(), time.process_time()
        work()
        seconds = f"{time.monotonic() - wall:.0f} s, {time.process_time() - cpu:.0f} s of CPU"
        print(f"{asked.task}, {what}: {seconds} on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
