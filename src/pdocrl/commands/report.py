"""`pdocrl report`."""

from __future__ import annotations

from pathlib import Path

import tyro

from pdocrl.console import print_json


def report(
    folder: tyro.conf.Positional[Path],
    /,
    *,
    out: Path | None = None,
    data: str | None = None,
    film: bool = True,
    json: bool = False,
) -> None:
    """Write a folder as one HTML page that needs no network.

    Of a training: result table, pictures, an episode, what was run, how to repeat it. A section appears when its part
    is there: scores after `pdocrl evaluate`, learning curves with --evaluate-every.
    Of a benchmark: all its methods and tasks, with tables that sort and filters.

    Example: pdocrl report runs/ballrun --out ballrun.html

    Args:
        folder: what `pdocrl train --out` or `pdocrl bench --out` wrote.
        out: the page; default: in the folder, index.html of a training and report.html of a benchmark.
        data: the training data, when it is no longer where it was: a task's name or a file.
        film: film an episode of a training, where the simulator is installed.
        json: print one JSON object.
    """
    from pdocrl.report.suite import is_suite, write_suite_page

    if is_suite(folder):
        page = write_suite_page(folder, out)
        print_json({"page": str(page)}) if json else print(page)
        return

    from pdocrl.data import load
    from pdocrl.report import read_record
    from pdocrl.report import report as write
    from pdocrl.report.findings import table

    record = read_record(folder, None if data is None else load(data))
    page = write(record, out, film=film)
    if json:
        rows = [{"runs": row.group.label, **row.score, "over_limit": row.over} for row in table(record)]
        print_json({"page": str(page), "step": record.trained.step, "scores": rows})
        return
    print(page)
