"""The committed results: whole, as their suite says, and told alike by README, tables and the agents' pages."""

import csv
import shutil
import statistics
from collections import Counter
from pathlib import Path

import pytest

from pdocrl.bench.results import PARQUET, read_rows
from pdocrl.bench.suite_file import find_suite
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.report.statistics import make_cells
from pdocrl.report.tables import make_tables
from pdocrl.table import write_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def suite():
    return find_suite(ROOT / "benchmarks" / "five.toml")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five")
    shutil.copy(RESULTS / "five.parquet", folder / PARQUET)
    return read_rows(folder)


def test_every_episode_the_suite_asks_for_is_there_once(suite, rows):
    """With at least as many seeds as the suite names, at every limit the same; cells not asked for are not there."""
    seeds = {(row.task, row.method): set() for row in rows}
    for row in rows:
        seeds[row.task, row.method].add(row.seed)
    assert min(map(len, seeds.values())) >= len(suite.seeds)
    asked = Counter(
        (group.task.name, group.method.name, limit, seed, group.steps, episode)
        for group in suite.groups()
        for limit in group.limits
        for seed in seeds.get((group.task.name, group.method.name), ())
        for episode in range(suite.episodes)
    )
    assert Counter((r.task, r.method, r.cost_limit, r.seed, r.step, r.episode) for r in rows) == asked


def test_tables_are_made_of_these_rows(rows, tmp_path):
    write_tables(tmp_path, make_tables(rows))
    written = (RESULTS / "five.md").read_text(encoding="utf-8")
    for name in ("results", "published", "limits", "ranks", "profile", "improvement"):
        [made] = tmp_path.rglob(f"{name}.md")
        assert made.read_text(encoding="utf-8") in written, name


def _number(value: float) -> str:
    """−.42, 1.08: as the pages write it."""
    text = f"{abs(value):.2f}"
    return ("−" if round(value, 2) < 0 else "") + (text[1:] if text.startswith("0") else text)


def _pair(cell) -> str:
    return f"{_number(cell.score.reward)} / {_number(cell.score.cost)}"


LABELS = {
    "bc": "`bc`, all episodes",
    "bc-safe": "`bc`, safe episodes",
    "pdocrl": "`pdocrl`, the paper's",
    "dial": "**`dial`**",
}


def test_readme_says_what_the_rows_say_and_how_many_limits_are_kept(suite, rows):
    cells = {(cell.method, cell.task): cell for cell in make_cells(rows)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for method in suite.methods:
        if method.variant and method.name not in LABELS:  # in benchmarks/README.md alone
            continue
        own = [cells[method.name, entry.task.name] for entry in suite.entries]
        limits = [score for cell in own for score in cell.score.by_limit]
        kept = f"{sum(score.safe for score in limits)} of {len(limits)}"
        line = " | ".join([LABELS.get(method.name, f"`{method.name}`"), *map(_pair, own), kept])
        assert f"| {line} |" in readme, method.name


def test_the_table_of_benchmarks_and_the_agents_pages_say_what_the_rows_say(suite, rows):
    cells = {(cell.method, cell.task): cell for cell in make_cells(rows)}
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for method in suite.methods:
        line = "|"
        for entry in suite.entries:
            cell = cells.get((method.name, entry.task.name))
            if cell is None:
                line += " – |"
                continue
            line += f" **{_pair(cell)}** |" if cell.score.safe else f" {_pair(cell)} |"
        assert line in page, method.name
        if not method.agent.startswith(("pdocrl", "dial")):  # whose pages have tables of their own
            assert line in (ROOT / "docs" / "agents" / f"{method.agent}.md").read_text(encoding="utf-8"), method.name


@pytest.fixture(scope="module")
def played():
    """{(agent, task, limit): (mean reward, mean cost over limit)}: the dial, and agents not in five.parquet."""
    found: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
    for name in ("played.csv", "dial.csv", "small.csv"):
        with (RESULTS / name).open(encoding="utf-8") as file:
            for run in csv.DictReader(file):
                if run.get("variant", "dial") == "dial":
                    limit = float(run["cost_limit"])
                    small = "small " if name == "small.csv" else ""
                    place = (small + run.get("agent", "dial"), run["task"], limit)
                    pair = (
                        float(run["normalized_reward"]),
                        float(run.get("normalized_cost") or float(run["cost"]) / limit),
                    )
                    found.setdefault(place, []).append(pair)
    return {place: tuple(map(statistics.fmean, zip(*pairs, strict=True))) for place, pairs in found.items()}


def _line(first: str, pairs, bold=False) -> str:
    cells = [(f"{_number(reward)} / {_number(cost)}", bold and cost <= 1) for reward, cost in pairs]
    return "| " + " | ".join([first, *(f"**{words}**" if safe else words for words, safe in cells)]) + " |"


def test_the_page_of_caps_says_of_tasks_that_nobody_had_looked_at_what_the_runs_say(played):
    page = (ROOT / "docs" / "agents" / "caps.md").read_text(encoding="utf-8")
    for limit in (5, 10, 20, 40):
        agents = [(a, task) for task in ("AntRun", "DroneCircle") for a in ("caps_iql", "dial", "pdocrl_anchored")]
        assert _line(str(limit), [played[*place, limit] for place in agents]) in page


@pytest.mark.parametrize(
    ("agent", "page"),
    [
        ("carl", "carl"),
        ("o3srl", "o3srl"),
        ("caps_iql", "caps"),
        ("caps_sac-endless", "caps"),
        ("bcrl-below-zero", "bcrl"),
    ],
)
def test_what_was_played_apart_is_told_alike_by_its_page_and_the_benchmarks(suite, played, agent, page):
    tasks = [entry.task.name for entry in suite.entries]
    own = (ROOT / "docs" / "agents" / f"{page}.md").read_text(encoding="utf-8")
    for limit in (5, 10, 20, 40):
        assert _line(str(limit), [played[agent, task, limit] for task in tasks]) in own
    assert _line("", _means(played, agent, tasks), bold=True)[3:] in _benchmarks()


def _means(played, agent, tasks):
    """Over the limits 10, 20 and 40, of each task."""
    return [
        tuple(map(statistics.fmean, zip(*(played[agent, task, limit] for limit in (10, 20, 40)), strict=True)))
        for task in tasks
    ]


def _benchmarks() -> str:
    return (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("agent", "page"), [("caps_sac", "caps"), ("bcrl", "bcrl")])
def test_pages_say_of_small_trainings_what_they_did(suite, played, agent, page):
    tasks = [entry.task.name for entry in suite.entries]
    own = (ROOT / "docs" / "agents" / f"{page}.md").read_text(encoding="utf-8")
    for limit in (10, 20, 40):
        assert _line(str(limit), [played[f"small {agent}", task, limit] for task in tasks]) in own
    assert _line("", _means(played, f"small {agent}", tasks), bold=True)[3:] in _benchmarks()


def test_the_page_of_b2r_and_the_benchmarks_say_what_its_runs_did(suite, played):
    pairs = [played["b2r", entry.task.name, 20] for entry in suite.entries]
    assert _line("20", pairs) in (ROOT / "docs" / "agents" / "b2r.md").read_text(encoding="utf-8")
    assert _line("", pairs, bold=True)[3:] in _benchmarks()


@pytest.mark.parametrize("agent", ["carl", "o3srl", "fisor", "dial"])
def test_the_table_at_limit_5_says_what_the_runs_say(suite, played, agent):
    assert _line("", [played[agent, entry.task.name, 5] for entry in suite.entries], bold=True)[3:] in _benchmarks()


def test_the_readme_says_of_the_dial_what_its_runs_say(suite):
    with (RESULTS / "dial.csv").open(encoding="utf-8") as file:
        runs = [run for run in csv.DictReader(file) if run["variant"] == "dial"]
    cells, kept, limits = [], 0, find_protocol(suite.protocol).limits
    for entry in suite.entries:
        at = [[r for r in runs if (r["task"], float(r["cost_limit"])) == (entry.task.name, limit)] for limit in limits]
        assert all(len({run["seed"] for run in some}) == len(some) == 5 for some in at)
        reward, cost = (
            [statistics.fmean(float(run[name]) for run in some) for some in at]
            for name in ("normalized_reward", "normalized_cost")
        )
        kept += sum(value <= 1 for value in cost)
        cells.append(f"{_number(statistics.fmean(reward))} / {_number(statistics.fmean(cost))}")
    line = " | ".join(["| **`dial`**", *cells, f"{kept} of {len(cells) * len(limits)} |"])
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")
