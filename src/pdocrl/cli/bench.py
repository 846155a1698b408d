"""`pdocrl bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from pdocrl.console import log, print_json, print_table
from pdocrl.errors import PdocrlError
from pdocrl.records import as_plain

if TYPE_CHECKING:
    from pdocrl.bench.run import BenchPlan


def bench(
    suite: tyro.conf.Positional[str],
    /,
    *,
    out: Path | None = None,
    data: Path | None = None,
    agents: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
    plan: bool = False,
    train: bool = True,
    play: bool = True,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    json: bool = False,
) -> None:
    """Run a benchmark: train every agent on every task, play the policies, write tables and a page.

    Suites: paper (what the paper compares, with and without policy extraction; eight tasks, limits 10, 20, 40 and the
    appendix's 20, 40, 80), eight and five (every agent on eight or five tasks, limits 10, 20, 40), lengths (pdocrl at
    20,000, 50,000 and 100,000 steps), ablation (pdocrl with and without extraction), strict (limit 5, the methods made
    for it), smoke (every agent in minutes, on data inside the package), or a TOML file of your own, see docs/bench.md.
    The plan is printed first. Finished work is never redone: the same command goes on after a
    stop, and folders trained on another machine count. Exit status 1: there are results, but not all that was asked
    for.

    Example:
        pdocrl bench smoke --out runs/smoke
        pdocrl bench paper --data datasets/ --tasks BallRun CarRun --agents pdocrl cpq --out runs/paper
        pdocrl bench paper --data datasets/ --out runs/paper --no-play         # where the GPU is
        pdocrl bench paper --out runs/paper --no-train                        # where the simulator is
        pdocrl bench mine.toml --engine ray --ray-address auto

    Args:
        suite: paper, eight, five, lengths, ablation, strict, smoke, or a TOML file.
        out: folder for everything; default: runs/bench-SUITE.
        data: folder with the dataset files; default: PDOCRL_DATA, then the download cache.
        agents: only these, e.g. pdocrl bc-safe.
        tasks: only these.
        plan: print the plan and stop.
        train: only play what is trained, for machines without the data or a GPU.
        play: only train, for machines without the simulator.
        engine: local (this machine) or ray (a cluster).
        ray_address: of an existing Ray cluster; default: one is started on this machine.
        json: print one JSON object.
    """
    if not (train or play):
        raise PdocrlError("--no-train and --no-play leave nothing to do. Give one of them.")
    if ray_address is not None and engine != "ray":
        raise PdocrlError("--ray-address is for --engine ray. Add it.")
    if data is not None and not data.is_dir():
        raise PdocrlError(f"{data}: no such folder. --data takes the folder with the dataset files.")
    from pdocrl.bench.rates import Rates
    from pdocrl.bench.results import make_runs
    from pdocrl.bench.run import Selection, make_plan
    from pdocrl.bench.run import bench as run
    from pdocrl.bench.suite_file import find_suite
    from pdocrl.evaluation.score import summarise
    from pdocrl.report import make_tables, report
    from pdocrl.table import show_tables, write_tables

    chosen = find_suite(suite)
    folder = out or Path(f"runs/bench-{chosen.name}")
    selection = Selection(folder, data, agents, tasks, train, play, engine, ray_address)
    planned = make_plan(chosen, selection, Rates(), measure=engine == "local")
    if not json:
        _show_plan(planned)
    elif plan:
        print_json(planned.as_dict())
    if plan:
        return
    done = run(planned)
    tables = make_tables(done.rows)
    write_tables(folder, tables)
    page = report(folder)
    if json:
        print_json({**done.as_dict(), "page": str(page), "table": list(map(as_plain, summarise(make_runs(done.rows))))})
    else:
        show_tables(tables, folder)
        print(f"page: {page}")
    if done.incomplete:
        log(f"{len(done.incomplete)} of {len(planned.groups)} groups are not complete:")
        for status in done.incomplete:
            log(f"  {status.name}: {status.status}{': ' + status.reason if status.reason else ''}")
        raise SystemExit(1)


def _show_plan(plan: BenchPlan) -> None:
    suite, to_do = plan.suite, len(plan.to_do)
    about = suite.about or f"protocol {suite.protocol}"
    runs = sum(planned.group.runs for planned in plan.groups)
    time = f", {'about' if plan.is_timed else 'at least'} {_time(plan.seconds)}" if to_do and plan.seconds else ""
    print(
        f"{suite.name}: {about}. {len(plan.groups)} groups, {runs} runs, {suite.episodes} episodes each; "
        f"{to_do} groups to do{time}."
    )
    print_table(
        ["group", "runs", "steps", "status", "training", "playing", "note"],
        [
            [
                p.status.name,
                p.group.runs,
                f"{p.group.steps:,}",
                p.status.status,
                _time(p.train_seconds),
                _time(p.play_seconds),
                p.status.reason,
            ]
            for p in plan.groups
        ],
    )
    if to_do and not plan.is_timed:
        print("–: not known. Short work is not measured beforehand, and remembered once it was done.")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
