"""What `pdocrl.ope` returns: `OpeReport`, of policies on a log or a dataset, and `OffPolicy`, of a training.

`OffPolicy` is what ope.json holds: estimates, intervals, one verdict, one flag.

format                  2; files of version 0.2 are read, too
method                  `ensemble`; behaviours, and fitted Q evaluation with --compare, are under `by_method` too
level, horizon          0.95, and the steps of an episode whose undiscounted sums are estimated
data                    {name, digest}
versions, settings      what made the numbers
calibration, behaviours of the two estimates on groups of episodes they had not seen; see `ensemble.calibrate`
task, agent, step       of the training
runs[i]                 in the plan's order; every run has
    agent, cost_limit [K], seed, and the settings the runs vary
    reward, reward_interval [low, high]
    cost [K], cost_interval [K][low, high]
    normalized_reward, normalized_reward_interval      null without a task
    normalized_cost, normalized_cost_interval          of the worst constraint; null without constraints
    within_limit        true: shown, false: shown to be over, null: neither
    verdict             the same in words
    trusted, warnings   false with the reasons, when the data cannot carry the estimate; see `ensemble.support`
    outside                                            what the flag is decided by
    decides             `ensemble`, or `behaviours` where they speak alone; see `ensemble.opinions`
    by_method           {method: {reward, reward_interval, cost, cost_interval}}
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from pdocrl import deprecations
from pdocrl.data.tasks import Task
from pdocrl.errors import UnknownNameError
from pdocrl.evaluation.audit import Verdict as Verdict
from pdocrl.evaluation.evaluate import DataName
from pdocrl.evaluation.normalise import normalised_cost, normalised_reward
from pdocrl.files import write_json
from pdocrl.ope import assumptions
from pdocrl.records import Part, Record, as_plain, read_record, write_record
from pdocrl.table import DASH, Table

FILE = "ope.json"
LEVEL = 0.95
VERDICTS = {True: "within limit at 95 %", False: "over the limit", None: "not shown"}

Floats = NDArray[np.float64]
Interval = tuple[float, float]  # low, high


def with_interval(value: float | None, interval: Interval | None) -> str:
    """ "12.3 [10, 15]"."""
    if value is None:
        return DASH
    return f"{value:.4g}" if interval is None else f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"


class Told(Protocol):
    """Any method's word on one policy."""

    @property
    def value(self) -> Floats: ...

    @property
    def interval(self) -> Floats: ...


class EstimatedSums(Part, frozen=True, kw_only=True):
    """One method's estimate of one policy, as a file holds it; fitted Q evaluation has no intervals."""

    reward: float
    reward_interval: Interval | None = None
    cost: list[float]  # [K]
    cost_interval: list[Interval] | None = None  # [K]

    @staticmethod
    def of(told: Told) -> EstimatedSums:
        reward, *costs = [(low, high) for low, high in told.interval.tolist()]
        return EstimatedSums(
            reward=float(told.value[0]), reward_interval=reward, cost=told.value[1:].tolist(), cost_interval=costs
        )


class OpeRun(Part, frozen=True, kw_only=True):
    """What is said of the policy of one run."""

    reward: float
    reward_interval: Interval
    cost: list[float]  # [K]
    cost_interval: list[Interval]  # [K]
    agent: str
    cost_limit: list[float]  # [K]
    seed: int
    varied: dict[str, object] = field(default_factory=dict)  # in a file beside the other fields; not read back
    normalized_reward: float | None
    normalized_reward_interval: Interval | None
    normalized_cost: float | None
    normalized_cost_interval: Interval | None
    within_limit: bool | None
    verdict: str
    trusted: bool
    warnings: list[str]
    outside: float
    by_method: dict[str, EstimatedSums]
    decides: str = "ensemble"

    @property
    def bound_is_narrower(self) -> bool:
        """Whether a limit is shown to be satisfied although the interval reaches beyond it; see `NARROWER`."""
        return self.within_limit is True and any(
            high > limit for (_, high), limit in zip(self.cost_interval, self.cost_limit, strict=True)
        )


NARROWER = (
    "Where a limit is shown to be satisfied and the interval reaches beyond it: the verdict's bound has one side and "
    "holds at 95 % on average over logs, the interval has two and is to hold for nine logs of ten."
)


class GroupPoints(Part, frozen=True, kw_only=True):
    """One signal of every group of episodes, [G] each."""

    truth: list[float]
    predicted: list[float]


class CalibrationNote(Part, frozen=True, kw_only=True):
    """What an estimate was calibrated on and how it did there, by signal."""

    groups: int
    level: float
    factor: dict[str, float]
    coverage_left_out: dict[str, float]
    median_error: dict[str, float]
    points: dict[str, GroupPoints]
    skill: dict[str, float] = field(default_factory=dict)  # share of the variance between groups that is predicted


class OpeSettings(Part, frozen=True, kw_only=True):
    """What the numbers were made with."""

    seed: int
    ways: tuple[str, ...] = ("recorded",)  # in which the ensembles learned, each keeps one of them


class OffPolicy(Record, frozen=True, kw_only=True):
    """The estimates of every run of a training: what ope.json holds."""

    FORMAT: ClassVar[int] = 2
    task: str | None
    agent: str
    method: str
    level: float
    horizon: int
    data: DataName
    step: int
    versions: dict[str, str]
    settings: OpeSettings
    calibration: CalibrationNote | None
    runs: list[OpeRun]
    behaviours: CalibrationNote | None = None

    def table(self) -> Table:
        """Reward, costs and verdict of every run."""
        heads = ["agent", "cost limit", "seed", "reward [95 %]", "cost [95 %]", "verdict"]
        rows = [
            [
                run.agent,
                ", ".join(f"{limit:g}" for limit in run.cost_limit) or DASH,
                run.seed,
                with_interval(run.reward, run.reward_interval),
                "; ".join(with_interval(c, i) for c, i in zip(run.cost, run.cost_interval, strict=True)),
                run.verdict,
            ]
            for run in self.runs
        ]
        return Table.of(heads, rows, f"{self.agent} on {self.data.name}: estimates from the data alone", "ope")

    @property
    def assumptions(self) -> list[str]:
        """What the estimates rest on, a line for the ensemble and one for logged behaviours, where they decide."""
        deciding = {run.decides for run in self.runs}
        told = {"ensemble": assumptions.DYNAMICS, "behaviours": assumptions.BEHAVIOURS}
        return [f"by {name}: rests on: {'; '.join(rests)}" for name, rests in told.items() if name in deciding]

    def summary(self) -> str:
        """The table, warnings and assumptions, as text."""
        return "\n".join([self.table().markdown(), *self._warnings(), *self.assumptions])

    def __repr__(self) -> str:
        return f"OffPolicy({self.agent} on {self.data.name}: {'; '.join(run.verdict for run in self.runs)})"

    def _repr_html_(self) -> str:
        return self.table().notebook([*self._warnings(), *self.assumptions])

    def _warnings(self) -> list[str]:
        return [f"run {i}: {warning}" for i, run in enumerate(self.runs) for warning in run.warnings]

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Files of version 0.2 have other names."""
        plain = deprecations.fields(FILE, fields)
        return plain | {"runs": [deprecations.fields(FILE, run) for run in plain["runs"]]}

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the settings that vary stand beside the other fields of a run."""
        plain = as_plain(self)
        return plain | {"runs": [run.pop("varied") | run for run in plain["runs"]]}


def write_ope(folder: Path, result: OffPolicy) -> None:
    """ope.json of a training, whole or not at all."""
    write_json(folder / FILE, {"format": result.FORMAT, **result.as_dict()})


def read_ope(folder: str | os.PathLike[str]) -> OffPolicy:
    """What `pdocrl ope` wrote into a training folder."""
    return read_record(Path(folder) / FILE, OffPolicy, f"Make it again: pdocrl ope {folder}")


def reward_score(task: Task | None, told: Told) -> tuple[float, Interval] | tuple[None, None]:
    """The reward and its interval on the scale of the scores that roll-outs get; nothing without a task."""
    if task is None:
        return None, None
    low, high = normalised_reward(task, told.interval[0]).tolist()
    return float(normalised_reward(task, told.value[0])), (low, high)


def cost_score(told: Told, limit: Sequence[float]) -> tuple[float, Interval] | tuple[None, None]:
    """The cost of the worst constraint over its limit, and its interval; nothing without constraints.

    Which one is worst is itself estimated: the interval is of the largest, and reaches up to the highest end of all.
    """
    if not len(limit):
        return None, None
    cost = normalised_cost(told.value[1:], limit)
    low, high = (normalised_cost(end, limit).max() for end in told.interval[1:].T)
    return float(cost.max()), (float(low), float(high))


class EstimatorReport(Part, frozen=True, kw_only=True):
    """One estimator on one policy: totals of an episode. Null where there is no overlap, or no interval."""

    estimator: str
    reward: float | None
    reward_interval: Interval | None
    cost: list[float | None]  # [K] in the order of `costs` of the report
    cost_interval: list[Interval | None]  # [K]
    ess: float | None  # effective sample size in episodes, (Σw)²/Σw²
    largest_weight: float | None  # the largest share of one episode in the sum of all weights
    usable: bool  # whether its diagnostics let it decide
    assumptions: list[str]


class LimitVerdict(Part, frozen=True, kw_only=True):
    """Whether a policy satisfies one limit."""

    limit: str
    verdict: Verdict
    estimator: str | None  # the one that decided
    value: float | None
    lower: float | None  # the interval that decided, at the report's confidence
    upper: float | None
    p_value: float  # least 1 − confidence at which it is shown within; 1 where none was computed
    confounding: float | None  # Γ: odds of decisions off by this factor at every step would overturn the verdict
    why: str


class ActionOverlap(Part, frozen=True, kw_only=True):
    """How the log covers one action of the policy."""

    action: str
    policy: float  # mean probability at logged states
    logged: float  # share of logged decisions
    largest_ratio: float  # of π/b at a logged decision


class CostDistribution(Part, frozen=True, kw_only=True):
    """Episode totals of a cost under the policy, by weighted episodes."""

    cost: str
    median: float
    q90: float
    q95: float
    cvar90: float


SHARES = [k / 20 for k in range(21)]  # of the episodes


class PolicyReport(Part, frozen=True, kw_only=True):
    """What the log tells of one policy."""

    name: str
    verdict: Verdict | None  # of all limits together; null without limits
    limits: list[LimitVerdict]
    estimates: list[EstimatorReport]
    decides: str | None  # the estimator that speaks for the reward
    distribution: list[CostDistribution]
    overlap: list[ActionOverlap]
    weight_shares: list[float] | None = None  # of all importance weight that the heaviest `SHARES` of episodes have
    disagreement: dict[str, float]  # signal → largest distance of two usable estimates, in their joint half-widths
    assumptions: list[str]
    warnings: list[str]

    def of(self, estimator: str) -> EstimatorReport:
        found = [one for one in self.estimates if one.estimator == estimator]
        if not found:
            raise UnknownNameError("estimator", estimator, [one.estimator for one in self.estimates])
        return found[0]


class DeciderReport(Part, frozen=True, kw_only=True):
    """What was logged of one decider, or of all of them."""

    name: str
    episodes: int
    reward: float
    reward_interval: Interval | None
    cost: list[float]  # [K]
    cost_interval: list[Interval | None]
    within: list[bool]  # whether the sample's own value satisfies each limit


class Comparison(Part, frozen=True, kw_only=True):
    """A paired difference, policy − other, from the same episodes."""

    policy: str
    other: str
    signal: str
    difference: float
    interval: Interval


class TopK(Part, frozen=True, kw_only=True):
    """The first k of the ranking: what trying all of them can still miss."""

    k: int
    regret_upper: float  # so much more may another candidate gain than the best of them; 0: the best is among them


class Choice(Part, frozen=True, kw_only=True):
    """Which of several policies."""

    ranking: list[str]  # by estimated reward, those within the limits first
    safe: list[str]  # shown within all limits, all of them together at the confidence (Holm)
    best: str | None  # of largest estimated reward among the safe ones; without limits, among all
    regret_upper: float | None  # so much more may another candidate earn, at most; null if one could not be estimated
    comparisons: list[Comparison]  # with the logged decisions, and of each with the best
    top: list[TopK] = field(default_factory=list)  # of k = 1, 2, …; all hold together at the confidence


class OpeReport(Record, frozen=True, kw_only=True):
    """Policies judged from a log of discrete decisions, or from a dataset of vectors."""

    FORMAT: ClassVar[int] = 1
    log: str
    rows: int
    episodes: int
    actions: list[str]
    costs: list[str]  # their names, [K]
    propensities: Literal["logged", "estimated", "not used"]
    discount: float
    confidence: float  # of intervals and of verdicts
    limits: list[str]
    logged: DeciderReport
    deciders: list[DeciderReport]
    policies: list[PolicyReport]
    choice: Choice | None  # of two policies or more
    warnings: list[str]

    def policy(self, name: str) -> PolicyReport:
        found = [one for one in self.policies if one.name == name]
        if not found:
            raise UnknownNameError("policy", name, [one.name for one in self.policies])
        return found[0]

    def table(self) -> Table:
        """The log, its deciders, and every policy by the estimator that decides."""
        heads = ["", "by", *(f"{name} [{100 * self.confidence:.10g} %]" for name in ("reward", *self.costs)), "verdict"]
        rows: list[list[object]] = []
        for seen in (self.logged, *self.deciders):
            means = zip([seen.reward, *seen.cost], [seen.reward_interval, *seen.cost_interval], strict=True)
            within = ("" if not self.limits else "within in the log" if all(seen.within) else "over in the log",)
            rows.append([seen.name, f"{seen.episodes} episodes", *(with_interval(*one) for one in means), *within])
        for one in self.policies:
            shown = [DASH] * (1 + len(self.costs))
            if one.decides is not None:
                e = one.of(one.decides)
                both = zip([e.reward, *e.cost], [e.reward_interval, *e.cost_interval], strict=True)
                shown = [with_interval(*pair) for pair in both]
            rows.append([one.name, one.decides or DASH, *shown, one.verdict or DASH])
        title = f"{self.log}: {self.rows:,} decisions in {self.episodes:,} episodes"
        return Table.of(heads, rows, title, "ope")

    def notes(self) -> list[str]:
        """Why each verdict, what it rests on, and warnings."""
        told = []
        for one in self.policies:
            told += [f"{one.name}: {v.limit}: {v.verdict} ({v.why})" for v in one.limits]
            told += [f"{one.name}: warning: {warning}" for warning in one.warnings]
            told.append(f"{one.name}: rests on: {'; '.join(one.assumptions)}")
        return [*told, *(f"warning: {warning}" for warning in self.warnings)]

    def summary(self) -> str:
        """The table and the notes, as text."""
        return "\n".join([self.table().markdown(), *self.notes()])

    def __repr__(self) -> str:
        told = "; ".join(f"{one.name}: {one.verdict or 'no limit'}" for one in self.policies)
        return f"OpeReport({self.log}, {self.episodes:,} episodes: {told})"

    def _repr_html_(self) -> str:
        return self.table().notebook(self.notes())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, whole or not at all."""
        write_record(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OpeReport:
        return read_record(path, cls, "Make it again with pdocrl.ope(policies, log).save(path).")
