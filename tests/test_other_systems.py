"""What macOS and Windows lack, hidden: each has a fallback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from pdocrl import files, machine, provenance


@pytest.fixture
def no_fcntl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' module for locks instead of Unix's. It locks bytes from the file's position on."""
    held: set[str] = set()

    def locking(descriptor: int, mode: int, length: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc/self/fd") else str(descriptor)
        assert (length, os.lseek(descriptor, 0, os.SEEK_CUR)) == (1, 0)
        if name in held:
            raise OSError(errno.EACCES, "Permission denied")
        held.add(name)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(LK_LOCK=1, LK_NBLCK=2, locking=locking))
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the stand-in tells files by their descriptors")
@pytest.mark.usefixtures("no_fcntl")
def test_a_file_is_locked_without_fcntl(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a") as one, (tmp_path / "lock").open("a") as other:
        one.write("x")
        one.flush()
        files.lock_file(one)
        with pytest.raises(BlockingIOError):
            files.lock_file(other)
    with (tmp_path / "another").open("a") as free:
        files.lock_file(free)


def test_cores_are_counted_where_no_process_is_bound_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert machine.cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


def test_memory_is_asked_of_windows_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(kilobytes: Any) -> int:
        kilobytes._obj.value = 2048
        return 1

    monkeypatch.delattr(os, "sysconf", raising=False)
    kernel = types.SimpleNamespace(GetPhysicallyInstalledSystemMemory=installed)
    monkeypatch.setattr(machine.ctypes, "windll", types.SimpleNamespace(kernel32=kernel), raising=False)
    assert machine.memory() == 2048 * 1024


def test_the_processor_is_named_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "Path", lambda _: tmp_path / "nothing")
    monkeypatch.setattr(provenance.platform, "processor", lambda: "an arm")
    assert provenance._processor.__wrapped__() == "an arm"


def test_a_directory_is_not_opened_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "os", types.SimpleNamespace(name="nt", open=refuse))
    files._sync_directory(tmp_path)


@pytest.mark.parametrize("arguments", [["solve", "--help"], ["nowhere→"]])
def test_a_code_page_without_arrows_prints_question_marks(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "import sys; from pdocrl.cli.main import main; sys.exit(main())", *arguments]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "cp1252"}, capture_output=True)
    assert done.returncode == (2 if arguments == ["nowhere→"] else 0), done.stderr
    assert b"Traceback" not in done.stderr
    assert b"?" in done.stdout + done.stderr


def test_nothing_imports_a_module_of_one_system_at_the_top() -> None:
    """Without fcntl, resource, termios and pwd, which Windows lacks, every command can be imported."""
    code = (
        "import sys, importlib\n"
        "for name in ('fcntl', 'resource', 'termios', 'pwd', 'grp'): sys.modules[name] = None\n"
        "from pdocrl.cli.main import COMMANDS\n"
        "for module, *_ in COMMANDS.values(): importlib.import_module(f'pdocrl.cli.{module}')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
