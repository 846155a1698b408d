"""What `pdocrl solve` found, as result.json holds it: the record, how it is made of a result, how it is read back.

result ─▶ SolvedFile ─▶ result.json ─▶ SolvedFile ─▶ pages, certificates

Costs, limits and multipliers are by column name. What was not asked for is not in the file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import structs

from pdocrl import deprecations
from pdocrl.errors import PdocrlError
from pdocrl.limits import limit_names
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.tabular.api import Result
from pdocrl.tabular.counts import Label
from pdocrl.tabular.inference.bootstrap import Intervals
from pdocrl.tabular.inference.confidence import SafetyTest
from pdocrl.tabular.inference.markov import Finding
from pdocrl.tabular.inference.sensitivity import Choice, Coverage
from pdocrl.tabular.io.rows import split_label

FILE, COMPARED = "result.json", "compare.json"

Numbers = dict[str, float]
Interval = tuple[float, float]  # low, high


class Logged(Part, frozen=True, kw_only=True):
    """Reward and costs of the behaviour policy."""

    value: float
    costs: Numbers


class PolicyLine(Part, frozen=True, kw_only=True, omit_defaults=True):
    """π(a|s) of one pair."""

    state: Label
    step: int | None = None  # where policies are for episodes
    action: Label
    probability: float


class FrontierPoint(Part, frozen=True, kw_only=True):
    """The result at one limit."""

    limit: float
    value: float
    interval: Interval | None
    cost: float
    multiplier: float
    status: str
    satisfied: bool
    low_count_share: float = 0.0  # the share of its steps at pairs with few rows


class Frontier(Part, frozen=True, kw_only=True):
    """Results along the limit on a column."""

    column: str
    points: list[FrontierPoint]


class ExplainedAction(Part, frozen=True, kw_only=True):
    """One action in the state that was asked about."""

    action: Label
    rows: int  # of the log
    log: float  # how often the log took it there
    policy: float  # how often the policy does
    value: float  # from here on, if it is taken now and the policy followed after; in the result's unit
    costs: Numbers  # likewise


class Need(Part, frozen=True, kw_only=True):
    """A pair whose rows decide much of how sure one can be."""

    state: Label
    action: Label
    rows: int
    share: float  # of the variance of the estimate


class OtherClustering(Part, frozen=True, kw_only=True):
    """What cells learned from half of the rows would have given."""

    status: str
    value: float
    costs: Numbers


class SolvedFile(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about a result."""

    FORMAT = 2

    status: str
    value: float
    costs: Numbers
    log: Logged
    limits: Numbers
    senses: dict[str, Literal["<=", ">="]]
    tightened: Numbers
    multipliers: Numbers
    slater_margin: float | None  # None: no limits
    certificate: float
    bounds: Interval  # of the saddle value
    coverage: Coverage
    intervals: Intervals | None
    method: str
    gamma: float
    unit: Literal["step", "discounted", "episode"]
    units: dict[str, Numbers]
    C: float | None  # None: no bound
    B: float
    min_count: int
    low_count_share: float
    choices: list[Choice]
    policy: list[PolicyLine]
    confidence: SafetyTest | None = None
    hidden: list[Finding] | None = None  # where states are not Markov: signals whose surprises they do not tell
    assumptions: list[str] | None = None  # of every statement
    notes: list[str] | None = None  # what a reader should not overlook
    limit_horizon: float | None = None  # steps that limits were given for
    per_limit_horizon: Numbers | None = None
    more_data: dict[str, list[Need]] | None = None
    frontier: Frontier | None = None
    explain: list[ExplainedAction] | None = None
    explained: str | None = None  # the state asked about
    clusterings: list[OtherClustering] | None = None

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Names of version 0.2."""
        sure = fields.get("confidence")
        if isinstance(sure, dict) and "learned" in sure:
            words = {"enlarged": "inflated", "log": "behaviour"}
            fields = fields | {"confidence": sure | {"learned": words.get(sure["learned"], sure["learned"])}}
        renamed = functools.partial(deprecations.fields, "result.json")
        choices = [
            one | {"limits": "satisfied" if one["limits"] == "kept" else one["limits"]} for one in fields["choices"]
        ]
        fields = fields | {"choices": choices}
        if line := fields.get("frontier"):
            fields = fields | {"frontier": line | {"points": [renamed(point) for point in line["points"]]}}
        return renamed(fields)


def solved_file(result: Result, limit_horizon: float | None = None) -> SolvedFile:
    """The record of a result; what else was asked is added by `with_answers`."""
    names = limit_names(result.limits)

    def named(values: np.ndarray) -> dict[str, Any]:
        return dict(zip(names, values.tolist(), strict=True))

    costs: Numbers = named(result.costs)
    return SolvedFile(
        status=result.status,
        value=result.value,
        costs=costs,
        log=Logged(value=result.log_value, costs=named(result.log_costs)),
        limits={name: limit.value for name, limit in zip(names, result.limits, strict=True)},
        senses={name: limit.sense for name, limit in zip(names, result.limits, strict=True)},
        tightened=named(result.tightened),
        multipliers=named(result.multipliers),
        slater_margin=result.slater_margin if result.limits else None,
        certificate=result.certificate.gap,
        bounds=(result.certificate.lower, result.certificate.upper),
        coverage=result.coverage,
        intervals=result.intervals,
        method=result.method,
        gamma=result.gamma,
        unit=result.unit,
        units={name: dict(zip(("value", *names), row, strict=True)) for name, row in other_units(result).items()},
        C=_number(result.sets.C),
        B=result.sets.B,
        min_count=result.min_count,
        low_count_share=result.low_count_share,
        choices=list(result.choices),
        policy=policy_lines(result),
        confidence=result.shown,
        hidden=None if result.markov is None else list(result.markov.failed) or None,
        assumptions=assumptions(result),
        limit_horizon=limit_horizon,
        per_limit_horizon=None
        if limit_horizon is None
        else {"value": result.value * limit_horizon} | {name: cost * limit_horizon for name, cost in costs.items()},
    )


def with_answers(
    record: SolvedFile,
    line: Sequence[Result],
    name: str,
    explained: Sequence[ExplainedAction],
    result: Result,
    needs: Mapping[str, Sequence[Need]],
    state: str | None = None,
    clusterings: Sequence[Result] = (),
) -> SolvedFile:
    """The record of a result with what else was asked; nothing for what was not."""
    columns = limit_names(result.limits)
    return structs.replace(
        record,
        more_data={key: list(some) for key, some in needs.items()},
        frontier=frontier_of(line, name) if line else None,
        explain=list(explained) or None,
        explained=state,
        clusterings=[
            OtherClustering(
                status=one.status, value=one.value, costs=dict(zip(columns, one.costs.tolist(), strict=True))
            )
            for one in clusterings
        ]
        or None,
    )


def read_solved(folder: str | os.PathLike[str]) -> SolvedFile:
    """What `pdocrl solve --out` wrote into a folder; every limit has its cost and whatever else is said of limits."""
    path, again = Path(folder) / FILE, f"Make it again: pdocrl solve LOG --out {folder}"
    found = read_record(path, SolvedFile, again)
    by_name: dict[str, Mapping[str, object]] = {"costs": found.costs, "senses": found.senses}
    if found.intervals is not None:
        by_name["intervals.costs"] = found.intervals.costs
    if found.confidence is not None:
        by_name["confidence.bounds"] = found.confidence.bounds
    for place, values in by_name.items():
        for name in found.limits:
            if name not in values:
                raise PdocrlError(f"{path}: field `{place}`: nothing for the limit on `{name}`. {again}")
    return found


def assumptions(result: Result) -> list[str]:
    """What every statement about the policy rests on, in words."""
    test = result.markov
    if test is None:
        markov = "the state tells all that matters for what follows (not tested: the log has no episodes in order)"
    elif test.failed:
        markov = "the state tells all that matters for what follows, which the log's own episodes contradict"
    else:
        markov = f"the state tells all that matters for what follows (tested on {test.episodes} episodes, not refuted)"
    told = result.shown is not None and result.shown.by == "held-out rows"
    return [
        markov,
        "whoever acted knew no more than the state columns say (no hidden confounder)",
        "the world where the policy acts is the one that was logged",
        f"{'rows' if told or test is None else 'episodes'} of the log are independent of each other",
        "no single cost is larger than the largest in the log",
    ]


def other_units(result: Result) -> dict[str, list[float]]:
    """What value and costs are in other words, where episodes end: per step taken, and per episode, discounted."""
    if result.unit != "discounted":
        return {}
    both = [result.value, *result.costs.tolist()]
    mass = max(float(result.mu.sum()), 1e-300)
    return {
        "per step taken": [x / mass for x in both],
        "per episode, discounted": [x / (1 - result.gamma) for x in both],
    }


def policy_lines(result: Result) -> list[PolicyLine]:
    """π(a|s) > 0, line by line; with the step, where states have one."""
    lines = []
    for s, a in np.argwhere(result.policy > 0):
        state, step = split_label(result.states[s]) if result.unit == "episode" else (result.states[s], None)
        action, chance = result.actions[a], float(result.policy[s, a])
        lines.append(PolicyLine(state=state, step=step, action=action, probability=chance))
    return lines


def frontier_of(line: Sequence[Result], name: str) -> Frontier:
    """The record of results along the limit on a column."""
    return Frontier(column=name, points=[_point(one, name) for one in line])


def _number(C: float) -> float | None:
    return C if np.isfinite(C) else None


def _point(result: Result, name: str) -> FrontierPoint:
    at = next(i for i, limit in enumerate(result.limits) if limit.name == name)
    own = result.limits[at]
    at_limit = own.sign * (float(result.costs[at]) - own.value)
    return FrontierPoint(
        limit=result.limits[at].value,
        value=result.value,
        interval=None if result.intervals is None else result.intervals.value,
        cost=float(result.costs[at]),
        multiplier=float(result.multipliers[at]),
        status=result.status,
        satisfied=result.status in {"optimal", "approximate", "shown"}
        or (result.status == "not_markov" and at_limit >= -1e-7),
        low_count_share=result.low_count_share,
    )


class ComparedPolicy(Part, frozen=True, kw_only=True):
    """Reward and costs of one policy by name, with intervals, and how far it leads the first."""

    name: str
    estimate: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    lead: dict[str, tuple[float, float]]
    outside: float  # share of its time where the log never was


class Comparison(Record, frozen=True, kw_only=True):
    """Policies on one log: the rows are the same for all. The first is the one the others are held against."""

    level: float
    policies: list[ComparedPolicy]


def write_compared(folder: str | os.PathLike[str], record: Comparison) -> Path:
    """Into the folder, and where it lies."""
    path = Path(folder) / COMPARED
    write_record(path, record)
    return path


def read_compared(folder: str | os.PathLike[str]) -> Comparison | None:
    """None where nothing was compared."""
    path = Path(folder) / COMPARED
    again = f"Make it again: pdocrl solve LOG --compare POLICY POLICY --out {folder}"
    return read_record(path, Comparison, again) if path.exists() else None
