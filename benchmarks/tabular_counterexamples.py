"""Proposition 1, measured: how often weighted cloning picks the bad policy, and what a saddle point does instead.

    python benchmarks/tabular_counterexamples.py [--runs 200000]

For n from 1 to 10,000: the closed form, a simulation, the same with all policies to choose from (closed form), and the
max-min over the same two policies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pdocrl.files import write_csv
from pdocrl.theory.experiments import EXPERIMENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="simulated data sets per n")
    cloning = EXPERIMENTS["cloning"]
    rows = cloning.measure(parser.parse_args().runs)
    cloning.table(rows).show()
    write_csv(Path(__file__).parent / "results" / "tabular_counterexamples.csv", rows)


if __name__ == "__main__":
    main()
