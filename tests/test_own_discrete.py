"""Somebody else's environment with discrete actions, from collecting to acting elsewhere: equal at every hand-over."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.bench.player import EVALUATION_SEED
from pdocrl.bench.results import read_rows
from pdocrl.data import Dataset, load
from pdocrl.envs import make
from pdocrl.envs.rollout import episode_seeds, rollout
from pdocrl.errors import PdocrlError
from pdocrl.ope import EnsembleConfig, Prepared

Cli = Callable[..., tuple[int, str, str]]
PACKAGES = Path(__file__).parent / "packages"
TASKS = """
[Toll]
horizon = 12
env_id = "toll_world:Toll-v0"
reward_max = 24.0
cost_max = 6.0
files = ["toll.hdf5"]
"""
EPISODES = 3
SUITE = """
steps = 4
episodes = 3
seeds = [0]
cost_limits = [2]
tasks = [{{ name = "Toll", data = "{data}" }}]
[[agents]]
name = "bc"
settings = {{ hidden = [8], batch_size = 16 }}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a task file and a small collection."""
    folder = tmp_path_factory.mktemp("toll")
    (folder / "tasks.toml").write_text(TASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGES)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PDOCRL_TASKS", str(folder / "tasks.toml"))
        pdocrl.collect("Toll", folder / "toll.hdf5", budget=4000, target=60, workers=1, seed=1)
        yield folder


@pytest.fixture
def data(world: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("PDOCRL_TASKS", str(world / "tasks.toml"))
    return load(world / "toll.hdf5", "Toll")


def test_the_collection_holds_what_the_environment_was_given(data: Dataset) -> None:
    assert data.discrete_actions == (1, 2, 3)
    assert data.action.any(0).all()
    np.testing.assert_array_equal(data.reward, data.action.argmax(1))
    np.testing.assert_array_equal(data.cost[:, 0] > 0, (data.action[:, 2] > 0) & (data.obs[:, 1] > 0))


def test_bench_evaluate_report_ope_and_export_agree(world: Path, data: Dataset, run_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(SUITE.format(data=world / "toll.hdf5"))
    status, _, why = run_cli("bench", tmp_path / "suite.toml", "--out", tmp_path / "out", "--json")
    assert status == 0, why
    rows = read_rows(tmp_path / "out")
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("run.json"))
    (scored,) = pdocrl.evaluate(folder, EPISODES, seed=EVALUATION_SEED, workers=0).runs
    assert [(e.reward, tuple(e.cost)) for e in scored.episodes] == [(row.reward, row.cost) for row in rows]

    small = EnsembleConfig(folds=2, each=2, hidden=(8,), outcome_hidden=(8,), steps=20)
    (told,) = pdocrl.ope(folder, Prepared.of(data, config=small, cache=False)).runs
    assert np.isfinite([told.reward, *told.cost]).all()
    assert told.verdict in Path(pdocrl.report(folder)).read_text()

    pdocrl.export(folder, tmp_path / "robot", onnx=False)
    robot = (
        "import sys, numpy as np, gymnasium, toll_world\n"
        "sys.modules.update(dict.fromkeys(('pdocrl', 'jax', 'scipy')))\n"
        "import policy\n"
        "env, act, sums = gymnasium.make('Toll-v0'), policy.load('policy.npz'), []\n"
        f"for seed in {episode_seeds(EVALUATION_SEED, EPISODES)!r}:\n"
        "    (obs, _), total, over = env.reset(seed=seed), 0.0, False\n"
        "    while not over:\n"
        "        obs, reward, ended, cut, _ = env.step(act(obs[None])[0])\n"
        "        total, over = total + reward, ended or cut\n"
        "    sums.append(total)\n"
        "print(sums)"
    )
    env = os.environ | {"PYTHONPATH": str(PACKAGES)}
    run = subprocess.run([sys.executable, "-c", robot], cwd=tmp_path / "robot", capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stderr
    assert ast.literal_eval(run.stdout) == [row.reward for row in rows]


def test_an_environment_with_other_actions_is_refused_in_one_line(data: Dataset) -> None:
    (policy,) = pdocrl.train(data, "bc", steps=1, cost_limit=2.0, settings={"hidden": (4,)}).policies
    with pytest.raises(PdocrlError, match=r"actions are Discrete\(2\), the policy's are discrete, 1 … 3"):
        rollout("CartPole-v1", policy, 1, workers=0)
    with pytest.raises(PdocrlError, match=r"actions are Box.*, the policy's are discrete, 1 … 3"):
        rollout("Pendulum-v1", policy, 1, workers=0)


@pytest.mark.parametrize("wrong", [0.5, 7, [1.0, 2.0], float("nan")])
def test_what_is_not_a_choice_is_not_rounded_to_one(data: Dataset, wrong: Any) -> None:
    with pytest.raises(PdocrlError, match=r"at step 0 is .*, the environment takes one of 1 … 3"):
        rollout(lambda: make("toll_world:Toll-v0"), lambda obs: [wrong], 1, workers=0)


def test_recorded_episodes_become_data_that_knows_its_discrete_actions(data: Dataset) -> None:
    played = rollout(lambda: make("toll_world:Toll-v0"), lambda obs: [2], 2, workers=0, record=True).dataset()
    assert played.discrete_actions == (1, 2, 3)
    assert (played.action == [0, 1, 0]).all()


def test_check_finds_nothing_wrong_with_the_collection(world: Path, data: Dataset, run_cli: Cli) -> None:
    said = json.loads(run_cli("data", "check", world / "toll.hdf5", "--task", "Toll", "--json")[1])
    assert said["ok"], said
