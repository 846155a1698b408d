"""The engine of many machines: groups are Ray tasks, and so are small parts of their roll-outs.

    driver                                      nodes
    dataset (once per node, shared memory) ──▶  train a group in a folder of the node's own
    folder  ◀── its files, as bytes             (a task whose worker dies is started again, from its last checkpoint)
    policies ─▶ a few episodes each       ──▶   play
    scores.json ◀── outcomes, each in its place

Nodes need not share a disk. An outcome is a function of policy and episode number, and is kept by those: nothing is
lost when a worker dies, nothing counts twice, and the results are those of the local engine, bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import shutil
import socket
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pdocrl.bench.group import folder_of, know_task, look, read_data, told, train_group
from pdocrl.bench.local import Work, reason_of
from pdocrl.bench.player import play_remotely
from pdocrl.bench.results import GroupStatus
from pdocrl.bench.suite import Group
from pdocrl.console import log, progress
from pdocrl.data.dataset import Dataset
from pdocrl.envs.episode import Episodes, join_episodes
from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.evaluation.evaluate import score_played
from pdocrl.files import atomic_path
from pdocrl.training.folder import POLICIES, Trained, load_trained

EPISODES_PER_UNIT = 20  # of one policy: seconds of play, far above what a task costs, fine enough to share out
RETRIES = 5  # of a task whose worker or node died


def run(work: Work, report: Callable[[GroupStatus], None], address: str | None) -> None:
    """Do the work on the cluster at `address`, on one already joined, or on one started here for the purpose."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("the engine ray", "ray") from None
    joined = ray.is_initialized()
    if not joined:
        _join(ray, address)
    try:
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # Ray prints remarks on dead workers; standard output is for results
            _Driver(ray, work, report).run()
    finally:
        if not joined:
            ray.shutdown()


def _join(ray: Any, address: str | None) -> None:
    host, _, port = (address or "").rpartition(":")
    try:
        if host and port.isdigit() and "/" not in host:  # asked first, because Ray would wait for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="os.fork")  # Ray starts programs; none shares JAX's threads
            ray.init(
                address=address,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="error",
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PdocrlError(
            f"no Ray cluster at {address or 'this machine'} ({reason}). Start one with `ray start --head`."
        ) from error


@dataclasses.dataclass(frozen=True)
class _Training:
    """A Ray task that trains a group."""

    group: Group


@dataclasses.dataclass(frozen=True)
class _Unit:
    """A Ray task that plays some episodes of one policy."""

    group: Group
    policy: int
    first: int
    count: int


@dataclasses.dataclass
class _Playing:
    """A group whose episodes are being played."""

    trained: Trained
    parts: dict[tuple[int, int], Episodes]  # (policy, first episode) → outcomes
    units: int


class _Driver:
    """Sends tasks out and takes results in, one at a time, until none is left."""

    def __init__(self, ray: Any, work: Work, report: Callable[[GroupStatus], None]) -> None:
        self._ray, self._work, self._report = ray, work, report
        self._session = uuid.uuid4().hex  # names the folders on the nodes: never those of an earlier call
        self._pending: dict[Any, _Training | _Unit] = {}
        self._playing: dict[str, _Playing] = {}
        self._datasets: dict[Path, Any] = {}
        gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
        # A process per training: it gives back its memory and its device. Players keep their simulator.
        self._train = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(train_remotely)
        self._play = ray.remote(num_cpus=1, max_retries=RETRIES)(play_remotely)

    def run(self) -> None:
        with progress() as bar:
            groups = self._work.groups
            trainings = bar.add_task("groups", total=len(groups))
            episodes = bar.add_task("episodes", total=sum(g.runs * g.suite.episodes for g in groups))
            for group in groups:
                with self._guarded(group):
                    self._start(group)
            while self._pending:
                (ready,), _ = self._ray.wait(list(self._pending), num_returns=1)
                job = self._pending.pop(ready)
                with self._guarded(job.group):
                    self._take(job, ready)
                bar.update(trainings, completed=len(groups) - len({job.group.name for job in self._pending.values()}))
                bar.advance(episodes, job.count if isinstance(job, _Unit) else 0)

    def _start(self, group: Group) -> None:
        know_task(group)
        status = look(group, self._work.out, self._work.data)
        if status.status == "waiting" and self._work.train:
            path = group.find_data(self._work.data)
            if path not in self._datasets:
                dataset = read_data(group, self._work.data)
                assert dataset.digest  # computed once, here
                self._datasets[path] = self._ray.put(dataset)
            files = read_files(folder_of(group, self._work.out))
            ref = self._train.remote(group, files, self._session, self._datasets[path])
            self._pending[ref] = _Training(group)
        else:
            self._go_on(group, status)

    def _take(self, job: _Training | _Unit, ref: Any) -> None:
        result = self._ray.get(ref)
        if isinstance(job, _Training):
            write_files(folder_of(job.group, self._work.out), result)
            self._go_on(job.group, look(job.group, self._work.out, self._work.data))
            return
        playing = self._playing[job.group.name]
        playing.parts[job.policy, job.first] = result
        if len(playing.parts) == playing.units:
            del self._playing[job.group.name]
            score_played(playing.trained, job.group.task, join_episodes(playing.parts))
            self._report(look(job.group, self._work.out, self._work.data))

    def _go_on(self, group: Group, status: GroupStatus) -> None:
        """Hand out a trained group's episodes, or report where it ended."""
        if status.status != "trained" or not self._work.evaluate or group.task.env_id is None:
            self._report(status)
            return
        trained = load_trained(folder_of(group, self._work.out))
        episodes = group.suite.episodes
        units = [
            _Unit(group, i, first, min(EPISODES_PER_UNIT, episodes - first))
            for i in range(len(trained.policies))
            for first in range(0, episodes, EPISODES_PER_UNIT)
        ]
        self._playing[group.name] = _Playing(trained, {}, len(units))
        policies = [self._ray.put(policy) for policy in trained.policies]
        costs = tuple(trained.config.cost_names)
        for unit in units:
            ref = self._play.remote(group.task, costs, policies[unit.policy], unit.first, unit.count)
            self._pending[ref] = unit

    @contextlib.contextmanager
    def _guarded(self, group: Group) -> Iterator[None]:
        """A group that breaks is reported with its reason and leaves the queue; the others go on."""
        try:
            yield
        except Exception as error:
            cause = getattr(error, "cause", None)  # what a task raised, which Ray wraps
            reason = reason_of(cause if isinstance(cause, Exception) else error)
            log(f"{group.name}: failed: {reason}")
            for ref in [ref for ref, job in self._pending.items() if job.group.name == group.name]:
                self._ray.cancel(ref, force=False)
                del self._pending[ref]
            self._playing.pop(group.name, None)
            self._report(told(group, "failed", reason))


def train_remotely(group: Group, files: dict[str, bytes], session: str, dataset: Dataset) -> dict[str, bytes]:
    """On a node: train in a folder of its own and return its files. Started again after a death, it goes on there."""
    know_task(group)
    folder = Path(tempfile.gettempdir()) / f"pdocrl-{getpass.getuser()}-{session}" / group.name
    if not folder.exists():
        write_files(folder, files)
    try:
        train_group(group, folder, dataset)
        return read_files(folder)
    finally:  # not reached by a death, whose successor needs the folder
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another group of this session is still at work there
            folder.parent.rmdir()


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a training folder; none where there is no folder yet."""
    found = sorted(folder.iterdir()) if folder.exists() else []
    return {path.name: path.read_bytes() for path in found if path.is_file() and not path.name.startswith(".")}


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Each whole or not at all. The policies come last: with them a folder counts as trained."""
    for name in sorted(files, key=lambda name: name == POLICIES):
        with atomic_path(folder / name) as path:
            path.write_bytes(files[name])
