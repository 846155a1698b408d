"""States that hide what matters get no statement; states that tell all pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from partly_seen import Rows, hidden_type, lost_sales

from pdocrl.ope.certify.training import certify_solved
from pdocrl.tabular import Counts, Result, solve
from pdocrl.tabular.inference.markov import copied_episodes
from pdocrl.tabular.io.cells import CellSpec
from pdocrl.tabular.io.logs import count_log
from pdocrl.tabular.result.report import notes, save

FREE = {"C": np.inf, "resamples": 0}


def counted(rows: Rows, state: str, cost: str) -> Counts:
    return Counts.from_arrays(
        rows[state],
        rows["action"],
        rows[f"next_{state}"],
        rows["reward"],
        {cost: rows[cost]},
        episode=rows["episode"],
        step=rows["day"],
        initial=rows["day"] == 0,
    )


def shop(lead: int, **options: float) -> Result:
    return solve(counted(lost_sales(0, lead=lead), "stock", "stockout"), 0.95, ["stockout<=0.3"], **FREE | options)


def test_a_stock_that_hides_what_is_on_its_way_is_not_called_optimal() -> None:
    result = shop(lead=2)
    assert result.status == "not_markov"
    assert all("action 2 steps before" in one.by for one in result.record.hidden)


def test_without_lead_time_the_stock_passes() -> None:
    result = shop(lead=0)
    assert result.status == "optimal"
    assert result.record.hidden is None
    assert "not refuted" in result.record.assumptions[0]


def test_a_type_no_column_shows_is_found_by_how_the_episode_went() -> None:
    hidden, none = (
        solve(counted(hidden_type(1, frail=share), "state", "harm"), 0.9, ["harm<=0.08"], **FREE) for share in (0.3, 0)
    )
    assert hidden.status == "not_markov"
    assert [one.signal for one in hidden.record.hidden] == ["harm"]
    assert none.status == "optimal"


def test_markov_logs_are_rarely_refused() -> None:
    """Of twelve logs none; at a rate of 1 % more than one has a chance of .6 %."""
    seen = [
        solve(counted(hidden_type(s, 100, frail=0), "state", "harm"), 0.9, ["harm<=0.08"], **FREE) for s in range(12)
    ]
    assert sum(result.status == "not_markov" for result in seen) <= 1


def test_intervals_are_moved_out_and_a_certificate_shows_nothing(tmp_path: Path) -> None:
    rows = lost_sales(2, episodes=150)
    file = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pyarrow.table(rows), file)
    cells = CellSpec.parse(("stock=values",), None, ())
    counts = count_log(file, costs=["stockout"], columns={"step": "day"}, cells=cells)
    result = solve(counts, 0.95, ["stockout<=0.45"], C=np.inf, min_count=10, resamples=10, refits=0, confidence=0.9)
    assert result.status == "not_markov"
    assert result.shown is not None
    assert not result.shown.reached
    assert result.intervals is not None
    moved = {one.signal: one.shift for one in result.record.hidden}["stockout"]
    assert result.intervals.costs["stockout"][1] - result.costs[0] > moved > 0.05
    said = [note for note in notes(result, counts) if "not Markov" in note]
    assert said
    assert all("`order_" in note or "steps before" in note for note in said)
    save(result, tmp_path / "policy")
    certificate, _ = certify_solved(tmp_path / "policy")
    assert [one.verdict for one in certificate.statements] == ["cannot be shown"]
    assert "no hidden confounder" in certificate.statements[0].assumption


@pytest.mark.parametrize(("copies", "share"), [(1, 0.0), (4, 0.75)])
def test_copies_of_episodes_are_noticed(copies: int, share: float) -> None:
    rows = hidden_type(0, episodes=40)
    table = {name: np.tile(column, copies) for name, column in rows.items()}
    table["episode"] = np.concatenate([rows["episode"] + 40 * k for k in range(copies)])
    counts = counted(table, "state", "harm")
    assert copied_episodes(counts) == pytest.approx(share)
    said = notes(solve(counts, 0.9, (), **FREE), counts)
    assert any("are copies" in note for note in said) == (copies > 1)


def test_a_decider_who_knows_more_than_the_state_is_named(tmp_path: Path) -> None:
    """Ann treats the frail of `hidden_type` alone: for the same state and action her patients come to more harm."""
    rows = hidden_type(0)
    harmed = np.zeros(200)
    np.add.at(harmed, rows["episode"], rows["harm"])
    table = rows | {"doctor": np.where(harmed[rows["episode"]] > 3, "Ann", "Bob")}
    file = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pyarrow.table(table), file)
    counts = count_log(file, costs=["harm"], columns={"step": "day", "decider": "doctor"})
    result = solve(counts, 0.9, ["harm<=0.08"], **FREE)
    assert {one.signal: one.by for one in result.record.hidden} == {"harm": "who decided ('Ann')"}
