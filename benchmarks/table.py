"""Played episodes, wherever they were trained and played, as the table of the Bullet tasks and its page.

    python benchmarks/table.py --bench runs/paper runs/baselines --called pdocrl-100k=pdocrl --out runs/bullet
    python benchmarks/table.py table.jsonl --data FOLDER --out runs/bullet

The first takes what `pdocrl bench` wrote, at the limits of the table. The second is for machines that the suite cannot
use as it is: one with an accelerator and neither HDF5 nor a simulator, another with the simulator. A line of the file
is one policy, played:

    {"task": "CarRun", "agent": "cpq", "settings": {"published": true}, "limit": 10, "seed": 0, "steps": 100000,
     "reward": [20 numbers], "cost": [20 numbers], "length": [20 numbers, if known], "failure": "if it failed",
     "data_digest": "of what it learned from", "provenance": {"commit": "…", "versions": {"pdocrl": "…", …},
     "machine": "…"}, "played": {the same, of the machine that played}}

`provenance` is `pdocrl.provenance.provenance()` on the machine that trained, `played` with `PLAYING` on the one that
played. A line without them is refused: nothing is filled in from the machine that builds the table. Without any lines
the table is made again from its rows.

Lines of the same policy that come later replace earlier ones. Settings have the names of `VARIANTS`, others are told in
words. Writes what `pdocrl bench` writes into OUT, and from it benchmarks/bullet.toml, benchmarks/results/bullet.parquet
and bullet.md, and docs/bullet.html. Cells of the former table that were not trained again stay as they were, with the
seeds and versions that made them. Where a page quotes the former numbers of a method, the new ones take their place.
Prints the table, each cell with what stood there before.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from generated import END, replace_block

from pdocrl.agents.base import Agent, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.bench.results import (
    PARQUET,
    GroupStatus,
    Row,
    config_digest,
    make_runs,
    method_name,
    read_rows,
    read_suite,
    write_rows,
    write_status,
    write_suite,
)
from pdocrl.bench.suite import Method, Suite, TaskEntry
from pdocrl.bench.suite_file import find_suite
from pdocrl.data.load import load, search
from pdocrl.data.tasks import BULLET, Task, find_task
from pdocrl.evaluation.normalise import normalised_cost, normalised_reward
from pdocrl.evaluation.protocols import protocol_of
from pdocrl.evaluation.score import Summary, summarise
from pdocrl.files import write_text
from pdocrl.provenance import Provenance, in_words
from pdocrl.records import from_plain
from pdocrl.report import report
from pdocrl.report.statistics import names_of
from pdocrl.report.tables import make_tables

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Line = dict[str, Any]
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("bc", "safe", {"episodes": "safe"}),
    ("cdt", "by-cost", {"sampling": "published"}),
    ("cdt", "published", {"published": True, "batch_size": 2048}),
    ("bear_lag", "normalised", {"normalised": True}),
    ("cpq", "unpenalised", {"alpha_max": 0.0, "pessimism": 0.0}),
    ("cpq", "published", {"published": True}),
    ("pdocrl", "published", {"published": True}),
    ("pdocrl_anchored", "control", {"improvement": 0.0, "tilt": 0.0}),
]
PAGES = ("README.md", "benchmarks/README.md", "docs/agents")
GLANCE = {  # of README.md: method and what it is called there
    "dial": "`dial`",
    "bc-safe": "`bc`, safe episodes",
    "bcq_lag": "`bcq_lag`",
    "pdocrl-published": "`pdocrl`, published code",
    "pdocrl": "`pdocrl`",
    "pdocrl_extraction": "`pdocrl_extraction`",
    "bc": "`bc`, all episodes",
    "pdocrl_anchored": "`pdocrl_anchored`",
    "cpq": "`cpq`",
    "cdt-by-cost-16k": "`cdt`, published sampling",
}
BEGIN = "<!-- made by benchmarks/table.py from results/bullet.parquet -->"
NAME = "bullet-recorded"
THREE = ("pdocrl", "jax", "numpy")
NEEDED = ("data_digest", "provenance", "played")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, nargs="*", help="files of played policies, one JSON object a line")
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT.parent / "shared" / "data",
        help="folder with one Safety<Task>-*.hdf5 per task",
    )
    parser.add_argument("--bench", type=Path, nargs="*", default=[], help="folders of `pdocrl bench`")
    parser.add_argument("--called", nargs="*", default=[], help="methods of these folders under another name, OLD=NEW")
    parser.add_argument("--out", type=Path, default=Path("runs/bullet"))
    parser.add_argument("--without", nargs="*", default=[], help="agents to leave out")
    parser.add_argument("--drop", nargs="*", default=[], help="methods of the former table that others replace")
    parser.add_argument("--no-page", action="store_true", help="tables alone")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "bullet.html")
    arguments = parser.parse_args()
    before = [row for row in former_rows(arguments.out) if row.method not in arguments.drop]
    planned = find_suite(ROOT / "benchmarks" / "bullet.toml")
    kept = tuple(method for method in planned.methods if method.name not in arguments.drop)
    planned = dataclasses.replace(planned, methods=kept)
    limits = {limit for (limit,) in planned.limits}
    lines = [line for line in read_lines(arguments.lines) if line["limit"] in limits]
    lines = [line for line in lines if line["agent"] not in arguments.without]
    benched = [
        from_bench(folder, dict(word.split("=") for word in arguments.called), limits) for folder in arguments.bench
    ]
    methods = [*methods_of(lines, planned), *(method for own, _ in benched for method in own)]
    new = {row.task for _, own in benched for row in own} | {entry.task.name for entry in planned.entries}
    tasks = [task for task in BULLET if task.name in new]
    files = {task.name: search(task, [arguments.data]) for task in tasks}
    rows = [
        row
        for task in tasks
        for method in methods
        for row in rows_of(
            [line for line in lines if line["task"] == task.name and name_of(line) == (method.agent, method.variant)],
            task,
            method,
            files[task.name],
        )
    ] + [row for _, own in benched for row in own]
    again = {(row.task, row.method) for row in rows}
    rows = [*rows, *(row for row in before if (row.task, row.method) not in again)]
    names = [method.name for method in methods]
    left = {row.method for row in rows}
    methods = in_order([*methods, *(method for method in planned.methods if method.name not in names)], planned)
    methods = [method for method in methods if method.name in left]
    order = {method.name: i for i, method in enumerate(methods)}
    rows = sorted(rows, key=lambda row: (tasks.index(find_task(row.task)), order[row.method]))
    suite = suite_of(rows, tasks, methods, planned)
    write_folder(arguments.out, suite, rows)
    write_text(ROOT / "benchmarks" / "bullet.toml", suite_text(suite))
    shutil.copy(arguments.out / PARQUET, RESULTS / "bullet.parquet")
    write_text(RESULTS / "bullet.md", "\n\n".join(table.markdown() for table in make_tables(rows)) + "\n")
    if not arguments.no_page:
        report(arguments.out, arguments.page)
    write_generated(rows)
    replace_lines(rows, before, tasks)
    print(headline(rows, before, tasks, methods, again))


def write_generated(rows: Sequence[Row]) -> None:
    """What two pages say of these rows stands between two marks, and is made of them."""
    for place, made in (("benchmarks/README.md", generated(rows)), ("README.md", at_a_glance(rows))):
        replace_block(ROOT / place, made)


def at_a_glance(rows: Sequence[Row]) -> str:
    """The table of README.md: one line for each of `GLANCE`, those that were run on more tasks first."""
    cells, every = cells_of(rows), list(dict.fromkeys(row.task for row in rows))
    tasks = [task.name for task in BULLET]
    lines = []
    for method, words in GLANCE.items():
        own = [row for row in rows if row.method == method]
        found = [cells.get((task, method)) for task in tasks]
        scores = [one for one in found if one is not None]
        safe, of = sum(one.safe_limits for one in scores), sum(one.limits for one in scores)
        shown = ["–" if one is None else short(one).strip("*").replace(" / ", "/") for one in found]
        seeds = sorted({len({row.seed for row in own if row.task == task}) for task in every} - {0})
        versions = sorted({".".join(row.pdocrl.split(".")[:2]) for row in own})
        told = [
            f"{safe} of {of}",
            f"{max(row.step for row in own) // 1000}",
            ", ".join(map(str, seeds)),
            ", ".join(versions),
        ]
        lines.append((-len(scores), -safe, f"| {' | '.join([words, *shown, *told])} |"))
    heads = ["agent", *tasks, "satisfied", "steps / 1,000", "seeds", "version"]
    text = [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(line for *_, line in sorted(lines, key=lambda x: x[:2])),
    ]
    return "\n".join([BEGIN, "", *text, "", END])


def generated(rows: Sequence[Row]) -> str:
    """Table, notes and counts as Markdown."""
    [overview] = [table for table in make_tables(rows) if table.name == "overview"]
    said = textwrap.fill(
        satisfied_sentence(summarise(make_runs(rows))), 100, break_long_words=False, break_on_hyphens=False
    )
    return f"{BEGIN}\n\n{overview.markdown()}\n\n{said}\n\n{END}"


def satisfied_sentence(summaries: Sequence[Summary]) -> str:
    """At how many pairs of task and limit each method satisfies the limit, of those run on every task."""
    methods, tasks = names_of(summaries)
    satisfied: dict[int, list[str]] = {}
    total = 0
    for method in methods:
        own = [one for one in summaries if one.method == method]
        if len(own) == len(tasks):
            total = sum(one.limits for one in own)
            satisfied.setdefault(sum(one.safe_limits for one in own), []).append(f"`{method}`")
    parts = [f"{', '.join(names)} {count}" for count, names in sorted(satisfied.items(), reverse=True)]
    return f"Of {total} pairs of task and limit, the mean cost is within the limit for: {'; '.join(parts)}."


def former_rows(out: Path) -> list[Row]:
    """The committed table, read as a benchmark folder holds it."""
    out.mkdir(parents=True, exist_ok=True)
    former = out / "former"
    former.mkdir(exist_ok=True)
    if not (former / PARQUET).exists():  # the table of the first call, not one this script wrote
        shutil.copy(RESULTS / "bullet.parquet", former / PARQUET)
    return read_rows(former)


def from_bench(folder: Path, called: dict[str, str], limits: set[float]) -> tuple[list[Method], list[Row]]:
    """The methods of a benchmark folder that were played at all of these limits, and their episodes there.

    Of an agent of which some variant is called otherwise, only such variants are taken.
    """
    suite = read_suite(folder)
    names = {method_name(one.agent, one.variant): one for one in suite.agents}
    picked = {names[name].agent for name in called if name in names}
    chosen = {name: called.get(name, name) for name, one in names.items() if name in called or one.agent not in picked}
    methods, rows = {}, []
    for row in read_rows(folder):
        if row.method in chosen and row.cost_limit[0] in limits and not row.limits:
            variant = chosen[row.method].removeprefix(row.agent).lstrip("-")
            rows.append(dataclasses.replace(row, suite=NAME, variant=variant))
            settings = {key: tuple(v) if isinstance(v, list) else v for key, v in names[row.method].settings.items()}
            methods[row.agent, variant] = Method(row.agent, variant, settings, row.step)
    found = {(row.task, row.method): Counter[float]() for row in rows}
    for row in rows:
        found[row.task, row.method][row.cost_limit[0]] += 1
    whole = {place for place, own in found.items() if set(own) == limits and len(set(own.values())) == 1}
    rows = [row for row in rows if (row.task, row.method) in whole]
    seeds = {place: {row.seed for row in rows if (row.task, row.method) == place} for place in whole}
    every = [(limit,) for limit in sorted(limits)]
    rows = [
        dataclasses.replace(row, protocol=protocol_of(every, seeds[row.task, row.method], suite.episodes))
        for row in rows
    ]
    return [method for method in methods.values() if any(method.name == name for _, name in whole)], rows


def read_lines(paths: Iterable[Path]) -> list[Line]:
    """The last line of every policy, in the order they first appear."""
    found: dict[tuple[Any, ...], Line] = {}
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            if text.strip():
                line = json.loads(text)
                missing = [name for name in NEEDED if not line.get(name)]
                if missing:
                    sys.exit(f"error: {path}: a line of {line['agent']} on {line['task']} has no {', '.join(missing)}.")
                line["settings"] = plain(line.get("settings") or {})
                key = (line["task"], line["agent"], json.dumps(line["settings"], sort_keys=True), line["steps"])
                found[*key, line["limit"], line["seed"]] = line
    return list(found.values())


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """As a config takes them: no lists, and nothing that is the default anyway is left out."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def methods_of(lines: Sequence[Line], planned: Suite) -> list[Method]:
    """The methods there are lines of, in the order of bullet.toml, then the others. Tells each line its variant.

    A method's longest trainings have its name, also where they replace shorter ones; others are told by their length.
    """
    longest: dict[tuple[str, str], int] = {}
    for line in lines:
        known = [name for agent, name, own in VARIANTS if (agent, own) == (line["agent"], line["settings"])]
        words = ", ".join(f"{name} {value}" for name, value in line["settings"].items())
        line["variant"] = known[0] if known else words
        longest[name_of(line)] = max(longest.get(name_of(line), 0), line["steps"])
    found: dict[tuple[str, str], Method] = {}
    for line in lines:
        if line["steps"] < longest[name_of(line)]:
            line["variant"] = f"{line['variant']}-{line['steps'] // 1000}k".strip("-")
        found[name_of(line)] = Method(*name_of(line), line["settings"], line["steps"])
    return in_order(list(found.values()), planned)


def name_of(line: Line) -> tuple[str, str]:
    return line["agent"], line["variant"]


def in_order(methods: Sequence[Method], planned: Suite) -> list[Method]:
    """An agent's variants together; agents as bullet.toml had them, new ones last."""
    order = list(dict.fromkeys([method.agent for method in (*planned.methods, *methods)]))
    return sorted(methods, key=lambda method: (order.index(method.agent), bool(method.variant)))


def rows_of(lines: Sequence[Line], task: Task, method: Method, file: Path | None) -> list[Row]:
    """Every episode. Runs of one seed share a training where the agent does not look at the limit."""
    if not lines:
        return []
    assert file is not None, f"no data for {task.name}"
    agent: Agent[Any, Any] = find_agent(method.agent)
    config = make_config(agent, **method.settings, horizon=float(task.horizon))
    shared, digest = agent.ignores_limit(config), load(file, task).digest
    if any(line["data_digest"] != digest for line in lines):
        sys.exit(f"error: {method.name} on {task.name} learned from other data than {file.name}.")
    trainings: dict[tuple[Any, ...], int] = {}
    limits = sorted({line["limit"] for line in lines})
    seeds = {line["seed"] for line in lines}
    protocol = protocol_of([(float(limit),) for limit in limits], seeds, len(lines[0]["reward"]))
    rows = []
    for line in sorted(lines, key=lambda line: (line["limit"], line["seed"])):
        limit = float(line["limit"])
        training = trainings.setdefault((line["seed"],) if shared else (line["seed"], limit), len(trainings))
        rewards, costs = np.asarray(line["reward"], float), np.asarray(line["cost"], float).reshape(-1)
        scores = zip(normalised_reward(task, rewards), normalised_cost(costs, limit), strict=True)
        lengths = line.get("length") or [task.horizon] * len(rewards)
        made, played = from_plain(line["provenance"], Provenance), from_plain(line["played"], Provenance)
        others = {package: number for package, number in made.versions.items() if package not in THREE}
        for i, (reward, cost) in enumerate(scores):
            rows.append(
                Row(
                    suite=NAME,
                    protocol=protocol,
                    task=task.name,
                    agent=method.agent,
                    variant=method.variant,
                    cost_limit=(limit,),
                    seed=line["seed"],
                    training=training,
                    trained_limit=(float(limits[0]) if shared else limit,),
                    step=line["steps"],
                    episode=i,
                    reward=float(rewards[i]),
                    cost=(float(costs[i]),),
                    length=int(lengths[i]),
                    normalized_reward=float(reward),
                    normalized_cost=float(cost),
                    failure=line.get("failure"),
                    config_digest=config_digest(method.agent, line["steps"], config),
                    data_digest=digest,
                    data=file.name,
                    recollected=file.name not in task.files if task.files else None,
                    train_seconds=line.get("train_seconds"),
                    **{package: made.versions[package] for package in THREE},
                    commit=made.commit,
                    packages=in_words(others),
                    machine=made.machine,
                    played=f"{played.commit}; {in_words(played.versions)}; {played.machine}",
                )
            )
    return rows


def suite_of(rows: Sequence[Row], tasks: Sequence[Task], methods: Sequence[Method], planned: Suite) -> Suite:
    limits = tuple(sorted({row.cost_limit for row in rows}))
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in rows:
        found[row.method, row.task] = tuple(sorted({*found.get((row.method, row.task), ()), row.seed}))
    seeds = Counter(found.values()).most_common(1)[0][0]
    names = tuple(task.name for task in tasks)
    told = []
    for method in methods:
        own = tuple(name for name in names if (method.name, name) in found)
        other = {name: found[method.name, name] for name in own if found[method.name, name] != seeds}
        told.append(dataclasses.replace(method, seeds=other, tasks=() if own == names else own))
    methods = told
    steps = max(row.step for row in rows)
    episodes = max(row.episode for row in rows) + 1
    entries = tuple(TaskEntry(task) for task in tasks)
    return Suite(NAME, planned.about, entries, tuple(methods), limits, seeds, steps, episodes)


def write_folder(out: Path, suite: Suite, rows: Sequence[Row]) -> None:
    """As `pdocrl bench` leaves it, but for the trainings."""
    write_suite(out, suite.record)
    statuses = []
    for group in suite.groups():
        own = {(r.cost_limit, r.seed) for r in rows if r.task == group.task.name and r.method == group.method.name}
        status, reason = ("done", "") if own else ("missing", "not trained for this table")
        names = (group.task.name, group.method.agent, group.method.variant)
        statuses.append(GroupStatus(group.name, *names, len(own) or group.runs, status, reason))  # type: ignore[arg-type]
    write_status(out, statuses)
    write_rows(out, rows)


def suite_text(suite: Suite) -> str:
    """The suite as its file has it."""
    lines = [
        "# Bullet tasks with re-collected data, as results/bullet.parquet has them: methods, steps, seeds and tasks.",
        "#     pdocrl bench benchmarks/bullet.toml --data FOLDER --out runs/bullet",
        "# or, from episodes played elsewhere, benchmarks/table.py, which wrote this file, too. Of what either writes,",
        "# results.parquet is committed as benchmarks/results/bullet.parquet, the tables as bullet.md and the page",
        "# as docs/bullet.html. Versions stand in the rows. `pdocrl bench eight` trains all of it with one version.",
        f'name = "{suite.name}"',
        'protocol = "dsrl"',
        f"seeds = {list(suite.seeds)}",
        f"steps = {suite.steps:_}",
        f"tasks = {json.dumps([entry.task.name for entry in suite.entries])}",
        "agents = [",
    ]
    for method in suite.methods:
        words = [f'name = "{method.agent}"']
        words += [f'variant = "{method.variant}"'] * bool(method.variant)
        own = ", ".join(f"{name} = {json.dumps(value)}" for name, value in method.settings.items())
        words += [f"settings = {{ {own} }}"] * bool(own)
        if method.steps and method.steps != suite.steps:
            words.append(f"steps = {method.steps:_}")
        if method.tasks:
            words.append(f"tasks = {json.dumps(method.tasks)}")
        on = method.tasks or tuple(entry.task.name for entry in suite.entries)
        if len(method.seeds) == len(on) and len(set(method.seeds.values())) == 1:
            words.append(f"seeds = {list(method.seeds[on[0]])}")
        elif method.seeds:
            words.append(f"seeds = {{ {', '.join(f'{task} = {list(own)}' for task, own in method.seeds.items())} }}")
        lines.append(f"    {{ {', '.join(words)} }}," if len(words) > 1 else f'    "{method.agent}",')
    return "\n".join([*lines, "]"]) + "\n"


def replace_lines(rows: Sequence[Row], before: Sequence[Row], tasks: Sequence[Task]) -> None:
    """Where a page has a method's former cells side by side, it gets the new ones; other words are left to people."""
    places = [ROOT / place for place in PAGES]
    pages = [path for place in places for path in (sorted(place.glob("*.md")) if place.is_dir() else [place])]
    now, then = (cells_of(own) for own in (rows, before))
    for method in dict.fromkeys(row.method for row in before):
        former = [task.name for task in tasks if (task.name, method) in then]
        if all((name, method) in now for name in former):
            for line in (bold_line, plain_line):
                old, new = (line([found[name, method] for name in former]) for found in (then, now))
                for page in pages:
                    text = page.read_text(encoding="utf-8")
                    if old != new and old in text:
                        write_text(page, text.replace(old, new))
                        print(f"{page.relative_to(ROOT)}: the cells of {method}; look at the words around them")


def bold_line(scores: Sequence[Any]) -> str:
    return " | ".join(map(short, scores))


def plain_line(scores: Sequence[Any]) -> str:
    """Without bold, and how many limits are kept."""
    limits = [score for own in scores for score in own.by_limit]
    kept = f"{sum(score.safe for score in limits)} of {len(limits)}"
    return " | ".join([*(short(score).strip("*") for score in scores), kept])


def cells_of(rows: Sequence[Row]) -> dict[tuple[str, str], Summary]:
    return {(one.task, one.method): one for one in summarise(make_runs(rows))}


def headline(
    rows: Sequence[Row],
    before: Sequence[Row],
    tasks: Sequence[Task],
    methods: Sequence[Method],
    again: set[tuple[str, str]],
) -> str:
    """Reward / cost over limit, bold where safe; of a cell trained again, in brackets what the former table had."""
    now, then = (cells_of(own) for own in (rows, before))
    text = ["| | seeds | steps |" + "".join(f" {task.name} |" for task in tasks), "|---" * (3 + len(tasks)) + "|"]
    for method in methods:
        own = [row for row in rows if row.method == method.name]
        counts = {len({row.seed for row in own if row.task == task.name}) for task in tasks} - {0}
        line = f"| `{method.name}` | {' or '.join(map(str, sorted(counts)))} | {max(row.step for row in own):,} |"
        for task in tasks:
            place = (task.name, method.name)
            score, former = now.get(place), then.get(place) if place in again else None
            words = "–" if score is None else short(score)
            line += f" {words}{'' if former is None else f' ({short(former)})'} |"
        text.append(line)
    return "\n".join(text)


def short(score: Any) -> str:
    """.35 / .29, in bold where the cost is within the limit."""
    told = pair((score.reward, score.cost))
    return f"**{told}**" if score.safe else told


def pair(score: Sequence[float]) -> str:
    """.35 / .29"""
    reward, cost = (f"{abs(value):.2f}".removeprefix("0") for value in score)
    return f"{'−' if round(score[0], 2) < 0 else ''}{reward} / {cost}"


if __name__ == "__main__":
    main()
