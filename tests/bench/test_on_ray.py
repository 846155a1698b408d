"""The Ray engine gives the local engine's results bit for bit, also when its workers are killed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pdocrl.bench import local, on_ray
from pdocrl.bench.group import folder_of, rows_of
from pdocrl.bench.player import EVALUATION_SEED
from pdocrl.bench.rates import Rates
from pdocrl.bench.results import GroupStatus, Row
from pdocrl.bench.suite import Method, Suite, TaskEntry
from pdocrl.data.load import EMBEDDED
from pdocrl.data.tasks import find_task
from pdocrl.envs.episode import join_episodes
from pdocrl.envs.rollout import Rollouts, rollout
from pdocrl.errors import PdocrlError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pdocrl[ray]'")
pytest.importorskip("pybullet", reason="the simulator is not installed: pdocrl install bullet")

TINY = {"hidden": (8, 8), "batch_size": 16}
BALL = TaskEntry(find_task("BallRun"), EMBEDDED / "ballrun.hdf5")
METHODS = (Method("bc", "", TINY), Method("cdt", "", {"embedding": 9, "heads": 2}))  # a width no heads can share
SUITE = Suite("test", "", (BALL,), METHODS, ((20.0,), (40.0,)), (0,), 20, 7)


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    """A Ray of two single-CPU slots on this machine; its raylet's process id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else its workers give way to every other test
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    import ray._private.worker as worker

    yield worker._global_node.all_processes["raylet"][0].process.pid
    ray.shutdown()


def _no_times(rows: list[Row]) -> list[Row]:
    return [dataclasses.replace(row, train_seconds=None) for row in rows]


def test_both_engines_give_the_same_rows_and_the_same_failures(
    cluster: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "EPISODES_PER_UNIT", 5)  # of seven: two parts of each policy, of unequal length
    told: dict[str, dict[str, GroupStatus]] = {"local": {}, "ray": {}}
    good, broken = SUITE.groups()
    for engine, statuses in told.items():
        work = local.Work([broken, good], tmp_path / engine, None)

        def report(status: GroupStatus, statuses: dict[str, GroupStatus] = statuses) -> None:
            statuses[status.name] = status

        if engine == "local":
            local.run(work, report, Rates(tmp_path / "rates.json"))
        else:
            killer = _Killer(cluster)
            on_ray.run(work, report, None)
            killer.stop()
            assert len(killer.killed) == 2  # a trainer and a player
    assert capfd.readouterr().out == ""  # Ray's own remarks on the dead go elsewhere
    assert told["ray"] == told["local"]
    assert told["ray"][good.name].status == "done"
    assert "must be a multiple of heads" in told["ray"][broken.name].reason
    rows = rows_of(good, tmp_path / "ray")
    assert len(rows) == 2 * 7
    assert _no_times(rows) == _no_times(rows_of(good, tmp_path / "local"))
    for name in ("policies.npz", "scores.json"):
        mine, theirs = (folder_of(good, tmp_path / engine) / name for engine in told)
        if name == "policies.npz":
            with np.load(mine) as a, np.load(theirs) as b:
                assert all((a[key] == b[key]).all() for key in a.files)
        else:
            assert mine.read_bytes() == theirs.read_bytes()


class _Killer(threading.Thread):
    """Kills the first trainer and the first player it sees, in the middle of their work."""

    def __init__(self, raylet: int) -> None:
        super().__init__(daemon=True)
        self.killed: dict[bytes, int] = {}
        self._raylet, self._over = raylet, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.02) and len(self.killed) < 2:
            for pid, title in self._children():
                kind = next((k for k in (b"ray::train_remotely", b"ray::play_remotely") if title.startswith(k)), None)
                if kind is not None and kind not in self.killed:
                    time.sleep(0.3 if kind == b"ray::train_remotely" else 0.02)  # a player is done sooner
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.killed[kind] = pid

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _children(self) -> Iterator[tuple[int, bytes]]:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == self._raylet:
                yield int(entry.name), title


def test_no_cluster_at_an_address_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    work = local.Work(SUITE.groups(), tmp_path, None)
    with pytest.raises(PdocrlError, match=r"no Ray cluster at 127.0.0.1:1 .*ray start --head"):
        on_ray.run(work, print, "127.0.0.1:1")


def test_a_player_starts_without_jax() -> None:
    program = "import sys, pdocrl.bench.player; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_parts_join_to_what_one_pool_plays() -> None:
    def policy(obs: np.ndarray) -> np.ndarray:
        return np.tanh(obs[:, :2])

    whole = rollout("BallRun", [policy, policy], 3, seed=EVALUATION_SEED, workers=0)
    parts = {}
    with Rollouts("BallRun", 0) as pool:
        for which, first, count in ((1, 2, 1), (0, 0, 2), (1, 0, 2), (0, 2, 1)):
            parts[which, first] = pool.run(policy, count, EVALUATION_SEED, first=first)
    joined = join_episodes(parts)
    for field in ("policy", "episode", "seed", "reward", "cost", "length", "terminated", "max_step_cost"):
        np.testing.assert_array_equal(getattr(joined, field), getattr(whole, field))
