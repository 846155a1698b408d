"""The Ray engine on a real cluster of single-core nodes: roll-outs on two nodes against one, and a worker killed.

    python benchmarks/bench_ray.py [--task BallCircle] [--episodes 60] [--turns 3]

Nodes are processes of this machine, each pinned to a core of its own: a head that runs nothing, and one or two nodes of
one CPU, a new cluster for each turn. What is played are policies of the paper's size, trained for two steps on random
numbers, because the simulator does not mind. Turns with one and with two nodes alternate; a turn is all of
`bench --no-train`: hand out, play, score, write. Beside each stands the local pool with as many processes: what the
machine gives just then. In the end a player is killed with SIGKILL in the middle of its work: the rows must be those of
a quiet run, and those of the local engine.
Every number goes to benchmarks/results/ray.csv.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from pdocrl.bench import local, on_ray
from pdocrl.bench.group import folder_of, rows_of
from pdocrl.bench.rates import Rates
from pdocrl.bench.results import Row
from pdocrl.bench.suite import Group, Method, Suite, TaskEntry
from pdocrl.console import log, print_table
from pdocrl.data import Dataset, Task, find_task, make_dataset, save
from pdocrl.envs.rollout import Rollouts
from pdocrl.training.folder import load_trained

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="BallCircle")
    parser.add_argument("--episodes", type=int, default=60, help="per policy; there are four")
    parser.add_argument("--turns", type=int, default=3, help="with one node, and with two")
    arguments = parser.parse_args()
    task = find_task(arguments.task)
    with tempfile.TemporaryDirectory(prefix="pdocrl-ray-") as name:
        base = Path(name)
        save(random_data(task), base / "random.npz")
        entry = TaskEntry(task, base / "random.npz")
        suite = Suite("ray", "", (entry,), (Method("bc"),), ((10.0,), (40.0,)), (0, 1), 2, arguments.episodes)
        (group,) = suite.groups()
        local.run(local.Work([group], base / "local", None), print, Rates(base / "rates.json"))
        expected = without_times(rows_of(group, base / "local"))
        seconds: dict[int, list[float]] = {1: [], 2: []}
        pool: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(arguments.turns):
            for count in (1, 2) if turn % 2 == 0 else (2, 1):  # neither always goes first
                out = copy_trained(group, base / "local", base / f"{count}-{turn}")
                with cluster(count):
                    play(group, copy_trained(group, base / "local", base / "warm"))  # workers and simulators start
                    began = time.perf_counter()
                    play(group, out)
                    seconds[count].append(time.perf_counter() - began)
                pool[count].append(play_in_pool(group, out, count))
                log(f"turn {turn + 1}, {count}: nodes {seconds[count][-1]:.1f} s, pool {pool[count][-1]:.1f} s")
                assert without_times(rows_of(group, out)) == expected
        killed_out = copy_trained(group, base / "local", base / "killed")
        with cluster(2) as nodes:
            play(group, copy_trained(group, base / "local", base / "warm"))
            killer = Killer(nodes, after=statistics.median(seconds[2]) / 3)
            killer.start()
            play(group, killed_out)
            killer.join()
        rows = without_times(rows_of(group, killed_out))
    one, two = statistics.median(seconds[1]), statistics.median(seconds[2])
    played = group.runs * arguments.episodes
    table: list[list[Any]] = [
        ["one single-core node, episodes/s", round(played / one, 2)],
        ["two single-core nodes, episodes/s", round(played / two, 2)],
        ["ratio", round(one / two, 3)],
        ["turns", f"{[round(s, 2) for s in seconds[1]]} against {[round(s, 2) for s in seconds[2]]} s"],
        ["local pool, two workers over one", round(statistics.median(pool[1]) / statistics.median(pool[2]), 3)],
        ["its turns", f"{[round(s, 2) for s in pool[1]]} against {[round(s, 2) for s in pool[2]]} s"],
        ["players killed with SIGKILL", len(killer.killed)],
        ["rows after the kill", f"{len(rows)} of {len(expected)}"],
        ["the same rows as without", rows == expected],
        ["load average before, without this", round(LOAD_BEFORE, 2)],
    ]
    print_table(["", "measured"], table, title=f"Ray on this machine, {played} episodes of {task.name}, medians")
    with (HERE / "results" / "ray.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["what", "measured"], *table])


LOAD_BEFORE = os.getloadavg()[0]


def random_data(task: Task) -> Dataset:
    """Ten episodes of noise in the task's shape."""
    n, rng = 10 * task.horizon, np.random.default_rng(0)
    obs, action = rng.normal(size=(n + 1, task.obs_dim or 1)), rng.uniform(-1, 1, (n, task.action_dim or 1))
    ends = np.arange(n) % task.horizon == task.horizon - 1
    return make_dataset(obs[:-1], action, rng.normal(size=n), rng.random(n) < 0.1, obs[1:], np.zeros(n), ends)


class cluster:
    """A head without CPUs and nodes of one CPU, each bound to a core of its own."""

    def __init__(self, nodes: int) -> None:
        self._count = nodes

    def __enter__(self) -> cluster:
        # Else its workers give way to everything else here.
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        mine = os.sched_getaffinity(0)
        self._nodes = []
        for core in sorted(mine)[: self._count]:
            os.sched_setaffinity(0, {core})  # inherited by the node
            self._nodes.append(self._cluster.add_node(num_cpus=1, include_dashboard=False))
        os.sched_setaffinity(0, mine)
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="error")
        self._cluster.wait_for_nodes()
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()
        self._cluster.shutdown()

    def players(self) -> list[int]:
        """Processes of this cluster that are playing now: children of its raylets, by what Ray calls them."""
        raylets = {info.process.pid for node in self._nodes for info in node.all_processes["raylet"]}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    title = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if parent in raylets and title.startswith(b"ray::play_remotely"):
                    found.append(int(entry.name))
        return found


class Killer(threading.Thread):
    """Kills one player while it plays."""

    def __init__(self, nodes: cluster, after: float) -> None:
        super().__init__(daemon=True)
        self._nodes, self._after = nodes, after
        self.killed: list[int] = []

    def run(self) -> None:
        time.sleep(self._after)
        until = time.monotonic() + 60
        while not self.killed and time.monotonic() < until:
            for pid in self._nodes.players()[:1]:
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
            time.sleep(0.01)


def play(group: Group, out: Path) -> None:
    on_ray.run(local.Work([group], out, None, train=False), lambda status: None, None)


def play_in_pool(group: Group, out: Path, workers: int) -> float:
    """Seconds the local pool takes for the same episodes: what this machine gives, as busy as it is."""
    trained = load_trained(folder_of(group, out))
    with Rollouts(group.task.name, workers, tuple(trained.config.cost_names)) as pool:
        pool.run(trained.policies, workers)
        began = time.perf_counter()
        pool.run(trained.policies, group.suite.episodes)
        return time.perf_counter() - began


def copy_trained(group: Group, source: Path, out: Path) -> Path:
    """A benchmark folder with the trained group, not scored yet."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder_of(group, source), folder_of(group, out), ignore=shutil.ignore_patterns("scores.json"))
    return out


def without_times(rows: list[Row]) -> list[Row]:
    return [dataclasses.replace(row, train_seconds=None) for row in rows]


if __name__ == "__main__":
    main()
