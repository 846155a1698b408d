"""The page of a benchmark: one HTML file over all its runs, with tables that sort and filters, whole without scripts.

write_suite_page(Path("runs/bench-paper"))  # → runs/bench-paper/report.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

from pdocrl.bench.results import SUITE, read_suite
from pdocrl.errors import PdocrlError
from pdocrl.files import write_text
from pdocrl.report import chart, suite_curves, suite_pictures, suite_provenance, suite_tables
from pdocrl.report.html import bullets, card, document, prose
from pdocrl.report.suite_findings import findings, lead
from pdocrl.report.suite_pictures import legend, panels
from pdocrl.report.suite_record import SuiteRecord, Training, read_suite_record
from pdocrl.report.theory import render_theory

PAGE = "report.html"


def is_suite(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl bench` wrote this folder."""
    return (Path(folder) / SUITE).is_file()


def write_suite_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a benchmark folder, finished or not; returns its path, `out` or FOLDER/report.html."""
    target = Path(folder) / PAGE if out is None else Path(out)
    if target.is_dir():
        raise PdocrlError(f"{target} is a folder; name the page, for example {target / PAGE}.")
    suite = read_suite(folder)
    text = render_theory(Path(folder), suite) if suite.get("kind") == "tabular" else render(read_suite_record(folder))
    write_text(target, text)
    return target


def render(record: SuiteRecord) -> str:
    """The whole page as text."""
    name = str(record.suite["name"])
    notes = findings(record)
    several = len({cell.method for cell in record.cells}) > 1
    failed = suite_provenance.what_failed(record)
    sections = [
        chart.shapes(),
        _filters(record),
        card("Results", suite_tables.headline(record)) if record.cells else "",
        card("What to notice", bullets(notes)) if notes else "",
        card("At each limit", suite_tables.per_limit(record)) if record.cells else "",
        card("Ranks", suite_tables.ranks(record)) if several else "",
        card("Probability of improvement", suite_tables.improvement(record)) if several else "",
        *_pictures(record),
        card("What was run", suite_provenance.what_was_run(record)),
        card("Data", suite_provenance.data(record)) if record.rows else "",
        card("What did not work", failed) if failed else "",
        card("Do it again", suite_provenance.how_to_repeat(record)),
    ]
    return document(f"Benchmark: {name}", lead(record), sections, script="page.js", wide=True)


def _pictures(record: SuiteRecord) -> list[str]:
    return [
        _card(
            "Every run in the plane of reward and cost",
            "A mark is a policy: filled, it keeps its limit; hollow, it does not. The dashed line is the limit. The "
            "cost axis is a square root, so that the safe side has room.",
            suite_pictures.planes(record),
            legend(record),
        ),
        _card(
            "Cost of every episode",
            "A stroke is an episode, the mark is their mean, the dashed line the limit; a row per limit, named at its "
            "left.",
            suite_pictures.episode_costs(record),
        ),
        _card(
            "Reward and cost while training",
            "Policies played on the way. Lines are means over seeds and, unless one limit is chosen, over limits; "
            "bands are the range the seeds span. Nothing is chosen by these: the last policy is the result.",
            suite_curves.learning(record),
            legend(record, _who(record, lambda training: bool(training.evaluations))),
        ),
        _card(
            "The price of cost, λ",
            "What one unit of cost takes off the reward, for the methods that learn it. It should rise while a policy "
            "costs more than its limit and fall once it costs less.",
            suite_curves.multipliers(record),
            legend(record, _who(record, lambda training: bool(training.metric("lambda")))),
        ),
        _card(
            "The density ratio, w",
            "How much more often the learned policy visits a logged transition than the data does, mean over a batch. "
            "It should be 1.",
            suite_curves.density_ratios(record),
            legend(record, _who(record, lambda training: bool(training.metric("w")))),
        ),
        _card(
            "Estimated from the data, and played",
            "Across, what a policy earned and cost in the simulator; up, what was estimated of it from logged data "
            "alone, with 95 % intervals. On the dashed line both agree. Hollow: the estimate does not call "
            "itself trusted.",
            suite_pictures.estimates(record),
            legend(record, _who(record, lambda training: bool(training.ope))),
        ),
    ]  # fmt: skip


def _who(record: SuiteRecord, has: Callable[[Training], bool]) -> list[str]:
    """The methods of which some training has it."""
    own = {training.method for training in record.trainings if has(training)}
    return [method for method in record.methods if method in own]


def _card(title: str, caption: str, drawings: dict[str, str], key: str = "") -> str:
    """A section of pictures; none without any."""
    return card(title, f'<p class="note">{prose(caption)}</p>{key}{panels(drawings)}') if drawings else ""


def _filters(record: SuiteRecord) -> str:
    """Hidden until the script is there to serve them."""
    choices = {"method": record.methods, "task": record.tasks, "limit": record.limits}
    selects = "".join(_select(name, values) for name, values in choices.items())
    return (
        f'<form class="filters" aria-label="What is shown" hidden>{selects}'
        '<button type="reset">Show everything</button><output aria-live="polite"></output></form>'
    )


def _select(name: str, values: Iterable[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{name.capitalize()}<select name="{name}"><option value="">all</option>{options}</select></label>'
