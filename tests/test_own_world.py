"""Somebody else's environment from collecting to acting elsewhere: the same numbers at every hand-over.

Actions in [0, 5] × [−2, 1], two costs, true ends, nothing to render, a clock among the observations.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pdocrl
from pdocrl.bench.results import read_rows
from pdocrl.data import load
from pdocrl.data.bounds import to_real
from pdocrl.envs import make
from pdocrl.envs.rollout import episode_seeds

PACKAGES = Path(__file__).parent / "packages"
TASKS = """
[Valve]
horizon = 30
env_id = "valve_world:Valve-v0"
costs = ["cost_level", "cost_haste"]
reward_max = 30.0
cost_max = 30.0
files = ["valve.hdf5"]
"""
LIMIT, SEED, EPISODES = "12,9", 4, 2
Step = Callable[[Any, float, Any], Any]
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_packages(monkeypatch: pytest.MonkeyPatch, world: Path) -> None:
    monkeypatch.syspath_prepend(PACKAGES)
    monkeypatch.setenv("PDOCRL_TASKS", str(world / "tasks.toml"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task file and a small collection."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "tasks.toml").write_text(TASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGES)
        patch.setenv("PDOCRL_TASKS", str(folder / "tasks.toml"))
        pdocrl.collect("Valve", folder / "valve.hdf5", budget=4000, target=60, cost_max=30, workers=1, seed=1)
    return folder


@pytest.fixture(scope="module", params=["bc", "cdt"])
def run(request: pytest.FixtureRequest, world: Path) -> Path:
    """A short training of one agent without memory, and of one with."""
    out = world / request.param
    settings = {"bc": {"hidden": (8,)}, "cdt": {"embedding": 8, "heads": 2, "layers": 1, "context": 3, "times": 40}}
    pdocrl.train(
        world / "valve.hdf5", request.param, task=pdocrl.Task("Valve", 30, "valve_world:Valve-v0"),
        cost_limit=[(12, 9)],
        steps=40, settings={"batch_size": 32, **settings[request.param]}, out=out,
    )  # fmt: skip
    return out


def play(begin: Callable[[int], Step]) -> tuple[list[float], list[list[float]]]:
    """Returns and costs of the episodes `evaluate` plays, by a loop that knows nothing of pdocrl's."""
    rewards, costs = [], []
    env = make("valve_world:Valve-v0")
    for seed in episode_seeds(SEED, EPISODES):
        (obs, _), step = env.reset(seed=seed), begin(seed)
        total, spent, reward, cost, over = 0.0, np.zeros(2), 0.0, np.zeros(2), False
        while not over:
            action = step(np.asarray(obs, np.float32), reward, cost)
            obs, reward, ended, cut, info = env.step(
                np.asarray(action, np.float32)
            )  # which refuses what leaves its box
            cost = np.array([info["cost_level"], info["cost_haste"]])
            total, spent, over = total + reward, spent + cost, ended or cut
        rewards.append(total)
        costs.append(spent.tolist())
    return rewards, costs


def test_the_collection_knows_its_box_and_holds_what_the_environment_was_given(world: Path) -> None:
    data = load(world / "valve.hdf5", "Valve")
    assert (data.action_low, data.action_high) == ((0.0, -2.0), (5.0, 1.0))
    assert data.cost_names == ("cost_level", "cost_haste")
    assert data.terminal.any()
    inflow = to_real(data.action, data.action_bounds)[:, 0]
    np.testing.assert_allclose(data.reward, inflow / 5, atol=1e-6)
    np.testing.assert_array_equal(data.cost[:, 1], inflow > 4)


def test_check_names_the_clock_the_constant_and_the_scales(world: Path, run_cli: Cli) -> None:
    said = " ".join(json.loads(run_cli("data", "check", world / "valve.hdf5", "--task", "Valve", "--json")[1])["notes"])
    assert "count steps: 1." in said
    assert "never change, and are ignored: 2." in said


def test_evaluate_and_the_exported_policy_play_the_same_episodes(
    run: Path, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["evaluate", run, "--episodes", EPISODES, "--seed", SEED, "--workers", "1", "--json"]
    status, out, err = run_cli(*line)
    assert status == 0, err
    (scored,) = json.loads(out)["runs"]
    rewards, costs = ([episode[key] for episode in scored["episodes"]] for key in ("reward", "cost"))
    assert pdocrl.export(run, tmp_path)
    spec = importlib.util.spec_from_file_location("exported_policy", tmp_path / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "exported_policy", exported)
    spec.loader.exec_module(exported)
    numpy_rewards, numpy_costs = play(exported.load(tmp_path / "policy.npz").begin)
    np.testing.assert_allclose(numpy_rewards, rewards, rtol=1e-6)
    np.testing.assert_array_equal(numpy_costs, costs)
    if run.name == "bc":
        session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
        onnx_rewards, onnx_costs = play(lambda _: lambda obs, *_: session.run(None, {"obs": obs[None]})[0][0])
        np.testing.assert_allclose(onnx_rewards, rewards, rtol=1e-4)
        np.testing.assert_array_equal(onnx_costs, costs)


def test_a_function_may_stand_for_the_environment(run: Path) -> None:
    known = pdocrl.evaluate(run, EPISODES, seed=SEED, workers=0, task="Valve")
    own = pdocrl.evaluate(run, EPISODES, seed=SEED, workers=0, env=lambda: make("valve_world:Valve-v0"))
    assert [e.reward for e in own.runs[0].episodes] == [e.reward for e in known.runs[0].episodes]
    assert [e.cost for e in own.runs[0].episodes] == [e.cost for e in known.runs[0].episodes]
    assert repr(own).startswith("Scores(")
    assert len(repr(own)) < 150


def test_bench_plays_what_evaluate_plays(world: Path, run_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(
        f"steps = 10\nepisodes = 2\nseeds = [0]\ncost_limits = [[12, 9]]\n"
        f'tasks = [{{ name = "Valve", data = "{world / "valve.hdf5"}" }}]\n'
        'agents = [{ name = "bc", settings = { hidden = [8], batch_size = 16 } }]\n'
    )
    status, _, err = run_cli("bench", tmp_path / "suite.toml", "--out", tmp_path / "out", "--json")
    assert status == 0, err
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("run.json"))
    rows = read_rows(tmp_path / "out")
    played = json.loads(run_cli("evaluate", folder, "--episodes", 2, "--workers", "1", "--json")[1])["runs"][0]
    assert [row.reward for row in rows] == [episode["reward"] for episode in played["episodes"]]
    assert [list(row.cost) for row in rows] == [episode["cost"] for episode in played["episodes"]]


def test_ope_and_report_take_the_run_as_it_is(run: Path) -> None:
    if run.name == "bc":
        found = pdocrl.ope(run, resamples=2)
        assert len(found.runs) == 1
    pdocrl.evaluate(run, 1, workers=0)
    page = pdocrl.report(run)
    assert Path(page).exists()
