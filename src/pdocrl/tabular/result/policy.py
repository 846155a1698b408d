"""A solved policy one can run: plain JSON and NumPy, and nothing else of this package.

    policy = load("policy/")
    policy.act("calm 10")              # an action, drawn
    policy.probabilities("calm 10")    # {action: probability}
    policy.act({"stock": 7.5, "age": 3.0}, step=2)

Columns go by the log's names. A value that is missing, NaN or no number, a category the log never had, a column that is
missing or that the policy does not know: each is refused by name (`InputError`), never taken for a state.

This file travels with the policy as `act.py`. The JSON is one object: `actions`, and `rows` of state, (step,) action
and probability; `unseen` says what to do in a state the log never had; `columns`, what the log calls the state and the
action; `cells`, if present, how columns become a state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Row = str | int | Mapping[str, Any]  # a state, or columns by name


class UnseenStateError(KeyError):
    """A state the log never had, and no rule for such states."""


class InputError(ValueError):
    """What a policy was asked about cannot be a row of the log it was learned from."""


class TabularPolicy:
    """What to do in each state, with probabilities."""

    def __init__(self, content: Mapping[str, Any], seed: int | None = None) -> None:
        self.actions: list[Any] = list(content["actions"])
        self.unseen: dict[str, Any] = dict(content["unseen"])
        self.cells: Mapping[str, Any] | None = content.get("cells")
        self.state_column = str(content.get("columns", {}).get("state", "state"))
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
        if isinstance(row, Mapping):
            if self.cells is not None:
                return cell_of(self.cells, row)
            column = "state" if "state" in row else self.state_column
            _check_columns([column], row)
            row = row[column]
        if isinstance(row, list | tuple | np.ndarray):
            wanted = self.cells["columns"] if self.cells is not None else [self.state_column]
            named = ", ".join(f"{str(column)!r}: …" for column in wanted)
            raise InputError(f"numbers without names cannot be told apart: give the columns by name, {{{named}}}.")
        if row is None or (isinstance(row, float | np.floating) and not np.isfinite(row)):
            raise InputError(f"column `{self.state_column}` is {row}: the state is not known.")
        return self._name(row)

    def chances(self, row: Row, step: int = 0) -> np.ndarray:
        """[A] the probabilities, in the order of `actions`."""
        name = self.state(row)
        found = self.table.get((name, step if self.has_steps else 0))
        return self._unseen(name, step) if found is None else found

    def probabilities(self, row: Row, step: int = 0) -> dict[Any, float]:
        """{action: probability} of the actions it may take."""
        return {a: float(p) for a, p in zip(self.actions, self.chances(row, step), strict=True) if p > 0}

    def act(self, row: Row, step: int = 0, deterministic: bool = False) -> Any:
        """An action, drawn with the policy's own generator, or the likeliest; a list for a DataFrame or a list."""
        many = self._many(row)
        if many is not None:
            return [self.act(one, step, deterministic) for one in many]
        chances = self.chances(row, step)
        return self.actions[int(chances.argmax())] if deterministic else self._draw(chances, self.rng)

    def sample(self, row: Row, rng: Any = None, step: int = 0) -> Any:
        """An action drawn with a NumPy generator or a seed; of a DataFrame or list a list."""
        draw, many = np.random.default_rng(rng), self._many(row)
        if many is not None:
            return [self._draw(self.chances(one, step), draw) for one in many]
        return self._draw(self.chances(row, step), draw)

    def log_prob(self, row: Row, action: Any, step: int = 0) -> Any:
        """log π(a|s), −∞ for actions it does not take; [B] of a DataFrame or list and B actions."""
        many = self._many(row)
        if many is not None:
            return np.array([self.log_prob(one, a, step) for one, a in zip(many, action, strict=True)])
        known = [self._name(one) for one in self.actions]
        if self._name(action) not in known:
            raise InputError(f"action {action!r} is none of the policy's: {', '.join(known[:10])}.")
        chance = self.chances(row, step)[known.index(self._name(action))]
        return float(np.log(chance)) if chance > 0 else -np.inf

    def _many(self, rows: Any) -> list[Any] | None:
        """The rows of a DataFrame, of a list of dicts, or of a list of states; None for a single row."""
        if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
            return list(rows.to_dict("records"))
        kinds = (Mapping,) if self.cells is not None else (Mapping, str, int, np.integer)
        return rows if isinstance(rows, list) and rows and all(isinstance(one, kinds) for one in rows) else None

    def _draw(self, chances: np.ndarray, rng: Any) -> Any:
        at = int(np.searchsorted(np.cumsum(chances), rng.random() * chances.sum(), side="right"))
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
    _check_columns(cells["columns"], row)
    if "centres" in cells:
        point = [
            (_number(c, row[c]) - m) / s
            for c, m, s in zip(cells["columns"], cells["mean"], cells["scale"], strict=True)
        ]
        distance = ((np.asarray(cells["centres"], np.float64) - np.asarray(point)) ** 2).sum(axis=1)
        return str(int(distance.argmin()))
    names = []
    for column, edges in zip(cells["columns"], cells["edges"], strict=True):
        if edges is None:
            shown = _category(column, row[column], cells.get("categories", {}).get(column))
        else:
            shown = str(int(np.searchsorted(np.asarray(edges), _number(column, row[column]), side="right")))
        names.append(f"{column}={shown}")
    return " ".join(names)


def _check_columns(wanted: list[str], row: Mapping[str, Any]) -> None:
    missing = [column for column in wanted if column not in row]
    if missing:
        raise InputError(f"column `{missing[0]}` is missing; the policy needs {', '.join(wanted)}.")
    extra = [str(column) for column in row if column not in wanted]
    if extra:
        raise InputError(f"column `{extra[0]}` is not one the policy knows; it needs {', '.join(wanted)} alone.")


def _number(column: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"column `{column}` is {value!r}, not a number.") from None
    if not np.isfinite(number):
        raise InputError(f"column `{column}` is {number}: the value is missing or not finite.")
    return number


def _category(column: str, value: Any, known: list[str] | None) -> str:
    """The category's name as the log has it: 3, 3.0 and "3" are one."""
    if value is None or (isinstance(value, float | np.floating) and not np.isfinite(value)):
        raise InputError(f"column `{column}` is {value}: the category is missing.")
    shown = str(value)
    if known is not None and shown not in known:
        shown = str(int(value)) if isinstance(value, float | np.floating) and value == int(value) else shown
        if shown not in known:
            some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
            raise InputError(f"column `{column}` is {value!r}, which the log never had; it has {some}.")
    return shown


def load(folder: str | Path, seed: int | None = None) -> TabularPolicy:
    """The policy that `pdocrl solve --out` wrote, from its folder or its policy.json."""
    path = Path(folder)
    path = path / "policy.json" if path.is_dir() else path
    return TabularPolicy(json.loads(path.read_text(encoding="utf-8")), seed)
