"""The page of a solved log: its numbers are the result's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pdocrl.records import as_plain
from pdocrl.report import report
from pdocrl.tabular.solved_file import read_solved

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pdocrl solve` writes for a small log."""
    from pdocrl import cli

    folder = tmp_path_factory.mktemp("solved")
    rows = ["state,action,reward,cost,next_state"]
    for i in range(400):
        state, action = i % 2, i // 2 % 2
        rows.append(f"s{state},a{action},{action},{action * state},s{(state + i // 4) % 2}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    out = folder / "policy"
    assert (
        cli.main(["solve", str(folder / "log.csv"), "--limit", "cost<=0.2", "--gamma", "0.9", "--out", str(out)]) == 0
    )
    return out


def test_the_page_holds_the_result(solved: Path) -> None:
    result = json.loads((solved / "result.json").read_text())
    page = report(solved).read_text()
    assert (solved / "index.html").exists()
    for value in (result["value"], result["costs"]["cost"], result["log"]["value"]):
        assert f">{value:.4g}<" in page
    assert "&lt;= 0.2" in page
    assert page.count('<img src="data:image/png;base64,') == 1
    for line in result["policy"]:
        assert f">{line['state']}<" in page


def test_the_command_writes_it(solved: Path, run_cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    status, out, err = run_cli("report", solved, "--out", target, "--json")
    assert (status, err, json.loads(out)) == (0, "", {"page": str(target)})


def test_the_record_read_back_is_the_one_written_also_without_a_format_number(solved: Path, tmp_path: Path) -> None:
    found = json.loads((solved / "result.json").read_text())
    record = read_solved(solved)
    assert {"format": 1, **json.loads(json.dumps(as_plain(record)))} == found
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
        ({"format": 2}, "field `format` is 2, this version reads 1"),
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
