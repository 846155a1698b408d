"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pdocrl.errors import PdocrlError
from pdocrl.files import atomic_folder, atomic_path, lock_file, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_finished_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.txt"
    write_text(target, "old")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert names(target.parent) == ["result.txt"]


def test_an_interrupted_write_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    write_text(target, "old")

    def interrupted() -> None:
        with atomic_path(target) as path:
            path.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["result.txt"]


def test_the_temporary_file_keeps_the_suffix(tmp_path: Path) -> None:
    """Libraries choose a format by it: matplotlib would write a PNG into `x.svg.tmp`."""
    with atomic_path(tmp_path / "figure.svg") as path:
        assert path.suffix == ".svg"


def test_a_result_has_ordinary_permissions(tmp_path: Path) -> None:
    """mkstemp's files are private; a result shared with a group must not be."""
    old = os.umask(0o022)
    try:
        write_text(tmp_path / "result.txt", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "result.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_disk_trouble_is_one_line_that_names_the_target(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(PdocrlError, match=r"cannot write .*result\.txt: .*Nothing was written"),
        atomic_path(tmp_path / "result.txt"),
    ):
        raise OSError(number, os.strerror(number))
    assert names(tmp_path) == []


def test_trouble_with_another_file_is_not_blamed_on_the_target(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "result.txt"):
        (tmp_path / "input.txt").read_text()
    assert names(tmp_path) == []


def test_a_folder_where_a_file_is_needed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(PdocrlError, match="cannot write"):
        write_text(tmp_path / "taken", "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(PdocrlError, match="cannot write"):
        write_text(tmp_path / "file" / "below.txt", "x")


def test_json_refuses_what_other_readers_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"score": float("nan")})
    assert names(tmp_path) == []
    write_json(tmp_path / "x.json", {"score": 0.1})
    assert json.loads((tmp_path / "x.json").read_text()) == {"score": 0.1}


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails() -> None:
        with atomic_folder(tmp_path / "run") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert names(tmp_path) == []
    with atomic_folder(tmp_path / "run") as folder:
        (folder / "whole").write_text("x")
    assert names(tmp_path / "run") == ["whole"]
    with pytest.raises(PdocrlError, match="already exists"), atomic_folder(tmp_path / "run"):
        pass
    assert names(tmp_path / "run") == ["whole"]


def test_a_lock_is_held_by_one_process_until_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a") as held, path.open("a") as other:
        lock_file(held)
        with pytest.raises(BlockingIOError):
            lock_file(other)
        held.close()
        lock_file(other)
