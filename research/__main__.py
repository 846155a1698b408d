"""The theory's figures from the command line.

    python -m research                                         list them
    python -m research rate lucky --out runs/research --logs 40
    python -m research all --jobs 2                            some hours of one core

Finished figures are not measured again: tables, pictures and the page are made from the CSV files in OUT.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pdocrl.console import print_table
from pdocrl.errors import PdocrlError
from pdocrl.table import show_tables
from research.experiments import EXPERIMENTS
from research.figures import make_figures


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m research", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", help="which, or all; default: list them and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/research"))
    parser.add_argument("--logs", type=int, help="logs (or problems) per point; default: few")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    if not given.figures:
        print_table(["figure", "what it shows"], [[name, one.about] for name, one in EXPERIMENTS.items()])
        return
    names = list(EXPERIMENTS) if given.figures == ["all"] else given.figures
    done = make_figures(given.out, names, given.logs, given.jobs)
    show_tables(done.tables, given.out)
    print(f"page: {done.page}")


if __name__ == "__main__":
    try:
        main()
    except PdocrlError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
