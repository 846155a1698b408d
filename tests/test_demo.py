"""The demo: from the package's own data to a page, resumable, refusing to mix two trainings."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import pdocrl.demo
from pdocrl.demo import embedded
from pdocrl.report import read_results

pytest.importorskip("pybullet", reason="the simulator is an extra")

Run = Callable[..., tuple[int, str, str]]


def test_the_demo_goes_on_after_an_interrupt_and_ends_with_a_page(tmp_path, run_cli: Run, monkeypatch) -> None:
    folder = tmp_path / "demo"
    arguments = ["demo", "--out", folder, "--agent", "bc", "--steps", "20", "--episodes", "2"]

    monkeypatch.setattr(pdocrl.demo, "EVALUATIONS", 2)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pdocrl.demo, "evaluate", interrupted)
        status, out, err = run_cli(*arguments)
    assert (status, out) == (130, "")
    assert err.splitlines()[-1].startswith(f"interrupted. Go on with the same command: pdocrl demo --out {folder}")
    assert not (folder / "index.html").exists()
    trained = (folder / "policies.npz").read_bytes()

    status, out, _ = run_cli(*arguments, "--json")
    answer = json.loads(out)
    assert status == 0
    assert (folder / "policies.npz").read_bytes() == trained  # nothing was trained again
    assert [run["cost_limit"] for run in answer["runs"]] == [[10.0], [50.0], [80.0]]
    assert all(len(run["episodes"]) == 2 for run in answer["runs"])

    page = (folder / "index.html").read_text()
    assert answer["page"] == str(folder / "index.html")
    assert "Re-collected data" in page
    assert f"pdocrl demo --out {folder} --agent bc --steps 20 --episodes 2" in page
    assert "data:image/gif;base64," in page
    assert (folder / "plane.png").read_bytes().startswith(b"\x89PNG")
    record = read_results(folder)
    film = json.loads((folder / "episode.json").read_text())
    scored = [episode for run in record.scores.runs for episode in run.episodes]
    assert film["reward"] in [episode.reward for episode in scored]  # the film shows an episode that was scored

    status, out, err = run_cli(*arguments[:-4], "--steps", "40")
    assert (status, out) == (2, "")
    assert "holds another training (bc, 20 steps); choose another --out." in err.splitlines()[-1]


def test_the_demo_uses_the_embedded_data_whatever_the_environment_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path))
    dataset = embedded()
    assert (dataset.name, dataset.n_episodes, dataset.n_costs) == ("BallRun", 400, 1)


def test_an_unknown_agent_is_one_line_and_leaves_nothing(tmp_path, run_cli: Run) -> None:
    status, out, err = run_cli("demo", "--agent", "pdocrll", "--out", tmp_path / "demo", "--steps", "10")
    assert (status, out) == (2, "")
    assert "Did you mean `pdocrl`?" in err.splitlines()[-1]
    assert not (tmp_path / "demo").exists()
