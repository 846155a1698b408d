"""What the tables say, in all three settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pdocrl.bench.results import Row, make_runs
from pdocrl.bench.suite import named_suites
from pdocrl.data.tasks import BULLET
from pdocrl.report import published
from pdocrl.report.tables import make_tables, results_table
from pdocrl.table import Table, Text, amount, write_tables

Play = Callable[..., list[Row]]


@pytest.fixture
def rows(play: Play) -> list[Row]:
    """Two methods on two tasks; on CarRun only one was run."""
    return [
        *play({(10.0, 0): [(0.25, 5.0)], (10.0, 1): [(0.75, 5.0)]}, agent="pdocrl"),
        *play({(10.0, 0): [(0.9, 20.0)], (10.0, 1): [(0.9, 20.0)]}, agent="bc", variant="safe"),
        *play({(10.0, 0): [(0.1, 0.0)], (10.0, 1): [(0.1, 0.0)]}, agent="pdocrl", task="CarRun"),
    ]


def test_markdown_has_safe_in_bold_and_a_star_at_the_best(rows: list[Row]) -> None:
    text = results_table(make_runs(rows)).markdown()
    assert "| task | pdocrl reward | pdocrl cost | bc-safe reward | bc-safe cost |" in text
    assert "| BallRun | **0.50 ± 0.25** ★ | **0.50 ± 0.00** ★ | 0.90 ± 0.00 | 2.00 ± 0.00 |" in text
    assert "| CarRun | **0.10 ± 0.00** ★ | **0.00 ± 0.00** ★ | – | – |" in text


def test_averages_are_of_methods_run_on_every_task(rows: list[Row]) -> None:
    last = results_table(make_runs(rows)).rows[-1]
    assert last[0].text == "Average"
    assert last[1] == Text("0.30 ± 0.27", "best")  # means .5 and .1; runs .25, .75, .1, .1
    assert last[3].text == "–"


def test_latex_is_balanced_and_escaped(rows: list[Row]) -> None:
    for table in make_tables(rows):
        text = table.latex()
        depth = 0
        for brace in re.findall(r"(?<!\\)[{}]", text):
            depth += 1 if brace == "{" else -1
            assert depth >= 0
        assert depth == 0
        assert not re.search(r"(?<!\\)[%_#]", text.replace(r"\label{tab:" + table.name, ""))
        assert text.count(r"\begin{") == text.count(r"\end{") == 2
        columns = len(table.columns)
        body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
        assert all(line.count(" & ") == columns - 1 for line in body.splitlines() if "&" in line)
    assert Table("t", "a_b & 5 %", (("", "x"),), ((Text("-0.5 ± 1"),),)).latex().count(r"$-$0.5 $\pm$ 1") == 1


def test_published_numbers_stand_beside_the_measured(rows: list[Row]) -> None:
    table = next(table for table in make_tables(rows) if table.name == "published")
    line = next(line for line in table.rows if (line[0].text, line[1].text) == ("BallRun", "pdocrl"))
    assert [cell.text for cell in line[-2:]] == ["0.48 ± 0.33", "0.86 ± 0.82"]
    assert [cell.text for cell in line[8:11]] == ["0 of 2 (0 %)", "[0, 84] %", line[10].text]
    assert [cell.text for cell in line[11:14]] == ["0 of 2", "[0, 84] %", "1 of 1"]  # trainings over the limit


def test_recollected_data_and_broken_runs_are_told(rows: list[Row]) -> None:
    broken = [dataclasses.replace(row, failure="step 3: q is not finite") for row in rows]
    notes = " ".join(make_tables(broken)[0].notes)
    assert "not with published numbers" in notes
    assert "pdocrl on BallRun (2)" in notes
    published_data = [dataclasses.replace(row, recollected=False) for row in rows]
    assert "not with published numbers" not in " ".join(make_tables(published_data)[0].notes)


def test_methods_trained_for_other_steps_are_named(rows: list[Row]) -> None:
    step = rows[0].step
    assert f", {step:,} steps, " in make_tables(rows)[0].notes[0]
    short = [dataclasses.replace(row, step=16_000) if row.agent == "bc" else row for row in rows]
    assert f", {step:,} (bc-safe: 16,000) steps, " in make_tables(short)[0].notes[0]


def test_one_or_two_seeds_make_no_clear_winner_and_five_do(play: Play) -> None:
    rows = play({(10.0, 0): [(0.9, 0.0)]}, agent="a") + play({(10.0, 0): [(0.1, 0.0)]}, agent="b")
    table = make_tables(rows)[-1]
    long = rows + [dataclasses.replace(row, episode=1) for row in rows]
    assert (table.rows[0][2].whole, table.rows[0][2].style) == ("1.00 –", "")
    assert any("know nothing of how trainings differ" in note for note in make_tables(long)[0].notes)
    for seeds, style in ((2, ""), (5, "safe")):  # two that beat two others are won by chance in one of six cases
        more = [dataclasses.replace(row, seed=seed, training=seed) for row in rows for seed in range(seeds)]
        assert make_tables(more)[-1].rows[0][2].style == style


def test_every_table_is_written_twice(rows: list[Row], tmp_path: Path) -> None:
    write_tables(tmp_path, make_tables(rows))
    names = {"results", "published", "overview", "limits", "ranks", "profile", "improvement"}
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {f"{n}.{s}" for n in names for s in ("md", "tex")}
    assert make_tables([]) == []


def test_rows_of_two_protocols_give_a_table_for_each(play: Play) -> None:
    runs = {(limit, 0): [(reward, 0.0)] for limit, reward in ((10.0, 0.1), (20.0, 0.2), (40.0, 0.3), (80.0, 0.4))}
    tables = {table.name: table for table in make_tables(play(runs, protocol="dsrl+paper"))}
    assert {"results_dsrl", "results_paper", "limits"} <= set(tables)
    assert "results" not in tables
    assert "limits 20, 40, 80" in tables["results_paper"].title
    assert tables["results_dsrl"].rows[0][1].text.startswith("0.20")
    assert tables["results_paper"].rows[0][1].text.startswith("0.30")


def test_the_overview_puts_gaps_last_and_tells_what_made_a_line(play: Play) -> None:
    rows = [
        *play({(10.0, 0): [(0.5, 99.0)]}, agent="bc"),
        *play({(10.0, 0): [(0.1, 0.0)], (10.0, 1): [(0.2, 0.0)]}, agent="cpq", step=1_000),
        *play({(10.0, 0): [(0.9, 0.0)]}, agent="cpq", task="CarRun"),
        *play({(10.0, 0): [(0.9, 99.0)]}, agent="bc", task="CarRun"),
        *play({(10.0, 0): [(1.0, 0.0)]}, agent="dial", pdocrl="0.2.0"),
    ]
    [table] = [table for table in make_tables(rows) if table.name == "overview"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["cpq", "0.15 / 0.00", "0.90 / 0.00", "2 of 2", "5, 1,000", "1, 2", "0.1.0"],
        ["bc", "0.50 / 9.90", "0.90 / 9.90", "0 of 2", "5", "1", "0.1.0"],
        ["dial", "1.00 / 0.00", "–", "1 of 1", "5", "1", "0.2.0"],
    ]


def test_the_terminal_shows_numbers_and_intervals_whole(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    for table in make_tables(rows):
        table.show()
    text = capsys.readouterr().out
    assert "0.50 ± 0.25 ★" in text
    assert "[-2.68, 3.68]" in text  # ½ ± 12.706 · ¼


def test_the_paper_prints_every_method_on_every_task() -> None:
    methods = {method.name for method in named_suites()["eight"].methods} | {"cdt"}
    tasks = {task.name for task in BULLET} | {published.AVERAGE}
    assert set(published.PUBLISHED) < methods  # what is not the paper's has no published numbers
    assert all(set(own) == tasks for own in published.PUBLISHED.values())


@pytest.mark.parametrize("method", published.PUBLISHED)
def test_published_averages_are_the_means_of_their_columns(method: str) -> None:
    """A typing mistake would show here; the paper rounds to two digits."""
    own = dict(published.PUBLISHED[method])
    average = own.pop(published.AVERAGE)
    reward = sum(p.reward for p in own.values()) / 8
    cost = sum(p.cost for p in own.values()) / 8
    assert average.reward == pytest.approx(reward, abs=0.0051)
    assert average.cost == pytest.approx(cost, abs=0.0051)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (1234.5, 0, "1,234"),
        (0.0434, 1, "0.043"),
        (12.34, 1, "12.3"),
        (0, 1, "0.0"),
        (-3.21, 0, "-3.2"),
        (4e-7, 1, "4e-07"),
    ],
)
def test_a_small_amount_is_not_rounded_away(value: float, digits: int, shown: str) -> None:
    assert amount(value, digits) == shown
