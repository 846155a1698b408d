"""The page of a log solved under a limit on a tail."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pdocrl.report import report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two states; the second action gains 1 and may cost 1; four steps."""
    from pdocrl.cli import main as cli

    place, chance = tmp_path_factory.mktemp("tails"), random.Random(0)
    rows = ["episode,step,state,action,reward,cost,next_state,terminal"]
    for episode in range(200):
        state = 0
        for step in range(4):
            action, then = chance.randrange(2), chance.randrange(2)
            cost = action * chance.randrange(2)
            rows.append(f"{episode},{step},s{state},a{action},{action},{cost},s{then},{int(step == 3)}")
            state = then
    (place / "log.csv").write_text("\n".join(rows) + "\n")
    asked = ["solve", str(place / "log.csv"), "--horizon", "4", "--limit", "P(cost>1)<=0.2", "--out", str(place / "p")]
    assert cli.main(asked) == 0
    return place / "p"


def test_the_page_has_the_outcome_and_the_distribution(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    page = report(folder).read_text()
    assert f">{result['value']:.4g}" in page
    (kept,) = result["remembered"]
    for total, share in zip([*kept["values"], kept["over_mean"]], [*kept["probabilities"], kept["over"]], strict=True):
        assert f"<title>{total:.4g}: {share:.3g}</title>" in page
    marks = page[page.index("tail-0-t") :].split("</svg>")[0].split("<use")[1:]
    assert ["hollow" in mark for mark in marks] == [False, False, True]
    assert "spent on cost" in page


def test_the_command_writes_it(folder: Path, run_cli, tmp_path: Path) -> None:
    status, out, err = run_cli("report", folder, "--figures", tmp_path / "figures", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["figures"] == [str(tmp_path / "figures" / f"tail-0.{kind}") for kind in ("svg", "pdf")]
