"""Roll-outs: the same numbers however they are played, every episode once, and a clear end to every failure."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from pdocrl.data import Task, register, tasks
from pdocrl.envs import Episodes, RolloutError, Rollouts, episode, rollout, worker
from pdocrl.errors import PdocrlError

with_bullet = pytest.mark.skipif(
    importlib.util.find_spec("pybullet") is None or importlib.util.find_spec("bullet_safety_gym") is None,
    reason="the simulator is not installed: pdocrl install bullet",
)


class Walk(gymnasium.Env):
    """A random walk of random length. Reward is the action, costs are 1 per step and 1 when the action was clipped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 30))
        self.at = self.np_random.normal(size=3)
        return self.at, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.left -= 1
        self.at = self.at + self.np_random.normal(size=3) * 0.1
        at_bound = float(np.abs(action).max() == 0.5)
        return self.at, float(action[0]), self.left == 0, False, {"cost": np.array([1.0, at_bound]), "alone": 1.0}


class Costless(Walk):
    def step(self, action):
        return *super().step(action)[:4], {}


class Breaks(Walk):
    """Raises in the step after the first observation that is large."""

    def step(self, action):
        if self.at[0] > 1.2:
            raise ValueError("joint 3\nflew off")
        return super().step(action)


class Endless(Walk):
    def step(self, action):
        self.left += 1
        return super().step(action)


class Chatty(Walk):
    def step(self, action):
        print("hello from the environment")
        return super().step(action)


class Slow(Walk):
    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


class Network:
    """Wide enough that a multi-threaded matrix product would round differently."""

    def __init__(self, obs_dim: int, action_dim: int, seed: int = 0):
        rng = np.random.default_rng(seed)
        sizes = (obs_dim, 256, 256, action_dim)
        self.weights = [(rng.normal(size=io) / io[0] ** 0.5).astype(np.float32) for io in itertools.pairwise(sizes)]

    def __call__(self, obs):
        for weight in self.weights:
            obs = np.tanh(obs @ weight)
        return obs


class Noisy:
    """Random, and with memory of what it earned."""

    def begin(self, seed):
        rng, memory = np.random.default_rng(seed), []

        def step(obs, last_reward, last_cost):
            memory.append(last_reward + last_cost.sum())
            return rng.normal(0, 0.1, 2) + 0.01 * sum(memory) * np.tanh(obs[:2])

        return step


def same(a: Episodes, b: Episodes) -> bool:
    return a.records() == b.records()


@with_bullet
def test_returns_are_identical_with_1_2_and_5_workers_and_in_this_process():
    policies = [Network(7, 2, seed) for seed in range(3)]
    one, two, five = (rollout("BallRun", policies, 6, seed=3, workers=n, record=True) for n in (1, 2, 5))
    assert same(one, two)
    assert same(one, five)
    assert all(
        np.array_equal(a.obs, b.obs) and np.array_equal(a.action, b.action)
        for a, b in zip(one.trajectories, five.trajectories, strict=True)
    )
    assert len(set(one.reward)) == 18
    noisy = [rollout(Walk, Noisy(), 30, workers=n) for n in (0, 1, 3)]
    assert same(noisy[0], noisy[1])
    assert same(noisy[0], noisy[2])


def test_workers_that_connect_by_name_play_the_same_episodes(monkeypatch):
    """The way processes are started on Windows, where sockets are not inherited."""
    usual = rollout(Walk, Noisy(), 6, workers=0)
    monkeypatch.setattr(worker, "_start_inherited", worker._start_named)
    assert same(usual, rollout(Walk, Noisy(), 6, workers=2))


def test_every_policy_plays_every_episode_once_with_seeds_of_the_index_alone():
    policies = [Network(3, 2, 0), Network(3, 2, 1), Noisy()]
    with Rollouts(Walk, workers=2) as pool:
        many, few, other = pool.run(policies, 12, seed=5), pool.run(policies[0], 4, seed=5), pool.run(policies[0], 4)
    assert [(r["policy"], r["episode"]) for r in many.records()] == [(p, e) for p in range(3) for e in range(12)]
    assert len(set(many.seed)) == 12
    assert np.array_equal(many.of_policy(0).seed, many.of_policy(2).seed)
    assert np.array_equal(many.of_policy(0).length, many.of_policy(1).length)  # the walk's length is the seed's
    assert many.of_policy(0).records()[:4] == few.records()
    assert not set(other.seed) & set(few.seed)


def test_a_policy_without_memory_sees_one_observation_at_a_time_as_a_batch():
    shapes = []

    def policy(obs):
        shapes.append((obs.shape, obs.dtype))
        return np.zeros((1, 2))

    rollout(Walk, policy, 3, workers=0)
    assert set(shapes) == {((1, 3), np.dtype(np.float32))}


def test_a_policy_with_memory_begins_anew_and_is_told_what_it_earned():
    told = {}

    class Memory:
        def begin(self, seed):
            heard = told.setdefault(seed, [])

            def step(obs, last_reward, last_cost):
                heard.append((obs.shape, last_reward, last_cost.tolist()))
                return np.array([0.25, 0.0])

            return step

    episodes = rollout(Walk, Memory(), 3, workers=0)
    for seed, length in zip(episodes.seed.tolist(), episodes.length, strict=True):
        assert told[seed] == [((3,), 0.0, [0.0, 0.0])] + [((3,), 0.25, [1.0, 0.0])] * (length - 1)


def test_actions_are_clipped_to_the_bounds_and_recorded_as_carried_out():
    episodes = rollout(Walk, lambda obs: np.full((len(obs), 2), [7.0, -7.0]), 4, workers=0, record=True)
    assert np.array_equal(np.unique(np.concatenate([t.action for t in episodes.trajectories]), axis=0), [[0.5, -0.5]])
    assert np.array_equal(episodes.reward, 0.5 * episodes.length)


def test_recorded_episodes_are_a_dataset_with_the_same_returns():
    episodes = rollout(Walk, Noisy(), 7, workers=2, record=True)
    data = episodes.dataset()
    assert np.allclose(data.reward_return, episodes.reward, atol=1e-5)
    assert np.array_equal(data.cost_return, episodes.cost)
    assert np.array_equal(data.episode_length, episodes.length)
    assert data.terminal.sum() == 7
    assert data.cost_names == ("cost_0", "cost_1")
    inner = ~(data.terminal | data.timeout)[:-1]
    assert np.array_equal(data.next_obs[:-1][inner], data.obs[1:][inner])
    with pytest.raises(PdocrlError, match="record=True"):
        rollout(Walk, Noisy(), 1, workers=0).dataset()


@with_bullet
def test_costs_are_found_or_chosen_by_name():
    def still(obs):
        return np.zeros((1, 2))

    assert rollout(Costless, still, 2, workers=0).cost.shape == (2, 0)
    two = rollout("BallRun", lambda obs: [[0.6, 1.0]], 2, workers=1, costs=("cost_boundary", "cost_speed"))
    assert two.cost_names == ("cost_boundary", "cost_speed")
    assert (two.cost > 0).all()
    assert not np.array_equal(two.cost[:, 0], two.cost[:, 1])
    with pytest.raises(RolloutError, match="info has no `energy`; it holds alone, cost"):
        rollout(Walk, still, 2, workers=0, costs=("energy",))


def test_discrete_actions_and_other_gymnasium_environments_play():
    assert rollout("CartPole-v1", lambda obs: (obs[:, 2] > 0).astype(int), 3, workers=1).reward.min() > 20


def test_a_table_of_observations_is_flattened_row_by_row():
    class Table(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9, 9, (2, 3), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.arange(6.0).reshape(2, 3), {}

        def step(self, action):
            return np.arange(6.0).reshape(2, 3) + 1, 0.0, True, False, {}

    (played,) = rollout(Table, lambda obs: [int(obs.shape == (1, 6))], 1, workers=0, record=True).trajectories
    assert played.obs.tolist() == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    assert played.action.tolist() == [1]


def test_what_only_this_process_knows_reaches_the_workers(monkeypatch):
    class Local(Walk):
        def step(self, action):
            return *super().step(action)[:2], False, False, {"cost": 0.0}

    monkeypatch.setattr(tasks, "_registered", {})
    gymnasium.register("LocalWalk-v0", entry_point=Local)
    register(Task("LocalWalk", horizon=17, env_id="LocalWalk-v0"))
    scale = 0.3
    episodes = rollout("LocalWalk", lambda obs: scale * np.ones((1, 2)), 4, workers=2)
    assert episodes.length.tolist() == [17] * 4  # the task's horizon, since the environment has no limit of its own
    assert np.allclose(episodes.reward, 17 * scale)


@with_bullet
def test_workers_do_not_import_jax():
    def policy(obs):
        import sys

        return np.full((1, 2), 0.25 if "jax" in sys.modules else 0.0)

    import jax  # noqa: F401 (this process has it)

    assert rollout("BallRun", policy, 2, workers=1).reward.max() < 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_ends_in_one_line_that_names_the_episode(workers: int):
    with pytest.raises(RolloutError) as caught:
        rollout(Breaks, Noisy(), 40, workers=workers)
    message = str(caught.value)
    assert message.endswith("ValueError: joint 3 flew off")
    assert message.startswith("episode ")
    assert "of policy 0 (seed " in message
    assert "test_rollout.py" in caught.value.__notes__[0]  # the worker's own traceback


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (lambda obs: np.zeros((1, 5)), r"action at step 0 has shape \(5,\), the environment takes \(2,\)"),
        (lambda obs: np.full((1, 2), np.nan), r"action at step 0 is not finite: \[nan, nan\]"),
        (lambda obs: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_policy_that_misbehaves_is_told_how(policy, complaint: str):
    with pytest.raises(RolloutError, match=f"episode 0 of policy 0 .*{complaint}"):
        rollout(Walk, policy, 1, workers=0)


def test_a_worker_that_dies_is_named_and_replaced():
    def deadly(obs):
        os.kill(os.getpid(), signal.SIGKILL)

    with Rollouts(Walk, workers=2) as pool:
        before = pool.run(Noisy(), 10)
        with pytest.raises(RolloutError, match=r"episode \d of policy 0 \(seed \d+\): its worker .*\(signal SIGKILL\)"):
            pool.run(deadly, 4)
        assert same(pool.run(Noisy(), 10), before)


def test_what_cannot_be_sent_says_so_and_plays_here():
    lock = threading.Lock()

    def policy(obs):
        with lock:
            return np.zeros((1, 2))

    with pytest.raises(PdocrlError, match=r"policy 0 cannot be sent .*Use workers=0"):
        rollout(Walk, policy, 1, workers=1)
    assert len(rollout(Walk, policy, 1, workers=0)) == 1


def test_an_episode_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(episode, "LONGEST", 50)
    with pytest.raises(RolloutError, match="no end after 50 steps"):
        rollout(Endless, Noisy(), 1, workers=0)


def test_nothing_to_play_and_negative_seeds_are_refused():
    with Rollouts(Walk, workers=0) as pool:
        with pytest.raises(PdocrlError, match="nothing to play"):
            pool.run([], 3)
        with pytest.raises(PdocrlError, match="nothing to play"):
            pool.run(Noisy(), 0)
        with pytest.raises(PdocrlError, match="seed is -1"):
            pool.run(Noisy(), 1, seed=-1)
    with pytest.raises(PdocrlError, match="closed"):
        pool.run(Noisy(), 1)


def test_submitted_episodes_play_while_the_caller_goes_on_and_jobs_do_not_mix():
    finished = []
    with Rollouts(Slow, workers=2) as pool:
        first = pool.submit(Noisy(), 8, seed=1, progress=lambda: finished.append(1))
        second = pool.submit([Network(3, 2), Noisy()], 3, seed=2)
        assert not first.done()  # 8 episodes of up to 30 steps of 20 ms
        assert same(second.result(), rollout(Walk, [Network(3, 2), Noisy()], 3, seed=2, workers=0))
        assert same(first.result(), rollout(Walk, Noisy(), 8, seed=1, workers=0))
    assert len(finished) == 8


def test_closing_and_cancelling_stop_what_is_left():
    with Rollouts(Slow, workers=1) as pool:
        unwanted = pool.submit(Noisy(), 500)
        wanted = pool.submit(Noisy(), 1)
        assert unwanted.cancel()
        wanted.result(timeout=30)
        rest = pool.submit(Noisy(), 500)
        workers = children(os.getpid())
    with pytest.raises(RolloutError, match="closed"):
        rest.result(timeout=5)
    assert workers
    assert not any(alive(pid) for pid in workers)


def children(pid: int) -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if parent(process) == pid]


def parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_caller(how: signal.Signals):
    """No `if __name__ == "__main__"` either: workers do not run the caller's script again."""
    script = (
        # a shell that runs its tests in the background has them ignore Ctrl-C, and their children too
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_rollout import *\n"
        "pool = Rollouts(Slow, workers=2)\n"
        "with pool:\n"
        "    future = pool.submit(Noisy(), 10_000, progress=lambda: print('playing', flush=True))\n"
        "    future.result()\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout.readline() == "playing\n"
    workers = children(caller.pid)
    assert len(workers) == 2
    os.killpg(caller.pid, how) if how == signal.SIGINT else caller.send_signal(how)
    caller.wait(timeout=90)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)
    complaints = caller.stderr.read()
    assert complaints.count("Traceback") == (1 if how == signal.SIGINT else 0)  # the caller's own, none of a worker's


def test_an_environment_that_prints_does_not_spoil_the_answer():
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_rollout import *\n"
        "print(len(rollout(Chatty, Noisy(), 2, workers=1)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "2\n"
    assert "hello from the environment" in run.stderr


class Counting:
    """A policy that says how often it was unpacked in this process, by way of its action."""

    def __init__(self, weight: int) -> None:
        self.blob = np.full(weight, 0.5)

    def __call__(self, obs):
        return np.full((len(obs), 2), self.blob[0], np.float32)


@with_bullet
def test_a_policy_travels_to_a_worker_once_however_often_it_is_submitted(monkeypatch):
    from pdocrl.envs import worker

    sent = []
    send = worker.Worker._send
    monkeypatch.setattr(worker.Worker, "_send", lambda self, message: (sent.append(message), send(self, message))[1])
    with Rollouts("BallRun", workers=1) as pool:
        first = Counting(1000)
        rewards = [pool.run(policy, 1).reward[0] for policy in (first, first, Counting(1001), first)]
    carried = [m.packed_policy is not None for m in sent if isinstance(m, worker.Request)]
    assert carried == [True, False, True, False]
    assert len(set(rewards)) == 1
