"""Ways to learn a policy that should keep its limits with confidence: near the log or far, by costs or their bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pdocrl.tabular.cautious import cautious
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.lagrangian import Lagrangian, Units
from pdocrl.tabular.limits import Limit
from pdocrl.tabular.rare import trusted
from pdocrl.tabular.solution import Setup, Solution, best_policy, room, solve_saddle, with_policy

Z = 1.645  # of the bounds that a cautious way plans for


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to learn from a log: a bound on w, how many rows a pair needs, and what is optimised."""

    setup: Setup
    min_count: int
    price: float | None = (
        None  # of bounds on costs (see `cautious`); None: reward within limits on the costs themselves
    )

    def problem(self, log: Counts, gamma: float, limits: Sequence[Limit]) -> Lesson:
        """What is learned from: the log without its rare pairs."""
        counts = trusted(log, self.min_count)
        L = Lagrangian.empirical(counts, gamma, limits)
        units = Units.of(L)
        inside = np.asarray(max(room(units.scale(L), self.setup.C), 0.0) * units.constraints)
        return Lesson(counts, L, tuple(limits), inside)

    def solve(self, problem: Lesson, inward: Floats) -> Solution:
        """The best policy that keeps every limit by `inward` [I], in the limits' own units."""
        L = problem.L
        found = solve_saddle(dataclasses.replace(L, tau=L.tau + inward), self.setup)
        return found if self.price is None else with_policy(found, self.policy(problem, inward))

    def policy(self, problem: Lesson, inward: Floats) -> Floats:
        """Its policy [S, A] alone, which takes a fraction of the time."""
        L = problem.L
        if self.price is not None:
            return cautious(problem.counts, L, problem.limits, Z, self.price)
        return best_policy(dataclasses.replace(L, tau=L.tau + inward), self.setup)


class Lesson(NamedTuple):
    """What a way learns from."""

    counts: Counts
    L: Lagrangian
    limits: tuple[Limit, ...]
    room: Floats  # [I] how far inside each limit a policy of the log can be, in the limits' own units; 0 if outside
