"""How much of two cores roll-outs use: steps per second against twice the bare simulator on one core.

    python benchmarks/bench_rollout.py --tasks BallRun CarRun --repeats 7

"Bare" is what `gymnasium.make` gives, stepped in a loop in a process of its own. Both play whole episodes of uniformly
random actions. They are measured by turns and each turn gives one ratio, since the speed of a shared machine drifts.
A turn begins when other programs leave the machine alone (or after `--patience` seconds); how much of it they took
during the bare measurement is reported as `others`. Ratios are of wall time; `per_cpu` compares steps per second of CPU
time, the caller's included, and so holds on a busy machine too, but does not see workers that wait. `bare_together` is
what as many bare simulators reach side by side: what the machine itself gives.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from pdocrl.data import find_task
from pdocrl.envs import Rollouts
from pdocrl.policies.policy import MLPPolicy

BARE = """
import sys, time
import numpy as np, gymnasium, bullet_safety_gym
env = gymnasium.make(sys.argv[1])
horizon, seconds = env.spec.max_episode_steps, float(sys.argv[2])
env.reset()
print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    steps, began, cpu, episode = 0, time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        actions = np.random.default_rng(episode).uniform(-1, 1, (horizon, *env.action_space.shape)).astype(np.float32)
        env.reset()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            steps += 1
            if terminated or truncated:
                break
        episode += 1
    print(steps / (time.perf_counter() - began), steps / (time.process_time() - cpu), file=sys.stderr, flush=True)
"""


class Uniform:
    """Uniformly random actions, drawn an episode at a time as the bare loop does."""

    def __init__(self, horizon: int, action_dim: int) -> None:
        self.shape = horizon, action_dim

    def begin(self, seed: int):
        actions = iter(np.random.default_rng(seed).uniform(-1, 1, self.shape).astype(np.float32))
        return lambda obs, reward, cost: next(actions)


def network(obs_dim: int, action_dim: int) -> MLPPolicy:
    rng = np.random.default_rng(0)
    sizes = (obs_dim, 256, 256, action_dim)
    weights = tuple((rng.normal(size=io) / io[0] ** 0.5).astype(np.float32) for io in itertools.pairwise(sizes))
    return MLPPolicy(weights, tuple(np.zeros(n, np.float32) for n in sizes[1:]))


def ticks() -> np.ndarray:
    """(all, idle) CPU ticks of the machine so far."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return np.array([sum(fields), fields[3] + fields[4]])


def busy(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the machine that was used between two readings."""
    total, idle = after - before
    return float(1 - idle / total)


def wait_for_quiet(patience: float) -> None:
    """Until a second passes in which the machine is at least nine tenths idle."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = ticks()
        time.sleep(1.0)
        if busy(before, ticks()) < 0.1:
            return


def cpu_seconds(pool: Rollouts) -> float:
    """CPU time of the workers and of this process so far."""
    per_second = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split() for worker in pool._alive]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / per_second + time.process_time()


def rates(pool: Rollouts, policy: object, episodes: int, seed: int) -> tuple[float, float]:
    """Steps per second of wall time and of CPU time."""
    cpu, began = cpu_seconds(pool), time.perf_counter()
    steps = int(pool.run(policy, episodes, seed=seed).length.sum())
    return steps / (time.perf_counter() - began), steps / (cpu_seconds(pool) - cpu)


class Bare:
    """A process that steps the bare simulator for some seconds when told to."""

    def __init__(self, env_id: str, seconds: float) -> None:
        command = [sys.executable, "-c", BARE, env_id, str(seconds)]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        while "ready" not in self.process.stderr.readline():
            pass

    def start(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> tuple[float, float]:
        """Steps per second of wall time and of CPU time."""
        wall, cpu = map(float, self.process.stderr.readline().split())
        return wall, cpu

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, repeats: int, seconds: float, workers: int, patience: float) -> list[dict[str, float | str]]:
    task = find_task(name)
    bare = [Bare(str(task.env_id), seconds) for _ in range(workers)]
    uniform, mlp = Uniform(task.horizon, task.action_dim or 0), network(task.obs_dim or 0, task.action_dim or 0)
    rows: list[dict[str, float | str]] = []
    with Rollouts(name, workers=workers) as pool:
        pool.run(uniform, 4 * workers)
        episodes = max(2 * workers, round(rates(pool, uniform, 8 * workers, 0)[0] * seconds / task.horizon))
        for repeat in range(repeats):
            wait_for_quiet(patience)
            before = ticks()
            bare[0].start()
            single, single_cpu = bare[0].result()
            others = max(0.0, busy(before, ticks()) - 1 / (os.cpu_count() or 1))
            together, together_cpu = rates(pool, uniform, episodes, repeat)
            for process in bare:
                process.start()
            bare_together = sum(process.result()[0] for process in bare)
            with_network, _ = rates(pool, mlp, max(workers, episodes // 2), repeat)
            rows.append(
                {
                    "task": name,
                    "repeat": repeat,
                    "workers": workers,
                    "bare_steps_per_s": round(single),
                    "rollout_steps_per_s": round(together),
                    "ratio": round(together / (workers * single), 3),
                    "ratio_with_network": round(with_network / (workers * single), 3),
                    "ratio_bare_together": round(bare_together / (workers * single), 3),
                    "per_cpu": round(together_cpu / single_cpu, 3),
                    "others": round(others, 2),
                }
            )
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    for process in bare:
        process.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["BallRun", "CarRun"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "rollout.csv")
    parser.add_argument("--patience", type=float, default=60.0, help="longest wait for a quiet machine before a turn")
    options = parser.parse_args()
    how = options.repeats, options.seconds, options.workers, options.patience
    rows = [row for name in options.tasks for row in measure(name, *how)]
    options.out.parent.mkdir(exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    shown = [column for column in rows[0] if column not in ("task", "repeat", "workers")]
    print(
        f"\nmedians of {options.repeats}, ratios to {options.workers} × bare\n{'task':12}", *(f"{c:>20}" for c in shown)
    )
    for name in options.tasks:
        own = [row for row in rows if row["task"] == name]
        print(f"{name:12}", *(f"{statistics.median(float(row[c]) for row in own):>20.5g}" for c in shown))


if __name__ == "__main__":
    main()
