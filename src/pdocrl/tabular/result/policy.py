"""A solved policy one can run: plain JSON and NumPy, and nothing else of this package.

    policy = load("policy/")
    policy.act("calm 10")              # an action, drawn
    policy.probabilities("calm 10")    # {action: probability}
    policy.act({"stock": 7.5, "age": 3.0}, step=2)

This file travels with the policy as `act.py`. The JSON is one object: `actions`, and `rows` of state, (step,) action
and probability; `unseen` says what to do in a state the log never had; `cells`, if present, how columns become a state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Row = str | int | Mapping[str, Any]


class UnseenStateError(KeyError):
    """A state the log never had, and no rule for such states."""


class TabularPolicy:
    """What to do in each state, with probabilities."""

    def __init__(self, content: Mapping[str, Any], seed: int | None = None) -> None:
        self.actions: list[Any] = list(content["actions"])
        self.unseen: dict[str, Any] = dict(content["unseen"])
        self.cells: Mapping[str, Any] | None = content.get("cells")
        self.has_steps = any("step" in row for row in content["rows"][:1])
        place = {self._name(action): index for index, action in enumerate(self.actions)}
        self.table: dict[tuple[str, int], np.ndarray] = {}
        for row in content["rows"]:
            key = (self._name(row["state"]), int(row.get("step", 0)))
            chances = self.table.setdefault(key, np.zeros(len(self.actions)))
            chances[place[self._name(row["action"])]] = row["probability"]
        self.rng = np.random.default_rng(seed)

    def state(self, row: Row) -> str:
        """The state's name: as it is given, or the cell that raw columns fall into."""
        if not isinstance(row, Mapping):
            return self._name(row)
        if self.cells is None:
            return self._name(row["state"])
        return cell_of(self.cells, row)

    def chances(self, row: Row, step: int = 0) -> np.ndarray:
        """[A] the probabilities, in the order of `actions`."""
        name = self.state(row)
        found = self.table.get((name, step if self.has_steps else 0))
        return self._unseen(name, step) if found is None else found

    def probabilities(self, row: Row, step: int = 0) -> dict[Any, float]:
        """{action: probability} of the actions it may take."""
        return {a: float(p) for a, p in zip(self.actions, self.chances(row, step), strict=True) if p > 0}

    def act(self, row: Row, step: int = 0) -> Any:
        """An action, drawn with the policy's own generator."""
        chances = self.chances(row, step)
        at = int(np.searchsorted(np.cumsum(chances), self.rng.random() * chances.sum(), side="right"))
        return self.actions[min(at, int(np.flatnonzero(chances)[-1]))]

    def _unseen(self, name: str, step: int) -> np.ndarray:
        rule = self.unseen["rule"]
        if rule == "refuse":
            at = f" at step {step}" if self.has_steps else ""
            raise UnseenStateError(
                f"the log never was in state {name!r}{at}, and the policy has no rule for such states"
            )
        return np.asarray(self.unseen["chances"], np.float64)

    @staticmethod
    def _name(label: Any) -> str:
        """One name for 3, 3.0 and "3"."""
        return str(int(label)) if isinstance(label, float | np.floating) and label == int(label) else str(label)


def cell_of(cells: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The name of the cell of a row of raw columns: binned columns side by side, or the nearest centre."""
    if "centres" in cells:
        point = [
            (float(row[c]) - m) / s for c, m, s in zip(cells["columns"], cells["mean"], cells["scale"], strict=True)
        ]
        distance = ((np.asarray(cells["centres"], np.float64) - np.asarray(point)) ** 2).sum(axis=1)
        return str(int(distance.argmin()))
    names = []
    for column, edges in zip(cells["columns"], cells["edges"], strict=True):
        value = row[column]
        shown = (
            str(value) if edges is None else str(int(np.searchsorted(np.asarray(edges), float(value), side="right")))
        )
        names.append(f"{column}={shown}")
    return " ".join(names)


def load(folder: str | Path, seed: int | None = None) -> TabularPolicy:
    """The policy that `pdocrl solve --out` wrote, from its folder or its policy.json."""
    path = Path(folder)
    path = path / "policy.json" if path.is_dir() else path
    return TabularPolicy(json.loads(path.read_text(encoding="utf-8")), seed)
