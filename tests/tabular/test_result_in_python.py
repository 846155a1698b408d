"""A result in a notebook: it acts, saves, explains, draws and prints itself, from a file, a frame, arrays or counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

import pdocrl
from pdocrl.errors import DataError, PdocrlError, UnknownNameError
from pdocrl.limits import as_limits
from pdocrl.records import as_plain
from pdocrl.tabular import Counts
from pdocrl.tabular.result.record import read_solved
from pdocrl.tabular.result.report import notes
from pdocrl.tabular.result.result import PolicyTable, Result

pandas = pytest.importorskip("pandas")
OPTIONS: dict[str, Any] = {"gamma": 0.9, "limits": {"stockout": 0.02}, "resamples": 10, "refits": 1}


@pytest.fixture(scope="module")
def log() -> Any:
    rng = np.random.default_rng(0)
    state, action = rng.integers(3, size=900), rng.integers(2, size=900)
    stockout = (action == 1) & (rng.random(900) < 0.1)
    columns = {"state": state, "action": action, "next_state": rng.integers(3, size=900), "reward": action * state}
    return pandas.DataFrame({**columns, "stockout": stockout.astype(float)})


@pytest.fixture(scope="module")
def result(log: Any) -> Result:
    found = pdocrl.solve(log, **OPTIONS)
    assert isinstance(found, Result)
    return found


def test_a_path_a_frame_arrays_and_counts_give_the_same(log: Any, result: Result, tmp_path: Path) -> None:
    log.to_csv(tmp_path / "log.csv", index=False)
    arrays = {name: log[name].to_numpy() for name in log}
    four = {name: arrays[name] for name in ("state", "action", "next_state", "reward")}
    counts = Counts.from_arrays(**four, costs={"stockout": arrays["stockout"]})
    for given in (tmp_path / "log.csv", arrays, counts):
        found: Any = pdocrl.solve(given, **OPTIONS)
        np.testing.assert_allclose(found.policy, result.policy, atol=1e-9)
    with pytest.raises(DataError, match=r"no column `stockouts`\. Did you mean `stockout`"):
        pdocrl.solve(log, gamma=0.9, limits={"stockouts": 0.02})


def test_it_acts_by_names_as_its_array_says(result: Result) -> None:
    drawn = np.array([result.policy.sample(2, seed) for seed in range(400)])
    assert drawn.mean() == pytest.approx(result.policy[2, 1], abs=0.08)
    assert result.policy.act(0) in (0, 1)
    assert np.exp([result.policy.log_prob(2, a) for a in (0, 1)]) == pytest.approx(result.policy[2])
    rows = pandas.DataFrame({"state": [0, 2]})
    assert result.policy.log_prob(rows, [0, 0]) == pytest.approx(np.log(result.policy[[0, 2], 0]))
    assert len(result.policy.act(rows)) == 2
    with pytest.raises(ValueError, match="column `state` is nan"):
        result.policy.act({"state": float("nan")})
    with pytest.raises(ValueError, match="action 7 is none of the policy's"):
        result.policy.log_prob(0, 7)
    with pytest.raises(PdocrlError, match="ask the result's own"):
        PolicyTable.of(result.policy).act(0)


def test_a_saved_folder_is_read_back_and_reported(result: Result, tmp_path: Path) -> None:
    files = result.save(tmp_path / "policy")
    assert {path.name for path in files} >= {"policy.json", "act.py", "result.json", "map.json"}
    again = pdocrl.load_policy(tmp_path / "policy")
    for state in range(3):
        assert again.chances(state) == pytest.approx(result.policy[state])
    assert json.loads((tmp_path / "policy" / "result.json").read_text())["status"] == result.status
    assert pdocrl.report(tmp_path / "policy").exists()


def test_what_is_saved_is_the_record_and_arrays_are_its_numbers(log: Any, tmp_path: Path) -> None:
    limits = ["stockout<=0.1", "stockout>=0.015"]  # two on one column, whose names in the record are whole limits
    found: Any = pdocrl.solve(log, **OPTIONS | {"limits": limits})
    found.save(tmp_path)
    read = read_solved(tmp_path)
    assert as_plain(read) == as_plain(found.record)
    assert read.limits_given == found.limits == as_limits(limits)
    assert found.costs.tolist() == list(read.costs.values())
    assert len(read.policy) == (found.policy > 0).sum()
    line = found.record.policy[-1]
    assert line.probability == found.policy[found.states.index(line.state), found.actions.index(line.action)]
    assert found.record.notes == notes(found, found.counts)
    told = found.telling(value=2.0)
    assert (told.value, found.value) == (2.0, read.value)


def test_a_frontier_costs_reward_as_the_multiplier_says(result: Result) -> None:
    line = result.frontier("stockout", [0.015, 0.02, 0.025])
    values, price = [point.value for point in line.points], line.points[1].multiplier
    assert values == sorted(values)
    assert line.points[1].value == pytest.approx(result.value, abs=1e-6)
    # The value is concave in the limit, and λ is one of its slopes.
    assert values[2] - values[1] <= 0.005 * price + 1e-6 <= values[1] - values[0] + 2e-6
    axes = line.draw(matplotlib.figure.Figure().add_subplot())
    axes.set_title("of one's own")
    assert axes.get_xlabel() == "limit on stockout"
    assert len(result.frontier("stockout").points) == 8
    with pytest.raises(UnknownNameError, match="cost column"):
        result.frontier("stockouts")


def test_it_explains_and_prints_itself(result: Result) -> None:
    explained = result.explain(2)
    assert [one.policy for one in explained] == sorted(result.policy[2].tolist(), reverse=True)
    assert "stockout" in result.summary()
    assert "assumes: " in result.summary()
    assert "<table" in result._repr_html_()
