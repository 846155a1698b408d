"""Candidates for a safety test: policies learned more or less carefully from one part of a log.

Near the log or far from it (C, the rows a pair needs), with limits tightened by a share of the Slater margin, with
bounds on costs in place of costs, or with costs inflated by what few rows can hide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.solvers.cost_inflation import plan_for_inflated, rows_with_margin
from pdocrl.tabular.solvers.count_threshold import frequent_only
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units
from pdocrl.tabular.solvers.robust import plan_for_bounds
from pdocrl.tabular.solvers.saddle import Setup, Solution, best_policy, slater_margin, solve_saddle, with_policy

Objective = Literal["costs", "bounds", "inflated", "behaviour"]  # what was planned for, or the log's own policy
Z = 1.645  # of the bounds that are planned for


class Problem(NamedTuple):
    """What a candidate is learned from."""

    counts: Counts  # of pairs above the count threshold
    L: Lagrangian
    limits: tuple[Limit, ...]
    margin: Floats  # [I] how far inside each limit a covered policy can be, in the limits' own units; 0 if outside


@dataclasses.dataclass(frozen=True)
class Candidate:
    """How one is learned."""

    setup: Setup
    min_count: int
    tightening: float = 0.0  # of the limits, in shares of the Slater margin
    price: float | None = None  # of bounds on costs (see `robust`); None: reward within limits on the costs themselves
    inflated: bool = False  # plan for costs inflated by what few rows can hide (see `cost_inflation`)
    thresholds: tuple[int, ...] = ()  # of an inflated one: rows a pair needs, the first that leaves a margin

    @property
    def objective(self) -> Objective:
        """What is planned for."""
        if self.inflated:
            return "inflated"
        return "costs" if self.price is None else "bounds"

    @property
    def one_row_is_enough(self) -> bool:
        """Whether a pair is believed after one row, as in a deterministic world."""
        return self.thresholds == (1,) if self.inflated else self.min_count == 1

    def problem(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> Problem:
        """The log without pairs below the count threshold."""
        counts = frequent_only(log, self.rows(log, gamma, limits))
        L = Lagrangian.empirical(counts, gamma, limits)
        units = Units.of(L)
        inside = np.asarray(max(slater_margin(units.scale(L), self.setup.C), 0.0) * units.constraints)
        return Problem(counts, L, tuple(limits), inside)

    def rows(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> int:
        """That a pair of this log needs."""
        return rows_with_margin(log, gamma, limits, self.thresholds) if self.inflated else self.min_count

    def solve(self, problem: Problem, inward: Floats) -> Solution:
        """The best policy that keeps every limit by `inward` [I], in the limits' own units."""
        L = problem.L
        found = solve_saddle(dataclasses.replace(L, tau=L.tau + inward), self.setup)
        return with_policy(found, self.policy(problem, inward)) if self.objective != "costs" else found

    def policy(self, problem: Problem, inward: Floats) -> Floats:
        """Its policy [S, A] alone, which takes a fraction of the time."""
        L = problem.L
        if self.inflated:
            return plan_for_inflated(problem.counts, L, problem.limits, Z)
        if self.price is not None:
            return plan_for_bounds(problem.counts, L, problem.limits, Z, self.price)
        return best_policy(dataclasses.replace(L, tau=L.tau + inward), self.setup)

    def learn(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> tuple[Floats, Floats]:
        """The policy [S, A] learned from a log, and by how much [I] its limits were tightened."""
        problem = self.problem(log, gamma, limits)
        inward = self.tightening * problem.margin
        return self.policy(problem, inward), inward
