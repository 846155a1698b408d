"""Somebody else's environment from collecting to acting elsewhere, by every agent: the same numbers at every hand-over.

Actions in [0, 5] × [−2, 1], two costs, true ends, nothing to render, a clock among the observations. A benchmark trains
every agent once; what it played is what `evaluate` plays, what the exported NumPy and ONNX policies play in a loop that
knows nothing of pdocrl, and what a Ray cluster plays.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pdocrl
from pdocrl.agents.registry import BUILT_IN, find_agent
from pdocrl.bench.player import EVALUATION_SEED
from pdocrl.bench.results import Row, read_rows
from pdocrl.cli import main as cli
from pdocrl.data import load
from pdocrl.data.bounds import to_real
from pdocrl.envs import make
from pdocrl.envs.rollout import episode_seeds
from pdocrl.ope import EnsembleConfig, Prepared
from pdocrl.training.config import TrainingConfig

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
LIMIT, EPISODES = (12.0, 9.0), 2
AGENTS = [name for name in BUILT_IN if (find_agent(name).most_costs or 2) >= 2]  # every agent that may
Step = Callable[[Any, float, Any], Any]
Cli = Callable[..., tuple[int, str, str]]
SMALL = {"batch_size": 16, "embedding": 8, "heads": 2, "layers": 1, "context": 3, "times": 40}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a task file and a small collection."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "tasks.toml").write_text(TASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGES)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PDOCRL_TASKS", str(folder / "tasks.toml"))
        pdocrl.collect("Valve", folder / "valve.hdf5", budget=4000, target=60, cost_max=30, workers=1, seed=1)
        yield folder


@pytest.fixture(autouse=True)
def own_packages(monkeypatch: pytest.MonkeyPatch, world: Path) -> None:
    monkeypatch.setenv("PDOCRL_TASKS", str(world / "tasks.toml"))


def tiny(name: str) -> dict[str, Any]:
    """The agent's settings that have a size, small."""
    fields = [field.name for field in dataclasses.fields(find_agent(name).Config)]
    return {
        field: [8] if field.endswith("hidden") else SMALL[field]
        for field in fields
        if field in SMALL or field.endswith("hidden")
    }


def suite_file(folder: Path, world: Path, agents: list[str]) -> Path:
    """A benchmark of the stranger's task, as a user writes one."""
    head = f"steps = 6\nepisodes = {EPISODES}\nseeds = [0]\ncost_limits = [{list(LIMIT)}]\n"
    task = f'tasks = [{{ name = "Valve", data = "{world / "valve.hdf5"}" }}]\n'
    methods = ""
    for name in agents:
        settings = ", ".join(f"{key} = {value}" for key, value in tiny(name).items())
        methods += f'[[agents]]\nname = "{name}"\nsettings = {{ {settings} }}\n'
    (folder / "suite.toml").write_text(head + task + methods)
    return folder / "suite.toml"


class Benched:
    """Trained and played by `bench`, each agent when it is first asked for."""

    def __init__(self, world: Path) -> None:
        self._out, self._suite = world / "out", suite_file(world, world, AGENTS)
        self._found: dict[str, tuple[Path, list[Row]]] = {}

    def __getitem__(self, name: str) -> tuple[Path, list[Row]]:
        """Its training folder, and the episodes that were played."""
        if name not in self._found:
            line = ["bench", self._suite, "--out", self._out, "--agents", name, "--json"]
            assert cli.main([str(word) for word in line]) == 0
            rows = [row for row in read_rows(self._out) if row.agent == name]
            (folder,) = (
                path.parent for path in self._out.rglob("run.json") if TrainingConfig.read(path.parent).agent == name
            )
            self._found[name] = folder, rows
        return self._found[name]


@pytest.fixture(scope="module")
def benched(world: Path) -> Benched:
    """Every agent on the stranger's task."""
    return Benched(world)


def play(begin: Callable[[int], Step]) -> tuple[list[float], list[tuple[float, ...]]]:
    """Returns and costs of the episodes `bench` plays, by a loop that knows nothing of pdocrl's."""
    rewards, costs = [], []
    env = make("valve_world:Valve-v0")
    for seed in episode_seeds(EVALUATION_SEED, EPISODES):
        (obs, _), step = env.reset(seed=seed), begin(seed)
        total, spent, reward, cost, over = 0.0, np.zeros(2), 0.0, np.zeros(2), False
        while not over:
            action = np.asarray(step(np.asarray(obs, np.float32), reward, cost), np.float32)
            obs, reward, ended, cut, info = env.step(action)  # which refuses what leaves its box
            cost = np.array([info["cost_level"], info["cost_haste"]])
            total, spent, over = total + reward, spent + cost, ended or cut
        rewards.append(total)
        costs.append(tuple(spent.tolist()))
    return rewards, costs


def by_onnx(policy: Any, session: Any) -> Callable[[int], Step]:
    """Episodes whose every action is the ONNX model's, raw observations in and real actions out.

    What a model with memory must be told besides (past steps, costs paid, noise) is kept by the exported NumPy policy.
    """
    inputs, normaliser, said = {entry.name: entry.type for entry in session.get_inputs()}, policy.normaliser, []
    if inputs.keys() == {"obs"}:
        return lambda _: lambda obs, *_: session.run(None, {"obs": obs[None]})[0][0]
    function = type(policy.network).act

    def act(*given: Any, **named: Any) -> Any:
        feeds = dict(inspect.signature(function).bind(policy.network, *given, **named).arguments)
        del feeds["self"]
        varies = normaliser.obs_scale > 0
        feeds["obs"] = (
            np.where(varies, feeds["obs"] / np.where(varies, normaliser.obs_scale, 1), 0) + normaliser.obs_mean
        )
        if "actions" in feeds:
            feeds["actions"] = normaliser.denormalise_action(feeds["actions"])
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        said.append(session.run(None, {name: np.asarray(feeds[name], kinds[kind]) for name, kind in inputs.items()})[0])
        return normaliser.normalise_action(said[-1])

    object.__setattr__(policy.network, "act", act)

    def begin(seed: int) -> Step:
        step = policy.begin(seed)

        def real(*seen: Any) -> Any:
            step(*seen)
            return said[-1][0]

        return real

    return begin


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
    assert "never change beyond rounding, and are ignored: 2." in said


@pytest.mark.parametrize("name", AGENTS)
def test_what_bench_played_is_what_evaluate_and_the_exported_policies_play(
    name: str, benched: Benched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = benched[name]
    rewards, costs = [row.reward for row in rows], [row.cost for row in rows]
    assert [row.episode for row in rows] == list(range(EPISODES))
    (scored,) = pdocrl.evaluate(folder, EPISODES, seed=EVALUATION_SEED, workers=0).runs
    assert [episode.reward for episode in scored.episodes] == rewards
    assert [tuple(episode.cost) for episode in scored.episodes] == costs

    assert pdocrl.export(folder, tmp_path)
    spec = importlib.util.spec_from_file_location("exported_policy", tmp_path / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "exported_policy", exported)
    spec.loader.exec_module(exported)
    numpy_rewards, numpy_costs = play(exported.load(tmp_path / "policy.npz").begin)
    np.testing.assert_allclose(numpy_rewards, rewards, rtol=1e-6)
    assert numpy_costs == costs

    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    onnx_rewards, onnx_costs = play(by_onnx(exported.load(tmp_path / "policy.npz"), session))
    np.testing.assert_allclose(onnx_rewards, rewards, rtol=1e-4)
    assert onnx_costs == costs
    bounds = session.get_modelmeta().custom_metadata_map
    assert (json.loads(bounds["action_low"]), json.loads(bounds["action_high"])) == ([0, -2], [5, 1])


SMALL_ENSEMBLE = EnsembleConfig(folds=2, each=2, hidden=(8,), outcome_hidden=(8,), steps=20)


@pytest.fixture(scope="module")
def models(world: Path) -> Prepared:
    """What `ope` learns of the data, in a hurry."""
    return Prepared.of(load(world / "valve.hdf5", "Valve"), config=SMALL_ENSEMBLE, cache=False)


@pytest.mark.parametrize("name", AGENTS)
def test_ope_says_of_every_run_what_its_page_shows(name: str, benched: Benched, models: Prepared) -> None:
    folder, _ = benched[name]
    (told,) = pdocrl.ope(folder, models).runs
    assert told.cost_limit == list(LIMIT)
    assert len(told.cost) == len(told.cost_interval) == 2
    assert np.isfinite([told.reward, *told.cost]).all()
    page = Path(pdocrl.report(folder)).read_text()
    assert "Would it be safe? What the data alone says" in page
    assert told.verdict in page
    assert f"{name} on Valve" in page


def test_the_benchmark_s_page_has_every_agent_that_was_run(world: Path, benched: Benched) -> None:
    names = ["bc", "dial"]
    assert all(benched[name] for name in names)
    page = Path(pdocrl.report(world / "out")).read_text()
    assert {name for name in names if f'data-method="{name}"' in page} == set(names)


def test_a_ray_cluster_plays_what_this_machine_plays(world: Path, benched: Benched, tmp_path: Path) -> None:
    """Without memory, with it, and drawing at random; workers know the package from their path."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pdocrl[ray]'")
    agents = ["bc", "dial", "fisor"]
    line = ["bench", suite_file(tmp_path, world, agents), "--out", tmp_path / "out", "--engine", "ray", "--json"]
    assert cli.main([str(word) for word in line]) == 0
    rows = read_rows(tmp_path / "out")
    assert len(rows) == EPISODES * len(agents)
    for name in agents:
        here = [(row.reward, row.cost, row.length) for row in benched[name][1]]
        assert [(row.reward, row.cost, row.length) for row in rows if row.agent == name] == here


def test_a_function_may_stand_for_the_environment(benched: Benched) -> None:
    folder, rows = benched["bc"]
    own = pdocrl.evaluate(folder, EPISODES, seed=EVALUATION_SEED, workers=0, env=lambda: make("valve_world:Valve-v0"))
    assert [episode.reward for episode in own.runs[0].episodes] == [row.reward for row in rows]
    assert [tuple(episode.cost) for episode in own.runs[0].episodes] == [row.cost for row in rows]
    assert repr(own).startswith("Scores(")
    assert len(repr(own)) < 150
