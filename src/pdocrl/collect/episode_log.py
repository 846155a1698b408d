"""Every episode, written down the moment it ends: an append-only file that survives a kill at any byte.

A record is a safetensors block behind its length and checksum. A record cut short by a kill is recognised and
overwritten, so that what is lost is the episode being played and nothing else. It lies in a collection's folder:

    settings.json          what the episodes depend on
    episodes.log           every episode so far
    expert.safetensors     the expert in training, as of the last whole batch
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from pdocrl.collect.settings import Settings, versions
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError, by_door
from pdocrl.files import lock_file, write_json

_HEAD = struct.Struct("<4sQI")  # mark, length, crc32 of what follows
_MARK = b"pdE1"
_METADATA_LENGTH = struct.Struct("<Q")
Place = tuple[int, int, int]  # (expert, batch, episode of the batch)


@dataclasses.dataclass(frozen=True)
class Episode:
    """One recorded episode."""

    place: Place
    seed: int
    terminated: bool  # the world stopped, not the clock
    obs: NDArray[np.float32]  # [T + 1, S]
    action: NDArray[np.float32]  # [T, A] as carried out; of discrete actions, [T]
    reward: NDArray[np.float32]  # [T]
    cost: NDArray[np.float32]  # [T, K]

    def __len__(self) -> int:
        return len(self.reward)


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the index keeps of an episode."""

    place: Place
    offset: int  # of its record in the file
    reward: float
    cost: tuple[float, ...]
    length: int


class EpisodeLog:
    """The file and its index. Opening it reads every record once and drops a torn one at the end.

    Only one process may have it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[Place, Entry] = {}
        self._file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
        try:
            lock_file(self._file)
        except OSError as error:
            self._file.close()
            raise PdocrlError(
                f"{path}: another collection is writing it. Wait for it, or choose another "
                f"{by_door('store=…', '--store')}."
            ) from error
        end = 0
        while (read := self._read(end)) is not None:
            episode, after = read
            self._note(episode, end)
            end = after
        self._refuse_damage(end)
        self._file.truncate(end)

    def append(self, episode: Episode) -> None:
        """Hand the episode to the operating system: from here on, ending this process does not lose it."""
        offset = self._file.seek(0, os.SEEK_END)
        arrays = {name: getattr(episode, name) for name in ("obs", "action", "reward", "cost")}
        metadata = {"place": episode.place, "seed": episode.seed, "terminated": episode.terminated}
        columns = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        payload = pack(columns, {"metadata": json.dumps(metadata)})
        try:
            self._file.write(_HEAD.pack(_MARK, len(payload), zlib.crc32(payload)) + payload)
            self._file.flush()
        except OSError as error:
            raise PdocrlError(f"cannot write {self.path}: {error.strerror}. Make room, then resume.") from error
        self._note(episode, offset)

    def sync(self) -> None:
        """Put everything on the disk: from here on, not even a power cut loses it."""
        os.fsync(self._file.fileno())

    def read(self, entry: Entry) -> Episode:
        """The episode behind an entry."""
        found = self._read(entry.offset)
        if found is None:
            raise PdocrlError(f"{self.path}: the record at byte {entry.offset} has changed since it was written.")
        return found[0]

    def ordered(self) -> list[Entry]:
        """Entries in the order of their places, whatever order the episodes ended in."""
        return [self.entries[place] for place in sorted(self.entries)]

    def dataset(
        self, entries: Sequence[Entry], name: str, cost_names: tuple[str, ...], discrete_actions: tuple[int, ...] = ()
    ) -> Dataset:
        """The transitions of the chosen episodes, one episode after another."""
        episodes = [self.read(entry) for entry in entries]
        last = np.cumsum([len(episode) for episode in episodes]) - 1
        terminal, timeout = np.zeros((2, last[-1] + 1), dtype=bool)
        terminated = np.array([episode.terminated for episode in episodes])
        terminal[last], timeout[last] = terminated, ~terminated
        return make_dataset(
            obs=np.concatenate([episode.obs[:-1] for episode in episodes]),
            action=np.concatenate([episode.action for episode in episodes]),
            reward=np.concatenate([episode.reward for episode in episodes]),
            cost=np.concatenate([episode.cost for episode in episodes]),
            next_obs=np.concatenate([episode.obs[1:] for episode in episodes]),
            terminal=terminal,
            timeout=timeout,
            name=name,
            cost_names=cost_names,
            discrete_actions=discrete_actions,
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, episode: Episode, offset: int) -> None:
        cost = tuple(episode.cost.sum(axis=0, dtype=np.float64).tolist())
        reward = float(episode.reward.sum(dtype=np.float64))
        self.entries[episode.place] = Entry(episode.place, offset, reward, cost, len(episode))

    def _refuse_damage(self, end: int) -> None:
        """What follows the last whole record must be a record cut short, or the zeros a power cut leaves."""
        self._file.seek(end)
        rest = self._file.read(_HEAD.size)
        left = os.fstat(self._file.fileno()).st_size - end
        if len(rest) < _HEAD.size or not any(rest):
            return
        mark, length, _ = _HEAD.unpack(rest)
        if mark != _MARK or _HEAD.size + length < left:
            raise PdocrlError(f"{self.path}: damaged at byte {end}. Remove the file to collect anew.")

    def _read(self, offset: int) -> tuple[Episode, int] | None:
        """The record at this byte and where it ends; None where there is no whole one."""
        self._file.seek(offset)
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        mark, length, checksum = _HEAD.unpack(head)
        payload = self._file.read(length) if mark == _MARK else b""
        if not payload or len(payload) < length or zlib.crc32(payload) != checksum:
            return None
        (header,) = _METADATA_LENGTH.unpack_from(payload)
        texts = json.loads(payload[8 : 8 + header])["__metadata__"]
        metadata = json.loads(texts.get("metadata") or texts["story"])  # its name in logs of 0.2
        expert, batch, number = metadata["place"]
        episode = Episode((expert, batch, number), metadata["seed"], metadata["terminated"], **unpack(payload))
        return episode, offset + _HEAD.size + length


class Store:
    """An open collection. A folder that exists is taken up again if it was begun with the same settings."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.checkpoint = folder / "expert.safetensors"
        described = folder / "settings.json"
        wanted = {**settings.as_json(), "versions": versions()}
        if described.exists():
            _refuse_other_settings(described, wanted)
        else:
            write_json(described, wanted)
        self.description: dict[str, Any] = wanted
        before = folder / "episodes.journal"  # its name in folders of 0.2
        self.log = EpisodeLog(before if before.exists() else folder / "episodes.log")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()


def steps_begun_with(folder: Path) -> int | None:
    """The steps of the collection in this folder; None where there is none."""
    described = folder / "settings.json"
    steps = _read(described).get("steps") if described.exists() else None
    return steps if isinstance(steps, int) else None


def _refuse_other_settings(described: Path, wanted: dict[str, Any]) -> None:
    found = _read(described)
    for key in sorted(wanted.keys() | found.keys()):
        if found.get(key) != wanted.get(key):
            raise PdocrlError(
                f"{described.parent} holds a collection with other settings: `{key}` is {json.dumps(found.get(key))} "
                f"there and {json.dumps(wanted.get(key))} now. Use the same, or choose another "
                f"{by_door('store=…', '--store')}."
            )


def _read(described: Path) -> dict[str, Any]:
    try:
        found = json.loads(described.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PdocrlError(f"{described}: not a collection's settings ({error}).") from error
    if not isinstance(found, dict):
        raise PdocrlError(f"{described}: not a collection's settings.")
    return found
