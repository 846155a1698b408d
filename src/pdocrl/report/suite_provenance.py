"""Where a benchmark's numbers come from: what was run, for how long, on which data, what failed, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from html import escape
from pathlib import Path

from pdocrl.bench.results import GROUPS, Row
from pdocrl.bench.suite import named_suites
from pdocrl.report import chart
from pdocrl.report.html import attributes, data_table, facts, prose
from pdocrl.report.provenance import train_command, word
from pdocrl.report.suite_record import SuiteRecord, Training, limit_name


def what_was_run(record: SuiteRecord) -> str:
    """The facts that hold for all, then a line per training."""
    firsts = _first_rows(record)
    seconds = sum(row.train_seconds or 0.0 for row in firsts.values())
    known = {
        "Suite": escape(": ".join(str(record.suite[key]) for key in ("name", "about") if record.suite.get(key))),
        "Protocol": _listed(row.protocol for row in record.rows),
        "Cost limits": escape("; ".join(record.limits)),
        "Seeds": _listed(row.seed for row in record.rows),
        "Steps": _listed(f"{row.step:,}" for row in record.rows),
        "Episodes": f"{len(record.rows):,} in the simulator, of each policy's last checkpoint" if record.rows else "",
        "Training": f"{_duration(seconds)} in the training loops, added up" if seconds else "",
        "Versions": _listed(f"pdocrl {row.pdocrl}, jax {row.jax}, numpy {row.numpy}" for row in record.rows),
    }
    lines = [_line(record, training, firsts.get((training.task, training.method))) for training in record.trainings]
    heads = ("Method", "Task", "Status", "Runs", "Steps", "Training", "Settings")
    head = "".join(f'<th scope="col"{_word(name)}>{name}</th>' for name in heads)
    caption = (
        "Training: time in the loop for all runs of the line together. Settings: those that were "
        "changed, and the digest of all."
    )
    table = data_table("What was run", caption, f"<tr>{head}</tr>", lines, kind="tight", tall=True)
    return facts(known) + table


def _line(record: SuiteRecord, training: Training, row: Row | None) -> str:
    status = training.status
    seconds = None if row is None else row.train_seconds
    cells = [
        f'<th scope="row">{chart.glyph(record.series(training.method))}{escape(training.method)}</th>',
        f'<td class="word">{escape(training.task)}</td>',
        f'<td class="word">{escape(status.status)}</td>',
        f"<td>{status.runs}</td>",
        f'<td data-value="{row.step if row else ""}">{f"{row.step:,}" if row else "–"}</td>',
        f'<td data-value="{"" if seconds is None else seconds}">{"–" if seconds is None else _duration(seconds)}</td>',
        f'<td class="word">{_settings(training)} <code>{row.config_digest[:12] if row else ""}</code></td>',
    ]
    return f"<tr{attributes(method=training.method, task=training.task)}>{''.join(cells)}</tr>"


def _settings(training: Training) -> str:
    """Those that were changed; the rest are the agent's defaults."""
    if training.plan is None:
        return "–"
    return escape(", ".join(f"{name} {word(value)}" for name, value in training.plan.settings.items())) or "defaults"


def data(record: SuiteRecord) -> str:
    """A line per file: what it is called, its digest, and whether it is the published one."""
    files = {(row.task, row.data_digest): row for row in record.rows}
    lines = []
    for (task, digest), row in files.items():
        kind = {True: "<strong>re-collected</strong>", False: "the published file", None: "no file is published"}
        lines.append(
            f'<tr{attributes(task=task)}><th scope="row">{escape(task)}</th>'
            f'<td class="word">{escape(row.data)}</td><td class="word">{kind[row.recollected]}</td>'
            f'<td class="word"><code>{escape(digest)}</code></td></tr>'
        )
    head = "".join(f'<th scope="col"{_word(name)}>{name}</th>' for name in ("Task", "File", "Which", "Digest"))
    caption = "The digest is over the arrays, not the file: `pdocrl data info` prints it."
    return data_table("Data", caption, f"<tr>{head}</tr>", lines, kind="tight")


def what_failed(record: SuiteRecord) -> str:
    """Groups without scores and runs that broke off, with the reason of each; "" when all went well."""
    broken = {
        (row.task, row.method, row.cost_limit, row.seed): row.failure for row in record.rows if row.failure is not None
    }
    said: dict[tuple[str, str], list[str]] = {}  # (task, what happened) → to which methods
    for training in record.trainings:
        status, place = training.status, (training.task, training.method)
        for (*whose, limit, seed), why in broken.items():
            if tuple(whose) == place:
                text = (
                    f"run of limit {limit_name(limit)}, seed {seed} stopped at {why}; scored with its last whole policy"
                )
                said.setdefault((training.task, text), []).append(training.method)
        if status.status != "done":
            text = f"{status.status}: {status.reason or 'not there yet; `pdocrl bench` goes on where it stopped'}"
            said.setdefault((training.task, text), []).append(training.method)
    items = [_item(task, text, own, len(record.methods)) for (task, text), own in said.items()]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _item(task: str, text: str, methods: list[str], of: int) -> str:
    alone = methods[0] if len(methods) == 1 else None
    whose = "every method" if len(methods) == of > 1 else ", ".join(methods)
    name = f"<strong>{escape(whose)} on {escape(task)}</strong>"
    return f"<li{attributes(method=alone, task=task)}>{name}: {prose(text.rstrip('.'))}.</li>"


def how_to_repeat(record: SuiteRecord) -> str:
    """The whole benchmark in one command, and each training for itself."""
    folder = shlex.quote(record.folder.name)
    name = str(record.suite["name"])
    # A suite of one's own is a file; where it lies is not recorded.
    suite = name if name in named_suites() else f"{name}.toml"
    whole = f"{shlex.join(['pdocrl', 'bench', suite, *_data_folder(record)])} --out {folder}\npdocrl report {folder}"
    single = "\n".join(
        train_command(training.plan, f"{folder}/{GROUPS}/{shlex.quote(training.status.name)}")
        for training in record.trainings
        if training.plan is not None
    )
    one_by_one = (
        f'<details><summary>Each training for itself</summary><pre tabindex="0">{escape(single)}</pre></details>'
    )
    return f'<pre tabindex="0">{escape(whole)}</pre>{one_by_one if single else ""}'


def _data_folder(record: SuiteRecord) -> list[str]:
    """The option that says where the data lay, if it lay in one folder; files that the suite itself names need none."""
    named = {entry["name"] for entry in record.suite["tasks"] if entry["data"] is not None}
    files = [Path(t.plan.data) for t in record.trainings if t.plan is not None and t.task not in named]
    folders = {str(file.parent) for file in files} - {"."}
    return ["--data", *folders] if len(folders) == 1 else []


def _first_rows(record: SuiteRecord) -> dict[tuple[str, str], Row]:
    """One row per training: what is the same in all of its rows is read from it."""
    found: dict[tuple[str, str], Row] = {}
    for row in record.rows:
        found.setdefault((row.task, row.method), row)
    return found


def _listed(values: Iterable[object]) -> str:
    return escape(", ".join(str(value) for value in dict.fromkeys(values)))


def _word(name: str) -> str:
    return ' class="word"' if name in {"Task", "Status", "Settings", "File", "Which", "Digest"} else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
