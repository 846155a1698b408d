"""What `pdocrl.ope` returns for policies on a log: the record that is printed, saved and loaded."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

from pdocrl.errors import UnknownNameError
from pdocrl.evaluation.audit import Verdict as Verdict
from pdocrl.records import Part, Record, read_record, write_record

Interval = tuple[float, float]  # low, high


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


class PolicyReport(Part, frozen=True, kw_only=True):
    """What the log tells of one policy."""

    name: str
    verdict: Verdict | None  # of all limits together; null without limits
    limits: list[LimitVerdict]
    estimates: list[EstimatorReport]
    decides: str | None  # the estimator that speaks for the reward
    distribution: list[CostDistribution]
    overlap: list[ActionOverlap]
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


class Choice(Part, frozen=True, kw_only=True):
    """Which of several policies."""

    ranking: list[str]  # by estimated reward, those within the limits first
    safe: list[str]  # shown within all limits, all of them together at the confidence (Holm)
    best: str | None  # of largest estimated reward among the safe ones; without limits, among all
    regret_upper: float | None  # so much more may another of the candidates earn, at most, at the confidence
    comparisons: list[Comparison]  # with the logged decisions, and of each with the best


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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, whole or not at all."""
        write_record(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OpeReport:
        return read_record(path, cls, "Make it again with pdocrl.ope(policies, log).save(path).")
