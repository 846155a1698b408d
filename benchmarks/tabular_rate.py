"""The statistical rate: how the error of the saddle program falls with the number of rows.

    python benchmarks/tabular_rate.py [--seeds 40]

What is measured is explained in `pdocrl.theory.experiments.rate`; `pdocrl bench tabular` makes it with fewer problems.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pdocrl.files import write_csv
from pdocrl.theory.experiments import EXPERIMENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    rate = EXPERIMENTS["rate"]
    rows = rate.measure(parser.parse_args().seeds)
    rate.table(rows).show()
    write_csv(Path(__file__).parent / "results" / "tabular_rate.csv", rows)


if __name__ == "__main__":
    main()
