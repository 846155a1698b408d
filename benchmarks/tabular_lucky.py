"""Where coverage matters: the error of every method on logs of the lucky2 problem, and the figure of it.

    python benchmarks/tabular_lucky.py [--seeds 30]

What is measured is explained in `pdocrl.theory.experiments.lucky`; `pdocrl bench tabular` makes it with fewer logs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pdocrl.files import write_csv
from pdocrl.theory.experiments import EXPERIMENTS

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="logs per size")
    lucky = EXPERIMENTS["lucky"]
    rows = lucky.measure(parser.parse_args().seeds)
    lucky.table(rows).show()
    write_csv(HERE / "results" / "tabular_lucky.csv", rows)
    lucky.draw(rows, HERE.parent / "docs" / "img" / "lucky2.png")


if __name__ == "__main__":
    main()
