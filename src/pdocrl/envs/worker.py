"""A process that plays episodes on request: what runs at the far end of `pdocrl.envs.rollout`.

It is a plain Python process, not a fork: it shares no locks with the training program, imports neither JAX nor the
caller's script, and ends by itself when the other end of its connection is gone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from pdocrl.envs.episode import Episodes, Player
from pdocrl.errors import PdocrlError

# One thread each: workers fill the cores themselves, and sums of several threads round differently.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",  # a policy of the user's own may need JAX; it must not take the training's device
}

_KEY = "PDOCRL_WORKER_KEY"  # of the connection, where it has a name


@dataclasses.dataclass(frozen=True)
class Failure:
    """An episode that raised: one line, and the traceback for who wants it."""

    message: str
    details: str

    @staticmethod
    def of(error: Exception) -> Failure:
        text = " ".join(str(error).split())
        message = text if isinstance(error, PdocrlError) else f"{type(error).__name__}: {text}".rstrip(": ")
        return Failure(message, "".join(traceback.format_exception(error)))


KEPT = 64  # policies a worker remembers; both ends forget the oldest beyond that


@dataclasses.dataclass(frozen=True)
class Request:
    """Episodes of one policy. The policy's bytes come along only when the worker has not got them yet."""

    job: int  # a new job begins with fresh copies of its policies, as they were sent
    policy: bytes  # digest of its bytes
    packed_policy: bytes | None
    seeds: tuple[int, ...]
    record: bool


class WorkerDied(Exception):
    """The process ended while it should have played; the message says how."""


class Worker:
    """The near end: starts the process, sends requests, yields episodes one by one."""

    def __init__(self, packed_env: bytes, costs: tuple[str, ...] | None) -> None:
        self._process, self._connection = _start_inherited() if os.name == "posix" else _start_named()
        self._known: dict[bytes, None] = {}
        self._send((packed_env, costs))

    @property
    def pid(self) -> int:
        return self._process.pid

    def play(self, job: int, packed_policy: bytes, seeds: Sequence[int], record: bool) -> Iterator[Episodes | Failure]:
        """An episode per seed, in order; a failure ends the sequence."""
        policy = hashlib.sha256(packed_policy).digest()
        payload = None if policy in self._known else packed_policy
        _remember(self._known, policy, None)
        self._send(Request(job, policy, payload, tuple(seeds), record))
        for _ in seeds:
            try:
                reply = pickle.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                raise self._died() from None
            yield reply
            if isinstance(reply, Failure):
                return

    def stop(self) -> None:
        """End the process now. It holds nothing worth saving."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def kill(self) -> None:
        """End the process from another thread; whoever waits for its answer sees it die."""
        self._process.kill()

    def _send(self, message: Any) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        except OSError:
            raise self._died() from None

    def _died(self) -> WorkerDied:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerDied("it closed its connection")
        return WorkerDied(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}")


def _start_inherited() -> tuple[subprocess.Popen[bytes], Connection]:
    """A process that inherits one end of a pair of sockets."""
    near, far = socket.socketpair()
    with far:
        process = _start([str(far.fileno())], pass_fds=[far.fileno()])
    return process, Connection(near.detach())


def _start_named() -> tuple[subprocess.Popen[bytes], Connection]:
    """A process that connects to a named pipe: for Windows, where no socket is inherited."""
    secret = secrets.token_bytes(32)
    with Listener(authkey=secret) as listener:
        process = _start([str(listener.address)], {_KEY: secret.hex()})
        return process, listener.accept()


def _start(arguments: list[str], more: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
    program = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); import pdocrl.envs.worker as w; w.main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([p or os.getcwd() for p in sys.path]), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=2,  # an environment's chatter must not mix with a command's answer
        env=os.environ | _ENVIRONMENT | (more or {}),
        **options,
    )


def main() -> None:
    """The far end: play what is asked for until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the caller decides
    key = os.environ.pop(_KEY, None)
    connection: Any = Connection(int(sys.argv[2])) if key is None else Client(sys.argv[2], authkey=bytes.fromhex(key))
    try:
        _serve(connection)
    except (EOFError, ConnectionError):
        return


def _serve(connection: Connection) -> None:
    packed_env, costs = pickle.loads(connection.recv_bytes())
    player: Player | None = None
    known: dict[bytes, bytes] = {}
    job, policies = -1, dict[bytes, Any]()
    while True:
        request: Request = pickle.loads(connection.recv_bytes())
        if request.packed_policy is not None:
            _remember(known, request.policy, request.packed_policy)
        if request.job != job:
            job, policies = request.job, {}
        for seed in request.seeds:
            reply: Episodes | Failure
            try:
                if request.policy not in policies:
                    policies[request.policy] = pickle.loads(known[request.policy])
                if player is None:
                    player = Player(pickle.loads(packed_env)(), costs)
                reply = player.play(policies[request.policy], seed, request.record)
            except Exception as error:
                reply = Failure.of(error)
                player = None  # whatever broke may be in any state
            connection.send_bytes(pickle.dumps(reply, protocol=pickle.HIGHEST_PROTOCOL))
            if isinstance(reply, Failure):
                break


def _remember(known: dict[bytes, Any], key: bytes, value: Any) -> None:
    """Add at the end and forget the oldest; the two ends do the same in the same order, so they know the same."""
    known.setdefault(key, value)
    while len(known) > KEPT:
        known.pop(next(iter(known)))
