"""Exact solutions of known CMDPs: simplex, interior point and Dantzig–Wolfe, by size.

    python benchmarks/tabular_exact.py [--largest 100000]

Seconds are of one run; both wall-clock and processor time are given, since only the latter ignores other work on the
machine. `to LP` is the distance of the value to the simplex method's, where that was run.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

from pdocrl.console import log, print_table
from pdocrl.files import atomic_path
from pdocrl.tabular.solvers.exact import solve_columns, solve_lp
from research.generators import garnet, gridworld

COLUMNS = ("problem", "states", "method", "wall s", "cpu s", "value", "gap", "to LP", "policies", "status")
LP_STATES = 1024  # the largest problem given to the linear programs: beyond, they take minutes to hours
GRID_STATES = 10_000  # with more, the goal lies far beyond the horizon 1/(1−γ)
METHODS = {
    "simplex": solve_lp,
    "ipm": lambda cmdp: solve_lp(cmdp, "ipm"),
    "Dantzig–Wolfe": lambda cmdp: solve_columns(cmdp, tolerance=1e-7),
}
PROBLEMS = {
    "garnet, γ=.95, 1 limit": lambda S: garnet(S),
    "garnet, γ=.99, 3 limits": lambda S: garnet(S, gamma=0.99, n_constraints=3),
    "grid, γ=.99, 1 limit": lambda S: gridworld(round(S**0.5), round(S**0.5), gamma=0.99),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="number of states to go up to")
    largest = parser.parse_args().largest
    rows = []
    for states in (size for size in (100, 1000, 10_000, 100_000) if size <= largest):
        for problem, make in PROBLEMS.items():
            if problem.startswith("grid") and states > GRID_STATES:
                continue
            cmdp = make(states)
            reference = None
            for method, solver in METHODS.items():
                if method != "Dantzig–Wolfe" and cmdp.n_states > LP_STATES:
                    continue
                wall, cpu = time.perf_counter(), time.process_time()
                found = solver(cmdp)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                reference = found.value if method == "simplex" else reference
                distance = "" if reference is None else f"{abs(found.value - reference):.1e}"
                timing = (round(wall, 3), round(cpu, 3))
                proof = (f"{found.value:.9f}", f"{found.gap:.1e}", distance, len(found.weights) or "", found.status)
                rows.append((problem, cmdp.n_states, method, *timing, *proof))
                log(" ".join(str(cell) for cell in rows[-1]))
    print_table(COLUMNS, rows)
    with (
        atomic_path(Path(__file__).parent / "results" / "tabular_exact.csv") as path,
        path.open("w", newline="") as file,
    ):
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
