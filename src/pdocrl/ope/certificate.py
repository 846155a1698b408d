"""What `pdocrl certify` states: a verdict, the number behind it, the confidence it has, and what it rests on.

A statement is about one policy and one cost. It is one of

    within            the mean cost of an episode is at most the limit, wrong with probability 1 − confidence
    over              it is more than the limit, likewise
    cannot be shown   neither; with how many episodes of an audit would probably do

A certificate has one statement per policy and constraint; its own verdict is the worst of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pdocrl.evaluation.tails import LimitScore
from pdocrl.limits import Limit
from pdocrl.records import Part, Record

Verdict = Literal["within", "over", "cannot be shown"]
FILE, PICTURE = "certificate.json", "certificate.png"


class Statement(Part, frozen=True, kw_only=True):
    """One policy, one cost."""

    policy: str  # whose: a run of a training, a file of episodes, a solved policy
    cost: str  # the constraint's name
    cost_limit: float  # of an episode's cost; of an exceedance its threshold
    verdict: Verdict
    confidence: float | None  # of the verdict and of each bound; null where none can be claimed
    basis: Literal["audit", "simulator", "held-out log", "training log", "solved log", "log"]
    sentence: str  # for a person
    assumption: str  # what it rests on
    mean_cost: float | None
    mean_cost_lower: float | None = None  # one-sided bounds, each at the confidence
    mean_cost_upper: float | None = None
    share_over: float | None = None  # of episodes over the limit
    share_over_upper: float | None = None
    episodes: int | None = None  # real or simulated ones that were looked at
    episodes_needed: int | None = None  # of an audit that would probably show it within; null: none would, or unknown
    largest_cost: float | None = None  # what an episode can cost at most
    estimate_beside: float | None = None  # the log's estimate of the same mean, where an audit was made of it
    limit: LimitScore | None = None  # where the verdict is on another limit than that of the mean


class PolicyCertificate(Record, frozen=True, kw_only=True):
    """certificate.json; the fields after `confidence` are those of the statement nearest to its limit, or beyond it."""

    FORMAT: ClassVar[int] = 1
    verdict: Verdict
    confidence: float | None
    share_over_upper: float | None
    mean_cost_upper: float | None
    statements: list[Statement]
    notes: list[str]

    @staticmethod
    def of(statements: Sequence[Statement], notes: Sequence[str] = ()) -> PolicyCertificate:
        worst = max(statements, key=_badness)
        verdicts = {one.verdict for one in statements}
        verdict: Verdict = "over" if "over" in verdicts else "within" if verdicts == {"within"} else "cannot be shown"
        sure = [one.confidence for one in statements]
        return PolicyCertificate(
            verdict=verdict,
            confidence=None if None in sure else min(c for c in sure if c is not None),
            share_over_upper=worst.share_over_upper,
            mean_cost_upper=worst.mean_cost_upper,
            statements=list(statements),
            notes=list(notes),
        )


def _badness(one: Statement) -> tuple[int, float]:
    """Over before cannot be shown before within; among equals the bound's share of the limit."""
    order = {"within": 0, "cannot be shown": 1, "over": 2}[one.verdict]
    upper, limit = one.mean_cost_upper, one.cost_limit
    if one.limit is not None:
        upper, limit = one.limit.upper, Limit.parse(one.limit.limit).value
    bound = upper if upper is not None else float("inf")
    return order, bound / limit if limit > 0 else bound


def percent(confidence: float) -> str:
    """0.95 → 95 %, 0.995 → 99.5 %."""
    return f"{100 * confidence:.10g} %"
