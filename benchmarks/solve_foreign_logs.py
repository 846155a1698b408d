"""`solve` and every other method of the tree on logs of problems with a known answer: how often limits are broken.

    OMP_NUM_THREADS=1 python benchmarks/solve_foreign_logs.py --jobs 16 --logs 40 --minutes 8 \
        --out benchmarks/results/foreign.csv
    python benchmarks/solve_foreign_logs.py --tables benchmarks/results/foreign*.csv

Baselines alone were measured into results/foreign_baselines.csv.

One row per log and method: what it believed, what is true, its interval, seconds; rows are written as they come, and
those of `solve` and the plug-in come first. The second command writes the tables of benchmarks/README.md and
benchmarks/notes/solve_logs.md from the rows; a later file's problems and methods replace an earlier one's.
Needs NumPy, SciPy, highspy, clarabel and, for sepsis, the tables of the `icu-sepsis` wheel
(pip install --no-deps icu-sepsis, or its file dynamics.npz with --sepsis). A method that takes longer than --patience
seconds on one log is not asked again on that problem.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from foreign_problems import PROBLEMS, Foreign, sepsis
from foreign_tables import write_pages

from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular import Counts, solve
from pdocrl.tabular.baselines import one_policy
from pdocrl.tabular.baselines.plain import plug_in
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import outcome
from research.methods import MEASURED

CASES = (
    ("lake", 200),
    ("lake", 1000),
    ("lake", 10_000),
    ("cliff", 200),
    ("cliff", 2000),
    ("sepsis", 2000),
    ("taxi", 300),
    ("taxi", 3000),
    ("bandit", 10_000),
    ("patients", 100),
    ("disaster", 20),
)
OURS = {"solve": {}, "solve, confidence .95": {"confidence": 0.95}, "solve, no threshold": {"min_count": 1}}
PLUG_IN = {f"plug-in, {m} rows": m for m in (1, 5, 10, 20)}
OTHERS = tuple(
    name for name, baseline in MEASURED.items() if baseline.method.limits and name not in {"pdocrl", "plug_in"}
)
METHODS = (*OURS, *PLUG_IN, *OTHERS)
SLOW = {"pdca", "wsac", "coptidice", "mo_spibb", "mbcl", "pessimistic", "pro_rl"}  # asked last
FIELDS = (
    "problem",
    "episodes",
    "log",
    "method",
    "status",
    "believed_value",
    "believed_cost",
    "true_value",
    "true_cost",
    "value_low",
    "value_high",
    "cost_low",
    "cost_high",
    "limit",
    "optimum",
    "seconds",
)
Row = dict[str, Any]


class TooLongError(Exception):
    """A method's time on one log is up."""


class Task(NamedTuple):
    """Some methods on one log."""

    problem: str
    episodes: int
    log: int
    methods: tuple[str, ...]


class Known(NamedTuple):
    """A problem and what the best policy there is earns."""

    problem: Foreign
    optimum: float


KNOWN: dict[str, Known] = {}  # filled before the workers are forked


def run(problem: Foreign, counts: Counts, method: str) -> Row:
    """A policy, what is believed of it and, for ours, its intervals."""
    gamma, limits = problem.cmdp.gamma, {"cost": float(-problem.cmdp.tau[0])}
    if method in OURS:
        result = solve(counts, gamma, limits, **OURS[method])
        found: Row = {"policy": result.policy, "status": result.status}
        found |= {"believed_value": result.value, "believed_cost": float(result.costs[0])}
        if result.intervals is not None:
            low, high = result.intervals.value
            found |= {"value_low": low, "value_high": high}
            found |= dict(zip(("cost_low", "cost_high"), result.intervals.costs["cost"], strict=True))
        return found
    L = Lagrangian.empirical(counts, gamma, as_limits(limits))
    if method in PLUG_IN:
        answer: Floats | Mixture = plug_in(counts, gamma, limits, PLUG_IN[method])
    else:
        answer = MEASURED[method].method.run(counts, gamma, limits)
    policy = one_policy(L, answer) if isinstance(answer, Mixture) else answer
    value, cost = outcome(pessimistic_model(L), policy)
    return {"policy": policy, "status": "", "believed_value": value, "believed_cost": -cost}


def one_log(task: Task, patience: float, deadline: float) -> list[Row]:
    """The task's methods on its log; those that the deadline cuts off are left out."""
    problem, optimum = KNOWN[task.problem]
    counts = problem.counts(task.episodes, task.log)
    rows = []
    for method in task.methods:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        row: Row = {"problem": task.problem, "episodes": task.episodes, "log": task.log, "method": method}
        start = time.perf_counter()
        signal.signal(signal.SIGALRM, _up)
        signal.setitimer(signal.ITIMER_REAL, min(patience, left))
        try:
            found = run(problem, counts, method)
            value, cost = problem.evaluate(found.pop("policy"))
            row |= found | {"true_value": value, "true_cost": cost}
        except TooLongError:
            if left < patience:
                break
            row["status"] = "too long"
        except (PdocrlError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            row["status"] = f"failed: {error}"[:100]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        row |= {"limit": float(-problem.cmdp.tau[0]), "optimum": optimum, "seconds": time.perf_counter() - start}
        rows.append(row)
    return rows


def _up(*_: object) -> None:
    raise TooLongError


def tasks(cases: list[tuple[str, int]], logs: range, asked: tuple[str, ...]) -> Iterator[Task]:
    """What matters first: `solve` with and without a confidence, the plug-in, quick and slow baselines; a log of
    every case in turn, so that a time limit leaves as many logs of one case as of another."""
    confident = tuple(method for method in asked if "confidence" in method)
    ours = tuple(method for method in asked if method in {"solve", *PLUG_IN})
    slow = tuple((method,) for method in asked if method in SLOW)
    quick = tuple(method for method in asked if method not in {*ours, *confident, *SLOW})
    for some in ((confident, ours), (quick,), slow):
        for log in logs:
            for problem, episodes in cases:
                yield from (Task(problem, episodes, log, methods) for methods in some if methods)


def measure(todo: Iterator[Task], jobs: int, patience: float, minutes: float) -> Iterator[list[Row]]:
    """Rows as they come. Tasks are handed out one by one, so that what was too slow once is not asked again."""
    deadline = time.monotonic() + 60 * minutes
    slow: set[tuple[str, int, str]] = set()
    running: set[Future[list[Row]]] = set()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        while True:
            while len(running) < jobs + 2 and time.monotonic() < deadline and (task := next(todo, None)):
                methods = tuple(m for m in task.methods if (task.problem, task.episodes, m) not in slow)
                if methods:
                    running.add(pool.submit(one_log, task._replace(methods=methods), patience, deadline))
            if not running:
                return
            done, running = wait(running, timeout=max(deadline + 30 - time.monotonic(), 1), return_when=FIRST_COMPLETED)
            if not done:  # a solver that does not hear the alarm
                for process in list(pool._processes.values()):
                    process.kill()
                return
            for future in done:
                rows = future.result()
                slow |= {
                    (row["problem"], row["episodes"], row["method"]) for row in rows if row["status"] == "too long"
                }
                yield rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--logs", type=int, default=40, help="per problem")
    parser.add_argument("--first", type=int, default=0, help="number of the first log")
    parser.add_argument("--cases", nargs="*", help="such as lake,1000 sepsis,2000; all unless told")
    parser.add_argument("--methods", nargs="*", help=f"of {', '.join(METHODS)}")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds a method has for one log")
    parser.add_argument(
        "--minutes", type=float, default=1e4, help="after these nothing new is begun, and what runs ends"
    )
    parser.add_argument("--sepsis", type=Path, help="dynamics.npz of the icu-sepsis wheel, where that is not installed")
    parser.add_argument("--out", type=Path, default=Path("foreign.csv"))
    parser.add_argument("--tables", type=Path, nargs="+", help="measure nothing; write the pages' tables from these")
    arguments = parser.parse_args()
    if arguments.tables:
        write_pages(arguments.tables)
        return
    cases = [(case.split(",")[0], int(case.split(",")[1])) for case in arguments.cases or ()] or list(CASES)
    for name in dict.fromkeys(name for name, _ in cases):
        problem = sepsis(arguments.sepsis) if name == "sepsis" else PROBLEMS[name]()
        KNOWN[name] = Known(problem, exact.solve(problem.cmdp).value)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        logs = range(arguments.first, arguments.first + arguments.logs)
        todo = tasks(cases, logs, tuple(arguments.methods or METHODS))
        start, count = time.monotonic(), 0
        for rows in measure(todo, arguments.jobs, arguments.patience, arguments.minutes):
            writer.writerows([{k: f"{v:.9g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows])
            file.flush()
            count += len(rows)
            for row in rows:
                if row["seconds"] > arguments.patience / 4 or row["status"].startswith("failed"):
                    name = f"{row['problem']},{row['episodes']} log {row['log']}"
                    print(
                        f"{name}: {row['method']}: {row['status']} {row['seconds']:.0f} s", file=sys.stderr, flush=True
                    )
        print(f"{count} rows in {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
