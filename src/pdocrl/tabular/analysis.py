"""Analysis of a log after it is solved.

frontier     how much reward does a limit cost, from here to there?
compare      which of these policies is better on this log, and is the difference more than luck?
explain      what did the log do in this state, what does the policy do, and what would the alternatives bring?
more_data    where would more rows help most?
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError, by_door
from pdocrl.limits import Limit, Limits, as_limits, limit_names
from pdocrl.records import Part, Record, read_record
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import CMDP, occupancy, values
from pdocrl.tabular.counts import Counts, Label
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered, lead
from pdocrl.tabular.io.cells import CellSpec
from pdocrl.tabular.io.rows import MARK, split_label
from pdocrl.tabular.result import report
from pdocrl.tabular.result.policy import TabularPolicy
from pdocrl.tabular.result.record import ComparedPolicy, Comparison, ExplainedAction, Frontier, FrontierPoint, Need
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import outcome

if TYPE_CHECKING:
    from pdocrl.tabular.result.result import Result

Progress = Callable[[str], None]


def parse_frontier(text: str) -> tuple[str, tuple[float, ...]]:
    """('stockout', (0.01, …, 0.1)) of 'stockout=0.01:0.1:10'."""
    name, _, span = text.partition("=")
    try:
        low, high, size = span.split(":")
        points = tuple(np.linspace(float(low), float(high), int(size)).tolist())
    except ValueError:
        points = ()
    if not (name and 2 <= len(points) <= 1000 and np.all(np.isfinite(points))):
        raise PdocrlError(
            f"{by_door('frontier', '--frontier')} {text!r} is not understood; write it as stockout=0.01:0.1:10."
        )
    return name, points


def frontier(
    counts: Counts,
    result: Result,
    name: str,
    points: Sequence[float],
    resamples: int = 50,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> tuple[Result, ...]:
    """The problem of `result` solved again with the limit on one column at each of these values, all else the same.

    The optimism bias of learning was measured for `result`; the intervals here are moved by as much.
    """
    bias = 0.0 if result.intervals is None else max(result.intervals.optimism, 0.0)
    least = 0.0 if counts.mean[0].min(initial=0.0) >= 0 else -np.inf
    others = [limit for limit in result.limits if limit.name != name]
    own = next((limit for limit in result.limits if limit.name == name), Limit(name, 0.0))
    found = []
    for point in points:
        moved = msgspec.structs.replace(own, value=float(point))
        progress(f"solving with {moved}")
        limits = [*others, moved]
        rest = {"C": result.C, "min_count": result.min_count, "resamples": resamples, "refits": 0}
        one = solve(counts, result.gamma, limits, **rest, level=level, seed=seed)  # type: ignore[arg-type]
        if one.intervals is not None:
            low, high = one.intervals.value
            moved_out = msgspec.structs.replace(one.intervals, value=(min(low, max(low - bias, least)), high))
            one = one.telling(intervals=moved_out)
        found.append(one)
    return tuple(found)


def frontier_of(line: Sequence[Result], name: str) -> Frontier:
    """The record of results along the limit on a column."""
    return Frontier(column=name, points=[_point(one, name) for one in line])


def _point(result: Result, name: str) -> FrontierPoint:
    at = next(i for i, limit in enumerate(result.limits) if limit.name == name)
    own, cost = result.limits[at], float(result.costs[at])
    return FrontierPoint(
        limit=own.value,
        value=result.value,
        interval=None if result.intervals is None else result.intervals.value,
        cost=cost,
        multiplier=float(result.multipliers[at]),
        status=result.status,
        satisfied=result.status in {"optimal", "approximate", "shown"}
        or (result.status == "not_markov" and own.sign * (cost - own.value) >= -1e-7),
        low_count_share=result.low_count_share,
    )


def other_clusterings(
    count: Callable[[CellSpec], Counts], spec: CellSpec, result: Result, progress: Progress = lambda _: None
) -> tuple[Result, ...]:
    """The problem of `result` solved again with cells learned from either half of the rows, all else the same."""
    found = []
    for half in (0, 1):
        progress(f"clustering half {half + 1} of the log")
        counts = count(dataclasses.replace(spec, half=half))
        rest = {"C": result.C, "min_count": result.min_count, "resamples": 0, "refits": 0}
        found.append(solve(counts, result.gamma, result.limits, **rest))  # type: ignore[arg-type]
    return tuple(found)


def compare(
    counts: Counts,
    gamma: float | None,
    limits: Limits,
    policies: Mapping[str, TabularPolicy],
    level: float = 0.95,
) -> Comparison:
    """Judge policies found elsewhere by one log; what it never tried is followed by the worst."""
    chosen = as_limits(limits)
    signs = np.array([1.0, *(limit.sign for limit in chosen)])
    tables = [as_table(policy, counts) for policy in policies.values()]
    problem, discount = counts.stationary(gamma)
    L = Lagrangian.empirical(problem, discount, chosen)
    here = signs * np.array([outcome(pessimistic_model(L), pi) for pi in tables])
    estimates = [PolicyEstimate(problem, discount, pi) for pi in tables]
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in chosen)]
    bounds = np.array([clustered(one, level, anywhere=True)[rows] for one in estimates])
    # As in the estimate, what the log lacks is at its worst: little reward, much cost.
    leads = np.array([[lead(estimates[0], one, high, level)[rows] for high in (False, True)] for one in estimates])
    difference = np.where((signs < 0)[:, None], leads[:, 1], leads[:, 0])
    outside = [float(occupancy(pessimistic_model(L), pi)[~L.seen].sum() / (1 - discount)) for pi in tables]
    low, high = np.minimum(bounds[..., 0], here), np.maximum(bounds[..., 1], here)
    names = ["reward", *limit_names(chosen)]

    def named(values: Floats) -> dict[str, Any]:
        return dict(zip(names, values.tolist(), strict=True))

    judged = [
        ComparedPolicy(
            name=name,
            estimate=named(here[p]),
            low=named(low[p]),
            high=named(high[p]),
            lead={key: (least, most) for key, (least, most) in named(difference[p]).items()},
            outside=outside[p],
        )
        for p, name in enumerate(policies)
    ]
    return Comparison(level=level, policies=judged)


def cells_of(policies: Mapping[str, TabularPolicy]) -> CellSpec | None:
    """The cells that stored policies were learned with; all must share them, to be compared by the same rows."""
    made = {name: policy.cells for name, policy in policies.items()}
    first = next(iter(made), None)
    if first is None or all(cells is None for cells in made.values()):
        return None
    for name, cells in made.items():
        if cells != made[first]:
            raise PdocrlError(f"{first} and {name} have other cells; compare policies with the same cells.")
    return CellSpec(learned=made[first])


def as_table(policy: TabularPolicy, counts: Counts) -> Floats:
    """[S, A] what a stored policy does in the states of a log; actions the log never saw cannot be judged."""
    known = {str(action): index for index, action in enumerate(counts.actions)}
    table = np.zeros(counts.shape)
    for s, label in enumerate(counts.states):
        state, step = split_label(label) if counts.horizon is not None else (str(label), 0)
        for action, chance in policy.probabilities(state, step).items():
            if str(action) not in known:
                raise UnknownNameError("action of a policy", str(action), known, "The log never took it.")
            table[s, known[str(action)]] = chance
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def explain(counts: Counts, result: Result, state: Label, step: int = 0) -> tuple[ExplainedAction, ...]:
    """The alternatives in one state, the policy's favourites first."""
    wanted = f"{state}{MARK}{step}" if counts.horizon is not None else str(state)
    place = {str(label): index for index, label in enumerate(counts.states)}
    if wanted not in place:
        raise UnknownNameError("state", wanted, place, f"The log has {len(place)} states.")
    s, names = place[wanted], limit_names(result.limits)
    Q = action_values(counts, result)[:, s]  # [1+I, A]
    rows = counts.n[s]
    order = sorted(range(counts.n_actions), key=lambda a: (-result.policy[s, a], -rows[a]))
    return tuple(
        ExplainedAction(
            action=counts.actions[a],
            rows=int(rows[a]),
            log=float(rows[a] / max(int(rows.sum()), 1)),
            policy=float(result.policy[s, a]),
            value=float(Q[0, a]),
            costs=dict(zip(names, Q[1:, a].tolist(), strict=True)),
        )
        for a in order
        if rows[a] > 0 or result.policy[s, a] > 0
    )


def action_values(counts: Counts, result: Result) -> Floats:
    """[1+I, S, A] reward and limited columns from each pair on, in the result's unit; what the log lacks is worst."""
    problem, discount = counts.stationary(result.gamma)
    model = pessimistic_model(Lagrangian.empirical(problem, discount, result.limits))
    scale = np.full(counts.n_states, 1 - discount)
    if counts.horizon is not None:  # undo the weight of the step: what is left of the episode from here on
        scale = scale * discount**counts.steps
    signals = [model.r, *(limit.sign * g for limit, g in zip(result.limits, model.g, strict=True))]
    return np.array([scale[:, None] * values(model, result.policy, signal)[1] for signal in signals])


def more_data(counts: Counts, result: Result, most: int = 5) -> dict[str, list[Need]]:
    """For the value and each limited column, the pairs whose few rows make it most uncertain.

    Var Ĵ = Σ (μ^π)²/n · Var[x + γV(s′)]; rows added at a pair lower its term in proportion. A pair seen less than twice
    has the largest variance of the others.
    """
    problem, discount = counts.stationary(result.gamma)
    model = pessimistic_model(Lagrangian.empirical(problem, discount, result.limits))
    found = {}
    for k, name in enumerate(("reward", *(str(limit) for limit in result.limits))):
        column = 0 if k == 0 else 1 + result.limits[k - 1].index(counts.cost_names)
        signal = model.r if k == 0 else result.limits[k - 1].sign * model.g[k - 1]
        terms = _variances(problem, model, result.policy, signal, column, discount)
        share = terms / max(float(terms.sum()), 1e-300)
        best = [int(pair) for pair in np.argsort(-share.ravel(), kind="stable")[:most] if share.ravel()[pair] > 1e-6]
        found[name] = [
            Need(
                state=counts.states[p // counts.n_actions],
                action=counts.actions[p % counts.n_actions],
                rows=int(counts.n.ravel()[p]),
                share=float(share.ravel()[p]),
            )
            for p in best
        ]
    return found


def with_advice(result: Result) -> Result:
    """The result with what a reader should not overlook, and where more rows would help most; of a log alone."""
    if result.counts is None:
        return result
    notes = report.notes(result, result.counts)
    return result.telling(more_data=more_data(result.counts, result), notes=notes)


def _variances(counts: Counts, model: CMDP, pi: Floats, signal: Floats, column: int, gamma: float) -> Floats:
    """[S, A] (μ^π)²/n · Var[x + γV(s′)] of each pair tried."""
    V, _ = values(model, pi, signal)
    after = counts.mean[column] + gamma * counts.ahead(V)  # [M]
    size = counts.n.size
    n = np.maximum(np.bincount(counts.pair, weights=counts.count, minlength=size), 1)
    mean = np.bincount(counts.pair, weights=counts.count * after, minlength=size) / n
    square = np.bincount(counts.pair, weights=counts.count * (after**2 + counts.variance[column]), minlength=size) / n
    variance = np.maximum(square - mean**2, 0)
    often = n >= 2
    variance = np.where(often, variance * n / np.maximum(n - 1, 1), variance[often].max(initial=0.0))
    mu = occupancy(model, pi).ravel()
    return np.asarray((mu**2 * variance / n * (counts.n.ravel() > 0)).reshape(counts.shape))


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
