"""The public DSRL files, fetched once: mirrors tried in order, the result checked, its digest remembered.

The first time a file is seen its sha256 is written to `checksums.json` beside it; from then on it must match, also when
it is fetched again. Files go to `PDOCRL_DATA`, or to the user's cache folder, where `load` finds them by task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdocrl.data.download import MirrorError, Progress, discard, download, host_of
from pdocrl.data.load import cache_folder, load
from pdocrl.data.tasks import BUILT_IN, Task, find_task
from pdocrl.errors import DataError, PdocrlError, by_door
from pdocrl.files import lock_file, write_json

MIRRORS = (
    "https://huggingface.co/datasets/YYY-45/DSRL/resolve/main",
    "http://data.offline-saferl.org/download",  # where DSRL's own code looks; often down
)
CHECKSUMS = "checksums.json"
_SLACK = 0.1  # of the reference scores' range: how far data of the right task may lie outside


@dataclasses.dataclass(frozen=True)
class Fetched:
    """A file that is there and is what it should be."""

    task: str
    path: Path
    bytes: int
    sha256: str
    source: str | None  # where it was downloaded from; None: it was there already


def fetch(
    task: str | Task,
    url: str | None = None,
    offline: bool = False,
    folder: Path | None = None,
    tries: int = 4,
    pause: float = 1.0,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> Fetched:
    """Make sure a task's public file is here and sound; download it if need be.

    Args:
        task: its first known file is the one meant.
        url: a mirror of your own instead of the known ones: a folder's address, or the file's.
        offline: never download; only check what is here.
        folder: where to keep it; by default `PDOCRL_DATA`, else the user's cache folder.
        tries, pause, timeout, progress: see `download`.
    """
    found = find_task(task) if isinstance(task, str) else task
    if not found.files:
        raise PdocrlError(f"task {found.name} has no known file to fetch.")
    name = Path(found.files[0]).name
    place = folder or (Path(own) if (own := os.environ.get("PDOCRL_DATA")) else cache_folder())
    target = place / name
    remembered = _remembered(place).get(name, {}).get("sha256")
    if target.exists():
        return _verified(found, target, remembered)
    if offline:
        raise PdocrlError(f"{target} is not there, and offline nothing is fetched. Copy it there, or go online.")
    partial = place / f".{target.stem}.partial{target.suffix}"
    with _locked(partial):
        if target.exists():  # another process was faster
            return _verified(found, target, _remembered(place).get(name, {}).get("sha256"))
        complaints = []
        for address in _addresses(name, url):
            try:
                announced = download(address, partial, tries, pause, timeout, progress)
                _check(found, partial, announced, remembered)
                break
            except MirrorError as error:
                complaints.append(f"{host_of(address)}: {error}")
            except DataError as error:
                discard(partial)
                complaints.append(f"{host_of(address)} sent something else: {error}".rstrip("."))
        else:
            more = f"Try later, or give a mirror ({by_door('url=…', '--url')})."
            raise PdocrlError(f"cannot fetch {name}: {'; '.join(complaints)}. {more}")
        digest = _sha256(partial)
        _remember(target, digest, partial.stat().st_size, address)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
        discard(partial)
    return Fetched(found.name, target, target.stat().st_size, digest, address)


def _addresses(name: str, url: str | None) -> list[str]:
    if url is None:
        return [f"{mirror}/{name}" for mirror in MIRRORS]
    if not url.startswith(("http://", "https://")):
        raise PdocrlError(f"{by_door('url', '--url')} {url}: expected an address that begins with http:// or https://.")
    return [url if url.endswith((".hdf5", ".h5")) else f"{url.rstrip('/')}/{name}"]


def _check(task: Task, partial: Path, announced: str | None, remembered: str | None) -> None:
    """Is this the file: announced digest, remembered digest, readable, and data of this task?"""
    name = Path(task.files[0]).name
    digest = _sha256(partial)
    if announced is not None and digest != announced:
        raise DataError(f"sha256 {digest[:12]}… is not the announced {announced[:12]}…")
    if remembered is not None and digest != remembered:
        raise DataError(
            f"sha256 {digest[:12]}… is not the remembered {remembered[:12]}…; "
            f"if it was replaced on purpose, remove its entry from {partial.parent / CHECKSUMS}"
        )
    try:
        _check_data(task, partial)
    except DataError as error:
        raise DataError(str(error).removeprefix(f"{partial.name}: ").replace(str(partial), name)) from error


def _check_data(task: Task, path: Path) -> None:
    """Every value is read. Some tasks share dimensions, so horizon and reference scores are held against it too."""
    data = load(path, task)
    if (longest := int(data.episode_length.max())) > task.horizon:
        raise DataError(f"an episode has {longest} steps, task {task.name} has at most {task.horizon}")
    if task in BUILT_IN:
        low, high = data.reward_return.min(), data.reward_return.max()
        slack = _SLACK * (task.reward_max - task.reward_min)
        if low < task.reward_min - slack or high > task.reward_max + slack:
            known = f"{task.reward_min:.4g} … {task.reward_max:.4g}"
            raise DataError(f"episode rewards {low:.4g} … {high:.4g} are not those of {task.name} ({known})")


def _verified(task: Task, target: Path, remembered: str | None) -> Fetched:
    """A file that is already here: it must match its remembered digest, or be sound if it has none yet."""
    digest, size = _sha256(target), target.stat().st_size
    if remembered is None:
        _check_data(task, target)
        _remember(target, digest, size, None)
    elif digest != remembered:
        raise DataError(
            f"{target} has changed since it was first used: sha256 {digest[:12]}…, remembered {remembered[:12]}…. "
            "Delete it and fetch it again."
        )
    return Fetched(task.name, target, size, digest, None)


def _remembered(folder: Path) -> dict[str, Any]:
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known, dict) and all(isinstance(entry, dict) for entry in known.values()):
            return known
    except (OSError, ValueError):
        pass
    raise DataError(f"{path} cannot be read as remembered checksums. Repair it, or delete it to begin anew.")


def _remember(target: Path, digest: str, size: int, source: str | None) -> None:
    entry = {"sha256": digest, "bytes": size, "source": source}
    name = hashlib.sha256(str(target.parent.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"pdocrl-{name}.lock").open("a") as file:
        lock_file(file, wait=True)  # other files may be fetched at the same time
        write_json(target.parent / CHECKSUMS, _remembered(target.parent) | {target.name: entry})


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


@contextlib.contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """One download of a file at a time. The lock is the process's: a crash leaves none behind."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        file = partial.open("ab")
    except OSError as error:
        reason = f"{error.strerror}. Set PDOCRL_DATA to a folder of yours."
        raise PdocrlError(f"cannot write to {partial.parent}: {reason}") from error
    with file:
        try:
            lock_file(file)
        except BlockingIOError:
            raise PdocrlError(f"{partial.parent}: another process is fetching this file. Wait for it.") from None
        try:
            yield
        finally:
            if partial.exists() and partial.stat().st_size == 0:
                discard(partial)
