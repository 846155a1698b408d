"""Logs as people have them: read as meant, or refused in one line that names file, column and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pdocrl
from pdocrl.cli.main import main
from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError, PdocrlError
from pdocrl.portfolio import entry
from tests.portfolio.conftest import STEPS, make_log

EPISODES = 60
Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.fixture(scope="module")
def tidy() -> pd.DataFrame:
    return make_log(EPISODES).sort_values(["episode", "step"], ignore_index=True)


def random(frame: pd.DataFrame) -> Any:
    return np.random.default_rng(3).random(len(frame))


def kinds(log: EventLog) -> dict[str, str]:
    return {one.name: one.kind for one in log.columns}


@pytest.mark.parametrize("how", ["csv", "frame"])
@pytest.mark.parametrize(
    ("change", "column", "kind"),
    [
        (lambda d: d.assign(noise=["NA" if i % 7 == 0 else f"{x}" for i, x in enumerate(d.noise)]), "noise", "numeric"),
        (lambda d: d.assign(noise=["high" if i % 7 == 0 else f"{x:.0f}" for i, x in enumerate(d.noise)]), "noise", "c"),
        (lambda d: d.assign(ill=np.where(d.noise > 0, "Yes", "no")), "ill", "boolean"),
        (lambda d: d.assign(meal=np.where(d.noise > 0, "none", "lunch")), "meal", "categorical"),
        (lambda d: d.assign(**{"wind speed": d.x}), "wind speed", "numeric"),
        (lambda d: d.assign(größe=d.x, 天気=d.weather), "größe", "numeric"),
    ],
)
def test_columns_as_they_come(
    tidy: pd.DataFrame, tmp_path: Path, how: str, change: Change, column: str, kind: str
) -> None:
    frame = change(tidy)
    frame.to_csv(tmp_path / "log.csv", index=False)
    read, _, _ = entry.read(tmp_path / "log.csv" if how == "csv" else frame, ["cost"])
    assert kinds(read)[column].startswith(kind)


def test_words_for_the_unknown_are_missing_among_numbers_alone(tidy: pd.DataFrame) -> None:
    read, _, _ = entry.read(tidy.assign(lab=["n/a"] * 30 + ["4.5"] * (len(tidy) - 30), what="none"), ["cost"])
    lab, what = (next(one for one in read.columns if one.name == name) for name in ("lab", "what"))
    assert (lab.kind, int(lab.missing.sum())) == ("numeric", 30)
    assert (what.kind, what.categories, int(what.missing.sum())) == ("categorical", ("none",), 0)


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (lambda d: d.assign(id=np.arange(len(d)) + 1000), "id"),
        (lambda d: d.assign(when=pd.date_range("2024-01-01", periods=len(d), freq="h")), "when"),
        (lambda d: d.assign(patient=[f"p{e}" for e in d.episode]), "patient"),
        (lambda d: d.assign(code=[f"c{int(300 * u)}" for u in random(d)]), "code"),
    ],
)
def test_names_of_rows_and_episodes_are_left_out_and_said(tidy: pd.DataFrame, change: Change, left_out: str) -> None:
    read, _, notes = entry.read(change(tidy), ["cost"])
    assert read.ignored == (left_out,)
    assert any(f"`{left_out}`" in note for note in notes)


def test_numbers_that_happen_to_be_whole_stay(tidy: pd.DataFrame) -> None:
    frame = tidy.assign(age=tidy.episode % 50, weight=3000 + 7 * tidy.episode)
    frame = frame.assign(kind=[f"k{e % 40}" for e in tidy.episode])
    assert {"age", "weight", "kind"} <= set(kinds(entry.read(frame, ["cost"])[0]))


@pytest.mark.parametrize(
    "write",
    [
        lambda d, path: d.to_csv(path, index=False, sep=";"),
        lambda d, path: d.to_csv(path, index=False, sep="\t"),
        lambda d, path: d.to_csv(path, index=False, encoding="utf-8-sig"),
        lambda d, path: d.to_csv(path, index=False, lineterminator="\r\n"),
        lambda d, path: d.assign(action=d.action + " ", weather=" " + d.weather).to_csv(path, index=False),
        lambda d, path: d.to_csv(path),
    ],
    ids=["semicolons", "tabs", "byte order mark", "windows lines", "blanks", "index"],
)
def test_files_as_they_come(tidy: pd.DataFrame, tmp_path: Path, write: Callable[[pd.DataFrame, Path], None]) -> None:
    write(tidy, tmp_path / "log.csv")
    read, _, _ = entry.read(tmp_path / "log.csv", ["cost"])
    assert read.actions == ("go", "stay")
    assert kinds(read) == {"x": "numeric", "weather": "categorical", "noise": "numeric"}
    assert next(one for one in read.columns if one.name == "weather").categories == ("calm", "storm")
    assert len(read.episodes) == EPISODES


def _ragged(d: pd.DataFrame, path: Path) -> None:
    d.to_csv(path, index=False)
    with path.open("a") as file:
        file.write("1,2,3\n")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda d, p: d.to_csv(p, index=False, encoding="utf-16"), "line 1: not UTF-8 text"),
        (lambda d, p: d.assign(weather="schön").to_csv(p, index=False, encoding="latin-1"), "line 2: not UTF-8 text"),
        (
            lambda d, p: d.to_csv(p, index=False, sep=";", decimal=","),
            "column `x`, row .* a number with a comma",
        ),
        (lambda d, p: p.write_bytes(b"PK\x03\x04" + bytes(range(256)) * 9), "is a spreadsheet or an archive, not CSV"),
        (lambda d, p: p.write_bytes(b""), "log.csv is empty"),
        (lambda d, p: d.iloc[:0].to_csv(p, index=False), "is empty: no rows"),
        (_ragged, "its lines have different numbers of fields"),
        (
            lambda d, p: d.rename(columns={"action": "Action"}).to_csv(p, index=False),
            "no column `action`. Did you mean",
        ),
        (lambda d, p: pd.concat([d, d[:3]]).to_csv(p, index=False), "the same step twice in one episode"),
        (
            lambda d, p: d.assign(reward=d.reward.where(d.index != 3)).to_csv(p, index=False),
            "`reward`, row 4: a mis",
        ),
        (lambda d, p: d.assign(reward="€3").to_csv(p, index=False), "'€3', expected a finite number"),
        (
            lambda d, p: d.assign(decider=d.decider.where(d.index != 3)).to_csv(p, index=False),
            "`decider`, row 4",
        ),
        (
            lambda d, p: d.assign(noise=d.noise.where(d.index != 3, np.inf)).to_csv(p, index=False),
            "row 4: inf",
        ),
        (lambda d, p: d.assign(step="soon").to_csv(p, index=False), "'soon', expected a number or a date"),
        (
            lambda d, p: d.assign(action=[f"[{x}, 1]" for x in d.noise]).to_csv(p, index=False),
            "parts of a vector",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_status_2(
    tidy: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Any, message: str
) -> None:
    write(tidy, tmp_path / "log.csv")
    asked = ["solve", str(tmp_path / "log.csv"), "--limit", "cost<=1.2", "--horizon", "6", "--out", str(tmp_path / "p")]
    assert main(asked) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    with pytest.raises(DataError, match=message):
        raise DataError(error)
    assert not (tmp_path / "p").exists()


def test_a_date_named_as_a_state_column_is_refused(tidy: pd.DataFrame) -> None:
    frame = tidy.assign(when=pd.date_range("2024-01-01", periods=len(tidy), freq="h"))
    with pytest.raises(DataError, match="`when` has 360 distinct words in 360 rows, so it names rows; leave it out"):
        entry.read(frame, ["cost"], ["x", "when"])


@pytest.mark.parametrize("words", [True, False])
def test_steps_may_be_dates(tidy: pd.DataFrame, words: bool) -> None:
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(36 * (STEPS - tidy.step), unit="h")
    frame = tidy.assign(step=when.astype(str) if words else when, noise=tidy.step).drop(columns="terminal")
    read, _, _ = entry.read(frame, ["cost"])
    noise = next(one for one in read.columns if one.name == "noise")
    assert noise.values[:STEPS].tolist() == [*range(STEPS)][::-1]


def test_amounts_become_a_grid_that_is_said(tidy: pd.DataFrame) -> None:
    amounts = 10 * random(tidy)
    read, _, notes = entry.read(tidy.assign(action=amounts, propensity=0.5), ["cost"])
    levels = np.array([float(one) for one in read.actions])
    assert len(levels) == 7
    assert read.propensity is None
    logged = levels[read.action]
    assert np.abs(logged - amounts[read.source_row]).max() < 1.2
    assert "360 different amounts, each replaced by the nearest of" in notes[0]
    few, _, _ = entry.read(tidy.assign(action=np.where(tidy.action == "go", 80, 15)), ["cost"])
    assert few.actions == (15, 80)


def test_two_decisions_at_once_are_one_label(tidy: pd.DataFrame) -> None:
    frame = tidy.assign(dose=random(tidy), rate=tidy.step % 3)
    read, _, notes = entry.read(frame, ["cost"], columns={"action": "dose+rate"})
    assert len(read.actions) == 4 * 3
    assert all(str(one).startswith("dose=0.") and ", rate=" in str(one) for one in read.actions)
    assert not {"dose", "rate"} & set(kinds(read))
    assert "`dose`" in notes[0]
    with pytest.raises(DataError, match="no column `speed`"):
        entry.read(frame, ["cost"], columns={"action": "dose+speed"})


@pytest.mark.filterwarnings("ignore")
def test_one_row_episodes_and_rare_actions_are_learned_from(tidy: pd.DataFrame) -> None:
    pytest.importorskip("sklearn")
    frame = make_log(150)
    frame = frame[frame.step < 1].assign(terminal=True, noise=lambda d: d.noise.where(d.x > 0.2))
    frame = frame.assign(action=np.where(np.arange(len(frame)) == 5, "never", frame.action))
    found = pdocrl.solve(frame, limits=["cost<=0.3"])
    assert found.record.actions == ["go", "never", "stay"]
    assert found.record.status in {"estimated", "best decider", "none"}
    assert found.policy.act({"x": 0.2, "weather": "calm", "noise": None}, 0) in {"go", "never", "stay"}


def test_both_sides_of_one_column_are_refused(tidy: pd.DataFrame) -> None:
    with pytest.raises(PdocrlError, match="two limits on one column"):
        pdocrl.solve(tidy, limits=["cost<=1", "cost>=0.1"], horizon=STEPS)
