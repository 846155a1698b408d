"""A collection's folder: its settings, its episodes, and where its training stands.

settings.json          what the episodes depend on
episodes.journal       every episode so far
expert.safetensors     the expert in training, as of the last whole batch
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError
from pdocrl.experts.journal import Journal
from pdocrl.experts.settings import Settings, versions
from pdocrl.files import write_json


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
        self.journal = Journal(folder / "episodes.journal")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()


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
                f"there and {json.dumps(wanted.get(key))} now. Use the same, or choose another --store."
            )


def _read(described: Path) -> dict[str, Any]:
    try:
        found = json.loads(described.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PdocrlError(f"{described}: not a collection's settings ({error}).") from error
    if not isinstance(found, dict):
        raise PdocrlError(f"{described}: not a collection's settings.")
    return found
