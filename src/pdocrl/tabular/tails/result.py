"""What limits on tails led to: a record that is printed, saved and loaded, and the files of its policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

from pdocrl.files import atomic_path, write_json
from pdocrl.limits import Limit
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.table import Table
from pdocrl.tabular.counts import Label
from pdocrl.tabular.tails import policy as policies
from pdocrl.tabular.tails.policy import TailPolicy

FILE = "result.json"


class Remembered(Part, frozen=True, kw_only=True):
    """How the spending on one column is kept."""

    name: str
    unit: float
    cap: int  # in units; above it spending is "over"
    exact: bool  # all costs are multiples of the unit
    error: float  # by how much an episode's rounded total can exceed its total
    values: list[float]  # that the total cost of an episode can have, up to the cap
    probabilities: list[float]  # of each under the policy
    over: float  # the probability of more
    over_mean: float  # … and the mean total then

    def measure(self, limit: Limit) -> float:
        """P(C > θ) or CVaR of an episode's total, where they are told apart: θ, or the quantile, up to the cap."""
        if limit.threshold is not None:
            pairs = zip(self.values, self.probabilities, strict=True)
            return self.over + sum(p for x, p in pairs if x > limit.threshold + 1e-9 * self.unit)
        assert limit.level is not None
        return min(t + self.above(t) / (1 - limit.level) for t in {0.0, *self.values})

    def above(self, t: float) -> float:
        """E[(C − t)₊] for t up to the cap."""
        inside = sum(p * max(x - t, 0.0) for x, p in zip(self.values, self.probabilities, strict=True))
        return inside + self.over * (self.over_mean - t)


class Line(Part, frozen=True, kw_only=True):
    """π(a | state, step, spent) of one pair."""

    state: Label
    step: int
    spent: list[int]  # in units, one per remembered column
    action: Label
    probability: float


class TailResult(Record, frozen=True, kw_only=True):
    """A policy under limits of which some are on tails. Value and mean costs are totals per episode."""

    FORMAT: ClassVar[int] = 1

    status: Literal["optimal", "approximate", "infeasible"]
    value: float  # E Σ γᵗ r of the policy, in the log's own model
    limits: list[Limit]
    costs: list[float]  # [I] what each limit's measure is: a mean, a probability, a CVaR, the chance of a larger step
    log_value: float  # the same of the policy that made the log
    log_costs: list[float]
    multipliers: list[float]  # [I] what one unit of each limit is worth in reward
    lower: float  # the policy's value, if it satisfies the limits
    upper: float  # no policy of the log's own model that satisfies the limits, with whatever memory, is worth more
    gamma: float
    horizon: int
    remembered: list[Remembered]
    thresholds: list[float | None]  # [I] the t at which a CVaR's program was solved
    states: int  # of the augmented problem
    pairs: int
    min_count: int  # pairs with fewer rows were left out
    rows: int
    notes: list[str]
    actions: list[Label]
    lines: list[Line]
    unseen: list[float]  # [A] what to do in states the log has nothing of

    @property
    def certificate(self) -> float:
        """The gap of upper and lower."""
        return max(self.upper - self.lower, 0.0)

    @property
    def policy(self) -> TailPolicy:
        """`act(state, spent, step)`."""
        return TailPolicy(self.content())

    @property
    def all_notes(self) -> list[str]:
        """What was remembered, the certificate, and what a reader should not overlook."""
        kept = ", ".join(f"`{x.name}` in steps of {x.unit:g} up to {x.cap * x.unit:g}" for x in self.remembered)
        memory = f"the policy remembers what was spent ({kept}): " if kept else ""
        size = f"{self.states:,} states, {self.pairs:,} pairs"
        return [
            f"{memory}{size}; certified within {self.certificate:.2g} of the best.",
            *self.notes,
            "all numbers are of the log's own model; `pdocrl certify` tests a policy on other episodes.",
        ]

    def missed(self) -> str:
        """That the limits cannot be satisfied, and what comes closest."""
        told = " and ".join(f"{limit} (is {cost:.4g})" for limit, cost in zip(self.limits, self.costs, strict=True))
        return f"no policy of the log's own model satisfies the limits; what is shown misses them least: {told}."

    def content(self) -> dict[str, Any]:
        """What `policy.json` holds."""
        return {
            "format": 1,
            "actions": self.actions,
            "columns": [{"name": one.name, "unit": one.unit, "cap": one.cap} for one in self.remembered],
            "unseen": {"rule": "careful", "chances": self.unseen},
            "rows": [
                {
                    "state": line.state,
                    "step": line.step,
                    "spent": line.spent,
                    "action": line.action,
                    "probability": line.probability,
                }
                for line in self.lines
            ],
        }

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write result.json, policy.json and act.py, which runs the policy with NumPy alone."""
        folder = Path(folder)
        files = [folder / name for name in (FILE, "policy.json", "act.py")]
        write_record(files[0], self)
        write_json(files[1], self.content())
        with atomic_path(files[2]) as path:
            path.write_bytes(Path(policies.__file__).read_bytes())
        return files

    def summary(self) -> str:
        """The table and the notes, as text."""
        return "\n".join([self.table().markdown(), *(f"note: {note}" for note in self.all_notes)])

    def _repr_html_(self) -> str:
        return self.table().notebook(self.all_notes)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> TailResult:
        """What `save` wrote."""
        return read_record(Path(folder) / FILE, TailResult, "Solve again with a limit on a tail.")

    def table(self) -> Table:
        """Reward and limits, of the policy and of the log."""
        rows: list[tuple[object, ...]] = [("reward", "", self.log_value, self.value, "")]
        for limit, cost, logged, price in zip(self.limits, self.costs, self.log_costs, self.multipliers, strict=True):
            rows.append((limit.left, f"{limit.sense}{limit.value:g}", logged, cost, price))
        shown = [[f"{x:.4g}" if isinstance(x, float) else x for x in row] for row in rows]
        title = f"{self.status}: per episode of at most {self.horizon} steps, in the log's own model"
        return Table.of(("", "limit", "log", "policy", "multiplier"), shown, title)
