"""A policy that remembers what was spent: plain JSON and NumPy, and nothing else of this package.

    policy = load("policy/")
    spent = 0.0                                     # {"cost": 0.0, …} where several columns are remembered
    for step in range(horizon):
        action = policy.act(state, spent, step)
        spent += cost                               # of what was done

This file travels with the policy as `act.py`. The JSON is one object: `actions`; `columns` of name, unit and cap;
`rows` of state, step, spent (in units, one per column; above the cap is one level), action and probability; `unseen`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Spent = float | Mapping[str, float]


class TailPolicy:
    """What to do in each state, at each step, after each spending, with probabilities."""

    def __init__(self, content: Mapping[str, Any], seed: int | None = None) -> None:
        self.actions: list[Any] = list(content["actions"])
        self.columns: list[Mapping[str, Any]] = list(content["columns"])
        self.unseen = np.asarray(content["unseen"]["chances"], np.float64)
        place = {str(action): index for index, action in enumerate(self.actions)}
        self.table: dict[tuple[str, int], dict[tuple[int, ...], np.ndarray]] = {}
        for row in content["rows"]:
            known = self.table.setdefault((str(row["state"]), int(row["step"])), {})
            chances = known.setdefault(tuple(row["spent"]), np.zeros(len(self.actions)))
            chances[place[str(row["action"])]] = row["probability"]
        self.rng = np.random.default_rng(seed)

    def level(self, spent: Spent) -> tuple[int, ...]:
        """The spending in units, rounded up; above the cap is one level."""
        given = spent if isinstance(spent, Mapping) else {column["name"]: spent for column in self.columns}
        if not isinstance(spent, Mapping) and len(self.columns) > 1:
            raise ValueError(f"spent: give one number for each of {', '.join(c['name'] for c in self.columns)}")
        found = []
        for column in self.columns:
            if column["name"] not in given:
                raise ValueError(f"spent: nothing for `{column['name']}`")
            value = float(given[column["name"]])
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"spent: {value} of `{column['name']}`; it must be a number of at least 0")
            found.append(min(math.ceil(value / column["unit"] - 1e-9), column["cap"] + 1))
        return tuple(found)

    def chances(self, state: Any, spent: Spent = 0.0, step: int = 0) -> np.ndarray:
        """[A] the probabilities, in the order of `actions`.

        A spending the log's model never has there is taken as the next larger one that it has, else the largest; a
        state it never has at that step plays the rule for unseen states.
        """
        known = self.table.get((str(state), step))
        if not known:
            return self.unseen
        level = self.level(spent)
        found = known.get(level)
        if found is not None:
            return found
        above = [key for key in known if all(a >= b for a, b in zip(key, level, strict=True))]
        return known[min(above) if above else max(known)]

    def probabilities(self, state: Any, spent: Spent = 0.0, step: int = 0) -> dict[Any, float]:
        """{action: probability} of the actions it may take."""
        found = self.chances(state, spent, step)
        return {a: float(p) for a, p in zip(self.actions, found, strict=True) if p > 0}

    def act(self, state: Any, spent: Spent = 0.0, step: int = 0) -> Any:
        """An action, drawn with the policy's own generator."""
        return self._draw(self.chances(state, spent, step), self.rng)

    def sample(self, state: Any, rng: Any = None, spent: Spent = 0.0, step: int = 0) -> Any:
        """An action drawn with a NumPy generator or a seed, after this spending."""
        return self._draw(self.chances(state, spent, step), np.random.default_rng(rng))

    def log_prob(self, state: Any, action: Any, spent: Spent = 0.0, step: int = 0) -> float:
        """log π(a | s, spent, step), −∞ for actions it does not take."""
        known = [str(one) for one in self.actions]
        if str(action) not in known:
            raise ValueError(f"action {action!r} is none of the policy's: {', '.join(known[:10])}")
        chance = float(self.chances(state, spent, step)[known.index(str(action))])
        return math.log(chance) if chance > 0 else -math.inf

    def _draw(self, chances: np.ndarray, rng: np.random.Generator) -> Any:
        at = int(np.searchsorted(np.cumsum(chances), rng.random() * chances.sum(), side="right"))
        return self.actions[min(at, int(np.flatnonzero(chances)[-1]))]


def load(folder: str | Path, seed: int | None = None) -> TailPolicy:
    """The policy that was saved into a folder, from the folder or its policy.json."""
    path = Path(folder)
    path = path / "policy.json" if path.is_dir() else path
    return TailPolicy(json.loads(path.read_text(encoding="utf-8")), seed)
