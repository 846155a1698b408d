"""What the tabular pages of the documentation show is what happens."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("pages", [("theory.md", "theory-statistics.md"), ("solve.md", "solve-logs.md")])
def test_every_snippet_runs_and_its_claims_hold(pages: tuple[str, ...]) -> None:
    session = {"__name__": pages[0]}
    for page in pages:
        code = "\n".join(blocks(page, "python"))
        assert code.count("assert") >= 2
        exec(compile(code, page, "exec"), session)


def test_the_walk_through_shows_what_the_command_prints(run_cli: Callable[..., tuple[int, str, str]]) -> None:
    shown = blocks("solve.md", "console")[0].splitlines()
    command = shlex.split(" ".join(line.removesuffix("\\") for line in shown[: shown.index("")]).removeprefix("$ "))
    assert command[0] == "pdocrl"
    status, out, _ = run_cli(*command[1:])
    assert status == 0
    expected, printed = (
        [line for line in text if line.startswith("│") and "ξ" not in line]  # rounding differs between machines
        for text in (shown, out.splitlines())
    )
    assert len(expected) == 3
    assert printed[: len(expected)] == expected
