"""Proposition 1, measured: how often weighted cloning picks the bad policy, and what a saddle point does instead.

    python benchmarks/tabular_counterexamples.py [--runs 200000]

For n from 1 to 10,000: the closed form, a simulation, the same with all policies to choose from (closed form), and the
max-min over the same two policies.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from pdocrl.console import print_table
from pdocrl.files import atomic_path
from pdocrl.tabular.counterexamples import weighted_cloning_fails

COLUMNS = ("n", "closed form", "simulated", "difference", "all policies", "saddle point")
SIZES = (1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="simulated data sets per n")
    runs = parser.parse_args().runs
    example = weighted_cloning_fails()
    rows = []
    for n in SIZES:
        counts = example.sample(n, runs, seed=n)
        exact, simulated = float(example.failure_probability(n)), float(example.fails(n, counts).mean())
        saddle = float(example.saddle_fails(n, counts).mean())
        numbers = (exact, simulated, abs(exact - simulated), float(example.tabular_failure_probability(n)), saddle)
        rows.append((n, *(round(x, 6) for x in numbers)))
    print_table(COLUMNS, rows)
    with (
        atomic_path(Path(__file__).parent / "results" / "tabular_counterexamples.csv") as path,
        path.open("w", newline="") as file,
    ):
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
