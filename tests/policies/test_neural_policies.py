"""Policies in the world's units: raw observations in, the environment's own actions out, in every form they travel."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest

from pdocrl.data.bounds import to_real, to_unit
from pdocrl.envs.rollout import rollout
from pdocrl.errors import PdocrlError
from pdocrl.policies import policy as policies
from pdocrl.policies.onnx import to_onnx
from pdocrl.policies.policy import MLPPolicy, NormalisedPolicy, Normaliser, with_normaliser
from pdocrl.policies.standalone import joined_source

LOW, HIGH = np.array([0.0, -2.0], np.float32), np.array([5.0, 1.0], np.float32)


def world(low: Any = LOW, high: Any = HIGH) -> NormalisedPolicy:
    rng = np.random.default_rng(0)
    network = MLPPolicy((rng.normal(size=(3, 2)).astype(np.float32),), (np.zeros(2, np.float32),))
    mean, scale = np.array([500, 15, 7], np.float32), np.array([1e-3, 0.1, 0], np.float32)
    return NormalisedPolicy(network, Normaliser(mean, scale, np.asarray(low, np.float32), np.asarray(high, np.float32)))


class Box(gymnasium.Env):  # type: ignore[misc]
    """Pays the first action as reward: what was carried out can be read off."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self, low: Any = LOW, high: Any = HIGH) -> None:
        low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.array([800.0, 3.0, 7.0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(3), float(action[0]), True, False, {}


def test_bounds_of_one_leave_every_action_as_it_is() -> None:
    action = np.random.default_rng(0).uniform(-1, 1, (1000, 2)).astype(np.float32)
    ones = np.ones(2, np.float32)
    np.testing.assert_array_equal(Normaliser(0 * ones, ones, -ones, ones).denormalise_action(action), action)


def test_data_and_policies_turn_actions_with_the_same_arithmetic() -> None:
    """The file that travels with an export repeats two lines of `data.bounds`; they must stay the same."""
    action = np.random.default_rng(0).uniform(-1.1, 1.1, (1000, 2)).astype(np.float32)
    bounds, normaliser = (tuple(LOW.tolist()), tuple(HIGH.tolist())), world().normaliser
    np.testing.assert_array_equal(normaliser.denormalise_action(action), to_real(action, bounds))
    np.testing.assert_array_equal(normaliser.normalise_action(action), to_unit(action, bounds))
    np.testing.assert_allclose(
        normaliser.normalise_action(normaliser.denormalise_action(action)), np.clip(action, -1, 1), atol=1e-6
    )


def test_actions_in_the_environment_from_numpy_and_from_onnx_are_equal_and_real(tmp_path: Path) -> None:
    policy, obs = world(), np.array([[800.0, 3.0, 7.0]], np.float32)
    unit = policy.network(np.array([[0.3, -1.2, 0.0]], np.float32))
    expected = (LOW + HIGH) / 2 + unit[0] * (HIGH - LOW) / 2
    np.testing.assert_allclose(policy(obs)[0], expected, rtol=1e-5)
    played = rollout(Box, policy, 1, workers=0)
    np.testing.assert_allclose(played.reward, expected[0], rtol=1e-5)
    model = to_onnx(policy)
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"obs": obs})[0]
    np.testing.assert_allclose(found, policy(obs), rtol=1e-6)
    told = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert told == {"action_low": LOW.tolist(), "action_high": HIGH.tolist()}
    policies.save(tmp_path / "policy.npz", [policy])
    np.testing.assert_array_equal(policies.load(tmp_path / "policy.npz")(obs), policy(obs))


def test_what_never_changed_in_the_data_is_ignored() -> None:
    obs = np.array([[800.0, 3.0, 7.0], [800.0, 3.0, 1e9]], np.float32)
    np.testing.assert_array_equal(*world()(obs))


def test_an_environment_with_another_box_is_refused_in_one_line() -> None:
    with pytest.raises(PdocrlError, match=r"actions in \[-1, 1\], the policy was trained for \[0, 5\] × \[-2, 1\]"):
        rollout(lambda: Box([-1, -1], [1, 1]), world(), 1, workers=0)
    with pytest.raises(PdocrlError, match=r"actions in \[0, 5\] × \[-2, 1\], the policy was trained for \[-1, 1\]"):
        rollout(Box, world([-1, -1], [1, 1]), 1, workers=0)


def test_an_environment_with_discrete_actions_is_refused_by_a_policy_for_amounts() -> None:
    with pytest.raises(PdocrlError, match=r"Discrete\(2\), the policy's are continuous"):
        rollout("CartPole-v1", world(), 1, workers=0)


def test_recorded_episodes_become_data_that_knows_its_bounds() -> None:
    data = rollout(Box, world(), 2, workers=0, record=True).dataset()
    assert (data.action_low, data.action_high) == ((0.0, -2.0), (5.0, 1.0))
    np.testing.assert_allclose(to_real(data.action, data.action_bounds)[:, 0], data.reward, rtol=1e-5)


class Listening(MLPPolicy):
    """A network that can be asked for a limit: it then always gives it."""

    def with_limit(self, cost_limit: tuple[float, ...]) -> MLPPolicy:
        return MLPPolicy((0 * self.weights[0],), (np.full(2, np.arctanh(cost_limit[0]), np.float32),))


def test_a_network_that_serves_every_limit_does_so_in_the_world() -> None:
    plain, normaliser = world(), world().normaliser
    assert not hasattr(plain, "with_limit")
    asked = with_normaliser(Listening(plain.network.weights, plain.network.biases), normaliser).with_limit((0.5,))
    np.testing.assert_allclose(asked(np.zeros((1, 3)))[0], normaliser.denormalise_action(np.full(2, 0.5)), rtol=1e-6)


def test_the_exported_file_acts_where_pdocrl_cannot_be_imported(tmp_path: Path) -> None:
    policies.save(tmp_path / "policy.npz", [world()])
    (tmp_path / "policy.py").write_text(joined_source(), encoding="utf-8")
    obs = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    robot = (
        "import sys; sys.modules.update(dict.fromkeys(('pdocrl', 'jax', 'scipy')))\n"
        "import numpy as np, policy; "
        "print([policy.load('policy.npz')(np.load('obs.npy')).tolist(), list(policy.KINDS)])"
    )
    said = subprocess.run([sys.executable, "-c", robot], cwd=tmp_path, capture_output=True, text=True, check=True)
    actions, kinds = ast.literal_eval(said.stdout)
    np.testing.assert_array_equal(np.array(actions, np.float32), world()(obs))
    assert kinds == list(policies.KINDS)


def test_the_exported_file_defines_nothing_twice() -> None:
    defined = [
        node.name for node in ast.parse(joined_source()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    assert len(defined) == len(set(defined)) > 10
