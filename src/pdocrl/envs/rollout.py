"""Seeded episodes in parallel: the same numbers with one worker or with many.

    with Rollouts("BallRun") as pool:
        episodes = pool.run([policy_a, policy_b], episodes=20)   # blocks
        later = pool.submit(policy_c, episodes=20)               # training goes on …
        episodes = later.result()                                # … until here

Every policy plays every episode exactly once, so short episodes weigh no more than long ones; the seed of episode i is
a function of (seed, i) alone, the same for all policies. A policy is any callable obs [B, S] → action [B, A], or an
object with `begin(seed) → step` for those with memory or randomness (see `Player.play`). Observations come as float32,
actions are clipped to the environment's bounds.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from pdocrl.envs.episode import Episodes, Player, join_episodes
from pdocrl.envs.registry import cost_keys, maker
from pdocrl.envs.worker import Failure, Worker, WorkerDied
from pdocrl.errors import PdocrlError
from pdocrl.machine import cores

EnvLike = str | Callable[[], gymnasium.Env]


class RolloutError(PdocrlError):
    """An episode that could not be played; the message names it, a note holds the traceback from the worker."""


def rollout(
    env: EnvLike,
    policies: Any,
    episodes: int,
    seed: int = 0,
    workers: int | None = None,
    costs: tuple[str, ...] | None = None,
    record: bool = False,
) -> Episodes:
    """Play `episodes` episodes of each policy and wait for them. See `Rollouts` for the arguments."""
    many = len(policies) if isinstance(policies, list | tuple) else 1
    wanted = min(cores() if workers is None else workers, many * episodes)
    with Rollouts(env, wanted, costs) as pool:
        return pool.run(policies, episodes, seed, record)


class Rollouts:
    """Worker processes that each hold one environment and play episodes until closed.

    Args:
        env: a task's name, a Gymnasium id, or a function that makes an environment.
        workers: processes; by default one per core. 0 plays in this process: for debugging, or for what cannot be sent
            to another. (The numbers are the same unless the policy's arithmetic depends on the number of threads.)
        costs: keys of `info` that hold the costs; by default the task's, or `cost` if the environment has it.
    """

    def __init__(self, env: EnvLike, workers: int | None = None, costs: tuple[str, ...] | None = None) -> None:
        self.workers = cores() if workers is None else workers
        if self.workers < 0:
            raise PdocrlError(f"workers is {self.workers}, must be 0 or more.")
        self._make = maker(env) if isinstance(env, str) else env
        self._costs = cost_keys(env, costs) if isinstance(env, str) else costs
        self._packed_env = _pack(self._make, "environment") if self.workers else b""
        self._player: Player | None = None  # workers=0 only
        self._waiting: collections.deque[_Turn] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._alive: set[Worker] = set()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._attend, daemon=True) for _ in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def run(
        self,
        policies: Any,
        episodes: int,
        seed: int = 0,
        record: bool = False,
        progress: Callable[[], None] | None = None,
        first: int = 0,
    ) -> Episodes:
        """`submit`, and wait."""
        return self.submit(policies, episodes, seed, record, progress, first).result()

    def submit(
        self,
        policies: Any,
        episodes: int,
        seed: int = 0,
        record: bool = False,
        progress: Callable[[], None] | None = None,
        first: int = 0,
    ) -> Future[Episodes]:
        """Start playing and return at once. The first episode that fails makes the result raise `RolloutError`.

        Args:
            policies: one policy or a list of them.
            episodes: how many of each policy.
            seed: decides all episode seeds, the same for every policy.
            record: keep every transition.
            progress: called after each episode, from another thread.
            first: number of the first episode, for who plays a part of many; the result counts from 0 all the same.
        """
        many = list(policies) if isinstance(policies, list | tuple) else [policies]
        if episodes < 1 or not many:
            raise PdocrlError(f"{len(many)} policies × {episodes} episodes: nothing to play.")
        if seed < 0:
            raise PdocrlError(f"seed is {seed}, must be 0 or more.")
        packed = [_pack(policy, f"policy {i}") for i, policy in enumerate(many)] if self.workers else []
        job = _Job(next(self._numbers), packed, episode_seeds(seed, episodes, first), record, progress, len(many))
        turns = [_Turn(job, policy, episode) for policy in range(len(many)) for episode in range(episodes)]
        with self._changed:
            if self._closed:
                raise PdocrlError("these roll-outs are closed.")
            self._waiting.extend(turns if self.workers else ())
            self._changed.notify_all()
        if not self.workers:
            self._play_here(many, turns)
        return job.future

    def close(self) -> None:
        """End the workers now; what is still being played is cancelled."""
        with self._changed:
            self._closed = True
            left = {turn.job for turn in self._waiting}
            self._waiting.clear()
            self._changed.notify_all()
            for worker in self._alive:
                worker.kill()
        for thread in self._threads:
            thread.join()
        for job in left:
            job.fail(RolloutError("the roll-outs were closed before every episode was played."))

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attend(self) -> None:
        """A thread per worker: hand it turns, collect episodes, replace it when it dies."""
        worker: Worker | None = None
        while turns := self._take():
            job, policy = turns[0].job, turns[0].policy
            done = 0
            try:
                if worker is None:
                    worker = self._start()
                seeds = [job.seeds[turn.episode] for turn in turns]
                for reply in worker.play(job.number, job.packed[policy], seeds, job.record):
                    if isinstance(reply, Failure):
                        job.fail(_failure(turns[done], reply.message, reply.details))
                    else:
                        job.finish(turns[done], reply)
                    done += 1
            except WorkerDied as error:
                died = f"its worker process died ({error})"
                job.fail(_failure(turns[done], "the roll-outs were closed" if self._closed else died))
            except Exception as error:  # a thread that ended here would leave the caller waiting for ever
                failure = Failure.of(error)
                job.fail(_failure(turns[done], failure.message, failure.details))
            else:
                continue
            self._bury(worker)
            worker = None
        self._bury(worker)

    def _take(self) -> list[_Turn]:
        """The next turns of one policy: many while there are many, so that workers rarely wait; [] when closed."""
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].job.future.done():
                    self._waiting.popleft()
                if self._waiting or self._closed:
                    break
                self._changed.wait()
            if self._closed:
                return []
            share = max(1, min(16, len(self._waiting) // (3 * self.workers)))
            turns = [self._waiting.popleft()]
            while len(turns) < share and self._waiting and self._waiting[0].follows(turns[-1]):
                turns.append(self._waiting.popleft())
            return turns

    def _start(self) -> Worker:
        worker = Worker(self._packed_env, self._costs)
        with self._changed:
            self._alive.add(worker)
            if self._closed:
                worker.kill()
        return worker

    def _bury(self, worker: Worker | None) -> None:
        if worker is not None:
            with self._changed:
                self._alive.discard(worker)
            worker.stop()

    def _play_here(self, policies: list[Any], turns: list[_Turn]) -> None:
        for turn in turns:
            try:
                if self._player is None:
                    self._player = Player(self._make(), self._costs)
                played = self._player.play(policies[turn.policy], turn.job.seeds[turn.episode], turn.job.record)
                turn.job.finish(turn, played)
            except Exception as error:
                failure = Failure.of(error)
                turn.job.fail(_failure(turn, failure.message, failure.details))
                self._player = None
                return


class _Job:
    """One `submit`: collects episodes in their places, whoever played them."""

    def __init__(
        self,
        number: int,
        packed: list[bytes],
        seeds: list[int],
        record: bool,
        progress: Callable[[], None] | None,
        policies: int,
    ) -> None:
        self.number, self.packed, self.seeds, self.record, self.progress = number, packed, seeds, record, progress
        self.future: Future[Episodes] = Future()
        self._played: dict[tuple[int, int], Episodes] = {}
        self._wanted = policies * len(seeds)
        self._lock = threading.Lock()

    def finish(self, turn: _Turn, played: Episodes) -> None:
        with self._lock:
            self._played[turn.policy, turn.episode] = played
            complete = len(self._played) == self._wanted
        if self.progress is not None:
            self.progress()
        if complete and self.future.set_running_or_notify_cancel():
            self.future.set_result(join_episodes(self._played))

    def fail(self, error: RolloutError) -> None:
        with self._lock:
            if not self.future.done() and self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)


@dataclasses.dataclass(frozen=True)
class _Turn:
    """One episode of one policy, waiting to be played."""

    job: _Job
    policy: int
    episode: int

    def follows(self, other: _Turn) -> bool:
        return self.job is other.job and self.policy == other.policy


def episode_seeds(seed: int, episodes: int, first: int = 0) -> list[int]:
    """Seeds of episodes first, first + 1, …: that of episode i is a function of (seed, i) alone."""
    return [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in range(first, first + episodes)]


def _failure(turn: _Turn, message: str, details: str = "") -> RolloutError:
    error = RolloutError(
        f"episode {turn.episode} of policy {turn.policy} (seed {turn.job.seeds[turn.episode]}): {message}"
    )
    if details:
        error.add_note(details)
    return error


def _pack(value: Any, what: str) -> bytes:
    """Bytes another process can unpack: also lambdas and what the running script defines."""
    try:
        packed: bytes = cloudpickle.dumps(value)
    except Exception as error:  # any object may refuse in its own way
        reason = " ".join(str(error).split())
        raise PdocrlError(f"{what} cannot be sent to worker processes ({reason}). Use workers=0.") from error
    return packed
