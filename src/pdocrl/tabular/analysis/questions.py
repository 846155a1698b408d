"""What people ask of a log after the first answer.

frontier     how much reward does a limit cost, from here to there?
compare      which of these policies is better on this log, and is the difference more than luck?
explain      what did the log do in this state, what does the policy do, and what would the alternatives bring?
more_data    where would more rows help most?
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limit, Limits, as_limits, limit_names
from pdocrl.tabular.analysis.comparison import ComparedPolicy, Comparison
from pdocrl.tabular.api import Result, solve
from pdocrl.tabular.cmdp import CMDP, occupancy, values
from pdocrl.tabular.counts import Counts, Label
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered, lead
from pdocrl.tabular.io.cells import CellSpec
from pdocrl.tabular.io.episodes import steps, weighted
from pdocrl.tabular.io.rows import MARK, split_label
from pdocrl.tabular.result.policy import TabularPolicy
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import outcome

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
        raise PdocrlError(f"--frontier {text!r} is not understood; write it as stockout=0.01:0.1:10.")
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

    By how much learning overrates itself was measured for `result`; the intervals here are moved by as much.
    """
    overrated = 0.0 if result.intervals is None else max(result.intervals.optimism, 0.0)
    least = 0.0 if counts.mean[0].min(initial=0.0) >= 0 else -np.inf
    others = [limit for limit in result.limits if limit.name != name]
    own = next((limit for limit in result.limits if limit.name == name), Limit(name, 0.0))
    found = []
    for point in points:
        moved = msgspec.structs.replace(own, value=float(point))
        progress(f"solving with {moved}")
        limits = [*others, moved]
        rest = {"C": result.sets.C, "min_count": result.min_count, "resamples": resamples, "refits": 0}
        one = solve(counts, result.gamma, limits, **rest, level=level, seed=seed)  # type: ignore[arg-type]
        if one.intervals is not None:
            low, high = one.intervals.value
            moved_out = msgspec.structs.replace(one.intervals, value=(min(low, max(low - overrated, least)), high))
            one = dataclasses.replace(one, intervals=moved_out)
        found.append(one)
    return tuple(found)


def other_clusterings(
    count: Callable[[CellSpec], Counts], spec: CellSpec, result: Result, progress: Progress = lambda _: None
) -> tuple[Result, ...]:
    """The problem of `result` solved again with cells learned from either half of the rows, all else the same."""
    found = []
    for half in (0, 1):
        progress(f"clustering half {half + 1} of the log")
        counts = count(dataclasses.replace(spec, half=half))
        rest = {"C": result.sets.C, "min_count": result.min_count, "resamples": 0, "refits": 0}
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
    problem, discount = _problem(counts, gamma)
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
            raise PdocrlError(f"{first} and {name} have other cells; compare policies with the same --bins or --cells.")
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


@dataclasses.dataclass(frozen=True)
class Alternative:
    """One action in one state."""

    action: Label
    rows: int  # of the log
    log: float  # how often the log took it there
    policy: float  # how often the policy does
    value: float  # from here on, if it is taken now and the policy followed after; in the result's unit
    costs: tuple[float, ...]  # likewise, of each limit's column


def explain(counts: Counts, result: Result, state: Label, step: int = 0) -> tuple[Alternative, ...]:
    """The alternatives in one state, the policy's favourites first."""
    wanted = f"{state}{MARK}{step}" if counts.horizon is not None else str(state)
    names = {str(label): index for index, label in enumerate(counts.states)}
    if wanted not in names:
        raise UnknownNameError("state", wanted, names, f"The log has {len(names)} states.")
    s = names[wanted]
    Q = action_values(counts, result)[:, s]  # [1+I, A]
    rows = counts.n[s]
    order = sorted(range(counts.n_actions), key=lambda a: (-result.policy[s, a], -rows[a]))
    return tuple(
        Alternative(
            action=counts.actions[a],
            rows=int(rows[a]),
            log=float(rows[a] / max(int(rows.sum()), 1)),
            policy=float(result.policy[s, a]),
            value=float(Q[0, a]),
            costs=tuple(Q[1:, a].tolist()),
        )
        for a in order
        if rows[a] > 0 or result.policy[s, a] > 0
    )


def action_values(counts: Counts, result: Result) -> Floats:
    """[1+I, S, A] reward and limited columns from each pair on, in the result's unit; what the log lacks is worst."""
    problem, discount = _problem(counts, result.gamma)
    model = pessimistic_model(Lagrangian.empirical(problem, discount, result.limits))
    scale = np.full(counts.n_states, 1 - discount)
    if counts.horizon is not None:  # undo the weight of the step: what is left of the episode from here on
        scale = scale * discount ** steps(counts)
    signals = [model.r, *(limit.sign * g for limit, g in zip(result.limits, model.g, strict=True))]
    return np.array([scale[:, None] * values(model, result.policy, signal)[1] for signal in signals])


@dataclasses.dataclass(frozen=True)
class Need:
    """A pair whose rows decide much of how sure one can be."""

    state: Label
    action: Label
    rows: int
    share: float  # of the variance of the estimate


def more_data(counts: Counts, result: Result, most: int = 5) -> dict[str, tuple[Need, ...]]:
    """For the value and each limited column, the pairs whose few rows make it most uncertain.

    Var Ĵ = Σ (μ^π)²/n · Var[x + γV(s′)]; rows added at a pair lower its term in proportion. A pair seen less than twice
    has the largest variance of the others.
    """
    problem, discount = _problem(counts, result.gamma)
    model = pessimistic_model(Lagrangian.empirical(problem, discount, result.limits))
    found = {}
    for k, name in enumerate(("reward", *(str(limit) for limit in result.limits))):
        column = 0 if k == 0 else 1 + result.limits[k - 1].index(counts.cost_names)
        signal = model.r if k == 0 else result.limits[k - 1].sign * model.g[k - 1]
        terms = _variances(problem, model, result.policy, signal, column, discount)
        share = terms / max(float(terms.sum()), 1e-300)
        best = [int(pair) for pair in np.argsort(-share.ravel(), kind="stable")[:most] if share.ravel()[pair] > 1e-6]
        found[name] = tuple(
            Need(
                counts.states[p // counts.n_actions],
                counts.actions[p % counts.n_actions],
                int(counts.n.ravel()[p]),
                float(share.ravel()[p]),
            )
            for p in best
        )
    return found


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


def _problem(counts: Counts, gamma: float | None) -> tuple[Counts, float]:
    """Counts and discount of the stationary problem behind counts by step."""
    if counts.horizon is not None:
        return weighted(counts, 1.0 if gamma is None else gamma)
    if gamma is None:
        raise PdocrlError("gamma, the discount, must be given.")
    return counts, gamma
