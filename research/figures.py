"""The theory's figures, each a CSV, a table and a picture, and one page of all.

OUT/NAME.csv  OUT/tables/NAME.md, .tex  OUT/pictures/NAME.png  OUT/report.html
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from pdocrl.console import log
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.files import read_csv, write_csv, write_text
from pdocrl.table import Table, write_tables
from research.experiments import EXPERIMENTS
from research.experiments.experiment import Rows
from research.page import PICTURES, render


@dataclasses.dataclass(frozen=True)
class Figures:
    """What lies in the folder: rows, tables and pictures of every figure measured so far."""

    rows: dict[str, Rows]
    tables: list[Table]
    pictures: list[Path]
    page: Path


def make_figures(folder: Path, names: Sequence[str], seeds: int | None = None, jobs: int = 1) -> Figures:
    """Measure what is not measured yet, then write every table, every picture and the page from the CSV files.

    Args:
        folder: where everything is written; figures whose CSV lies there are not measured again.
        names: the figures to measure. One whose extra is not installed is left out with a message.
        seeds: logs or problems per point; default: the figure's own, few.
        jobs: processes.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise UnknownNameError("figure", name, sorted(EXPERIMENTS))
    if seeds is not None and seeds < 1:
        raise PdocrlError(f"--logs is {seeds}; it must be at least 1.")
    found: dict[str, Rows] = {}
    tables, pictures = [], []
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.csv"
        if not path.exists() and name in names:
            missing = [part for part in experiment.needs if importlib.util.find_spec(part) is None]
            if missing:
                log(f"{name}: left out, since {' and '.join(missing)} is not installed.")
                continue
            log(f"{name}: {experiment.about}")
            write_csv(path, experiment.measure(seeds or experiment.seeds, jobs))
        if path.exists():
            found[name] = read_csv(path)
            tables.append(experiment.table(found[name]))
            for drawing in experiment.drawings(name):
                pictures.append(folder / PICTURES / f"{drawing.file}.png")
                drawing.draw(found[name], pictures[-1])
    write_tables(folder, tables)
    page = folder / "report.html"
    write_text(page, render(folder))
    return Figures(found, tables, pictures, page)
