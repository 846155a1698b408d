"""`report`: a folder as one HTML file, for a browser without network, in light or dark, on any screen.

A benchmark and a training have the same page; a training is a benchmark of one, whose data and episodes can be shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pdocrl.bench.results import read_suite
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.files import write_text
from pdocrl.report import curves, page_tables, pictures, provenance, tables
from pdocrl.report.chart import COLOURS
from pdocrl.report.document import (
    Block,
    Commands,
    Failures,
    Known,
    LimitSlider,
    Listed,
    Moving,
    Panels,
    Section,
    Tables,
    as_image,
    render_page,
)
from pdocrl.report.film import Film, find_film, make_film
from pdocrl.report.findings import findings, lead
from pdocrl.report.limit_slider import limit_slider
from pdocrl.report.pictures import Drawings
from pdocrl.report.record import Results, Training, is_suite, read_results
from pdocrl.report.solved import is_solved, render_solved
from pdocrl.report.solved_columns import is_portfolio, render_portfolio
from pdocrl.report.solved_tails import is_solved_tails, render_solved_tails
from pdocrl.table import amount


def report(
    run: str | os.PathLike[str] | Results,
    out: str | os.PathLike[str] | None = None,
    *,
    dataset: Dataset | None = None,
    film: bool = True,
    command: str | None = None,
    opening: Sequence[Section] = (),
) -> Path:
    """Write the page of a folder that `train`, `bench` or `solve` wrote, finished or not; returns its path.

    Args:
        run: the folder, or its record.
        out: the page to write; default: in the folder, report.html of a benchmark and index.html of all else.
        dataset: the data of a training, when it is no longer where the plan says.
        film: film episodes of a training, one at each limit, if that has not been done and the simulator is there.
        command: the command that repeats all this; default: train, evaluate, report.
        opening: sections that stand before those of a training or benchmark.
    """
    folder = run.folder if isinstance(run, Results) else Path(run)
    suite = read_suite(folder) if is_suite(folder) else None
    target = Path(out) if out is not None else folder / ("index.html" if suite is None else "report.html")
    if target.is_dir():
        raise PdocrlError(f"{target} is a folder; name the page, for example {target / 'index.html'}.")
    if suite is not None and suite.kind == "tabular":
        raise PdocrlError(f"{folder}: figures of the theory; `python -m research --out {folder} all` makes their page.")
    if not isinstance(run, Results) and suite is None and not (folder / "run.json").exists():
        text = _render_solved(folder)
    else:
        record = run if isinstance(run, Results) else read_results(run, dataset)
        slider = limit_slider(record, film)
        shown = None if slider is not None and slider.films else find_film(record)
        if shown is None and slider is None and film:
            shown = make_film(record)
        text = render(record, shown, command, opening, slider)
    write_text(target, text)
    return target


def _render_solved(folder: Path) -> str:
    """The page of a `solve` folder, of whichever of the three kinds of result it holds."""
    if is_portfolio(folder):
        return render_portfolio(folder)
    if is_solved_tails(folder):
        return render_solved_tails(folder)
    if is_solved(folder):
        return render_solved(folder)
    raise PdocrlError(f"{folder}: no run.json here. Give the folder that `train`, `bench` or `solve` wrote.")


def render(
    record: Results,
    film: Film | None = None,
    command: str | None = None,
    opening: Sequence[Section] = (),
    slider: LimitSlider | None = None,
) -> str:
    """The whole page as text."""
    several = len({run.method for run in record.runs}) > 1
    whole, single = provenance.commands(record)
    trainings = [] if record.alone else [Tables([provenance.trainings(record).html(tall=True)])]
    sections = [
        *([] if slider is None else [Section("Choose the cost limit", [slider])]),
        *opening,
        *(_of_training(record) if record.alone else _of_benchmark(record)),
        Section("What to notice", [Listed(findings(record))]),
        *([_at_each_limit(record)] if record.runs and not record.alone else []),
        *(_compared(record) if several else []),
        *_pictures(record, film),
        Section("What was run", [Known(provenance.what_was_run(record)), *trainings]),
        *([Section("Data", [Tables([provenance.data(record).html()])])] if record.rows and not record.alone else []),
        *([] if record.alone else [Section("What did not work", [Failures(provenance.what_failed(record))])]),
        Section("Do it again", [Commands(command or whole), Commands(single, "Each training for itself")]),
        *_others(record),
    ]
    filters = {"method": record.methods, "task": record.tasks, "limit": record.limits}
    many = not record.alone or len(record.methods) > 1
    there = [section for section in sections if section.is_there]
    return render_page(
        _title(record), lead(record), there, filters=filters if many else {}, scores=page_tables.rank_data(record)
    )


def _compared(record: Results) -> list[Section]:
    colour = record.methods.index
    ranks = [table(record.runs, colour=colour).html() for table in (tables.ranks_table, tables.profile_table)]
    improvement = tables.improvement_table(record.runs, order=record.ranked, colour=colour)
    return [
        Section("Ranks", [Tables(ranks)]),
        Section("Probability of improvement", [Tables([improvement.html(kind="matrix")])]),
    ]


def _title(record: Results) -> str:
    if record.trained is None:
        return f"Benchmark: {record.suite.name}"
    return f"{record.trained.config.agent} on {record.tasks[0]}"


def _of_benchmark(record: Results) -> list[Section]:
    return [Section("Results", [Tables([page_tables.headline(record).html(kind="matrix")])])] if record.runs else []


def _at_each_limit(record: Results) -> Section:
    return Section("At each limit", [Tables([page_tables.per_limit(record).html(tall=True)])])


def _of_training(record: Results) -> list[Section]:
    found = []
    if record.runs:
        found.append(Section("Result", [Tables([page_tables.of_training(record).html()])]))
    else:
        said: list[Block] = [Listed(["Nothing is played yet. Where there is a simulator, play the policies with:"])]
        found.append(Section("Result", [*said, Commands(f"pdocrl evaluate {record.folder}")]))
    if record.trainings[0].ope is not None:
        table = page_tables.of_estimates(record).html()
        found.append(Section("Would it be safe? What the data alone says", [Tables([table])]))
    return found


def _pictures(record: Results, film: Film | None) -> list[Section]:
    found = [
        _panels(
            record,
            "The data and the policies",
            pictures.data_planes(record),
            "Each dot is a logged episode, darker the tighter the limit it satisfies, grey if none. The line is "
            "the best return logged at no more cost. The large marks are the learned policies; a thin line leads to "
            "the place of a mark that had to move aside.",
        ),
        _panels(
            record,
            "Cost limit and cost played",
            pictures.asked_and_played(record),
            "Across, the cost limit; up, cost and reward as played, with 95 % intervals. Below the dashed line the "
            "limit is satisfied. A method that responds to its limit follows the line from below; hollow: over it.",
            methods=True,
        ),
    ]
    if not record.alone:
        found.append(
            _panels(
                record,
                "Every run in the plane of reward and cost",
                pictures.planes(record),
                "A mark is a policy: filled, it satisfies its limit; hollow, it does not. The dashed line is the "
                "limit. The cost axis is a square root, so that the safe side has room.",
            )
        )
    found += [
        _panels(
            record,
            "Cost of every episode",
            pictures.episode_costs(record),
            "A stroke is an episode, the mark is their mean, the dashed line the limit; a row per limit, named at its "
            "left.",
            legend=False,
        ),
        _panels(
            record,
            "Performance profiles",
            pictures.profiles(record),
            "Left, the share of all runs that satisfy their limit with at least this reward; right, the share with at "
            "most this cost over its limit. Higher is better, everywhere.",
            methods=True,
        ),
        _panels(
            record,
            "Reward and cost while training",
            curves.learning(record),
            _during_training(record),
            has=lambda training: bool(training.evaluations),
        ),
        *_film(film),
        _panels(
            record,
            "The price of cost, λ",
            curves.multipliers(record),
            "What one unit of cost takes off the reward, for the methods that learn it. It should rise while a policy "
            "costs more than its limit and fall once it costs less.",
            has=lambda training: any(name.split("_")[0] == "lambda" for name in training.metric_names()),
        ),
        _panels(
            record,
            "The density ratio, w",
            curves.density_ratios(record),
            "How much more often the learned policy visits a logged transition than the data does, mean over a batch. "
            "It should be 1; where it sits at its bound it no longer tells transitions apart.",
            has=lambda training: bool(training.metric("w")),
        ),
        _panels(
            record,
            "Estimated from the data, and played",
            pictures.estimates(record),
            "Across, reward and cost in the simulator; up, the estimate from logged data "
            "alone, with 95 % intervals. On the dashed line both agree. Hollow: the estimate does not call itself "
            "trusted.",
            has=lambda training: training.ope is not None,
        ),
    ]
    return found


def _during_training(record: Results) -> str:
    over = "seeds" if record.by_limit else "seeds and, unless one limit is chosen, over limits"
    return (
        f"Evaluations during training. Lines are means over {over}; bands are the range the seeds span. Nothing is "
        "chosen by these: the last policy is the result."
    )


def _film(film: Film | None) -> list[Section]:
    if film is None:
        return []
    episode = film.episode
    cost = ", ".join(amount(value, 1) for value in episode.cost) or "none"
    caption = (
        f"The policy for {episode.policy}, episode of seed {episode.seed}: return {amount(episode.reward)}, cost "
        f"{cost}, {episode.length} steps."
    )
    return [Section("An episode", [Moving(as_image(film.animation, "gif"), as_image(film.stills), caption)])]


def _others(record: Results) -> list[Section]:
    if not record.alone:
        return []
    words = "Losses and values as the agent logged them."
    return [Section("Everything else", [Panels(curves.others(record), words, folded="Everything else it reported")])]


def _panels(
    record: Results,
    title: str,
    drawings: Drawings,
    caption: str,
    *,
    legend: bool = True,
    methods: bool = False,
    has: Callable[[Training], bool] = lambda training: True,
) -> Section:
    """A section of pictures with its legend: of limits where there is one method, else of those that have it."""
    if record.by_limit:
        drawn = set(re.findall(r"\bs(\d)\b", "".join(drawings.values())))  # a limit may not have been played
        shown = [(i, name, "") for i, name in enumerate(record.keys) if str(i % COLOURS) in drawn]
        key = [] if methods or not legend else shown
    else:
        own = {method for training in record.trainings if has(training) for method in training.methods}
        key = [(i, method, method) for i, method in enumerate(record.methods) if method in own] if legend else []
    return Section(title, [Panels(drawings, caption, key)], half=record.alone)
