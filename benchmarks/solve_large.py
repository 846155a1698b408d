"""`pdocrl solve` on logs of many states, as a user calls it: seconds, memory, certificate, and the truth beside it.

    python benchmarks/solve_large.py --states 5000 50000 [--options --confidence 0.95]

Sparse random problems (10 actions, each pair leads to at most three states, one limit that binds), ten rows a pair in
the mean. The log is a Parquet file; time is from the start of the command to its last file. Adds its rows to
benchmarks/results/solve_large.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pdocrl.console import print_table
from pdocrl.files import read_csv, write_csv
from pdocrl.tabular.cmdp import CMDP, evaluate
from pdocrl.tabular.result.policy import load
from pdocrl.tabular.solvers import exact
from research.generators import garnet

RESULTS = Path(__file__).parent / "results" / "solve_large.csv"
ACTIONS, ROWS_A_PAIR, GAMMA = 10, 10, 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="further ones of `pdocrl solve`")
    given = parser.parse_args()
    for states in given.states:
        everywhere = np.full(states, 1 / states)  # which is what a log without a word on starts is taken to mean
        problem = dataclasses.replace(garnet(states, ACTIONS, 3, gamma=GAMMA, seed=states), d0=everywhere)
        row = measure(problem, given.options)
        rows = read_csv(RESULTS) if RESULTS.exists() else []
        write_csv(RESULTS, [*rows, row])
        print_table(list(row), [[str(value) for value in row.values()]])


def write_log(cmdp: CMDP, rows: int, path: Path) -> None:
    """Every pair tried alike, in no order: state, action, next_state, reward, good."""
    rng = np.random.default_rng(0)
    states, actions = cmdp.r.shape
    pair = rng.integers(states * actions, size=rows)
    # Cumulative probabilities of row i, moved to (i, i + 1], are one increasing list for all rows.
    ends = np.cumsum(cmdp.P.data)
    then = cmdp.P.indices[np.minimum(np.searchsorted(ends, pair + rng.uniform(size=rows)), len(ends) - 1)]
    table = {"state": pair // actions, "action": pair % actions, "next_state": then, "reward": cmdp.r.ravel()[pair]}
    pq.write_table(pa.table(table | {"good": cmdp.g[0].ravel()[pair]}), path)


def measure(cmdp: CMDP, options: list[str]) -> dict[str, Any]:
    """One call, timed from outside; the policy it wrote, in the true model."""
    states, rows = len(cmdp.d0), cmdp.r.size * ROWS_A_PAIR
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder) / "log.parquet", Path(folder) / "policy"
        write_log(cmdp, rows, log)
        asked = ["--gamma", str(GAMMA), "--limit", f"good>={cmdp.tau[0]:.9g}", "--out", str(out), *options]
        call = [sys.executable, "-m", "pdocrl.cli.main", "solve", str(log), *asked]
        began = time.perf_counter()
        process = subprocess.Popen(call, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        assert status == 0, f"{' '.join(call)} failed"
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        acting = load(out)
    policy = np.array([acting.chances(state) for state in range(states)])
    best, true = exact.solve(cmdp), evaluate(cmdp, policy)
    return {
        "states": states,
        "actions": ACTIONS,
        "rows": rows,
        "options": " ".join(options),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "largest_mb": round(usage.ru_maxrss / 1024),
        "status": result["status"],
        "certificate": result["certificate"],
        "believed": result["value"],
        "true": true.value,
        "best": best.value,
        "limit": float(cmdp.tau[0]),
        "good": float(true.constraints[0]),
    }


if __name__ == "__main__":
    main()
