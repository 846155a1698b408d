"""Counts: an iteration over them against one over the samples, and a Parquet log of 100 million rows.

    python benchmarks/tabular_counts.py [--rows 100000000] [--threads 2]

The log is written by DuckDB to a temporary folder and removed. Speed is against DuckDB's own bare scan (sums of the
same five columns) in the same run; memory is the largest resident size of a fresh process that only counts. CPU seconds
are given beside the clock's, because the clock's are of a machine that may have other work.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from pdocrl.console import print_table
from pdocrl.files import atomic_path
from pdocrl.limits import as_limits
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.io.logs import count_log
from pdocrl.tabular.solvers.lagrangian import Lagrangian

STATES, ACTIONS, GAMMA = 200, 5, 0.95
HERE = Path(__file__).parent


def seconds(work: Callable[[], object], least: float = 0.5) -> float:
    """The least time of one call, over repeats that take at least so long together."""
    times: list[float] = []
    while sum(times) < least or len(times) < 3:
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def iteration_row(n: int) -> list[object]:
    """[rows, µs, µs, ratio] of one iteration of Algorithm 1's gradients, by counts and by samples, which agree."""
    rng = np.random.default_rng(0)
    s, a = rng.integers(STATES, size=n), rng.integers(ACTIONS, size=n)
    then = (7 * s + 3 * a + rng.integers(6, size=n)) % STATES
    r, c = rng.uniform(size=(STATES, ACTIONS))[s, a], rng.uniform(size=(STATES, ACTIONS))[s, a]
    counts = Counts.from_arrays(s, a, then, r, c, d0=np.eye(STATES)[0], n_states=STATES, n_actions=ACTIONS)
    L = Lagrangian.empirical(counts, GAMMA, as_limits(["cost<=0.4"]))
    w, pi = rng.uniform(0, 2, (STATES, ACTIONS)), rng.dirichlet(np.ones(ACTIONS), size=STATES)
    Q, lam, pair = rng.normal(size=(STATES, ACTIONS)), np.array([0.7]), s * ACTIONS + a

    def by_counts() -> tuple[np.ndarray, ...]:
        mu = w * L.mu_D
        nu = pi * L.inflow(mu)[:, None]
        return nu - mu, L.slack(mu), L.mu_D * L.residual((pi * Q).sum(axis=1), Q, lam)

    def by_samples() -> tuple[np.ndarray, ...]:
        V, at = (pi * Q).sum(axis=1), w.ravel()[pair]
        mass = (1 - GAMMA) * L.d0 + GAMMA * np.bincount(then, weights=at, minlength=STATES) / n
        mu = np.bincount(pair, weights=at, minlength=STATES * ACTIONS).reshape(w.shape) / n
        residual = r - lam[0] * c + GAMMA * V[then] - Q.ravel()[pair]
        grad_w = np.bincount(pair, weights=residual, minlength=STATES * ACTIONS).reshape(w.shape) / n
        return pi * mass[:, None] - mu, np.array([0.4 - (at * c).mean()]), grad_w

    for one, other in zip(by_counts(), by_samples(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    fast, slow = seconds(by_counts), seconds(by_samples, least=2.0)
    return [n, 1e6 * fast, 1e6 * slow, slow / fast]


def write_log(path: Path, rows: int, threads: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}; SET memory_limit = '1GB'; SET preserve_insertion_order = false")
        connection.execute(f"""
            COPY (SELECT s AS state, a AS action, (7 * s + 3 * a + k) % {STATES} AS next_state,
                         (k * 0.37 + a * 0.1)::DOUBLE AS reward, (CASE WHEN k = 0 THEN 1 ELSE 0.25 END)::DOUBLE AS cost,
                         i % 1000 = 0 AS initial
                  FROM (SELECT i, (hash(i) % {STATES})::INTEGER AS s, (hash(i + 1000000007) % {ACTIONS})::INTEGER AS a,
                               (hash(3 * i + 17) % 6)::INTEGER AS k FROM range({rows}) t(i)))
            TO '{path}' (FORMAT parquet)""")


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def scan(path: str, threads: int) -> tuple[float, float]:
    """DuckDB's bare scan of the columns that are counted: seconds and CPU seconds."""
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}; SET memory_limit = '1GB'")
        columns = ("state", "action", "next_state", "reward", "cost")
        begun, busy = time.perf_counter(), cpu()
        connection.execute(f"SELECT {', '.join(f'sum({c})' for c in columns)} FROM read_parquet('{path}')").fetchall()
        return time.perf_counter() - begun, cpu() - busy


def count_alone(path: str, threads: int) -> None:
    """In a process of its own: count, and print seconds, CPU seconds, groups, rows and the largest resident MB."""
    begun, busy = time.perf_counter(), cpu()
    counts = count_log(path, costs=["cost"], memory="1GB", threads=threads)
    took, busy = time.perf_counter() - begun, cpu() - busy
    print(took, busy, len(counts.count), counts.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count-alone", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count_alone:
        return count_alone(options.count_alone, options.threads)
    iterations = [iteration_row(n) for n in (10_000, 100_000, 1_000_000)]
    title = f"One iteration, S={STATES}, A={ACTIONS}"
    print_table(["rows", "counts µs", "samples µs", "times faster"], iterations, title)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, options.rows, options.threads)
        size = path.stat().st_size / 1e6
        scanned, scanned_cpu = scan(str(path), options.threads)
        command = [sys.executable, __file__, "--count-alone", str(path), "--threads", str(options.threads)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    took, busy, groups, counted, memory = (float(x) for x in answer)
    assert counted == options.rows
    million = options.rows / 1e6
    log = [options.rows, size, million / scanned, scanned_cpu, million / took, took, busy, memory, int(groups)]
    header = [
        "rows",
        "file MB",
        "bare scan, M rows/s",
        "CPU s",
        "counting, M rows/s",
        "s",
        "CPU s",
        "largest MB",
        "transitions",
    ]
    print_table(header, [log], f"A Parquet log, {options.threads} threads")
    with atomic_path(HERE / "results" / "tabular_counts.csv") as out, out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rows", "counts us", "samples us", "times faster"])
        writer.writerows(iterations)
        writer.writerow(header)
        writer.writerow(log)
    return None


if __name__ == "__main__":
    main()
