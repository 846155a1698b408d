"""How far `pdocrl bench --plan` is from the truth: planned and real seconds of every group of a suite.

    python benchmarks/bench_plan.py SUITE --data FOLDER [--tasks …] [--agents …] [--train-only] --out plan.csv

The committed results/plan.csv is of a small suite (`bc` and `carl` with layers of 64 and 32, BallRun and CarRun, two
limits, two seeds, 2,000 steps, two episodes) on two cores that many others used at the same time.

The plan is made from nothing (no remembered speeds): `first` is what it says then, after its few seconds of measuring.
The groups are then trained and played one after the other, and `took` is what each took. Last, the plan is made again
from what was remembered of just that: `again`, near the truth unless something is not counted. `first_ratio` and
`again_ratio` are plan over truth. Everything lies in a temporary folder and is lost.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

from pdocrl.bench import local, run
from pdocrl.bench.rates import Rates, timed
from pdocrl.bench.run import Choices, make_plan
from pdocrl.bench.suite_file import find_suite


def seconds_of(planned: Any) -> float:
    return (planned.train_seconds or 0.0) + (planned.play_seconds or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
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
        choices = Choices(
            Path(place) / "first", given.data, tuple(given.agents), tuple(given.tasks), evaluate=not given.train_only
        )
        for planned in make_plan(suite, choices, rates).groups:
            group = planned.group
            work = local.Work([group], choices.out, given.data, True, choices.evaluate)
            statuses: list[Any] = []
            with timed() as clock:
                local.run(work, statuses.append, rates)
            first, took = seconds_of(planned), clock.seconds
            assert statuses[0].status in ("done", "trained"), statuses[0]
            rows.append({"group": group.name, "runs": group.runs, "steps": group.steps, "first": first, "took": took})
        fresh = Choices(Path(place) / "again", given.data, choices.agents, choices.tasks, evaluate=choices.evaluate)
        for row, planned in zip(rows, make_plan(suite, fresh, rates).groups, strict=True):
            row["again"] = seconds_of(planned)
            row["first_ratio"], row["again_ratio"] = row["first"] / row["took"], row["again"] / row["took"]
    total = {name: sum(row[name] for row in rows) for name in ("first", "took", "again")}
    rows.append({"group": "all", **total, "first_ratio": total["first"] / total["took"],
                 "again_ratio": total["again"] / total["took"]})  # fmt: skip
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            shown = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
            writer.writerow(shown)
            print(shown)


if __name__ == "__main__":
    main()
