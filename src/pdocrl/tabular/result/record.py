"""What `pdocrl solve` found, as result.json holds it: the record and how it is read back.

`Result.record` ─▶ result.json ─▶ the same record ─▶ pages, certificates

Costs, limits and multipliers are by column name. What was not asked for is not in the file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from pdocrl import deprecations
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.tabular.counts import Label
from pdocrl.tabular.inference.bootstrap import Intervals
from pdocrl.tabular.inference.confidence import SafetyTest
from pdocrl.tabular.inference.markov import Finding, MarkovTest
from pdocrl.tabular.inference.sensitivity import Choice, Coverage
from pdocrl.tabular.io.rows import split_label
from pdocrl.tabular.result import drawing, tables

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


class PolicyLines(Sequence[PolicyLine]):
    """π(a|s) > 0 of a table [S, A], line by line, each made when it is looked at."""

    def __init__(
        self, policy: np.ndarray, states: Sequence[Label], actions: Sequence[Label], with_steps: bool = False
    ) -> None:
        self._policy, self._states, self._actions, self._with_steps = policy, states, actions, with_steps
        self._pairs = np.argwhere(policy > 0)

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, index: int) -> PolicyLine: ...

    @overload
    def __getitem__(self, index: slice) -> list[PolicyLine]: ...

    def __getitem__(self, index: int | slice) -> PolicyLine | list[PolicyLine]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        s, a = self._pairs[index]
        state, step = split_label(self._states[s]) if self._with_steps else (self._states[s], None)
        return PolicyLine(state=state, step=step, action=self._actions[a], probability=float(self._policy[s, a]))


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
    """Results along the limit on a column, that draw themselves."""

    column: str
    points: list[FrontierPoint]

    def draw(self, axes: Any = None) -> Any:
        """Reward against the limit on Matplotlib axes (the current ones by default), which are returned."""
        return drawing.frontier_axes(self, axes)

    def _repr_html_(self) -> str:
        return tables.frontier(self).notebook()


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


class SolvedRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
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
    policy: Sequence[PolicyLine]
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

    @property
    def limits_given(self) -> tuple[Limit, ...]:
        """The limits as they were given; the name of one of two on a column ends in sense and value."""
        given = [(name, value, self.senses[name]) for name, value in self.limits.items()]
        return tuple(Limit(name.removesuffix(str(Limit("", x, sense))), x, sense) for name, x, sense in given)

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


def read_solved(folder: str | os.PathLike[str]) -> SolvedRecord:
    """What `pdocrl solve --out` wrote into a folder; every limit has its cost and whatever else is said of limits."""
    path, again = Path(folder) / FILE, f"Make it again: pdocrl solve LOG --out {folder}"
    found = read_record(path, SolvedRecord, again)
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


def assumptions(test: MarkovTest | None, shown: SafetyTest | None) -> list[str]:
    """What every statement about the policy rests on, in words."""
    if test is None:
        markov = "the state tells all that matters for what follows (not tested: the log has no episodes in order)"
    elif test.failed:
        markov = "the state tells all that matters for what follows, which the log's own episodes contradict"
    else:
        markov = f"the state tells all that matters for what follows (tested on {test.episodes} episodes, not refuted)"
    told = shown is not None and shown.by == "held-out rows"
    return [
        markov,
        "whoever acted knew no more than the state columns say (no hidden confounder)",
        "the world where the policy acts is the one that was logged",
        f"{'rows' if told or test is None else 'episodes'} of the log are independent of each other",
        "no single cost is larger than the largest in the log",
    ]


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
