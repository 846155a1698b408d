"""What `pdocrl solve` on a log of columns finds: the record that is returned, saved, loaded and printed.

Every value is in the record's `unit`: the total of an episode, or (1−γ) times the discounted total.
"""

from __future__ import annotations

from typing import Literal

from pdocrl.limits import Limit
from pdocrl.records import Part, Record

EVERYONE = "all"  # deciders together
Status = Literal["shown", "not shown", "estimated", "best decider", "none"]


class Measured(Part, frozen=True, kw_only=True):
    """A mean with its two-sided interval."""

    value: float
    interval: tuple[float, float] | None


class Decider(Part, frozen=True, kw_only=True):
    """What came of the episodes one decider decided. Episodes that were cut short are completed by prediction."""

    name: str
    episodes: int
    cut_short: int
    means: dict[str, Measured]  # signal → mean of the episodes
    within: dict[str, Measured]  # limit → share of episodes whose own total is within it
    satisfied: Literal["yes", "no", "unclear"]  # whether the intervals of the means lie within all limits, or outside


class HeldOut(Part, frozen=True, kw_only=True):
    """What the part of the log that had no say in learning tells of one signal."""

    value: float
    error: float  # standard error, with the error of the estimator on deciders whose outcome is known
    freedom: float  # degrees of freedom
    estimator: str
    overlap: bool  # whether enough of the log decided like the policy for an interval to be meant
    skewness: float = 0.0  # of what the value is the mean of, over the root of their number
    seldom: tuple[float, float, float] | None = None  # k of n effective episodes had the cost: of this size


class CandidateFound(Part, frozen=True, kw_only=True):
    """One candidate."""

    name: str
    what: str
    held_out: dict[str, HeldOut]
    believed: dict[str, float] | None  # by the learner itself, on its own part
    second: dict[str, float] | None = None  # by trees, of those that were about to be chosen
    limits: dict[str, Literal["shown", "within", "unclear", "over"]]  # limit → verdict


class Validated(Part, frozen=True, kw_only=True):
    """An estimator tried where the answer is known: a decider's outcome from the episodes of the others."""

    decider: str
    signal: str
    estimator: str
    predicted: float
    realised: float
    error: float  # standard error of their difference


class ColumnImportance(Part, frozen=True, kw_only=True):
    """How many choices change if a column's values are shuffled among rows."""

    column: str
    changed: float  # share of rows, 0 … 1


class Surrogate(Part, frozen=True, kw_only=True):
    """A small tree that imitates the policy."""

    lines: list[str]
    fidelity: float  # share of held-out rows where it has the policy's most probable action
    held_out: dict[str, HeldOut]  # its own estimates


class SolvedLog(Record, frozen=True, kw_only=True):
    """A policy chosen among candidates, and what is known of it."""

    log: str
    rows: int  # of the log
    used: int  # rows read; fewer where a sample was drawn
    episodes: int
    cut_short: int
    columns: list[str]
    ignored: list[str]
    actions: list[str]
    unit: str
    limits: list[str]
    confidence: float | None
    seed: int
    chosen: str
    status: Status
    why: str
    logged: dict[str, float]
    deciders: list[Decider]
    candidates: list[CandidateFound]
    validation: list[Validated]
    importance: list[ColumnImportance]
    surrogate: Surrogate | None
    assumptions: list[str]
    notes: list[str]
    seconds: float

    def candidate(self, name: str) -> CandidateFound:
        """By its name."""
        return next(one for one in self.candidates if one.name == name)

    @property
    def best_decider(self) -> Decider | None:
        """Of those whose own episodes satisfy every limit on average, the one of highest reward."""
        limits = [Limit.parse(text) for text in self.limits]
        kept = [
            one
            for one in self.deciders
            if one.name != EVERYONE
            and all(limit.sign * (one.means[limit.name].value - limit.value) >= 0 for limit in limits)
        ]
        return max(kept, key=lambda one: one.means["reward"].value, default=None)

    @property
    def policy(self) -> CandidateFound:
        """The candidate that was chosen."""
        return self.candidate(self.chosen)
