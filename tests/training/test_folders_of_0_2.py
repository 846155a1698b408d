"""Folders that version 0.2.0 wrote are read: their policies act as they did there, their scores and pages are made.

`trained_0_2/AGENT/` is 20 steps of 0.2.0 with tiny networks on the embedded BallRun data, two limits; `actions.npy`
[2, 6, A] is what 0.2.0 did in the first six logged states, told what they had gained and cost.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import pdocrl
from pdocrl.evaluation.evaluate import read_scores
from pdocrl.report import report
from pdocrl.training.folder import load_trained
from pdocrl.training.train import resume

FOLDER = Path(__file__).parent / "trained_0_2"


@pytest.mark.parametrize("agent", sorted(path.name for path in FOLDER.iterdir()))
def test_policies_act_as_they_did(agent: str) -> None:
    trained, data = load_trained(FOLDER / agent), pdocrl.load("BallRun")
    expected = np.load(FOLDER / agent / "actions.npy")
    assert trained.config.agent == agent
    assert trained.step == 20
    assert [run["cost_limit"] for run in trained.config.runs] == [[10.0], [20.0]]
    for policy, actions in zip(trained.policies, expected, strict=True):
        step = policy.begin(3)
        for i, action in enumerate(actions):
            before = (float(data.reward[i - 1]), float(data.cost[i - 1, 0])) if i else (0.0, 0.0)
            np.testing.assert_array_equal(step(data.obs[i], *before), action)


def test_its_records_say_what_each_run_was_and_predicts() -> None:
    first, second = load_trained(FOLDER / "dial").records()
    assert (first["run"], first["cost_limit"], first["step"], first["failure"]) == (0, [10.0], 20, None)
    assert second["cost_limit"] == [20.0]
    assert first["metrics"] == load_trained(FOLDER / "dial").metrics[-2]["metrics"]
    assert isinstance(first["predicted_within"], bool)
    assert len(first["predicted_cost"]) == len(first["predicted_bound"]) == 1
    (plain, _) = load_trained(FOLDER / "bc").records()
    assert (plain["predicted_within"], plain["predicted_cost"], plain["predicted_tails"]) == (None, None, [])


def test_tables_have_a_row_per_run(tmp_path: Path) -> None:
    trained = load_trained(FOLDER / "dial")
    table = trained.table()
    assert table.heads[:3] == ["run", "cost limit", "seed"]
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [["0", "10", "0"], ["1", "20", "0"]]
    assert table.notebook() in trained._repr_html_()
    scores = read_scores(shutil.copytree(FOLDER / "dial", tmp_path / "dial"))
    runs = scores.table()
    assert [[row[0].text, row[2].text] for row in runs.rows] == [[r.limit, f"{r.reward:.4g}"] for r in scores.runs]
    assert scores.limits_table().rows == ()
    assert scores.summary[0].sentence() in scores._repr_html_()


def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / "bc", tmp_path / "bc")
    trained = resume(folder, pdocrl.load("BallRun"), steps=30)
    assert trained.step == 30
    obs = pdocrl.load("BallRun").obs[:6]
    assert not np.array_equal(trained.policies[0](obs), load_trained(FOLDER / "bc").policies[0](obs))


def test_scores_are_read_and_shown(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / "dial", tmp_path / "dial")
    scores = read_scores(folder)
    assert scores is not None
    assert [run.cost_limit for run in scores.runs] == [[10.0], [20.0]]
    assert all(len(run.episodes) == 2 for run in scores.runs)
    assert {(run.task, run.method) for run in scores.runs} == {("BallRun", "dial")}
    (written,), (summary,) = json.loads((folder / "scores.json").read_text())["summary"], scores.summary
    assert (summary.reward, summary.cost) == pytest.approx((written["score"]["reward"], written["score"]["cost"]))
    assert [one.limit for one in summary.by_limit] == [one["limit"] for one in written["score"]["by_limit"]]
    page = report(folder, film=False)
    assert f"{scores.runs[0].reward:,.0f}" in Path(page).read_text(encoding="utf-8").replace(" ", "")
