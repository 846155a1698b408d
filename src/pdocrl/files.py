"""Files appear whole or not at all: write beside the target, flush to disk, then rename."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pdocrl.errors import PdocrlError

# Trouble of the place we write to. Any other error (a file read inside the block is missing) is someone else's.
PLACE_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; `what` it should be is named when it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PdocrlError(f"{path}: cannot read the {what} ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PdocrlError(f"{path}: not valid TOML: {error}.") from error


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise PdocrlError(f"{path.parent}: no {path.name} here.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise PdocrlError(f"{path}: cannot be read ({' '.join(str(error).split())}).") from error


def lock_file(file: IO[Any], wait: bool = False) -> None:
    """Lock an open file for this process until it is closed; a crash leaves no lock behind.

    Raises `BlockingIOError` where another process holds it and `wait` is false.
    """
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path with the target's suffix; on success it becomes the target, on failure it is removed.

    Disk trouble (full, read-only, no permission) is raised as a `PdocrlError` that names the target.
    """
    target = Path(target)
    temporary: Path | None = None
    with naming(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # The suffix stays last, because libraries choose a format by it; `.partial` is git-ignored and never read.
            handle, name = tempfile.mkstemp(prefix=f".{target.stem}.partial.", suffix=target.suffix, dir=target.parent)
            os.close(handle)
            temporary = Path(name)
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())  # mkstemp makes files private; a result is an ordinary file
            temporary.replace(target)
            _sync_directory(target.parent)
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside the target; on success it becomes the target, on failure it is removed.

    A folder cannot be replaced in one step, so a target that exists is refused.
    """
    target = Path(target)
    temporary: Path | None = None
    with naming(target):
        try:
            if target.exists():
                raise PdocrlError(f"{target} already exists. Remove it first, or choose another name.")
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial.", dir=target.parent))
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(target)
            _sync_directory(target.parent)
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8", newline="\n")  # the same bytes, and digest, on every system


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write JSON whole or not at all; NaN and infinity are refused, since other readers would refuse them."""
    write_text(target, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(target: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with the columns of the first."""
    with atomic_path(target) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows as `write_csv` wrote them, with numbers as numbers."""

    def value(text: str) -> Any:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        return text

    with path.open(newline="", encoding="utf-8") as file:
        rows = [{key: value(text) for key, text in row.items()} for row in csv.DictReader(file)]
    if not rows:
        raise PdocrlError(f"{path}: holds no rows. Remove it; the command that wrote it measures again.")
    return rows


@contextlib.contextmanager
def naming(target: Path) -> Iterator[None]:
    """Disk trouble of the place we write to as a `PdocrlError` that names the target; any other error passes on."""
    try:
        yield
    except OSError as error:
        if error.errno not in PLACE_ERRORS:
            raise
        reason = os.strerror(error.errno)
        raise PdocrlError(f"cannot write {target}: {reason}. Nothing was written; choose another place.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_directory(folder: Path) -> None:
    if os.name == "nt":  # there a directory cannot be opened; its file system journals the rename
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
