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
    figures: Path | None = None,
    json: bool = False,
) -> None:
    """Write a folder as one HTML page that needs no network.

    Of a training: result table, pictures, an episode, what was run, how to repeat it. A section appears when its part
    is there: scores after `pdocrl evaluate`, estimates after `pdocrl ope`, learning curves with --evaluate-every.
    Of a benchmark: all its methods and tasks, with tables that sort and filters. Of a solved log: the policy, its
    costs against the limits, and how far to trust it.

    Example: pdocrl report runs/ballrun --out ballrun.html

    Args:
        folder: what `pdocrl train`, `pdocrl bench` or `pdocrl solve` wrote with --out.
        out: the page; default: in the folder, report.html of a benchmark and index.html of all else.
        data: the training data, when it is no longer where it was: a task's name or a file.
        film: film no episodes of a training; they are filmed where the simulator is installed.
        figures: a folder for every picture of the page as SVG and PDF.
        json: print one JSON object.
    """
    from pdocrl.data import load
    from pdocrl.records import as_plain
    from pdocrl.report import read_results
    from pdocrl.report import report as write
    from pdocrl.report.page_tables import at_one_limit, label
    from pdocrl.report.record import is_suite
    from pdocrl.report.vector import save_figures

    if is_suite(folder) or not (folder / "run.json").exists():
        page = write(folder, out)
        made = [] if figures is None else save_figures(page, figures)
        print_json({"page": str(page), "figures": [str(path) for path in made]}) if json else print(page)
        return
    record = read_results(folder, None if data is None else load(data))
    page = write(record, out, film=film)
    made = [] if figures is None else save_figures(page, figures)
    if json:
        rows = [{"runs": label(record, row), **as_plain(row)} for row in at_one_limit(record)]
        for row in rows:
            row["over_limit"] = row["tail"]["over"]
        step = None if record.trained is None else record.trained.step
        print_json({"page": str(page), "step": step, "scores": rows, "figures": [str(path) for path in made]})
        return
    print(page)
