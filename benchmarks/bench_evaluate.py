"""What evaluating trained policies costs beyond the simulator: steps per second of `evaluate` against bare roll-outs.

    python benchmarks/bench_evaluate.py runs/carrun --episodes 20 --repeats 5

`evaluate` is timed from call to answer: start of the worker processes, sending the policies, their networks, scoring. A
bare roll-out plays the same number of episodes of uniformly random actions on workers that are running already, so its
rate is that of the simulator and of the roll-outs' own bookkeeping. The two take turns; `share` is of one turn's rates.
`share_playing` leaves the start of the workers out. `share_per_cpu` compares steps per second of CPU time, that of all
processes and of their start, and so holds on a busy machine too. Writes results/evaluate.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import time
from pathlib import Path
from statistics import median

from bench_rollout import Uniform, busy, rates, ticks, wait_for_quiet

from pdocrl.data import find_task
from pdocrl.envs import Rollouts
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.files import write_csv
from pdocrl.training.folder import load_trained


def cpu_seconds() -> float:
    """Of this process and of the workers it has started and ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `pdocrl train --out` wrote")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--bare-episodes", type=int, default=20, help="per policy, in the turns of bare roll-outs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60.0, help="longest wait for a quiet machine before a turn")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "evaluate.csv")
    options = parser.parse_args()

    trained = dataclasses.replace(load_trained(options.folder), folder=None)  # nothing is written there
    task = find_task(str(trained.config.task))
    uniform = Uniform(task.horizon, task.action_dim or 0)
    policies, workers = len(trained.policies), len(os.sched_getaffinity(0))
    rows = []
    with Rollouts(task.name, workers) as pool:
        pool.run(uniform, 2 * workers)

        for repeat in range(options.repeats):
            wait_for_quiet(options.patience)
            bare, bare_per_cpu = rates(pool, [uniform] * policies, options.bare_episodes, repeat)
            playing, _ = rates(pool, trained.policies, options.bare_episodes, repeat)
            before, began, cpu = ticks(), time.perf_counter(), cpu_seconds()
            result = evaluate(trained, options.episodes, workers=workers)
            seconds, spent = time.perf_counter() - began, cpu_seconds() - cpu
            steps = sum(episode.length for run in result.runs for episode in run.episodes)
            rows.append(
                {
                    "task": task.name,
                    "repeat": repeat,
                    "policies": policies,
                    "episodes": options.episodes,
                    "workers": workers,
                    "steps": steps,
                    "seconds": round(seconds, 2),
                    "bare_steps_per_s": round(bare),
                    "evaluate_steps_per_s": round(steps / seconds),
                    "share": round(steps / seconds / bare, 3),
                    "share_playing": round(playing / bare, 3),
                    "share_per_cpu": round(steps / spent / bare_per_cpu, 3),
                    "busy": round(busy(before, ticks()), 2),
                }
            )
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    for column in ("bare_steps_per_s", "evaluate_steps_per_s", "share", "share_playing", "share_per_cpu"):
        print(f"median {column}: {median(row[column] for row in rows):.4g}")
    write_csv(options.out, rows)


if __name__ == "__main__":
    main()
