"""The page of a solved log of columns: its numbers are the record's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdocrl.portfolio.export import RESULT
from pdocrl.portfolio.record import CandidateFound, Decider, HeldOut, Measured, SolvedLog
from pdocrl.records import write_record
from pdocrl.report import report


def candidate(name: str, reward: float, cost: float, *, known: bool = True) -> CandidateFound:
    estimator = "fitted Q" if known else "none"
    held = {
        signal: HeldOut(value=value, error=0.5, freedom=9.0, estimator=estimator, overlap=True)
        for signal, value in (("reward", reward), ("cost", cost))
    }
    return CandidateFound(
        name=name, what=f"about {name}", held_out=held, believed=None, second=None, limits={"cost<=4": "within"}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    means = {
        name: Measured(value=value, interval=(value - 1, value + 1)) for name, value in (("reward", 7), ("cost", 5))
    }
    share = {"cost<=4": Measured(value=0.3, interval=(0.1, 0.5))}
    record = SolvedLog(
        log="log.csv",
        rows=120,
        used=120,
        episodes=30,
        cut_short=0,
        columns=["age"],
        ignored=[],
        actions=["0", "1"],
        unit="total of an episode",
        limits=["cost<=4"],
        confidence=None,
        seed=0,
        chosen="good <one>",
        status="estimated",
        why="the best of 2",
        logged={"reward": 6.5, "cost": 4.5},
        deciders=[Decider(name="A", episodes=30, cut_short=0, means=means, within=share, satisfied="no")],
        candidates=[candidate("good <one>", 9, 3), candidate("bold", 12, 6.25), candidate("odd", 0, 0, known=False)],
        validation=[],
        importance=[],
        surrogate=None,
        assumptions=["whoever acted knew no more than the columns"],
        notes=[],
        seconds=1.0,
    )
    write_record(tmp_path / RESULT, record)
    return tmp_path


def test_the_picture_has_every_known_candidate_and_decider_hollow_over_the_limit(folder: Path) -> None:
    page = report(folder).read_text()
    assert "<title>good &lt;one&gt;: reward 9, cost 3</title>" in page
    assert "decider A: reward 7, cost 5" in page
    assert "odd: reward" not in page  # nothing is known of it
    marks = page[page.index("candidates-0-t") :].split("</svg>")[0].split("<use")[1:]
    assert [("hollow" in mark, "large" in mark) for mark in marks] == [(True, False), (True, False), (False, True)]


def test_it_says_what_it_assumes(folder: Path) -> None:
    page = report(folder).read_text()
    assert "whoever acted knew no more than the columns" in page
    assert "good &lt;one&gt; (about good &lt;one&gt;): estimated to be within every limit; not tested." in page


def test_a_broken_record_is_one_line(folder: Path, run_cli) -> None:
    found = json.loads((folder / RESULT).read_text())
    (folder / RESULT).write_text(json.dumps(found | {"episodes": "many"}))
    status, out, err = run_cli("report", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{RESULT}: field `episodes`" in err
    assert "Make it again: pdocrl solve LOG" in err
