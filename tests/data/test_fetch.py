"""Downloads from a server that misbehaves: the right file whole, or one line and no file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdocrl.cli.main import main
from pdocrl.data import fetch as fetch_module
from pdocrl.data import load, make_dataset, save
from pdocrl.data.fetch import CHECKSUMS, fetch
from pdocrl.errors import DataError, PdocrlError

NAME = "SafetyBallRun-v0-80-940.hdf5"


def write_data(path: Path, seed: int = 0, steps: int = 100, action_dim: int = 2, reward: float = 2.0) -> bytes:
    """A sound file of BallRun's shape: 20 episodes."""
    rng = np.random.default_rng(seed)
    n = 20 * steps
    ends = np.arange(1, n + 1) % steps == 0
    states = rng.normal(size=(n + 1, 7))
    save(
        make_dataset(
            obs=states[:-1],
            action=rng.uniform(-1, 1, (n, action_dim)),
            reward=rng.uniform(0, reward, n),
            cost=rng.integers(0, 2, n),
            next_obs=states[1:],
            terminal=np.zeros(n),
            timeout=ends,
        ),
        path,
    )
    return path.read_bytes()


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` under any path; each request first takes the next of `tricks`."""

    daemon_threads = True
    content = b""
    tag: str | None = '"v1"'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tricks: list[str] = []
        self.requests: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args) -> None: ...

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers) | {"path": self.path})
        content, trick = self.server.content, self.server.tricks.pop(0) if self.server.tricks else "honest"
        if trick.isdigit():
            self.send_response(int(trick))
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if trick == "hang up":
            self.connection.close()
            return
        if trick.startswith("redirect"):
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("X-Linked-Etag", f'"{trick.removeprefix("redirect ")}"')
            self.end_headers()
            return
        if trick == "page":
            content = b"<html>please log in</html>"
        start = self.wanted_start(trick)
        if start is not None and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        body = content[start or 0 :]
        announced = len(body) + {"announces more": 999, "announces less": -999}.get(trick, 0)
        self.send_response(200 if start is None else 206)
        if start is not None:
            shifted = start + 7 if trick == "another range" else start
            self.send_header("Content-Range", f"bytes {shifted}-{len(content) - 1}/{len(content)}")
        if self.server.tag:
            self.send_header("ETag", self.server.tag)
        if trick != "no length":
            self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if trick in {"drop", "stall"} else body)
        if trick == "stall":
            self.wfile.flush()
            time.sleep(1.0)

    def wanted_start(self, trick: str) -> int | None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        other_version = self.headers.get("If-Range", self.server.tag) != self.server.tag
        return None if asked is None or trick == "ignores range" or other_version else int(asked[1])


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path / "data"))
    server = Server()
    server.content = write_data(tmp_path / "source.hdf5")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def get(server: Server, **options):
    return fetch("BallRun", url=server.url, **{"pause": 0.0, "timeout": 0.3} | options)


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_fetched_found_by_task_and_remembered(server, tmp_path):
    shown = []
    fetched = get(server, progress=lambda done, total: shown.append((done, total)))
    assert fetched.path.read_bytes() == server.content
    assert fetched.sha256 == hashlib.sha256(server.content).hexdigest()
    assert shown[-1] == (len(server.content), len(server.content))
    assert left_over(tmp_path / "data") == {NAME, CHECKSUMS}
    assert load("BallRun").n_episodes == 20
    again = get(server)
    assert again.source is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("trick", ["drop", "502", "503", "429", "hang up", "stall", "announces more"])
def test_a_passing_failure_is_tried_again(server, trick: str):
    server.tricks = [trick]
    assert get(server).path.read_bytes() == server.content
    assert len(server.requests) == 2


def test_a_dropped_download_goes_on_where_it_stopped_also_in_a_later_call(server, tmp_path):
    server.tricks = ["drop", "404"]
    with pytest.raises(PdocrlError, match="HTTP 404"):
        get(server)
    partial = tmp_path / "data" / f".{NAME.removesuffix('.hdf5')}.partial.hdf5"
    half = partial.stat().st_size
    assert 0 < half < len(server.content)
    assert get(server).path.read_bytes() == server.content
    assert server.requests[-1]["Range"] == f"bytes={half}-"


def test_a_download_that_only_lacked_its_last_step_is_finished_without_a_byte(server, tmp_path):
    server.tricks = ["announces more", "404"]  # everything came, and more was promised
    with pytest.raises(PdocrlError):
        get(server)
    assert get(server).path.read_bytes() == server.content


@pytest.mark.parametrize("tag", ['W/"weak"', None])
def test_halves_of_files_of_different_length_are_never_joined(server, tmp_path, tag: str | None):
    server.tag, server.tricks = tag, ["drop", "404"]
    with pytest.raises(PdocrlError):
        get(server)
    server.content = write_data(tmp_path / "newer.hdf5", seed=1, steps=90)
    assert get(server).path.read_bytes() == server.content


def test_halves_of_versions_of_one_length_are_never_joined(server, tmp_path):
    """Without compression two versions are equally long, and their halves would make a file that reads well."""
    old, new = (plain_copy(write_data(tmp_path / "a.hdf5", seed), tmp_path / "b.hdf5") for seed in (0, 1))
    assert len(old) == len(new)
    server.content, server.tricks = old, ["drop", "404"]
    with pytest.raises(PdocrlError):
        get(server)
    server.content, server.tag = new, '"v2"'
    assert get(server).path.read_bytes() == new


def plain_copy(content: bytes, path: Path) -> bytes:
    with h5py.File(io.BytesIO(content)) as source, h5py.File(path, "w") as target:
        for key in source:
            target[key] = source[key][:]
    return path.read_bytes()


def test_a_server_that_ignores_ranges_sends_it_all_again(server):
    server.tricks = ["drop", "ignores range"]
    assert get(server).path.read_bytes() == server.content


def test_without_a_length_the_file_still_arrives(server):
    server.tricks = ["no length"]
    assert get(server).path.read_bytes() == server.content


@pytest.mark.parametrize(
    ("tricks", "complaint"),
    [
        (["502"] * 9, r"127\.0\.0\.1:\d+: HTTP 502 Bad Gateway, 4 times"),
        (["404"], "HTTP 404 Not Found"),
        (["hang up"] * 9, "4 times"),
        (["stall"] * 9, r"broke off after [\d,]+ bytes \(timed out\), 4 times"),
        (["announces less"], "sent something else: .*damaged|truncated|cannot be read"),
        (["page"], "sent something else: .*signature not found"),
        (["drop", "another range"], "another range than asked for"),
        (["redirect " + "0" * 64], r"sha256 \w{12}… is not the announced 000000000000…"),
    ],
)
def test_a_server_that_never_delivers_leaves_one_line_and_no_file(server, tmp_path, capsys, tricks, complaint: str):
    server.tricks = tricks
    with pytest.raises(PdocrlError) as caught:
        get(server)
    assert re.search(complaint, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert "partial" not in str(caught.value)
    assert NAME not in left_over(tmp_path / "data")


def test_the_digest_announced_by_the_host_is_accepted_when_it_fits(server):
    server.tricks = ["redirect " + hashlib.sha256(server.content).hexdigest()]
    assert get(server).path.read_bytes() == server.content


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"steps": 200}, "an episode has 200 steps, task BallRun has at most 100"),
        ({"action_dim": 3}, "`actions` has 3 columns, task BallRun has 2"),
        ({"reward": 40.0}, "episode rewards .* are not those of BallRun"),
    ],
)
def test_another_tasks_file_is_refused(server, tmp_path, content, complaint: str):
    """CarRun has BallRun's dimensions: only episode lengths and rewards tell them apart."""
    server.content = write_data(tmp_path / "other.hdf5", **content)
    with pytest.raises(PdocrlError, match=complaint):
        get(server)
    assert left_over(tmp_path / "data") == set()


def test_the_next_mirror_is_asked_when_one_is_down(server, monkeypatch):
    monkeypatch.setattr(fetch_module, "MIRRORS", ("http://127.0.0.1:9", f"{server.url}/a", f"{server.url}/b"))
    server.tricks = ["page"]
    fetched = fetch("BallRun", pause=0.0, tries=1)
    assert fetched.source == f"{server.url}/b/{NAME}"
    assert fetched.path.read_bytes() == server.content


def test_all_mirrors_are_named_when_none_delivers(server, monkeypatch, tmp_path):
    monkeypatch.setattr(fetch_module, "MIRRORS", ("http://127.0.0.1:9", server.url))
    server.tricks = ["410"]
    with pytest.raises(PdocrlError, match=r"127\.0\.0\.1:9: .*refused; 127\.0\.0\.1:\d+: HTTP 410 Gone.*url=…"):
        fetch("BallRun", pause=0.0, tries=1)
    assert left_over(tmp_path / "data") == set()


def test_a_changed_file_is_noticed_here_and_on_the_server(server, tmp_path):
    path = get(server).path
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"\0\1\2")
    with pytest.raises(DataError, match="has changed since it was first used"):
        get(server)
    path.unlink()
    server.content = write_data(tmp_path / "newer.hdf5", seed=1)
    with pytest.raises(PdocrlError, match=r"is not the remembered .*remove its entry from"):
        get(server)
    (tmp_path / "data" / CHECKSUMS).write_text("{")
    with pytest.raises(DataError, match="cannot be read as remembered checksums"):
        get(server)


def test_a_file_put_there_by_hand_is_checked_and_remembered(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / NAME).write_bytes(server.content)
    assert get(server, offline=True).source is None
    assert NAME in json.loads((tmp_path / "data" / CHECKSUMS).read_text())
    (tmp_path / "data" / CHECKSUMS).unlink()
    (tmp_path / "data" / NAME).write_bytes(b"not HDF5")
    with pytest.raises(DataError, match="signature not found"):
        get(server)


def test_offline_nothing_is_asked_for(server):
    with pytest.raises(PdocrlError, match="offline nothing is fetched"):
        get(server, offline=True)
    assert server.requests == []


@pytest.mark.skipif(os.name != "posix", reason="limits on file sizes are Unix's")
def test_a_full_disk_is_named_and_leaves_no_file(server, tmp_path):
    """A limit on file sizes stands in for the full disk: writing fails half-way, as it would there."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from pdocrl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "data", "fetch", "BallRun", "--url", server.url]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert run.returncode == 2
    assert re.fullmatch(r"error: cannot write .*File too large\. Free some space, .*\n", run.stderr)
    assert NAME not in left_over(tmp_path / "data")


def test_two_processes_do_not_fetch_the_same_file_at_once(server, tmp_path):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / f".{NAME.removesuffix('.hdf5')}.partial.hdf5").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(PdocrlError, match="another process is fetching this file"):
            get(server)
    assert get(server).bytes == len(server.content)


def test_the_command_prints_one_object_or_one_line(server, capsys):
    assert main(["data", "fetch", "ballrun", "--url", server.url, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["task"], answer["bytes"], answer["downloaded"]) == ("BallRun", len(server.content), True)
    assert main(["data", "fetch", "BallRun", "--offline"]) == 0
    capsys.readouterr()
    assert main(["data", "fetch", "CarRun", "--offline"]) == 2
    assert main(["data", "fetch", "CarRum"]) == 2
    assert main(["data", "fetch", "CarRun", "--url", "ftp://x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "offline" in lines[0]
    assert "Did you mean `CarRun`" in lines[1]
    assert "http" in lines[2]


def test_a_place_that_cannot_be_written_is_named(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(PdocrlError, match=r"cannot write to .*Not a directory"):
        get(server)


TRICKS = ["drop", "502", "404", "hang up", "announces more", "announces less", "ignores range", "another range", "page"]


@given(st.lists(st.lists(st.sampled_from([*TRICKS, "no length", "honest"]), max_size=5), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_server_does_the_file_is_right_or_absent(server, tmp_path, calls: list[list[str]]):
    folder = tmp_path / str(time.monotonic_ns())
    for tricks in [*calls, []]:
        server.tricks = list(tricks)
        with contextlib.suppress(PdocrlError):
            get(server, folder=folder, tries=2)
        assert not (folder / NAME).exists() or (folder / NAME).read_bytes() == server.content
    assert left_over(folder) == {NAME, CHECKSUMS}  # in the end the server was honest
