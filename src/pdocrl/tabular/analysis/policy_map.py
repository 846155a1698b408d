"""The policy state by action, as map.json holds it: what a page shows of each pair, also along a frontier.

    rows [S, A]         of the log; row by row they are the behaviour policy
    policy [S, A]       π(a|s)
    value, costs [S, A] from here on if the action is taken now and the policy followed after, in the result's unit

States are ordered by the policy's time, and at most `MOST` pairs are kept: those of the states where it is most often.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.limits import limit_names
from pdocrl.records import Part, Record, read_record
from pdocrl.tabular.analysis.questions import action_values
from pdocrl.tabular.api import Result
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.lagrangian import Floats

FILE = "map.json"
MOST = 5_000  # pairs
DIGITS = 4  # that count

Matrix = list[list[float]]


class PolicyAtLimit(Part, frozen=True, kw_only=True):
    """π(a|s) at one point of a frontier."""

    limit: float
    policy: Matrix  # [S, A]


class PolicyMap(Record, frozen=True, kw_only=True):
    """One row per state, one column per action."""

    states: list[str]
    actions: list[str]
    time: list[float]  # [S] share of the policy's time
    rows: list[list[int]]
    policy: Matrix
    value: Matrix
    costs: dict[str, Matrix]
    frontier: list[PolicyAtLimit]
    states_total: int  # of the log; those that are not here are visited least


def policy_map(counts: Counts, result: Result, line: Sequence[Result] = ()) -> PolicyMap:
    """The map of a result and of the results along a frontier."""
    Q = action_values(counts, result)
    time = result.mu.sum(axis=1)
    order = np.lexsort((-counts.n.sum(axis=1), -np.round(time, 6)))[: max(MOST // counts.n_actions, 1)]
    chosen = np.sort(order) if len(order) == len(time) else order  # all of them: as the log has them
    names = limit_names(result.limits)
    return PolicyMap(
        states=[str(counts.states[s]) for s in chosen],
        actions=[str(action) for action in counts.actions],
        time=_short(time[chosen] / max(float(time.sum()), 1e-300)),
        rows=counts.n[chosen].astype(int).tolist(),
        policy=_matrix(result.policy[chosen]),
        value=_matrix(Q[0][chosen]),
        costs={name: _matrix(own[chosen]) for name, own in zip(names, Q[1:], strict=True)},
        frontier=[PolicyAtLimit(limit=limit, policy=_matrix(one.policy[chosen])) for limit, one in _along(line)],
        states_total=len(counts.states),
    )


def read_map(folder: str | os.PathLike[str]) -> PolicyMap | None:
    """The map in a folder of `solve`; None where there is none."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    found = read_record(path, PolicyMap, f"Make it again: pdocrl solve LOG --out {folder}")
    shape = (len(found.states), len(found.actions))
    matrices: dict[str, Any] = {"rows": found.rows, "policy": found.policy, "value": found.value} | found.costs
    matrices |= {f"frontier {point.limit:g}": point.policy for point in found.frontier}
    for name, matrix in matrices.items():
        if np.shape(matrix) != shape:
            raise PdocrlError(f"{path}: `{name}` is {np.shape(matrix)}, not {shape} (states, actions).")
    return found


def _along(line: Sequence[Result]) -> list[tuple[float, Result]]:
    """Results along a frontier by the limit that moves."""
    moving = [i for i in range(len(line[0].limits)) if len({one.limits[i].value for one in line}) > 1] if line else []
    return [(one.limits[moving[0]].value, one) for one in line] if moving else []


def _matrix(values: Floats) -> Matrix:
    return [_short(row) for row in values]


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
