"""Environments of other packages: `module:Name-v0`, costs under other names, as a vector or by a function."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from pdocrl.data.tasks import Task, register, register_file
from pdocrl.envs import make
from pdocrl.envs.registry import with_costs
from pdocrl.envs.rollout import rollout
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import MLPPolicy, Normaliser, with_normaliser

PACKAGES = Path(__file__).parents[1] / "packages"


@pytest.fixture(autouse=True)
def own_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGES)


def open_valve(obs: np.ndarray) -> np.ndarray:
    return np.tile(np.array([5.0, 0.0], np.float32), (len(obs), 1))


def test_a_module_before_the_id_is_imported() -> None:
    env = make("valve_world:Valve-v0")
    assert env.action_space.high.tolist() == [5.0, 1.0]


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(PdocrlError, match="nowhere_at_all"):
        make("nowhere_at_all:Valve-v0")
    with pytest.raises(PdocrlError, match=r"unknown environment 'Vlave-v0'. Did you mean `Valve-v0`"):
        make("valve_world:Vlave-v0")


def test_episodes_are_the_same_in_a_worker_process() -> None:
    here, there = (rollout("valve_world:Valve-v0", open_valve, 2, workers=w, costs=("cost_level",)) for w in (0, 1))
    np.testing.assert_array_equal(here.reward, there.reward)
    np.testing.assert_array_equal(here.cost, there.cost)


def test_a_task_file_names_costs_function_and_horizon(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(
        '[Named]\nhorizon = 4\nenv_id = "valve_world:Valve-v0"\ncosts = ["cost_haste", "cost_level"]\n'
        '[Function]\nhorizon = 500\nenv_id = "valve_world:Valve-v0"\ncost_function = "valve_world:level_cost"\n'
    )
    plain = rollout("valve_world:Valve-v0", open_valve, 1, workers=0, costs=("cost_level",))
    register_file(tmp_path / "tasks.toml")
    named = rollout("Named", open_valve, 1, workers=0, costs=("cost_0", "cost_1"))
    assert named.length.tolist() == [4]  # the task's horizon caps the environment's own 30
    assert named.cost[0, 0] == 4  # the haste of every step, under the data's own name
    function = rollout("Function", open_valve, 1, workers=0)
    assert function.length[0] <= 30
    assert function.cost_names == ("cost",)
    assert function.cost[0, 0] == plain.cost[0, 0] > 0


def test_a_tasks_costs_have_its_names_and_are_found_by_them_in_any_order(tmp_path: Path) -> None:
    """As a table spells them, too: a recorded log must not come back with its costs exchanged."""
    register(Task("Ordered", 30, "valve_world:Valve-v0", costs=("cost_haste", "cost_level")))
    own = rollout("Ordered", open_valve, 1, workers=0, record=True)
    assert own.dataset().cost_names == own.cost_names == ("cost_haste", "cost_level")
    assert own.cost[0, 0] != own.cost[0, 1]
    for names in (("cost_level", "cost_haste"), ("level", "haste")):
        turned = rollout("Ordered", open_valve, 1, workers=0, costs=names)
        np.testing.assert_array_equal(turned.cost, own.cost[:, ::-1])


def test_costs_in_one_vector_go_by_the_names_of_the_data() -> None:
    named = rollout("valve_world:Valve-v0", open_valve, 1, workers=0, costs=("cost_level", "cost_haste"))
    vector = rollout("valve_world:VectorValve-v0", open_valve, 1, workers=0, costs=("cost_level", "cost_haste"))
    np.testing.assert_array_equal(named.cost, vector.cost)
    assert named.cost_names == vector.cost_names == ("cost_level", "cost_haste")
    with pytest.raises(PdocrlError, match="info has no `a`"):
        rollout("valve_world:VectorValve-v0", open_valve, 1, workers=0, costs=("a", "b", "c"))


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_a_cost_that_is_no_amount_is_refused_with_its_step(cost: float) -> None:
    """Below zero it would buy back what was spent, and a policy over its limit would be called safe."""

    def bad() -> gymnasium.Env:
        return with_costs(lambda: make("valve_world:Valve-v0"), lambda *_: [0.5, cost])

    with pytest.raises(PdocrlError, match=r"step 0 earned .* and cost 0.5, .*; .* costs are finite and at least 0"):
        rollout(bad, open_valve, 1, workers=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_an_exploding_observation_is_named_with_its_step(bad: float) -> None:
    """Before what it makes of the reward: the state is the cause."""

    class Explodes(gymnasium.Wrapper):
        def step(self, action: np.ndarray) -> tuple:
            obs, _, *others = super().step(action)
            return np.r_[obs[:-1], bad], float("nan"), *others

    last = make("valve_world:Valve-v0").observation_space.shape[0] - 1
    with pytest.raises(PdocrlError, match=rf"observation after 1 steps is not finite \(component {last} is {bad}"):
        rollout(lambda: Explodes(make("valve_world:Valve-v0")), open_valve, 1, workers=0)


def test_an_environment_of_other_observations_than_the_data_is_refused() -> None:
    env = make("valve_world:Valve-v0")
    size, (low, high) = env.observation_space.shape[0] + 1, (env.action_space.low, env.action_space.high)
    network = MLPPolicy((np.zeros((size, 2), np.float32),), (np.zeros(2, np.float32),))
    policy = with_normaliser(network, Normaliser(np.zeros(size), np.ones(size), low, high))
    with pytest.raises(PdocrlError, match=f"have {size - 1} numbers, those of the policy's data {size}"):
        rollout("valve_world:Valve-v0", policy, 1, workers=0)


def test_a_task_with_both_kinds_of_costs_is_refused() -> None:
    with pytest.raises(PdocrlError, match="either `costs` or `cost_function`"):
        register(Task("Both", 10, costs=("a",), cost_function="m:f"))
