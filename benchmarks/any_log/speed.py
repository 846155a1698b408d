"""Seconds and memory of `pdocrl.solve` on large logs of columns.

    PYTHONPATH=benchmarks python benchmarks/any_log/speed.py ROWS …

A clinic-like log (`worlds`) of 20 columns and 5 actions, written with about 100,000 rows; larger logs are copies of
its episodes under other names, written by DuckDB. Each is solved in a process of its own, whose CPU seconds and largest
resident set are appended to benchmarks/results/any_log_speed.csv.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow
from any_log import worlds
from pyarrow import parquet

RESULTS = Path(__file__).parents[1] / "results" / "any_log_speed.csv"
EPISODES, MORE = 3000, 8  # of the first log; columns of noise beside the clinic's twelve
FIELDS = ("rows", "used", "columns", "actions", "status", "seconds", "cpu_seconds", "peak_mib", "commit")
SOLVE = """
import resource, sys, time
import pdocrl
began = time.monotonic()
found = pdocrl.solve(sys.argv[1], limits=["harm<=7"], horizon=40, confidence=0.95, columns={"decider": "decider"})
seconds = time.monotonic() - began
own = resource.getrusage(resource.RUSAGE_SELF)
one = found.record
print(one.rows, one.used, len(one.columns), len(one.actions), f"{one.status}: {one.chosen}", f"{seconds:.0f}",
      f"{own.ru_utime + own.ru_stime:.0f}", f"{own.ru_maxrss / 1024:.0f}", sep="\\t")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="+")
    asked = parser.parse_args().rows
    commit = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(commit, capture_output=True, text=True, cwd=Path(__file__).parent, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        first = write_log(Path(folder) / "log.parquet")
        for rows in asked:
            file = first if rows <= EPISODES * 40 else copied(first, rows)
            told = subprocess.run([sys.executable, "-c", SOLVE, str(file)], capture_output=True, text=True, check=True)
            new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as out:
                values = [*told.stdout.strip().split("\t"), head]
                csv.writer(out, lineterminator="\n").writerows([FIELDS, values] if new else [values])


def write_log(file: Path) -> Path:
    log = worlds.make_log(worlds.CLINIC, EPISODES, 0)
    rng = np.random.default_rng(1)
    for j in range(MORE):
        log[f"more_{j}"] = rng.normal(size=len(log["step"]))
    parquet.write_table(pyarrow.table(log), file)
    return file


def copied(first: Path, rows: int) -> Path:
    """About so many rows, by copies of whole episodes."""
    file = first.with_name(f"{rows}.parquet")
    with duckdb.connect() as db:
        count = (db.execute(f"SELECT count(*) FROM '{first}'").fetchone() or (1,))[0]
        times = round(rows / count)
        db.execute(
            f"COPY (SELECT * REPLACE (episode + {EPISODES} * k AS episode) FROM '{first}', range({times}) AS r(k)) "
            f"TO '{file}' (FORMAT parquet)"
        )
    return file


if __name__ == "__main__":
    main()
