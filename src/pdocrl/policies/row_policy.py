"""A policy learned from a log with named columns: plain JSON and NumPy, and nothing else of this package.

    policy = load("policy/")
    policy.act({"cgm": 143, "meal": "lunch"}, step=3)             # "correct_small"
    policy.probabilities({"cgm": 143, "meal": "lunch"}, step=3)   # {"correct_small": 1.0}
    policy.act(frame, step=frame["step"])                         # a list, one action for each row

This file travels with the policy as `act.py`, beside `policy.json` (columns, actions, the rule) and `models.npz` (trees
as arrays). A row has every column by name and no other. A missing value (None or NaN) is taken where the log had some
in that column, and refused elsewhere, as are unknown categories; each in one line. `step` counts from 0 in an episode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
CHUNK = 2_000  # rows at once
TRUE, FALSE = {"true", "yes", "y", "t", "1", "1.0"}, {"false", "no", "n", "f", "0", "0.0"}
Model = Callable[..., Any]


class RowError(ValueError):
    """A row the policy cannot use; the message names the column and what to do."""


class RowPolicy:
    """What to do for rows of named columns; N rows, A actions."""

    def __init__(self, content: Mapping[str, Any], models: Mapping[str, Model], seed: int | None = None) -> None:
        if content.get("format") != FORMAT:
            raise RowError(f"policy.json has format {content.get('format')!r}, this act.py reads {FORMAT}.")
        self.content = content
        self.models = models
        self.actions: list[Any] = list(content["actions"])
        self.columns: list[Mapping[str, Any]] = list(content["columns"])
        self.rule: Mapping[str, Any] = content["rule"]
        self.timed = bool(content["timed"])
        self.horizon = int(content["horizon"])
        self.rng = np.random.default_rng(seed)

    def act(self, row: Any, step: Any = None, deterministic: bool = False) -> Any:
        """The action for one row, drawn where the policy is stochastic; a list for a DataFrame or list of dicts."""
        return self._taken(row, step, None if deterministic else self.rng)

    def sample(self, row: Any, rng: Any = None, step: Any = None) -> Any:
        """An action drawn with a NumPy generator or a seed; a list for a DataFrame or list of dicts."""
        return self._taken(row, step, np.random.default_rng(rng))

    def log_prob(self, row: Any, action: Any, step: Any = None) -> Any:
        """log π(a|row), −∞ for actions it does not take; [N] for a DataFrame or list of dicts and N actions."""
        chances, single = self._asked(row, step)
        taken = [action] if single else list(action)
        for one in taken:
            if one not in self.actions:
                raise RowError(f"action {one!r} is none of the policy's: {', '.join(map(str, self.actions[:10]))}.")
        with np.errstate(divide="ignore"):
            found = np.log([row[self.actions.index(one)] for row, one in zip(chances, taken, strict=True)])
        return float(found[0]) if single else found

    def probabilities(self, row: Mapping[str, Any], step: int | None = None) -> dict[Any, float]:
        """{action: probability} of the actions it may take in one row."""
        chances = self._asked(row, step)[0][0]
        return {action: float(p) for action, p in zip(self.actions, chances, strict=True) if p > 0}

    def _asked(self, row: Any, step: Any) -> tuple[Any, bool]:
        """[N, A] probabilities of one row or many, and whether it was one."""
        if hasattr(row, "columns"):
            columns = {str(name): row[name].tolist() for name in row.columns}
        elif isinstance(row, list):
            names = dict.fromkeys(name for one in row for name in one)
            for name in names:
                if any(name not in one for one in row):
                    raise RowError(f"column `{name}` is missing in a row; give None where its value is missing.")
            columns = {name: [one[name] for one in row] for name in names}
        else:
            columns = {name: [value] for name, value in row.items()}
        found = self.chances(self.inputs(columns, step))
        return found / found.sum(axis=1, keepdims=True), isinstance(row, Mapping)

    def _taken(self, row: Any, step: Any, rng: Any) -> Any:
        chances, single = self._asked(row, step)
        drawn = chances.argmax(1) if rng is None else [rng.choice(len(p), p=p) for p in chances]
        taken = [self.actions[int(a)] for a in drawn]
        return taken[0] if single else taken

    def inputs(self, rows: Mapping[str, Any], step: Any = None) -> Any:
        """[N, D] of columns [N] by name; `step` is a number or [N]."""
        names = [column["name"] for column in self.columns]
        for name in names:
            if name not in rows:
                raise RowError(f"column `{name}` is missing; the policy needs {', '.join(names)}.")
        for name in rows:
            if name not in names:
                raise RowError(
                    f"column `{name}` is not one of the policy's; leave it out. It needs {', '.join(names)}."
                )
        parts = [_encoded(column, rows[column["name"]]) for column in self.columns]
        if self.timed:
            parts.append(np.broadcast_to(self._steps(step), (len(parts[0]) if parts else 1,))[:, None])
        return np.concatenate(parts, axis=1)

    def chances(self, x: Any) -> Any:
        """[N, A] probabilities for encoded inputs [N, D]."""
        kind = self.rule["kind"]
        if kind == "choice":
            scores = self.models[self.rule["model"]](x)
            return _one_hot(scores) if self.rule["mode"] else _softmax(scores)
        if kind == "tilted":
            return _softmax(self.models[self.rule["model"]](x) + self.rule["beta"] * self.penalised(x))
        if kind == "greedy":
            return _one_hot(self.objective(x))
        if kind == "cells":
            return np.asarray(self.models["table"](), np.float64)[self.cells(x)]
        raise RowError(f"policy.json has the rule {kind!r}, which this act.py does not know.")

    def values(self, x: Any) -> Any:
        """[N, 1 + K, A] predicted reward and costs to come of every action; of the rule `tilted` their advantages."""
        each = [
            np.stack([self.models[name](x, np.full(len(x), a)) for a in range(len(self.actions))], axis=1)
            for name in self.rule["values"]
        ]
        return np.stack(each, axis=1)

    def penalised(self, x: Any) -> Any:
        """[N, A] A_0 − Σ λ_k A_k"""
        found = self.values(x)
        return found[:, 0] - np.tensordot(np.asarray(self.rule["multipliers"], np.float64), found[:, 1:], (0, 1))

    def objective(self, x: Any) -> Any:
        """[N, A] Q_0 − Σ λ_k Q_k where the behaviour policy takes the action often enough, else −∞."""
        own = self.rule["mask"]
        chances = _softmax(self.models[own["model"]](x))
        allowed = chances >= own["share"] * chances.max(axis=1, keepdims=True)
        rows, actions = np.nonzero(allowed)
        found = np.full(allowed.shape, -np.inf)
        signs = [1.0, *(-float(price) for price in self.rule["multipliers"])]
        found[rows, actions] = sum(
            sign * self.models[name](x[rows], actions) for sign, name in zip(signs, self.rule["values"], strict=True)
        )
        return found

    def cells(self, x: Any) -> Any:
        """[N] the nearest centre of the predicted consequences of every action."""
        points = self.values(x).reshape(len(x), -1) / np.asarray(self.rule["scale"])
        centres = np.asarray(self.models["centres"](), np.float64)
        return ((points**2).sum(1)[:, None] - 2 * points @ centres.T + (centres**2).sum(1)).argmin(axis=1)

    def _steps(self, step: Any) -> Any:
        if step is None:
            raise RowError("step is missing: the policy knows how much time is left; give step=0 for a first decision.")
        steps = np.asarray(step, np.float64)
        if not (np.isfinite(steps).all() and (steps >= 0).all() and (steps < self.horizon).all()):
            raise RowError(f"step {step!r} is not among 0 … {self.horizon - 1}, the steps of an episode.")
        return steps


class Trees:
    """Boosted trees as arrays: f(x) = baseline + Σ trees, [N, outputs]; with `codes`, f(x, a) of one output [N]."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)

    def __call__(self, x: Any, action: Any = None) -> Any:
        if "codes" in self.arrays:
            x = np.c_[self.arrays["codes"][action], x]
        found = [self._block(np.asarray(x[i : i + CHUNK], np.float64)) for i in range(0, max(len(x), 1), CHUNK)]
        whole = np.concatenate(found)
        return whole[:, 0] if "codes" in self.arrays else whole

    def _block(self, x: Any) -> Any:
        a = self.arrays
        node = np.tile(a["roots"], (len(x), 1))  # [n, trees]
        rows = np.arange(len(x))[:, None]
        while node.size:
            inner = a["left"][node] >= 0
            if not inner.any():
                break
            value = x[rows, a["feature"][node]]
            left = value <= a["threshold"][node]
            category = a["category"][node]
            if len(a["sets"]):
                members = a["sets"][np.maximum(category, 0), np.clip(value, 0, 255).astype(np.int64)]
                left = np.where(category >= 0, members, left)
            node = np.where(inner, np.where(left, a["left"][node], a["right"][node]), node)
        leaves = a["value"][node]
        found = np.tile(a["baseline"], (len(x), 1)).astype(np.float64)
        for output in range(found.shape[1]):
            found[:, output] += leaves[:, a["outputs"] == output].sum(axis=1)
        return found


def _encoded(column: Mapping[str, Any], values: Any) -> Any:
    """[N, D_j] of one column, see `pdocrl.data.encoding`."""
    name, kind = column["name"], column["kind"]
    given = np.asarray(values).tolist()
    missing = np.array([x is None or x == "" or x != x for x in given], bool)
    if missing.any() and not column["flagged"]:
        raise RowError(f"column `{name}`: a missing value, and the log had none there; fill it in.")
    if kind == "categorical":
        place = {category: i for i, category in enumerate(column["categories"])}
        codes = np.array([-1 if gone else place.get(str(x), -2) for x, gone in zip(given, missing, strict=True)])
        if (codes == -2).any():
            word = given[int(np.argmax(codes == -2))]
            raise RowError(f"column `{name}`: unknown category {word!r}; the log had {', '.join(place)}.")
        found = (codes[:, None] == np.arange(len(place))).astype(np.float64)
    else:
        number = [0.0 if gone else _number(name, kind, x) for x, gone in zip(given, missing, strict=True)]
        found = np.where(missing, 0.0, (np.array(number) - column["mean"]) / column["scale"])[:, None]
    return np.concatenate([found, missing[:, None].astype(np.float64)], axis=1) if column["flagged"] else found


def _number(name: str, kind: str, value: Any) -> float:
    word = str(value).lower()
    if kind == "boolean":
        if word not in TRUE | FALSE:
            raise RowError(f"column `{name}`: {value!r} is neither true nor false.")
        return float(word in TRUE)
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise RowError(f"column `{name}`: {value!r} is not a number.") from None
    if not np.isfinite(found):
        raise RowError(f"column `{name}`: {value!r} is not finite.")
    return found


def _softmax(scores: Any) -> Any:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _one_hot(scores: Any) -> Any:
    return (np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None]).astype(np.float64)


def load(folder: str | Path = ".", seed: int | None = None) -> RowPolicy:
    """The policy of a folder that `pdocrl solve --out` wrote."""
    path = Path(folder)
    content = json.loads((path / "policy.json").read_text(encoding="utf-8"))
    models: dict[str, Model] = {}
    with np.load(path / "models.npz", allow_pickle=False) as file:
        parts: dict[str, dict[str, Any]] = {}
        for key in file.files:
            model, _, name = key.partition("/")
            parts.setdefault(model, {})[name] = file[key]
    for model, arrays in parts.items():
        models[model] = Trees(arrays) if "roots" in arrays else _constant(arrays["values"])
    return RowPolicy(content, models, seed)


def _constant(values: Any) -> Model:
    return lambda: values
