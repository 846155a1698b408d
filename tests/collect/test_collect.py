"""Collections: the same bits again, after a kill too; any environment with costs; one line for what cannot work."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest

from pdocrl.collect import sampling
from pdocrl.collect.episode_log import Store
from pdocrl.collect.ppo import PPOConfig
from pdocrl.collect.problem import look_at
from pdocrl.collect.recipes import FALLING, RISING, Recipe
from pdocrl.collect.settings import Settings, settings_for
from pdocrl.data import load

TINY = Recipe(1600, 12, (RISING, FALLING), PPOConfig(batch_steps=400, minibatch=200, epochs=2, hidden=(8, 8)))
pytest.importorskip("pybullet")


class Slide(gymnasium.Env):
    """A point pushed along a line for 20 steps; speed costs. Two costs: fast, and right of the origin."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    costs = True
    explodes = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.left = self.np_random.normal(size=2) * 0.1, 20
        return self.state.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.left -= 1
        self.state = self.state + np.array([0.1 * self.state[1], 0.1 * action[0]])
        if self.left < 5:
            self.state = self.state * self.explodes
        info = {"cost": float(abs(self.state[1]) > 0.2), "right": float(self.state[0] > 0)} if self.costs else {}
        return self.state.copy(), float(self.state[1]), False, self.left == 0, info


class Costless(Slide):
    costs = False


class Explodes(Slide):
    explodes = np.nan


class Grows(Slide):
    explodes = 1e6


class Unbounded(Slide):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Several(Slide):
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    for kind in (Slide, Costless, Explodes, Grows, Unbounded, Several):
        spec = gymnasium.envs.registration.EnvSpec(f"{kind.__name__}-v0", kind, max_episode_steps=20)
        monkeypatch.setitem(gymnasium.envs.registry, spec.id, spec)


def gather(folder: Path, env: str = "BallRun", workers: int = 2, seed: int = 0, watch=lambda _: None) -> str:
    """Collect with tiny settings; the digest of all that was collected."""
    problem = look_at(env)
    settings = dataclasses.replace(settings_for(problem, env, TINY, seed=seed))
    with Store(folder, settings) as store:
        sampling.train_experts(problem, store, workers, watch)
        return store.log.dataset(store.log.ordered(), env, problem.cost_names).digest


def test_the_same_settings_give_the_same_dataset_with_any_number_of_workers(tmp_path):
    first = gather(tmp_path / "a", workers=2)
    assert gather(tmp_path / "b", workers=2) == first
    assert gather(tmp_path / "c", workers=1) == first
    assert gather(tmp_path / "d", seed=1) != first


def test_an_interrupted_collection_goes_on_to_the_same_bits(tmp_path):
    whole = gather(tmp_path / "whole")

    def stop_after(batches):
        def watch(progress):
            if progress.steps >= 400 * batches:
                raise KeyboardInterrupt

        return watch

    for batches in (1, 3):  # the second stops while the second expert trains
        with pytest.raises(KeyboardInterrupt):
            gather(tmp_path / "cut", watch=stop_after(batches))
    recorded = tmp_path / "cut" / "episodes.log"
    written = recorded.read_bytes()
    recorded.write_bytes(written + written[:1000])  # … in the middle of a record
    assert gather(tmp_path / "cut") == whole
    assert gather(tmp_path / "cut", watch=lambda _: pytest.fail("nothing is left to do")) == whole


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_collect import gather
gather(Path({folder!r}))
"""


def test_a_killed_collection_keeps_its_episodes_and_goes_on_to_the_same_bits(tmp_path):
    whole = gather(tmp_path / "whole")
    program = KILLED.format(here=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    process = subprocess.Popen([sys.executable, "-c", program])
    recorded, patience = tmp_path / "killed" / "episodes.log", time.monotonic() + 60
    while not (recorded.exists() and recorded.stat().st_size > 6 * 5000) and time.monotonic() < patience:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = recorded.stat().st_size
    assert gather(tmp_path / "killed") == whole
    assert kept > 6 * 5000  # more than the six episodes below were there when it died


def test_collected_rewards_are_those_of_the_simulator(tmp_path):
    """An episode of the episode log, played again from its seed and actions, is the same episode."""
    gather(tmp_path / "a")
    problem = look_at("BallRun")
    env = problem.make()
    settings = settings_for(problem, "BallRun", TINY)
    with Store(tmp_path / "a", settings) as store:
        for entry in store.log.ordered()[::7]:
            episode = store.log.read(entry)
            obs, _ = env.reset(seed=episode.seed)
            for t in range(len(episode)):
                np.testing.assert_array_equal(obs.astype(np.float32), episode.obs[t])
                obs, reward, _, _, info = env.step(episode.action[t])
                assert np.float32(reward) == episode.reward[t]
                assert info["cost"] == episode.cost[t, 0]


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    gather(tmp_path / "a")
    with pytest.raises(Exception, match="`seed` is 0 there and 1 now"):
        gather(tmp_path / "a", seed=1)


def test_the_command_writes_a_dsrl_file_that_says_how_it_was_made(tmp_path, run_cli):
    out = tmp_path / "slide.hdf5"
    words = ("collect", "Slide-v0", "--out", out, "--budget", "4k", "--schedules", "falling", "--cost-max", "20")
    status, printed, error = run_cli(*words, "--costs", "cost", "right", "--target", "60", "--json")
    assert status == 0, error
    told = json.loads(printed)
    assert told["collected_steps"] == 4000
    assert told["collected_episodes"] == 200
    assert told["episodes"] == 60
    assert (tmp_path / "slide.png").stat().st_size > 0
    data = load(str(out))
    assert data.cost_names == ("cost", "right")
    np.testing.assert_allclose(data.next_obs[:, 1] - data.obs[:, 1], 0.1 * 2 * data.action[:, 0], atol=1e-6)
    with h5py.File(out) as file:
        metadata = json.loads(file.attrs["collection"])
    assert metadata["schedules"][0]["knots"][0] == [0.0, None]
    assert metadata["filter"]["target"] == 60
    assert (data.action_low, data.action_high) == ((-2.0,), (2.0,))
    assert metadata["digest"] == data.digest == told["digest"]
    assert {"pdocrl", "numpy", "jax", "gymnasium"} <= metadata["versions"].keys()
    again = run_cli(*words, "--costs", "cost", "right", "--target", "80")  # filters anew, plays nothing
    assert again[0] == 0
    assert load(str(out)).n_episodes == 80
    more = [word if word != "4k" else "8k" for word in words]
    status, _, error = run_cli(*more, "--costs", "cost", "right")
    assert status == 2
    assert "`steps` is 4000 there and 8000 now" in error
    assert run_cli(*words, "--costs", "cost", "right", "--no-play")[0] == 0


def test_a_cost_function_of_ones_own_makes_any_environment_safe_rl(tmp_path, run_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "def both(obs, action, next_obs, info):\n    return [abs(next_obs[1]) > 0.2, abs(action[0]) > 1]\n"
    Path("my_costs.py").write_text(text)
    words = ("collect", "Costless-v0", "--cost-function", "my_costs:both", "--cost-max", "20", "10")
    status, _, error = run_cli(*words, "--budget", "4k", "--schedules", "rising", "--target", "50")
    assert status == 0, error
    data = load("Costless-v0.hdf5")
    assert data.n_costs == 2
    np.testing.assert_array_equal(data.cost[:, 1], np.abs(2 * data.action[:, 0]) > 1)
    np.testing.assert_array_equal(data.cost[:, 0], np.abs(data.next_obs[:, 1]) > 0.2)


def test_a_plan_says_what_and_how_long_and_writes_nothing(tmp_path, run_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, printed, error = run_cli("collect", "Slide-v0", "--cost-max", "20", "--plan", "--json", "--budget", "3min")
    assert status == 0, error
    plan = json.loads(printed)
    assert plan["minutes"] == pytest.approx(3, rel=0.01)
    assert plan["steps"] > 1000
    assert [schedule["name"] for schedule in plan["settings"]["schedules"]] == ["rising", "falling"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Costless-v0"], "puts no `cost` into `info`. Name the keys"),
        (["Several-v0"], "has a MultiDiscrete action space"),
        (["Unbounded-v0"], "has actions without bounds"),
        (["Explodes-v0", "--cost-max", "20"], "observation after 16 steps is not finite"),
        (["Grows-v0", "--cost-max", "20"], "environment's obs at step"),
        (["Slide-v0"], "largest episode cost is not known. Give --cost-max"),
        (["Slide-v0", "--cost-max", "1", "2", "3"], "3 numbers for 1 costs"),
        (["Slide-v0", "--cost-max", "-1"], "must be a positive number"),
        (["Slide-v0", "--costs", "left"], "info has no `left`; it holds cost, right"),
        (["Slide-v0", "--cost-max", "20", "--budget", "soon"], "write steps (800000"),
        (["Slide-v0", "--cost-max", "20", "--schedules", "fallin"], "Did you mean `falling`?"),
        (["Slide-v0", "--cost-function", "nowhere"], "write it as module:function"),
        (["Slide-v0", "--cost-function", "no_such_module:f"], "No module named 'no_such_module'"),
        (["Slide-v0", "--cost-function", "math:sine"], "Did you mean `sin`?"),
        (["Slide-v0", "--cost-function", "math:sin"], "cost function math:sin fails on Slide-v0's first step"),
        (["Slide-v0", "--cost-max", "20", "--no-play"], "no collection here to write"),
        (["BalRun"], "Did you mean `BallRun`?"),
    ],
)
def test_what_cannot_work_is_one_line_and_status_2(tmp_path, run_cli, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, printed, error = run_cli("collect", *words)
    assert status == 2
    assert printed == ""
    assert len(error.strip().splitlines()) == 1
    assert message in error


def test_settings_name_every_number_the_episodes_depend_on():
    names = {field.name for field in dataclasses.fields(Settings)}
    assert names == settings_for(look_at("BallRun"), "BallRun", TINY).as_json().keys()
