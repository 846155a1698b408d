"""Cells of predicted consequences: rows are alike if what would follow each action is alike.

    φ(x) = [ Q_j(x, a) ]_{j, a},   Q_j the behaviour's own reward and costs to come,   cell(x) = nearest k-means centre

The cells are the states of a tabular constrained problem, solved exactly by a linear program over the occupancies that
the log's rows support. Cells hide what differs inside them, so its own estimate flatters it; others judge it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.approximate.boosting import ValueTrees
from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Floats
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit

CELLS = 120
NEAR_ONE = 0.985  # γ of the tabular problem where totals are not discounted; episodes end by themselves


@dataclasses.dataclass(frozen=True, eq=False)
class ConsequenceCells:
    """Centres in the space of scaled predictions, and a policy per cell."""

    scale: Floats  # [(1 + K)·A]
    centres: Floats  # [S, (1 + K)·A]
    table: Floats  # [S, A]
    believed: Floats  # [1 + K] totals of an episode


def embedding(rows: Rows, values: Sequence[ValueTrees]) -> Floats:
    """[N, (1 + K)·A] predictions, one signal after the other."""
    n = len(rows)
    each = [np.stack([q(rows.x, np.full(n, a)) for a in range(rows.actions)], 1) for q in values]
    return np.concatenate(each, axis=1)


def consequence_cells(rows: Rows, values: Sequence[ValueTrees], seed: int = 0) -> ConsequenceCells | None:
    """None where the tabular problem cannot be solved."""
    return solve_cells(rows, embedding(rows, values), seed)


def solve_cells(rows: Rows, points: Floats, seed: int = 0) -> ConsequenceCells | None:
    """Cells by k-means of points [N, P], and the constrained optimum of their counts."""
    from sklearn.cluster import MiniBatchKMeans

    from pdocrl.tabular import Counts, solve

    scale = np.maximum(points.std(0), 1e-9)
    k = int(min(CELLS, max(8, len(rows) // 100)))
    found = MiniBatchKMeans(k, batch_size=2048, n_init=1, max_iter=30, random_state=seed).fit(points / scale)
    cell = found.labels_.astype(np.int64)
    known = np.flatnonzero(rows.following > -2)
    after = rows.following[known]
    terminal = after < 0
    following = np.where(terminal, 0, cell[np.maximum(after, 0)])
    gamma = rows.discount if rows.discount < 1 else NEAR_ONE
    names = [f"g{i}" for i in range(len(rows.limits))]
    weight = _discounting(rows, gamma)
    limits = [
        Limit(name, float(sense * (1 - gamma) * each * tau), "<=" if sense > 0 else ">=")
        for name, sense, each, tau in zip(names, rows.sense[1:], weight[1:], rows.limits, strict=True)
    ]
    try:
        counts = Counts.from_arrays(
            cell[known],
            rows.log.action[known],
            following,
            rows.signals[0][known],
            {name: rows.sense[1 + i] * rows.signals[1 + i][known] for i, name in enumerate(names)} or None,
            terminal=terminal,
            initial=rows.log.step[known] == 0,
            n_states=len(found.cluster_centers_),
            n_actions=rows.actions,
        )
        result = solve(counts, gamma, limits, C=np.inf, min_count=10, resamples=0, refits=0, seed=seed)
    except PdocrlError:
        return None
    if result.status in {"infeasible", "infeasible_covered"}:
        return None
    believed = rows.sense * np.array([result.value, *result.costs]) / (1 - gamma) / weight
    return ConsequenceCells(scale, found.cluster_centers_.astype(np.float64), result.policy, believed)


def _discounting(rows: Rows, gamma: float) -> Floats:
    """[1 + K] how much less a total is where it is discounted, in the log; 1 where nothing adds up."""
    plain = rows.totals.mean(1)
    discounted = np.stack([rows.log.totals(x, gamma) for x in rows.signals]).mean(1)
    usual = np.abs(plain) > 1e-9
    return np.asarray(np.where(usual, discounted / np.where(usual, plain, 1.0), 1.0), np.float64)
