"""The page of a benchmark: true to its rows, self-contained, readable by all, short when parts lack."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pdocrl.bench.results import (
    GroupStatus,
    SuiteFile,
    make_runs,
    read_rows,
    read_status,
    write_rows,
    write_status,
    write_suite,
)
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.score import summarise
from pdocrl.report import read_results, report
from pdocrl.report.curves import over_seeds
from pdocrl.report.findings import findings, lead
from pdocrl.report.published import AVERAGE, published
from pdocrl.report.statistics import best_safe

ALL_TASKS = ("BallRun", "CarRun", "DroneRun", "AntRun", "BallCircle", "CarCircle", "DroneCircle", "AntCircle")
ALL_METHODS = (
    ("bc", ""),
    ("bc", "safe"),
    ("cdt", ""),
    ("bcq_lag", ""),
    ("bear_lag", ""),
    ("cpq", ""),
    ("coptidice", ""),
    ("pdocrl", ""),
    ("pdocrl_extraction", ""),
)


class Page(HTMLParser):
    """Every element with its attributes and the text inside it, and the sections by their headings."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[list[str]] = []
        self.feed(re.sub(r"<(style|script)>.*?</\1>", "", self.source, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in {"meta", "link", "br"}:
            self.open.append(self.elements[-1][2])

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_data(self, data: str) -> None:
        for text in self.open:
            text.append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.elements if name == tag]

    @property
    def headings(self) -> list[str]:
        return [text for _, text in self.all("h2")]


def test_the_page_asks_nothing_of_the_network_and_sets_nothing_but_itself(suite_folder):
    page = Page(report(suite_folder()))
    for _, attributes, _ in page.elements:
        for name in ("src", "srcset", "href"):
            assert attributes.get(name, "#").startswith(("data:", "#"))
    for word in ("http", "@import", "url(", "fetch(", "innerHTML", "localStorage"):
        assert word not in page.source


def test_every_id_is_unique_and_every_reference_has_its_target(suite_folder):
    page = Page(report(suite_folder()))
    ids = Counter(attributes["id"] for _, attributes, _ in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    for _, attributes, _ in page.elements:
        named = attributes.get("aria-labelledby", "").split() + attributes.get("aria-describedby", "").split()
        named += [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        assert set(named) <= set(ids)


def test_every_picture_has_a_title_and_a_description_and_every_control_a_label(suite_folder):
    page = Page(report(suite_folder()))
    pictures = [attributes for attributes, _ in page.all("svg") if "chart" in attributes.get("class", "")]
    # per task: plane, costs, two of limits asked, reward and cost while training, λ, two of w, two of estimates
    assert len(pictures) == 2 * 11 + 3  # and three profiles over all tasks: of reward, of cost, of episodes
    described = {
        attributes["id"]: text for attributes, text in page.all("title") + page.all("desc") if "id" in attributes
    }
    for svg in pictures:
        assert svg["role"] == "img"
        assert all(len(described[name]) > 10 for name in (svg["aria-labelledby"], svg["aria-describedby"]))
    assert len(page.all("select")) == len(page.all("label")) == 3
    assert all(attributes["scope"] in {"col", "row"} for attributes, _ in page.all("th"))


def test_the_headline_holds_the_cells_of_the_tables(suite_folder):
    folder = suite_folder()
    summaries = summarise(make_runs(read_rows(folder)))
    page = Page(report(folder))
    shown = [(attributes, text) for attributes, text in page.all("td") if {"title", "data-task"} <= set(attributes)]
    assert len(shown) == len(summaries)
    by_task = {
        task: [text for attributes, text in shown if attributes["data-task"] == task]
        for task in ("BallRun", "CarCircle")
    }
    for score in summaries:
        said = f"{score.reward:.2f} ± {score.reward_std:.2f}cost {score.cost:.2f} ± {score.cost_std:.2f}"
        said += f"{score.safe_limits} of {score.limits} limits{100 * score.tail.share:.0f} % episodes over"
        paper = published(score.method, score.task)
        said += f"paper {paper.reward:.2f} / {paper.cost:.2f}"
        star = "★ " if best_safe(summaries, score.task) == score.method else ""
        assert star + said in by_task[score.task]


def test_safe_numbers_are_bold_and_only_those(suite_folder):
    folder = suite_folder(failed=None, shift=lambda method, task: 3.0 if method == "cpq" else -5.0)
    page = report(folder).read_text()
    unsafe = re.findall(r'<td [^>]*class="unsafe".*?</td>', page)
    safe = re.findall(r'<td [^>]*class="(?:safe|best)".*?</td>', page)
    # per cell once in the headline, at three limits and their mean; the mean over tasks; ranks of the safe everywhere
    assert len(unsafe) == 2 * 5 + 1
    assert len(safe) == 4 * 5 + 2 + 2
    assert not any("<b>" in cell for cell in unsafe)
    assert all(cell.count("<b>") == 1 for cell in safe)


def test_all_runs_are_in_the_plane_hollow_where_over_the_limit(suite_folder):
    folder = suite_folder()
    record = read_results(folder)
    page = report(folder).read_text()
    plane = next(svg for svg in re.findall(r"<svg.*?</svg>", page) if "plane-0-t" in svg)
    marks = re.findall(r'<g data-method="([^"]+)"[^>]*><use href="#mark-(\d)" class="s\d( hollow)?"', plane)
    runs = record.runs_of("BallRun")
    assert len(marks) == len(runs) == 27
    assert sum(not hollow for *_, hollow in marks) == sum(run.safe for run in runs)
    assert len({(agent, shape) for agent, shape, _ in marks}) == 3  # a shape of its own for every method


def test_what_did_not_work_is_named_with_its_reason(suite_folder):
    page = Page(report(suite_folder()))
    assert "What did not work" in page.headings
    assert any("cpq on CarCircle: failed: step 300: critic_loss is not finite." in text for _, text in page.all("li"))
    assert "1 of 6 trainings have no scores" in "".join(text for _, text in page.all("li"))


def test_what_befell_all_methods_of_a_task_is_said_once(suite_folder):
    folder = suite_folder()
    lost = {"task": "AntRun", "status": "missing", "reason": "no data. Run `pdocrl data fetch AntRun`."}
    status = read_status(folder)
    status += [dataclasses.replace(line, **lost) for line in status if line.task == "BallRun"]
    write_status(folder, status)
    page = report(folder).read_text()
    said = "every method on AntRun</strong>: missing: no data. Run <code>pdocrl data fetch AntRun</code>.</li>"
    assert page.count(said) == page.count("missing: no data") == 1


def test_a_run_that_broke_off_is_named_though_it_is_scored(suite_folder):
    folder = suite_folder(failed=None)
    rows = [
        row
        if (row.method, row.seed, row.cost_limit) != ("cpq", 5, (20.0,))
        else type(row)(**{**row.__dict__, "failure": "step 700: q is not finite"})
        for row in read_rows(folder)
    ]
    write_rows(folder, rows)
    page = Page(report(folder))
    said = [text for _, text in page.all("li") if "stopped at step 700" in text]
    assert len(said) == 2
    assert all("limit 20, seed 5" in text for text in said)


def test_re_collected_data_is_called_so(suite_folder):
    folder = suite_folder()
    page = Page(report(folder))
    assert sum(text == "re-collected" for _, text in page.all("b")) == 2
    assert any("Re-collected data, not the published files: BallRun, CarCircle" in text for _, text in page.all("li"))
    assert "7" * 64 in page.source


def test_sections_appear_only_with_their_data(suite_folder):
    page = Page(report(suite_folder(extras=False, methods=(("bc", "safe"),), failed=None)))
    for title in (
        "Ranks",
        "Probability of improvement",
        "Performance profiles",
        "Reward and cost while training",
        "The price of cost, λ",
        "The density ratio, w",
        "Estimated from the data, and played",
        "What did not work",
    ):
        assert title not in page.headings
    assert {"Results", "At each limit", "Cost of every episode", "What was run", "Do it again"} <= set(page.headings)


def test_a_benchmark_just_begun_has_a_page(suite_folder):
    folder = suite_folder()
    write_rows(folder, [])
    write_status(folder, [GroupStatus("bc-BallRun", "BallRun", "bc", "", 9, "waiting")])
    page = Page(report(folder))
    assert "nothing is scored yet" in page.source
    assert any("bc on BallRun: waiting" in text for _, text in page.all("li"))


def test_a_mean_that_hides_an_unsafe_limit_is_pointed_out(suite_folder):
    folder = suite_folder(failed=None)
    rows = read_rows(folder)
    for i, row in enumerate(rows):
        if row.method == "pdocrl" and row.task == "BallRun":
            share = 1.5 if row.cost_limit == (10.0,) else 0.1
            cost = (share * row.cost_limit[0],)
            rows[i] = type(row)(**{**row.__dict__, "cost": cost, "normalized_cost": share})
    write_rows(folder, rows)
    said = findings(read_results(folder))
    assert any("not at each of them" in line and "pdocrl on BallRun (2 of 3)" in line for line in said)


def test_what_was_said_from_the_data_alone_is_judged_by_what_was_played(suite_folder):
    record = read_results(suite_folder())
    within = [run.safe for run in record.runs if run.seed == 0]  # what the invented estimates say of these seeds
    over = [not run.safe for run in record.runs if run.seed == 10]
    (said,) = [line for line in findings(record) if line.startswith("From the data alone")]
    assert said == (
        "From the data alone, 15 of 45 policies were shown to be within the limit, and played "
        f"{sum(within)} of them are; 15 were shown to be over, and {sum(over)} are. "
        "The 30 trusted estimates of cost miss by 0.05 of the limit in the median, by 0.05 at worst. "
        f"The estimates contradict the roll-outs: {30 - sum(within) - sum(over)} of 30 verdicts are wrong. "
        "Do not rely on them for this data; believe what was played."
    )


def test_the_lead_counts_what_was_played(suite_folder):
    folder = suite_folder()
    assert lead(read_results(folder)).startswith("3 methods on 2 tasks: 45 policies, 180 episodes in the simulator.")


def test_the_lead_counts_limits_where_tasks_are_even(suite_folder):
    """Both are safe on average on both tasks; one of them breaks a limit."""
    folder = suite_folder(failed=None)
    shares = {("pdocrl", "BallRun", 10.0): 1.5, ("cpq", "BallRun", 10.0): 0.2}
    rows = []
    for row in read_rows(folder):
        share = shares.get((row.method, row.task, row.cost_limit[0]), 2.0 if row.agent == "bc" else 0.1)
        rows.append(dataclasses.replace(row, cost=(share * row.cost_limit[0],), normalized_cost=share))
    write_rows(folder, rows)
    assert " cpq satisfies its limits most often, 6 of 6 times (task × limit)" in lead(read_results(folder))


def test_methods_trained_shorter_than_others_are_pointed_out(suite_folder):
    folder = suite_folder(failed=None)
    assert not any("equally long" in line for line in findings(read_results(folder)))
    rows = [dataclasses.replace(row, step=77) if row.agent == "cpq" else row for row in read_rows(folder)]
    write_rows(folder, rows)
    assert "Methods were not trained equally long. Steps: 1,000 (cpq: 77)." in findings(read_results(folder))


def test_a_band_is_the_range_of_the_seeds_means_over_limits():
    steps = np.array([1.0, 2.0])
    curves = {
        ("bc", "10", 0): (steps, np.array([0.0, 2.0])),
        ("bc", "20", 0): (steps, np.array([2.0, 4.0])),
        ("bc", "10", 5): (steps, np.array([5.0, 6.0])),
        ("bc", "20", 5): (steps, np.array([7.0, 8.0])),
        ("bc", "20", 10): (steps[:1], np.array([99.0])),  # broke off
    }
    at, mean, low, high = over_seeds(curves, "all")
    assert (at.tolist(), mean.tolist()) == ([1.0, 2.0], [3.5, 5.0])
    assert (low.tolist(), high.tolist()) == ([1.0, 3.0], [6.0, 7.0])
    assert over_seeds(curves, "10")[1].tolist() == [2.5, 4.0]
    assert over_seeds(curves, "40") is None


def test_names_cannot_smuggle_markup_into_the_page(suite_folder):
    folder = suite_folder(failed=None, extras=False)
    hostile = '"><script>alert(1)</script>'
    rows = [type(row)(**{**row.__dict__, "data": hostile, "variant": hostile}) for row in read_rows(folder)]
    write_rows(folder, rows)
    write_status(folder, [dataclasses.replace(line, variant=hostile) for line in read_status(folder)])
    page = report(folder).read_text()
    assert page.count("<script>") == 1
    assert "alert(1)" in page


def test_the_page_of_the_paper_s_suite_stays_under_three_megabytes(suite_folder):
    folder = suite_folder(tasks=ALL_TASKS, methods=ALL_METHODS, episodes=20, points=50, failed=None)
    page = report(folder)
    assert page.stat().st_size < 3_000_000
    average = published("pdocrl", AVERAGE)
    said = f"% episodes over</small><small>paper {average.reward:.2f} / {average.cost:.2f}</small></td>"
    assert said in page.read_text()  # only here: the paper's mean is over these eight tasks


def test_the_command_knows_a_benchmark_s_folder(suite_folder, run_cli):
    folder = suite_folder()
    status, out, err = run_cli("report", folder, "--json")
    assert (status, err, json.loads(out)) == (0, "", {"page": str(folder / "report.html"), "figures": []})
    target = folder.parent / "pages" / "toy.html"
    assert run_cli("report", folder, "--out", target)[1].strip() == str(target)
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "results.parquet").unlink(), "no results.parquet here"),
        (lambda folder: (folder / "status.json").unlink(), "no status.json here"),
        (lambda folder: (folder / "suite.json").write_text("{}"), "field `format` is 0, this version reads 2"),
        (lambda folder: (folder / "groups/pdocrl-BallRun/ope.json").write_text("{"), "Make it again: pdocrl ope"),
        (lambda folder: (folder / "groups/pdocrl-BallRun/run.json").write_text("{}"), "`pdocrl train --out` wrote"),
        (lambda folder: (folder / "report.html").mkdir(), "is a folder; name the page"),
    ],
)
def test_a_damaged_folder_is_one_line_and_status_2(suite_folder, run_cli, damage, complaint):
    folder = suite_folder()
    damage(folder)
    status, out, err = run_cli("report", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert not (folder / "report.html").is_file()


def test_a_failed_page_leaves_the_last_one_as_it_was(suite_folder):
    folder = suite_folder()
    page = report(folder)
    before = page.read_bytes()
    (folder / "results.parquet").write_bytes(b"cut")
    with pytest.raises(PdocrlError, match="cannot be read"):
        report(folder)
    assert page.read_bytes() == before


def test_a_folder_of_the_theorys_figures_names_what_makes_its_page(tmp_path):
    write_suite(tmp_path / "figures", SuiteFile(name="tabular", kind="tabular"))
    with pytest.raises(PdocrlError, match=r"python -m research"):
        report(tmp_path / "figures")


def test_the_commands_shown_name_the_folder_the_data_lay_in(suite_folder):
    folder = suite_folder(failed=None)
    for path in folder.glob("groups/*/run.json"):
        plan = json.loads(path.read_text())
        path.write_text(json.dumps({**plan, "data": f"my data/{plan['data']}"}))
    page = Page(report(folder))
    whole, single = (text for _, text in page.all("pre"))
    assert whole == "pdocrl bench toy.toml --data 'my data' --out 'toy suite'\npdocrl report 'toy suite'"
    assert len(single.splitlines()) == 6
    first = shlex.split(single.splitlines()[0])
    assert first[:6] == ["pdocrl", "train", "my data/SafetyBallRun-v0.hdf5", "--agent", "bc", "--task"]
    assert first[-1] == "toy suite/groups/bc-safe-BallRun"


def test_two_constraints_are_one_limit_with_two_numbers_and_the_worst_decides(suite_folder):
    folder = suite_folder(failed=None, extras=False)
    rows = [
        type(row)(
            **{**row.__dict__, "cost_limit": (row.cost_limit[0], 5.0), "cost": (0.0, 7.5), "normalized_cost": 1.5}
        )
        for row in read_rows(folder)
    ]
    write_rows(folder, rows)
    page = Page(report(folder))
    assert [text for _, text in page.all("option")][-3:] == ["10, 5", "20, 5", "40, 5"]
    assert all(not run.safe and run.normalized_cost == 1.5 for run in read_results(folder).runs)
    assert any("No method is safe on BallRun and CarCircle." in text for _, text in page.all("li"))


def test_a_task_that_is_not_scored_blanks_no_other(suite_folder):
    """CarCircle has no simulator: it is not counted, and the means are over the tasks that are scored."""
    folder = suite_folder(failed=None)
    write_rows(folder, [row for row in read_rows(folder) if row.task == "BallRun"])
    status = [s if s.task == "BallRun" else dataclasses.replace(s, status="trained") for s in read_status(folder)]
    write_status(folder, status)
    record = read_results(folder)
    assert lead(record).startswith("3 methods on 1 task: 27 policies")
    summaries = {one.method: one for one in record.summaries}
    page = Page(report(folder))
    overall = [text for attributes, text in page.all("td") if attributes.get("data-label") == "All tasks"]
    assert [text.split("cost")[0] for text in overall] == [f"{summaries[m].reward:.2f}" for m in record.ranked]


def test_the_best_method_stands_first(suite_folder):
    folder = suite_folder(failed=None, shift=lambda method, task: -5.0 if method == "pdocrl" else 3.0)
    page = Page(report(folder))
    first = next(text for attributes, text in page.all("th") if attributes["scope"] == "row")
    assert first == "pdocrl"  # the only safe one, and the last of the suite


def test_no_winner_is_named_among_equals(suite_folder):
    folder = suite_folder(failed=None)
    same = [row for row in read_rows(folder) if row.agent == "cpq"]
    names = (("bc", "safe"), ("cpq", ""), ("pdocrl", ""))
    write_rows(folder, [dataclasses.replace(row, agent=a, variant=v) for a, v in names for row in same])
    record = read_results(folder)
    assert lead(record).endswith("all have the same average rank.")
    assert "bc-safe, cpq and pdocrl satisfy their limits" in lead(record) or "All satisfy every limit" in lead(record)
    page = Page(report(folder))
    assert not [text for attributes, text in page.all("td") if attributes.get("class") == "best"]
