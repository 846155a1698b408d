"""The theory's figures: measured once, then made from their CSV files."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from pdocrl.errors import PdocrlError
from pdocrl.files import read_csv, write_csv
from research import figures
from research.experiments import EXPERIMENTS
from research.experiments.cloning import measure as measure_cloning
from research.experiments.rate import MULTIPLES, SIZES, slope

QUICK = ("cloning", "rate", "linear", "lucky")  # the others are measured in test_measure.py, on less


def test_figures_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = figures.make_figures(tmp_path / "out", QUICK, seeds=1)
    assert set(first.rows) == set(QUICK)
    assert all(path.stat().st_size > 10_000 for path in first.pictures)
    made = {path.name for path in (tmp_path / "out" / "tables").iterdir()}
    assert made == {f"{name}.{suffix}" for name in QUICK for suffix in ("md", "tex")}

    def refuse(seeds: int, jobs: int) -> figures.Rows:
        raise AssertionError("measured again")

    again = {name: dataclasses.replace(experiment, measure=refuse) for name, experiment in EXPERIMENTS.items()}
    monkeypatch.setattr(figures, "EXPERIMENTS", again)
    assert figures.make_figures(tmp_path / "out", QUICK).rows == first.rows
    page = first.page.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(QUICK)
    assert "Not measured yet: baselines, baselines_free, examples, icu" in page
    (tmp_path / "out" / "rate.csv").write_text("")
    with pytest.raises(PdocrlError, match=r"rate.csv: holds no rows"):
        figures.make_figures(tmp_path / "out", QUICK)
    with pytest.raises(PdocrlError, match=r"unknown figure"):
        figures.make_figures(tmp_path / "other", ["luck"])
    assert not (tmp_path / "other").exists()


def test_simulated_failures_agree_with_the_closed_form() -> None:
    """With N data sets the simulation is within five standard errors, √(p(1−p)/N) each."""
    for row in measure_cloning(20_000):
        p = row["closed form"]
        assert row["difference"] < 5 * (p * (1 - p) / 20_000) ** 0.5
        assert p >= 0.25


def test_the_slope_of_an_error_that_falls_like_a_root_is_minus_one_half() -> None:
    rows = [{"C over C*": multiple, "n": n, "mean err": 3 * n**-0.5} for multiple in MULTIPLES for n in SIZES]
    assert slope(rows, MULTIPLES[0]) == pytest.approx(-0.5)


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    rows = [{"method": "plug-in, n≥3", "n": 10, "mean": 0.125}, {"method": "a,b", "n": 1, "mean": 1e-9}]
    write_csv(tmp_path / "x.csv", rows)
    assert read_csv(tmp_path / "x.csv") == rows
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == ["method", "n", "mean"]
