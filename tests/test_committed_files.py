"""The committed results: whole, and as their suite says."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from pdocrl.bench.results import PARQUET, read_rows
from pdocrl.bench.suite_file import find_suite
from pdocrl.report.tables import make_tables
from pdocrl.table import write_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def suite():
    return find_suite(ROOT / "benchmarks" / "bullet.toml")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five")
    shutil.copy(RESULTS / "bullet.parquet", folder / PARQUET)
    return read_rows(folder)


def test_every_episode_the_suite_asks_for_is_there_once(suite, rows):
    """With the suite's seeds, steps and limits; cells not asked for are not there."""
    asked = Counter(
        (group.task.name, group.method.name, limit, seed, group.steps, episode)
        for group in suite.groups()
        for limit in group.limits
        for seed in group.seeds
        for episode in range(suite.episodes)
    )
    assert Counter((r.task, r.method, r.cost_limit, r.seed, r.step, r.episode) for r in rows) == asked


def test_tables_are_made_of_these_rows(rows, tmp_path):
    write_tables(tmp_path, make_tables(rows))
    written = (RESULTS / "bullet.md").read_text(encoding="utf-8")
    for name in ("overview", "results", "published", "limits", "ranks", "profile", "improvement"):
        [made] = tmp_path.rglob(f"{name}.md")
        assert made.read_text(encoding="utf-8") in written, name


def test_the_pages_of_the_benchmarks_say_what_the_rows_say(rows, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from benchmarks.table import at_a_glance, generated

    assert generated(rows) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert at_a_glance(rows) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_paper_s_own_table_is_of_its_suite_and_its_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from benchmarks.paper import at_a_glance, committed_rows, text

    rows, own = committed_rows(), find_suite(ROOT / "benchmarks" / "paper.toml")
    asked = {(group.task.name, group.method.name, limit) for group in own.groups() for limit in group.limits}
    assert Counter((r.task, r.method, r.cost_limit) for r in rows) == dict.fromkeys(asked, 3 * own.episodes)
    assert at_a_glance(rows) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert text(rows) == (RESULTS / "paper.md").read_text(encoding="utf-8")


def test_the_page_of_a_training_is_of_the_command_that_makes_it():
    from benchmarks.pictures import DIAL

    page = ROOT / "docs" / "dial-ballrun.html"
    assert page.stat().st_size < 1_000_000
    assert f">pdocrl {DIAL}\npdocrl evaluate" in page.read_text(encoding="utf-8")
