"""`pdocrl report`."""

from __future__ import annotations

from pathlib import Path

import tyro

from pdocrl.console import print_json


def report(
    run: tyro.conf.Positional[Path],
    /,
    *,
    out: Path | None = None,
    data: str | None = None,
    film: bool = True,
    json: bool = False,
) -> None:
    """Write a training folder as one HTML page: result table, pictures, an episode, what was run, how to repeat it.

    A section appears when its part is there: scores after `pdocrl evaluate`, learning curves with --evaluate-every.

    Example: pdocrl report runs/ballrun --out ballrun.html

    Args:
        run: what `pdocrl train --out` wrote.
        out: the page; default: index.html in the folder.
        data: the training data, when it is no longer where it was: a task's name or a file.
        film: film an episode, where the simulator is installed.
        json: print one JSON object.
    """
    from pdocrl.data import load
    from pdocrl.report import read_record
    from pdocrl.report import report as write
    from pdocrl.report.findings import table

    record = read_record(run, None if data is None else load(data))
    page = write(record, out, film=film)
    if json:
        rows = [{"runs": row.group.label, **row.score, "over_limit": row.over} for row in table(record)]
        print_json({"page": str(page), "step": record.trained.step, "scores": rows})
        return
    print(page)
