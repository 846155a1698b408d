"""MuJoCo's tasks: Gymnasium's older models as they were meant, and Safety-Gymnasium beside Bullet, repeatable."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gymnasium
import numpy as np
import onnxruntime
import pytest

import pdocrl
from pdocrl.data.tasks import SAFETY_GYMNASIUM, find_task
from pdocrl.envs import make
from pdocrl.envs.mujoco_models import modern
from pdocrl.envs.safety_gymnasium import INSTALL, _array_defaults, is_safety_gymnasium
from pdocrl.errors import PdocrlError
from pdocrl.ope import EnsembleConfig, Prepared
from pdocrl.policies import policy as policies

ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
OLD = gymnasium.__version__.startswith("0.")
old_gymnasium = pytest.mark.skipif(not OLD, reason="Gymnasium 1 brings models of its own that need no mending")
with_mujoco = pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None, reason="MuJoCo is not installed: pip install 'pdocrl[mujoco]'"
)
with_safety_gymnasium = pytest.mark.skipif(
    importlib.util.find_spec("safety_gymnasium") is None, reason=f"Safety-Gymnasium is not installed: {INSTALL}"
)


SPEED = """
def too_fast(obs, action, next_obs, info):
    return float(info["x_velocity"] > 0.7402)
"""
HOPPER_SPEED = """
[HopperSpeed]
horizon = 1000
env_id = "Hopper-v{version}"
cost_function = "speed_costs:too_fast"
reward_max = 1900.0
cost_max = 200.0
"""


@old_gymnasium
def test_global_places_become_places_in_the_parent_body() -> None:
    """The hopper's leg as Gymnasium 1 ships it, in local coordinates."""
    text = modern((ASSETS / "hopper.xml").read_text())
    assert text is not None
    bodies = {body.get("name"): body for body in ElementTree.fromstring(text).iter("body")}
    places = {name: [float(x) for x in body.attrib["pos"].split()] for name, body in bodies.items()}
    expected = {"torso": [0, 0, 1.25], "thigh": [0, 0, -0.2], "leg": [0, 0, -0.7], "foot": [0.13, 0, -0.35]}
    assert places == {name: pytest.approx(place) for name, place in expected.items()}
    joint, geom = bodies["leg"].find("joint"), bodies["leg"].find("geom")
    assert joint is not None
    assert geom is not None
    assert [float(x) for x in joint.attrib["pos"].split()] == pytest.approx([0, 0, 0.25])
    assert [float(x) for x in geom.attrib["fromto"].split()] == pytest.approx([0, 0, 0.25, 0, 0, -0.25])


@old_gymnasium
def test_a_model_that_can_be_read_as_it_is_is_left_alone() -> None:
    assert modern((ASSETS / "half_cheetah.xml").read_text()) is None


@old_gymnasium
@with_mujoco
@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("hopper", [0.037884208951184106, 1.2069697197593685, -0.004958123780810948, -0.03990070027783496]),
        ("walker2d", [-0.16691060960568702, 0.8858231916229758, -1.7364647888111513, -1.3110983985235802]),
        ("swimmer", [0.3840605722287029, 0.904357325056277, -1.1783207623586265, 1.6597881736555962]),
    ],
)
def test_a_mended_model_moves_as_mujoco_2_moved_it(name: str, last: list[float]) -> None:
    """Four joints after 200 random steps; the numbers are those of MuJoCo 2.3.3, which read the files unmended."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(modern((ASSETS / f"{name}.xml").read_text()))
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(200):
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[:4], last, rtol=1e-6)


@with_mujoco
@pytest.mark.parametrize("name", ["Hopper", "Walker2d", "Swimmer", "HalfCheetah"])
def test_gymnasium_s_mujoco_tasks_are_made_and_repeat(name: str) -> None:
    env = make(f"{name}-v4" if OLD else f"{name}-v5")
    assert episode(env, 3) == episode(env, 3) != episode(env, 4)


def episode(env: Any, seed: int, steps: int = 20) -> list[float]:
    """Everything seen, earned and paid under random actions."""
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    seen = [*obs]
    for _ in range(steps):
        obs, reward, ended, cut, info = env.step(env.action_space.sample())
        seen += [*obs, reward, info.get("cost", 0.0)]
        if ended or cut:
            break
    return [float(x) for x in seen]


def test_an_array_as_a_default_is_copied_for_every_instance() -> None:
    """What Python 3.11 refuses and safety-gymnasium has all over; outside the block dataclasses are as before."""
    before, default = dataclasses.dataclass, np.zeros(2)
    with _array_defaults():

        @dataclasses.dataclass
        class Goal:
            place: np.ndarray = default
            size: float = 0.3

    first, second = Goal(), Goal()
    first.place[0] = 7
    assert second.place.tolist() == default.tolist() == [0, 0]
    assert dataclasses.dataclass is before


def test_ids_of_the_two_simulators_are_told_apart() -> None:
    assert all(is_safety_gymnasium(str(task.env_id)) for task in SAFETY_GYMNASIUM)
    assert not is_safety_gymnasium("SafetyCarCircle-v0")


def test_without_the_package_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "safety_gymnasium.builder", raising=False)
    with pytest.raises(PdocrlError, match="pdocrl install safety-gymnasium"):
        make("PointGoal1")


@with_safety_gymnasium
@pytest.mark.parametrize(
    "task", ["PointGoal1", "CarButton1", "PointCircle2", "CarPush1", "HopperVelocity", "AntVelocity"]
)
def test_a_seed_is_an_episode_whatever_was_played_before(task: str) -> None:
    env = make(task)
    first, other, again = (episode(env, seed) for seed in (3, 5, 3))
    assert first == again == episode(make(task), 3) != other
    known = find_task(task)
    assert (env.observation_space.shape, env.action_space.shape) == ((known.obs_dim,), (known.action_dim,))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("HopperVelocity", marks=with_safety_gymnasium),
        pytest.param("HopperSpeed", marks=with_mujoco),
    ],
)
def test_a_mujoco_task_goes_from_collecting_to_acting_elsewhere(
    name: str, tmp_path: Path, run_cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Safety-Gymnasium's own task, and Gymnasium's with a cost function: equal returns at every hand-over."""
    (tmp_path / "speed_costs.py").write_text(SPEED)
    (tmp_path / "tasks.toml").write_text(HOPPER_SPEED.format(version=4 if OLD else 5))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PDOCRL_TASKS", str(tmp_path / "tasks.toml"))
    file, folder = tmp_path / "hopper.hdf5", tmp_path / "run"
    data = pdocrl.collect(name, file, budget=4000, target=40, workers=1)
    assert (data.obs_dim, data.action_dim, data.n_costs) == (11, 3, 1)
    assert json.loads(run_cli("data", "check", file, "--task", name, "--json")[1])["ok"]
    pdocrl.train(file, "bc", task=name, cost_limit=20, steps=20, settings={"hidden": (8,)}, out=folder)

    status, out, err = run_cli("evaluate", folder, "--episodes", "2", "--workers", "1", "--json")
    assert status == 0, err
    played = [(e["reward"], e["cost"]) for e in json.loads(out)["runs"][0]["episodes"]]
    here = pdocrl.evaluate(folder, 2, workers=0).runs[0].episodes
    assert [(e.reward, e.cost) for e in here] == played

    small = EnsembleConfig(folds=2, each=2, hidden=(8,), outcome_hidden=(8,), steps=20)
    (told,) = pdocrl.ope(folder, Prepared.of(data, config=small, cache=False)).runs
    assert told.verdict in Path(pdocrl.report(folder)).read_text()

    pdocrl.export(folder, tmp_path / "robot")
    by_numpy = policies.load(tmp_path / "robot/policy.npz")
    session = onnxruntime.InferenceSession(tmp_path / "robot/policy.onnx")
    for act in (by_numpy, lambda obs: session.run(None, {"obs": obs})[0]):
        total, paid = sums(make(name), act, here[0].seed)
        assert paid == here[0].cost[0]
        assert total == pytest.approx(here[0].reward, rel=1e-4)


def sums(env: Any, act: Callable[[Any], Any], seed: int) -> tuple[float, float]:
    """Return and cost of an episode, by a loop that knows nothing of pdocrl's."""
    (obs, _), total, paid, over = env.reset(seed=seed), 0.0, 0.0, False
    while not over:
        obs, reward, ended, cut, info = env.step(act(np.asarray(obs, np.float32)[None])[0])
        total, paid, over = total + reward, paid + info["cost"], ended or cut
    return total, paid
