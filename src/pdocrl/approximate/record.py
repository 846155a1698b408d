"""What `pdocrl.approximate.solve` returns: a record that is saved as it is."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

from pdocrl.approximate.softmax_policy import LinearPolicy
from pdocrl.limits import Limit
from pdocrl.records import Record, read_record, write_record


class Solved(Record, frozen=True, kw_only=True):
    """A policy on real-valued states, and the exact gap of the saddle problem it comes from. Values are (1−γ)J."""

    FORMAT: ClassVar[int] = 1

    status: Literal["optimal", "approximate", "infeasible"]  # optimal: certified within 1 % of the largest reward
    method: str
    gamma: float
    limits: list[Limit]
    value: float  # ⟨w, r⟩ of the w that speaks best for the policy
    costs: list[float]  # [I] likewise, of each limited column
    log_value: float  # of the log's rows
    log_costs: list[float]
    multipliers: list[float]  # [I] λ: what one unit of each limit is worth in reward
    lower: float  # D of `policy`: L̂ with the best w, against the worst Q and λ of their classes
    upper: float  # U: no w and no policy whatever does better against Q̄ and λ̄
    mixture_lower: float | None  # D of `mixture`
    C: float
    B: float  # in units in which the largest reward and cost are 1
    q_size: int  # coefficients
    w_size: int
    rows: int
    states: int  # distinct ones
    iterations: int | None  # of the algorithms that iterate
    notes: list[str]
    policy: LinearPolicy  # one stationary policy
    mixture: LinearPolicy | None  # Uniform(π_1 … π_T) of the paper's algorithm; `draw` one per episode

    @property
    def gap(self) -> float:
        """ξ of `policy`."""
        return max(self.upper - self.lower, 0.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as one JSON file."""
        write_record(path, self)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Solved:
        """What `save` wrote."""
        return read_record(path, Solved, "Solve again with pdocrl.approximate.solve.")
