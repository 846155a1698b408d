"""What `pdocrl certify` states: a verdict, the number behind it, the confidence it has, and what it rests on.

A picture (`draw`) shows how episode costs are distributed, the limit, and what is said of their mean.

A statement is about one policy and one cost. It is one of

    within            the mean cost of an episode is at most the limit, wrong with probability 1 − confidence
    over              it is more than the limit, likewise
    cannot be shown   neither; with how many episodes of an audit would probably do

A certificate has one statement per policy and constraint; its own verdict is the worst of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.plot import FAINT, INK, MUTED, STYLE
from pdocrl.evaluation.tails import LimitScore
from pdocrl.limits import Limit
from pdocrl.records import Part, Record
from pdocrl.table import DASH, Table

Verdict = Literal["within", "over", "cannot be shown"]
FILE, PICTURE = "certificate.json", "certificate.png"
COLOUR = {"within": "#0b6e6e", "over": "#d1495b", "cannot be shown": "#8a6d1d"}
SIMULATED = "#30638e"
MOST = 12  # panels
BINS = 30


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

    def table(self) -> Table:
        """One row per policy and cost."""
        heads = ["policy", "cost", "limit", "verdict", "confidence", "mean cost (low, high)", "share over ≤", "basis"]
        rows = [
            [
                s.policy,
                s.cost,
                f"{s.cost_limit:g}" if s.limit is None else s.limit.limit,
                s.verdict,
                DASH if s.confidence is None else percent(s.confidence),
                _bounds(s.mean_cost, s.mean_cost_lower, s.mean_cost_upper),
                DASH if s.share_over_upper is None else f"{100 * s.share_over_upper:.3g} %",
                s.basis,
            ]
            for s in self.statements
        ]
        return Table.of(heads, rows, "certificate", "certificate")

    def told(self) -> list[str]:
        """Every statement in words, what it rests on, and notes."""
        rests = dict.fromkeys(s.assumption for s in self.statements)
        said = [f"{s.policy}, {s.cost}: {s.sentence}" for s in self.statements]
        return [*said, *(f"This rests on: {one}" for one in rests), *(f"Note: {note}" for note in self.notes)]

    def summary(self) -> str:
        """The table and every statement, as text."""
        return "\n".join([self.table().markdown(), *self.told()])

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f" at {percent(self.confidence)}"
        return f"PolicyCertificate({self.verdict}{sure}: {len(self.statements)} statements)"

    def _repr_html_(self) -> str:
        return self.table().notebook(self.told())


def _bounds(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return DASH
    ends = ", ".join(DASH if end is None else f"{end:.4g}" for end in (low, high))
    return f"{value:.4g} ({ends})"


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


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """A statement and the costs of the episodes behind it: played ones, simulated ones, or both."""

    statement: Statement
    played: NDArray[np.float64] | None = None
    simulated: NDArray[np.float64] | None = None
    unit: str = "of an episode"
    at_least: bool = False  # the limit is satisfied on its right


def draw(panels: list[Shown], path: Path) -> None:
    """One panel per statement."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = panels[:MOST]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 4.6 * columns), 3.4 * rows), layout="constrained", facecolor="white")
        for i, one in enumerate(shown):
            _panel(figure.add_subplot(rows, columns, i + 1), one)
        if len(panels) > MOST:
            figure.suptitle(f"the first {MOST} of {len(panels)} statements", color=MUTED, fontsize=9)
        figure.savefig(path, dpi=130, format="png")


def _panel(axes: Any, one: Shown) -> None:
    told = one.statement
    colour, limit = COLOUR[told.verdict], told.cost_limit
    samples = [x for x in (one.played, one.simulated) if x is not None]
    bounds = [x for x in (told.mean_cost_lower, told.mean_cost_upper, told.mean_cost) if x is not None]
    right = 1.08 * max([limit, *bounds, *(float(x.max(initial=0.0)) for x in samples), 1e-9])
    edges = _edges(limit, right, samples)
    right, top = float(edges[-1]), 0.0
    if one.played is not None:
        share = _shares(one.played, edges)
        axes.bar(
            edges[:-1], share, np.diff(edges), align="edge", color=colour, alpha=0.45, lw=0, label="episodes played"
        )
        top = max(top, float(share.max()))
    if one.simulated is not None:
        share = _shares(one.simulated, edges)
        axes.stairs(share, edges, color=SIMULATED, lw=1.3, label="episodes simulated")
        top = max(top, float(share.max()))
    top = top or 1.0
    axes.axvline(limit, color=COLOUR["over"], lw=1.6)
    beyond = (float(edges[0]), limit) if one.at_least else (limit, right)
    axes.axvspan(*beyond, color=COLOUR["over"], alpha=0.06, lw=0)
    axes.text(limit, 1.22 * top, " limit", color=COLOUR["over"], fontsize=8, va="top")
    if told.mean_cost is not None:
        low = told.mean_cost_lower if told.mean_cost_lower is not None else told.mean_cost
        high = told.mean_cost_upper if told.mean_cost_upper is not None else told.mean_cost
        axes.plot([low, high], [1.1 * top] * 2, color=colour, lw=3, solid_capstyle="butt")
        axes.plot(told.mean_cost, 1.1 * top, "o", color=colour, ms=6, label="mean, with its bounds")
    if told.estimate_beside is not None:
        axes.plot(told.estimate_beside, 1.1 * top, "D", color=SIMULATED, ms=5, label="the log's estimate")
    axes.set(xlim=(edges[0], right), ylim=(0, 1.25 * top), ylabel="share of episodes")
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= min(1.0, 1.25 * top)])
    if not samples:  # a bound from counts: there are no episodes to draw
        axes.set(yticks=[], ylabel="", ylim=(top, 1.25 * top))
    axes.set_xlabel(f"{told.cost} {one.unit}")
    axes.set_title(f"{told.policy}: {told.verdict}", color=INK, fontsize=9, loc="left")
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, labelcolor=MUTED)
    axes.grid(color=FAINT, lw=0.5)


def _edges(limit: float, right: float, samples: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Of bins that hold their right end, one of which ends at the limit: no bar is on both sides of it."""
    width = right / BINS
    if all((x == np.round(x)).all() for x in samples) and limit == round(limit):
        width = float(np.ceil(width))  # whole costs: every bin holds as many
    return np.asarray(limit + width * np.arange(-np.ceil(limit / width) - 1, np.ceil((right - limit) / width) + 1))


def _shares(costs: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the costs in each bin (left, right]."""
    return np.asarray(np.histogram(-costs, -edges[::-1])[0][::-1] / len(costs))
