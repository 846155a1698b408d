"""The page of a solved log: its numbers are the result's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pdocrl.records import as_plain
from pdocrl.report import report
from pdocrl.report.policy_page import policy_heat_map
from pdocrl.tabular.analysis import read_map
from pdocrl.tabular.result.record import read_solved

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def solved(solved_folder: Path) -> Path:
    return solved_folder


def test_the_page_holds_the_result(solved: Path) -> None:
    result = json.loads((solved / "result.json").read_text())
    page = report(solved).read_text()
    assert (solved / "index.html").exists()
    for value in (result["value"], result["costs"]["cost"], result["log"]["value"]):
        assert f">{value:.4g}<" in page
    assert "&lt;= 0.2" in page
    for number, (value, logged) in enumerate(
        [(result["value"], result["log"]["value"]), (result["costs"]["cost"], result["log"]["costs"]["cost"])]
    ):
        (drawn,) = re.findall(rf'<svg class="chart"[^>]*"signal-{number}-t".*?</svg>', page, re.DOTALL)
        assert f"<title>policy: {value:.4g} (" in drawn
        assert f"<title>behaviour policy: {logged:.4g}</title>" in drawn
        assert "hollow" not in drawn  # the limit is satisfied
    for line in result["policy"]:
        assert f">{line['state']}<" in page


def test_the_command_writes_it(solved: Path, run_cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    status, out, err = run_cli("report", solved, "--out", target, "--json")
    assert (status, err, json.loads(out)) == (0, "", {"page": str(target), "figures": []})


def test_the_record_read_back_is_the_one_written_also_without_a_format_number(solved: Path, tmp_path: Path) -> None:
    found = json.loads((solved / "result.json").read_text())
    record = read_solved(solved)
    assert {"format": 2, **json.loads(json.dumps(as_plain(record)))} == found
    del found["format"]
    (tmp_path / "result.json").write_text(json.dumps(found))
    assert read_solved(tmp_path) == record


@pytest.mark.parametrize("command", ["report", "certify"])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"value": "much"}, "field `value`: expected `float`, got `str`"),
        ({"senses": {"cost": "<"}}, "field `senses[...]`: invalid enum value '<'"),
        ({"costs": {}}, "field `costs`: nothing for the limit on `cost`"),
        ({"coverage": None}, "field `coverage`: expected `object`, got `null`"),
        ({"format": 3}, "field `format` is 3, this version reads 2"),
    ],
)
def test_a_broken_result_is_one_line_that_names_file_and_field(
    solved: Path, run_cli: Cli, tmp_path: Path, command: str, change: dict, complaint: str
) -> None:
    found = json.loads((solved / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(found | change))
    status, out, err = run_cli(command, tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{tmp_path / 'result.json'}: " in err
    assert complaint in err
    assert "Make it again: pdocrl solve LOG" in err


def test_answers_on_the_page_are_those_of_the_files(answered_folder: Path) -> None:
    result = json.loads((answered_folder / "result.json").read_text())
    compared = json.loads((answered_folder / "compare.json").read_text())
    page = report(answered_folder).read_text()
    for point in result["frontier"]["points"]:
        assert f"limit {point['limit']:.4g}: reward {point['value']:.4g}" in page
    assert result["explained"] == "s1"
    for action in result["explain"]:
        assert f">{action['value']:.4g}<" in page
    second = compared["policies"][1]
    low, high = second["lead"]["reward"]
    assert f"{low:.4g} … {high:.4g}" in page
    need = result["more_data"]["reward"][0]
    assert f">{100 * need['share']:.2g} %<" in page


def test_the_map_has_what_explain_says_of_every_action(answered_folder: Path) -> None:
    found, result = read_map(answered_folder), read_solved(answered_folder)
    assert found is not None
    s = found.states.index("s1")
    for one in result.explain:
        a = found.actions.index(one.action)
        assert (found.rows[s][a], found.policy[s][a]) == (one.rows, pytest.approx(one.policy, rel=1e-3))
        assert found.value[s][a] == pytest.approx(one.value, rel=1e-3)
        assert found.costs["cost"][s][a] == pytest.approx(one.costs["cost"], rel=1e-3)
    assert [point.limit for point in found.frontier] == [point.limit for point in result.frontier.points]
    assert sum(found.time) == pytest.approx(1)
    assert sum(map(sum, found.rows)) == 400


def test_positions_of_the_slider_are_the_frontier_with_the_solved_policy_in_its_place(answered_folder: Path) -> None:
    result, found = read_solved(answered_folder), read_map(answered_folder)
    block = policy_heat_map(result, found)
    limits = [float(stop["limit"]) for stop in block.stops]
    assert limits == sorted(limits)
    assert len(limits) == 1 + len(result.frontier.points)
    assert limits[block.start] == result.limits["cost"]
    assert block.shown == found.policy
    assert f"reward {result.value:.4g}" in block.stops[block.start]["says"]


def test_a_map_of_another_shape_is_one_line(answered_folder: Path, run_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes((answered_folder / "result.json").read_bytes())
    found = json.loads((answered_folder / "map.json").read_text())
    (tmp_path / "map.json").write_text(json.dumps(found | {"rows": found["rows"][:1]}))
    status, out, err = run_cli("report", tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "map.json: `rows` is (1, 2), not (2, 2) (states, actions)." in err


def test_units_of_the_page_are_those_of_the_result(run_cli: Cli, tmp_path: Path) -> None:
    rows = "".join(f"{i},0,s,a{i % 2},{i % 2},{i % 2},s\n" for i in range(60))
    (tmp_path / "log.csv").write_text(f"episode,step,state,action,reward,cost,next_state\n{rows}")
    asked = ("--horizon", "1", "--limit", "cost<=0.5", "--C", "inf", "--resamples", "0", "--out", tmp_path / "p")
    assert run_cli("solve", tmp_path / "log.csv", *asked)[0] == 0
    page = report(tmp_path / "p").read_text()
    assert "Estimated reward 0.5 an episode where" in page
    assert "per episode" in page
