"""How far `pdocrl bench --plan` is from the truth: planned and real seconds of every group of a suite.

    python benchmarks/bench_plan.py [SUITE] --data FOLDER [--tasks …] [--agents …] [--train-only] --out plan.csv

The plan is made from nothing (no remembered speeds): `first` is what it says then, after its few seconds of measuring.
The groups are then trained and played one after the other, and `took` is what each took. The plan is made again from
what was remembered of that, `again`, and then everything is done a second time, `took_again`: a machine that was
measured once. `first_ratio` and `again_ratio` are plan over truth. Everything lies in a temporary folder and is lost.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

from pdocrl.bench import local, run
from pdocrl.bench.rates import Rates, timed
from pdocrl.bench.run import Selection, make_plan
from pdocrl.bench.suite_file import find_suite


def seconds_of(planned: Any) -> float:
    return (planned.train_seconds or 0.0) + (planned.play_seconds or 0.0)


def seconds_for(group: Any, selection: Selection, rates: Rates) -> float:
    """What training and playing a group took; its speeds are remembered."""
    statuses: list[Any] = []
    with timed() as clock:
        local.run(local.Work([group], selection.out, selection.data, True, selection.evaluate), statuses.append, rates)
    assert statuses[0].status in ("done", "trained"), statuses[0]
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", default=str(Path(__file__).with_name("plan.toml")))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tasks", nargs="*", default=[])
    parser.add_argument("--agents", nargs="*", default=[])
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        run.WORTH_MEASURING = 0  # short work too
        suite, rates = find_suite(given.suite), Rates(Path(place) / "rates.json")
        for planned, took in (("first", "took"), ("again", "took_again")):
            selection = Selection(
                Path(place) / planned,
                given.data,
                tuple(given.agents),
                tuple(given.tasks),
                evaluate=not given.train_only,
            )
            groups = make_plan(suite, selection, rates).groups
            rows = rows or [{"group": g.group.name, "runs": g.group.runs, "steps": g.group.steps} for g in groups]
            for row, group in zip(rows, groups, strict=True):
                row |= {planned: seconds_of(group), took: seconds_for(group.group, selection, rates)}
    total = {name: sum(row[name] for row in rows) for name in ("first", "took", "again", "took_again")}
    rows.append({"group": "all", "runs": "", "steps": "", **total})
    for row in rows:
        row |= {"first_ratio": row["first"] / row["took"], "again_ratio": row["again"] / row["took_again"]}
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            shown = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
            writer.writerow(shown)
            print(shown)


if __name__ == "__main__":
    main()
