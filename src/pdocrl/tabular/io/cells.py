"""Continuous columns as states: bins side by side, or the nearest of so many centres, learned from the log.

    --bins stock=10 age=quantile:5 kind=values      ten of equal width, five of equal size, each value its own
    --cluster 200 --cells stock age                 200 centres (k-means) of the scaled columns

The next state is in columns `next_stock`, …, or in the next row of the episode. What is learned is kept as plain
values, which travel with the policy (`policy.cell_of`). A cell hides what differs inside it. How much of what follows
it hides is estimated: the share of a signal's variation that a raw column explains, by a line, within (cell, action).
And the log is clustered twice more, by centres learned from either half of its rows: what the answer owes to where the
borders happen to lie is by how much it then differs (`questions.other_clusterings`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError, PdocrlError, by_door, did_you_mean

Floats = NDArray[np.float64]
SAMPLE = 50_000  # rows from which centres are learned


@dataclasses.dataclass(frozen=True)
class CellSpec:
    """What was asked for."""

    bins: tuple[tuple[str, str], ...] = ()  # (column, "10", "quantile:5" or "values")
    cluster: int | None = None
    columns: tuple[str, ...] = ()  # of a clustering
    learned: Mapping[str, Any] | None = None  # cells of a stored policy, to be used as they are
    half: Literal[0, 1] | None = None  # of the rows that a clustering is learned from; None for all

    @classmethod
    def parse(cls, bins: Sequence[str], cluster: int | None, columns: Sequence[str]) -> CellSpec | None:
        """From the command line; None if nothing was asked."""
        if not bins and cluster is None:
            return None
        if bins and cluster is not None:
            raise PdocrlError(f"give {by_door('bins or cluster', '--bins or --cluster')}, not both.")
        if cluster is not None and not (cluster >= 1 and columns):
            told = by_door(
                "cluster takes a number of at least 1, and cells the columns: cluster=200, cells=['x', 'y']",
                "--cluster takes a number of at least 1, and --cells the columns: --cluster 200 --cells x y",
            )
            raise PdocrlError(f"{told}.")
        return cls(tuple(_bin(text) for text in bins), cluster, tuple(columns))


@dataclasses.dataclass(frozen=True)
class Hidden:
    """What cells hide of one signal."""

    signal: str
    column: str  # the raw column that explains most of it
    share: float  # of the signal's variation in the whole log


@dataclasses.dataclass(frozen=True)
class Cells:
    """How a log's states were made of other columns."""

    values: dict[str, Any]  # plain; see `learn`
    hidden: tuple[Hidden, ...]

    def collapsed(self) -> list[tuple[str, int, int]]:
        """(column, bins asked for, bins there are) where values that are alike left fewer."""
        asked = zip(self.values["columns"], self.values.get("asked", []), self.values.get("edges", []), strict=False)
        return [(c, k, len(edges) + 1) for c, k, edges in asked if k is not None and len(edges) + 1 < k]


def learn(fetch: Any, rows: str, spec: CellSpec, types: Mapping[str, str], name: str) -> dict[str, Any]:
    """Cells as plain values: columns and edges (None: each value), or columns, mean, scale and centres."""
    if spec.learned is not None:
        spec = dataclasses.replace(spec, columns=tuple(spec.learned["columns"]))
    columns = [column for column, _ in spec.bins] or list(spec.columns)
    for column in columns:
        if column not in types:
            raise DataError(f"{name}: no column `{column}`.{did_you_mean(column, types)} It has {', '.join(types)}.")
    if spec.learned is not None:
        return dict(spec.learned)
    if spec.cluster is not None:
        return _clusters(fetch, rows, columns, spec, name)
    return {
        "columns": columns,
        "edges": [_edges(fetch, rows, column, how, name) for column, how in spec.bins],
        "asked": [None if how == "values" else int(how.removeprefix("quantile:")) for _, how in spec.bins],
        "categories": {column: _categories(fetch, rows, column) for column, how in spec.bins if how == "values"},
    }


def _categories(fetch: Any, rows: str, column: str) -> list[str]:
    """The values of a column, as a state's name shows them."""
    found = fetch(f"SELECT DISTINCT CAST({quote(column)} AS VARCHAR) FROM {rows} WHERE {quote(column)} IS NOT NULL")
    return sorted(str(value) for (value,) in found)


def sql(cells: Mapping[str, Any], prefix: str = "") -> str:
    """SQL for the cell of a row's columns, with a prefix to their names; NULL where one is missing."""
    names = [f"{prefix}{column}" for column in cells["columns"]]
    if "centres" in cells:
        scaled = [
            f"(({number(n)} - {m!r}) / {s!r})" for n, m, s in zip(names, cells["mean"], cells["scale"], strict=True)
        ]
        distances = [
            " + ".join(f"power({x} - {c!r}, 2)" for x, c in zip(scaled, centre, strict=True))
            for centre in cells["centres"]
        ]
        listed = f"[{', '.join(distances)}]"
        known = " AND ".join(f"{number(n)} IS NOT NULL" for n in names)
        return f"CASE WHEN {known} THEN CAST(list_position({listed}, list_min({listed})) - 1 AS VARCHAR) END"
    parts = []
    for column, name, edges in zip(cells["columns"], names, cells["edges"], strict=True):
        if edges is None:
            cell = f"CAST({quote(name)} AS VARCHAR)"
        else:
            above = " + ".join([f"CAST({number(name)} >= {edge!r} AS INTEGER)" for edge in edges] or ["0"])
            cell = f"CASE WHEN {number(name)} IS NOT NULL THEN CAST({above} AS VARCHAR) END"
        parts.append(f"'{column}=' || {cell}")
    return " || ' ' || ".join(f"({part})" for part in parts)


def hidden(fetch: Any, rows: str, cells: Mapping[str, Any], action: str, signals: Sequence[str]) -> list[Hidden]:
    """For each signal and next column, the raw column that explains most of what varies within (state, action)."""
    raw = [c for c, edges in zip(cells["columns"], cells.get("edges", [0] * 99), strict=False) if edges is not None]
    found = []
    for signal in [*signals, *(f"next_{column}" for column in raw)]:
        best = Hidden(signal, "", 0.0)
        for column in raw:
            y, x = number(signal), number(column)
            within = f"SELECT count(*) AS n, var_pop({y}) AS v, regr_r2({y}, {x}) AS r FROM {rows}"
            whole = f"(SELECT count({y}) * var_pop({y}) FROM {rows}) AS whole"
            groups = f"(SELECT *, {whole} FROM ({within} GROUP BY state, {quote(action)}))"
            # A line through n points explains 1/(n−1) of pure noise; that much is taken off.
            fair = "greatest(1 - (1 - r) * (n - 1) / (n - 2), 0)"
            known = "FILTER (n > 2 AND r IS NOT NULL AND isfinite(r))"
            explained, total = fetch(f"SELECT sum(n * v * {fair}) {known}, max(whole) FROM {groups}")[0]
            share = float(explained or 0.0) / float(total) if total else 0.0
            best = Hidden(signal, column, share) if share > best.share else best
        found.append(best)
    return found


def number(column: str) -> str:
    """SQL for a column as a number."""
    return f"TRY_CAST({quote(column)} AS DOUBLE)"


def quote(column: str) -> str:
    """SQL for a column's name."""
    return '"' + column.replace('"', '""') + '"'


def _bin(text: str) -> tuple[str, str]:
    column, equals, how = text.partition("=")
    count = how.removeprefix("quantile:")
    if not (column and equals and (how == "values" or (count.isdigit() and int(count) >= 1))):
        raise PdocrlError(
            f"{by_door('bins', '--bins')} {text!r} is not understood; write it as stock=10, age=quantile:5 or "
            "kind=values."
        )
    return column, how


def _edges(fetch: Any, rows: str, column: str, how: str, name: str) -> list[float] | None:
    if how == "values":
        return None
    x = number(column)
    low, high, bad = fetch(
        f"SELECT min({x}) FILTER (isfinite({x})), max({x}) FILTER (isfinite({x})), "
        f"count(*) FILTER (NOT coalesce(isfinite({x}), false)) FROM {rows}"
    )[0]
    if low is None or bad:
        values = "only values" if low is None else "1 value" if bad == 1 else f"{bad} values"
        verb = "is" if values == "1 value" else "are"
        raise DataError(
            f"{name}: column `{column}` has {values} that {verb} missing or no finite number, and bins need numbers. "
            f"{_otherwise()}"
        )
    if how.startswith("quantile:"):
        k = int(how.removeprefix("quantile:"))
        shares = [i / k for i in range(1, k)]
        edges = fetch(f"SELECT quantile_cont({x}, {shares!r}) FROM {rows}")[0][0] if shares else []
    else:
        edges = np.linspace(low, high, int(how) + 1)[1:-1].tolist()
    kept = {float(edge) for edge in edges if low < edge <= high}
    if len(kept) < len(edges):  # many rows share the least value: it is a bin of its own
        above = fetch(f"SELECT min({x}) FROM {rows} WHERE {x} > {low!r}")[0][0]
        kept |= set() if above is None else {float(above)}
    return sorted(kept)


def _otherwise() -> str:
    """What to do with missing values."""
    way = by_door("`pdocrl.solve(log, state_columns=[…])`", "--state-columns")
    return f"Leave those rows out, or solve with {way}, which takes missing values."


def _clusters(fetch: Any, rows: str, columns: list[str], spec: CellSpec, name: str) -> dict[str, Any]:
    asked = ", ".join(number(column) for column in columns)
    sample = fetch(f"SELECT {asked} FROM {rows} USING SAMPLE reservoir({SAMPLE} ROWS) REPEATABLE (0)")
    points = np.array(sample, np.float64).reshape(-1, len(columns))
    bad = [column for column, values in zip(columns, points.T, strict=True) if not np.isfinite(values).all()]
    if not len(points) or bad:
        wrong = f"column `{(bad or columns)[0]}`"
        raise DataError(
            f"{name}: {wrong} of {by_door('cells', '--cells')} has values that are missing or no finite numbers, "
            f"and clusters need numbers. {_otherwise()}"
        )
    points = points[np.lexsort(points.T)]  # the order in which threads deliver rows must not matter
    if spec.half is not None and len(points) > 1:
        points = points[spec.half :: 2]
    mean, scale = points.mean(axis=0), points.std(axis=0)
    scale[scale == 0] = 1.0
    centres = k_means((points - mean) / scale, spec.cluster or 1, seed=0 if spec.half is None else 1 + spec.half)
    return {"columns": columns, "mean": mean.tolist(), "scale": scale.tolist(), "centres": centres.tolist()}


def k_means(points: Floats, k: int, rounds: int = 25, seed: int = 0) -> Floats:
    """[≤ k, d] centres by Lloyd's rounds from a k-means++ start; fewer where there are fewer distinct points."""
    rng = np.random.default_rng(seed)
    centres = points[rng.integers(len(points))][None]
    distance = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < k and distance.max() > 1e-18:
        centres = np.vstack([centres, points[rng.choice(len(points), p=distance / distance.sum())]])
        distance = np.minimum(distance, ((points - centres[-1]) ** 2).sum(axis=1))
    for _ in range(rounds):
        near = nearest(points, centres)
        sums = np.stack([np.bincount(near, weights=column, minlength=len(centres)) for column in points.T], axis=1)
        size = np.bincount(near, minlength=len(centres))[:, None]
        moved = np.where(size > 0, sums / np.maximum(size, 1), centres)
        if np.allclose(moved, centres):
            break
        centres = moved
    return np.asarray(centres, np.float64)


def nearest(points: Floats, centres: Floats) -> NDArray[np.int64]:
    """[n] the nearest centre of each point, in blocks that fit in memory: ‖c‖² − 2 p·c is least."""
    squares = (centres**2).sum(axis=1)
    found = [
        (squares - 2 * block @ centres.T).argmin(axis=1)
        for block in np.array_split(points, max(1, len(points) * len(centres) // 4_000_000))
    ]
    return np.asarray(np.concatenate(found), np.int64)
