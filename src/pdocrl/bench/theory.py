"""The suite `tabular`: the theory's figures, each a CSV, a table and a picture.

OUT/NAME.csv  OUT/tables/NAME.md, .tex  OUT/pictures/NAME.png
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.bench.results import SUITE, SuiteFile, read_suite, write_suite
from pdocrl.console import log
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.files import write_csv
from pdocrl.table import Table, write_tables
from pdocrl.theory.experiments import EXPERIMENTS
from pdocrl.theory.experiments.experiment import Rows

PICTURES = "pictures"


@dataclasses.dataclass(frozen=True)
class Theory:
    """What came of it."""

    folder: Path
    rows: dict[str, Rows]
    tables: list[Table]
    pictures: list[Path]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        groups = [{"name": name, "status": "done", "reason": ""} for name in self.rows]
        pictures = [str(path) for path in self.pictures]
        return {"suite": "tabular", "out": str(self.folder), "groups": groups, "table": self.rows, "pictures": pictures}


def run_theory(folder: Path, seeds: int | None = None, jobs: int = 1, figures: Sequence[str] = ()) -> Theory:
    """Measure what is not measured yet, then write every table and picture from the CSV files.

    `figures` are the ones to measure, all by default; what a figure needs and is not installed leaves it out.
    """
    for name in figures:
        if name not in EXPERIMENTS:
            raise UnknownNameError("figure", name, sorted(EXPERIMENTS))
    _refuse_another(folder)
    repeated = {name: seeds or experiment.seeds for name, experiment in EXPERIMENTS.items()}
    write_suite(folder, SuiteFile(name="tabular", kind="tabular", figures=repeated))
    found: dict[str, Rows] = {}
    tables, pictures = [], []
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.csv"
        if not path.exists() and (name in figures or not figures):
            missing = [part for part in experiment.needs if importlib.util.find_spec(part) is None]
            if missing and name not in figures:
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
    return Theory(folder, found, tables, pictures)


def read_csv(path: Path) -> Rows:
    """Rows with numbers as numbers."""

    def value(text: str) -> Any:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        return text

    with path.open(newline="", encoding="utf-8") as file:
        rows = [{key: value(text) for key, text in row.items()} for row in csv.DictReader(file)]
    if not rows:
        raise PdocrlError(f"{path}: holds no rows. Remove it; the same command measures again.")
    return rows


def _refuse_another(folder: Path) -> None:
    if (folder / SUITE).exists() and read_suite(folder).name != "tabular":
        raise PdocrlError(f"{folder}: holds another suite. Choose another --out.")
