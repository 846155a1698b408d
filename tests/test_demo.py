"""The demo: from the package's own data to a page, resumable, refusing to mix two trainings."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

import pdocrl.demo
from pdocrl.demo import embedded
from pdocrl.report import limit_slider, read_results

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
    films = [json.loads((folder / f"limit-{limit}.json").read_text()) for limit in (10, 50, 80)]
    for film, run in zip(films, record.scores.runs, strict=True):  # each shows the first episode that was scored
        assert (film["reward"], film["seed"]) == (run.episodes[0].reward, run.episodes[0].seed)

    status, out, err = run_cli(*arguments[:-4], "--steps", "40")
    assert (status, out) == (2, "")
    assert "holds another training (bc, 20 steps); choose another --out." in err.splitlines()[-1]


def test_the_recommended_agent_is_compared_with_cloning_by_predictions_and_in_the_same_episodes(
    tmp_path, run_cli: Run, monkeypatch
) -> None:
    """Both are predicted by the dial's dynamics model before anything is played; then both play the same episodes."""
    small = {"hidden": (8,), "batch_size": 16}
    monkeypatch.setattr(pdocrl.demo, "SIZE", small)
    monkeypatch.setattr(pdocrl.demo, "MORE", {"dial": {"model_hidden": (8,)}})
    monkeypatch.setattr(pdocrl.demo, "EVALUATIONS", 1)
    monkeypatch.setattr(limit_slider, "make_film", lambda *_: None)
    folder = tmp_path / "demo"
    status, out, err = run_cli("demo", "--out", folder, "--steps", "10", "--episodes", "2", "--json")
    assert status == 0, err
    answer = json.loads(out)
    assert err.index("would they be safe?") < err.index("bc at limit 80:")
    (cloned,) = answer["baselines"]
    for own, other in zip(answer["runs"], cloned["runs"], strict=True):
        assert [e["seed"] for e in own["episodes"]] == [e["seed"] for e in other["episodes"]]
    predictions = json.loads((folder / "predictions.json").read_text())["policies"]
    assert [(one["agent"], one["cost_limit"]) for one in predictions] == [
        (agent, [limit]) for agent in ("dial", "bc") for limit in (10.0, 50.0, 80.0)
    ]
    for one in predictions:
        assert one["safe"] == (one["cost"][0] <= one["cost_limit"][0])
        assert np.isfinite(one["reward"])
    assert len({one["cost"][0] for one in predictions[3:]}) == 1  # cloning knows no limit
    page = (folder / "index.html").read_text()
    assert "Would it be safe? First the data answers, then the simulator" in page
    assert "bc, limit 10" in page


def test_the_demo_uses_the_embedded_data_whatever_the_environment_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path))
    dataset = embedded()
    assert (dataset.name, dataset.n_episodes, dataset.n_costs) == ("BallRun", 400, 1)


def test_an_unknown_agent_is_one_line_and_leaves_nothing(tmp_path, run_cli: Run) -> None:
    status, out, err = run_cli("demo", "--agent", "pdocrll", "--out", tmp_path / "demo", "--steps", "10")
    assert (status, out) == (2, "")
    assert "Did you mean `pdocrl`?" in err.splitlines()[-1]
    assert not (tmp_path / "demo").exists()
