"""Ways to learn a policy that should keep its limits with confidence: near the log or far, by costs or their bounds.

And one for where nothing is shown, by costs enlarged for what few tries can hide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.solvers.cost_inflation import plan_for_enlarged, rows_that_leave_room
from pdocrl.tabular.solvers.count_threshold import trusted
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units
from pdocrl.tabular.solvers.robust import cautious
from pdocrl.tabular.solvers.saddle import Setup, Solution, best_policy, room, solve_saddle, with_policy

Learned = Literal["costs", "bounds", "enlarged", "log"]  # what was planned for, or that it is the log's own policy
Z = 1.645  # of the bounds that a cautious way plans for


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to learn from a log: a bound on w, how many rows a pair needs, and what is optimised."""

    setup: Setup
    min_count: int
    price: float | None = (
        None  # of bounds on costs (see `cautious`); None: reward within limits on the costs themselves
    )

    @property
    def learns(self) -> Learned:
        """What is planned for."""
        return "costs" if self.price is None else "bounds"

    @property
    def one_row_is_enough(self) -> bool:
        """Whether a pair is believed after one row, as in a deterministic world."""
        return self.min_count == 1

    def problem(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> Lesson:
        """What is learned from: the log without its rare pairs."""
        counts = trusted(log, self.rows(log, gamma, limits))
        L = Lagrangian.empirical(counts, gamma, limits)
        units = Units.of(L)
        inside = np.asarray(max(room(units.scale(L), self.setup.C), 0.0) * units.constraints)
        return Lesson(counts, L, tuple(limits), inside)

    def rows(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> int:
        """That a pair of this log needs."""
        return self.min_count

    def solve(self, problem: Lesson, inward: Floats) -> Solution:
        """The best policy that keeps every limit by `inward` [I], in the limits' own units."""
        L = problem.L
        found = solve_saddle(dataclasses.replace(L, tau=L.tau + inward), self.setup)
        return with_policy(found, self.policy(problem, inward)) if self.learns != "costs" else found

    def policy(self, problem: Lesson, inward: Floats) -> Floats:
        """Its policy [S, A] alone, which takes a fraction of the time."""
        L = problem.L
        if self.price is not None:
            return cautious(problem.counts, L, problem.limits, Z, self.price)
        return best_policy(dataclasses.replace(L, tau=L.tau + inward), self.setup)


@dataclasses.dataclass(frozen=True)
class LastWay(Way):
    """Where nothing is shown: by costs enlarged for what few tries can hide (see `enlarged`)."""

    either: tuple[int, ...] = (1,)  # rows that a pair needs, of which a log takes the first that leaves room

    @property
    def learns(self) -> Learned:
        return "enlarged"

    @property
    def one_row_is_enough(self) -> bool:
        return self.either == (1,)

    def rows(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> int:
        return rows_that_leave_room(log, gamma, limits, self.either)

    def policy(self, problem: Lesson, inward: Floats) -> Floats:
        return plan_for_enlarged(problem.counts, problem.L, problem.limits, Z)


class Lesson(NamedTuple):
    """What a way learns from."""

    counts: Counts
    L: Lagrangian
    limits: tuple[Limit, ...]
    room: Floats  # [I] how far inside each limit a policy of the log can be, in the limits' own units; 0 if outside
