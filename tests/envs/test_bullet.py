"""The simulator repeats itself bit for bit, shows itself without a window, and tells its two costs apart."""

# ruff: noqa: NPY002 (the simulator draws from the global random state)
from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from pdocrl.data import Task, load, register, tasks
from pdocrl.envs import bullet
from pdocrl.envs.bullet import split_run_costs
from pdocrl.envs.registry import make
from pdocrl.envs.vector import play_episodes
from pdocrl.errors import PdocrlError, UnknownNameError

pytest.importorskip("pybullet", reason="the simulator is an extra")

AGENTS = ("Ball", "Car", "Drone", "Ant")
TASKS = tuple(f"{agent}{kind}" for kind in ("Run", "Circle") for agent in AGENTS)
RUNS = TASKS[:4]


def actions_of(seed: int, action_dim: int) -> np.ndarray:
    """Smooth random actions that reach the bounds: the agents really move, and the drone leaves the ground."""
    steps = np.random.default_rng(seed).normal(0, 0.4, (60, action_dim))
    return np.clip(np.cumsum(steps, axis=0), -1, 1).astype(np.float32)


def play(env: gymnasium.Env, seed: int, steps: int = 60, reset=None, render: bool = False) -> str:
    """A digest of every number of an episode."""
    obs = env.reset(seed=seed)[0] if reset is None else reset()
    sha = hashlib.sha256(obs.tobytes())
    for step, action in enumerate(actions_of(seed, env.action_space.shape[0])[:steps]):
        obs, reward, terminated, truncated, info = env.step(action)
        sha.update(np.append(obs, [reward, terminated, info["cost"]]).tobytes())
        if render and step % 20 == 0:
            env.render()
        if terminated or truncated:
            break
    return sha.hexdigest()


@functools.cache
def first_episode_of_the_bare_simulator(task: str, seed: int) -> str:
    """What bullet-safety-gym itself plays in its first episode, given the same random numbers."""
    with bullet._quiet():
        env = gymnasium.make(f"Safety{task}-v0", disable_env_checker=True)
    kept = np.random.get_state()

    def reset() -> np.ndarray:
        np.random.seed(int(gymnasium.utils.seeding.np_random(seed)[0].integers(2**32)))
        return env.reset()[0]

    digest = play(env, seed, reset=reset)
    np.random.set_state(kept)
    env.close()
    return digest


@pytest.mark.parametrize("task", TASKS)
def test_every_episode_is_the_first_of_a_fresh_simulator_whatever_was_played_before(task: str):
    """Short episodes end where the next begins, with warm contacts; long ones leave the motors running."""
    env = make(task)
    for seed, before in ((1, ()), (1, (3, 2, 60)), (2, (1, 4)), (1, (7, 30, 5, 1))):
        for other, steps in enumerate(before, start=100):
            play(env, other, steps)
        assert play(env, seed) == first_episode_of_the_bare_simulator(task, seed)
    env.close()


def test_another_process_plays_the_same_bits():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_bullet import *\n"
        "for t in TASKS:\n    e = make(t); play(e, 9, 3); print(play(e, 5)); e.close()"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    here = [play(make(task), 5) for task in TASKS]
    assert here == other


@pytest.mark.parametrize("task", ["BallRun", "DroneCircle"])
def test_rendering_gives_pixels_and_changes_nothing(task: str):
    env = make(task)
    unseen = play(env, 3)
    assert play(env, 3, render=True) == unseen
    frame = env.unwrapped.render()  # the bare simulator's render() would end the process here
    assert frame.shape == (360, 480, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 10


def test_a_costly_step_has_a_red_frame_and_a_calm_one_hides_nothing():
    env = make("BallRun")
    env.reset(seed=0)
    env.step([1.0, 0.0])
    calm = env.render()
    while env.step([1.0, 0.0])[4]["cost"] == 0:
        pass
    costly = env.render()
    pure_red = (calm[..., 0] > 140) & (calm[..., 1] < 10)  # the simulator's own marker covers the agent
    assert not pure_red.any()
    assert (costly[0] == (200, 0, 0)).all()
    assert not (calm[0] == (200, 0, 0)).all()


def test_the_global_random_state_is_left_alone():
    np.random.seed(7)
    expected = np.random.RandomState(7).random(4)
    env = make("DroneRun")
    env.reset(seed=0)
    env.reset()
    env.step(env.action_space.sample())
    assert np.array_equal(np.random.random(4), expected)


def test_without_a_seed_the_stream_of_the_last_seed_goes_on():
    env = make("BallCircle")
    first = [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]
    assert np.array_equal(first, again)
    assert not np.array_equal(first[1], first[2])


@pytest.mark.parametrize("task", TASKS)
def test_spaces_and_horizon_are_those_of_the_task_table(task: str):
    known = next(t for t in tasks.all_tasks() if t.name == task)
    env = make(task)
    assert env.observation_space.shape == (known.obs_dim,)
    assert env.action_space.shape == (known.action_dim,)
    assert env.spec.max_episode_steps == known.horizon


def test_episodes_are_truncated_at_the_horizon_and_need_a_reset_before():
    env = make("SafetyBallRun-v0")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0.0, 0.0])
    env.reset(seed=0)
    ends = [env.step([0.1, 0.0])[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]


@pytest.mark.parametrize("task", RUNS)
def test_run_costs_come_apart_and_can_be_read_off_the_next_observation(task: str):
    env, rng = make(task), np.random.default_rng(0)
    env.reset(seed=0)
    rows = []
    direction = rng.uniform(-1, 1, env.action_space.shape)
    if task == "BallRun":
        direction[:] = 0.5, 1.0
    for _ in range(100):
        obs, _, terminated, truncated, info = env.step(direction)
        rows.append((obs, info["cost"], info["cost_boundary"], info["cost_speed"]))
        if terminated or truncated:
            break
    obs, cost, boundary, speed = (np.array(column) for column in zip(*rows, strict=True))
    assert np.array_equal(cost, np.maximum(boundary, speed))
    assert np.array_equal(split_run_costs(task, obs), np.stack([boundary, speed], axis=1))
    if task == "BallRun":
        assert boundary.any()
        assert speed.any()
        assert not np.array_equal(boundary, speed)


@pytest.mark.parametrize("task", ["BallRun", "CarRun", "DroneRun"])
def test_the_two_costs_of_recorded_data_make_up_the_logged_one(task: str, shared_data):
    data = load(str(next(shared_data.glob(f"Safety{task}-*.hdf5"))))
    assert np.array_equal(split_run_costs(task, data.next_obs).max(axis=1), data.cost[:, 0])


def test_a_circle_task_has_no_boundary_and_speed_to_split():
    with pytest.raises(PdocrlError, match="Only Run tasks"):
        split_run_costs("BallCircle", np.zeros((1, 8)))


def test_any_registered_environment_can_be_made():
    env = make("CartPole-v1")
    assert np.array_equal(env.reset(seed=3)[0], env.reset(seed=3)[0])


def test_a_misspelt_environment_is_suggested():
    with pytest.raises(UnknownNameError, match="Did you mean `BallRun`"):
        make("BalRun")


def test_a_task_without_a_simulator_says_so(monkeypatch):
    monkeypatch.setattr(tasks, "_registered", {})
    register(Task("Ledger", horizon=10))
    with pytest.raises(PdocrlError, match="task Ledger has no simulator"):
        make("Ledger")


@pytest.mark.parametrize("package", ["bullet_safety_gym", "pybullet"])
def test_without_the_extra_the_message_names_it(monkeypatch, package: str):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PdocrlError, match="pdocrl install bullet"):
        make("BallRun")


def test_the_simulator_prints_nothing():
    """Its `pybullet build time` line would follow the JSON of a piped command."""
    code = "from pdocrl.envs import make; e = make('CarRun'); e.reset(seed=0); e.step([0, 0]); e.close(); print('{}')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("{}\n", "")


@pytest.mark.parametrize("wrapper", [None, gymnasium.wrappers.RecordEpisodeStatistics])
def test_environments_side_by_side_play_the_episodes_of_one(wrapper) -> None:
    """Gymnasium 1 begins the next episode a step later than 0.28 did; five episodes in three environments show it."""

    def one() -> gymnasium.Env:
        return make("BallRun") if wrapper is None else wrapper(make("BallRun"))

    def policy(obs: np.ndarray) -> np.ndarray:
        return np.tanh(obs[:, :2]).astype(np.float32)

    alone = play_episodes(one, [policy], 5, costs=("cost",))
    beside = play_episodes(lambda: gymnasium.vector.SyncVectorEnv([one] * 3), [policy], 5, costs=("cost",))
    np.testing.assert_array_equal(beside.length, alone.length)
    np.testing.assert_array_equal(beside.reward, alone.reward)
    np.testing.assert_array_equal(beside.cost, alone.cost)
    assert len(set(alone.reward)) == 5


def test_an_episode_ends_by_the_clock_and_not_by_the_task() -> None:
    env = make("BallRun")
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(100)]
    env.close()
    assert ends == [(False, False)] * 99 + [(False, True)]
