"""Rows that do not say what made them make no table; rows of several versions do not stand beside each other unsaid."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from pdocrl import provenance
from pdocrl.bench.results import Row
from pdocrl.bench.sources import refuse_unsourced, source_notes
from pdocrl.errors import PdocrlError
from pdocrl.report.tables import make_tables


def of(row: Row, **fields: object) -> Row:
    return dataclasses.replace(row, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["pdocrl", "jax", "numpy", "data_digest", "commit"])
def test_a_row_without_its_making_makes_no_table(row: Row, field: str) -> None:
    now = of(row, pdocrl="0.3.0", commit="abc")
    refuse_unsourced([now])
    with pytest.raises(PdocrlError, match=f"pdocrl on BallRun do not say their {field}"):
        make_tables([of(now, **{field: ""})])


def test_rows_made_before_commits_were_recorded_are_told_not_refused(row: Row) -> None:
    refuse_unsourced([of(row, pdocrl="0.2.0", commit="unknown")])
    assert "pdocrl 0.1.0, commit not recorded" in " ".join(source_notes([row]))
    with pytest.raises(PdocrlError, match="commit"):
        refuse_unsourced([of(row, pdocrl="0.3.0", commit="unknown")])


def test_what_differs_is_said_below_the_table(row: Row) -> None:
    same = [of(row, seed=seed, task=task) for seed in (0, 1) for task in ("BallRun", "CarRun")]
    other = [of(row, agent="bc", seed=7, pdocrl="0.3.0", commit="abc+modified")]
    notes = source_notes([*same, *other])
    assert notes[0] == "Seeds 0, 1 (bc: 7)."
    assert "(bc: pdocrl 0.3.0, commit abc+modified, jax" in notes[1]
    assert "several versions" in notes[2]
    assert notes[3].endswith("uncommitted changes: bc.")
    assert len(source_notes(same)) == 2
    assert source_notes([*same, of(same[0], agent="bc", task="CarRun", seed=5), of(same[0], agent="bc")])[0] == (
        "Seeds 0, 1 (bc on CarRun: 5; bc on BallRun: 0)."
    )


def test_a_checkout_is_told_by_its_commit_and_what_is_installed_by_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    monkeypatch.setattr(provenance, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path / "src")
    source = tmp_path / "src" / "a.py"
    source.parent.mkdir()
    source.write_text("1")
    installed = provenance.commit.__wrapped__()
    assert installed.startswith("source ")
    (tmp_path / "src" / "a.pyc").write_text("compiled")
    assert provenance.commit.__wrapped__() == installed
    source.write_text("2")
    assert provenance.commit.__wrapped__() != installed
    source.rename(source.with_name("b.py"))
    renamed = provenance.commit.__wrapped__()
    (tmp_path / "pyproject.toml").write_text("")
    assert provenance.commit.__wrapped__() == renamed  # a checkout without git
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "a")
    clean = provenance.commit.__wrapped__()
    assert len(clean) == 12
    (tmp_path / "src" / "b.py").write_text("3")
    assert provenance.commit.__wrapped__() == f"{clean}+modified"
