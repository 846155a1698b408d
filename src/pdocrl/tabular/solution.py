"""One saddle problem solved by one method: sets, saddle point, policy."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.tabular.certificate import Point
from pdocrl.tabular.cmdp import CMDP, evaluate
from pdocrl.tabular.lagrangian import Floats, Lagrangian, Sets, pessimistic_model, policy_of
from pdocrl.tabular.lp import choose_B, margin, saddle_lp
from pdocrl.theory.algorithms import Algorithm, Mixture, make_players, run

Method = Literal["lp", "pdocrl", "pdorl", "regret_matching", "optimistic"]
Status = Literal["optimal", "infeasible", "infeasible_covered"]

TOLERANCE = 1e-9  # by how much a limit may be missed and still count as kept
LARGEST_MIXTURE = 2**25  # numbers; a mixture of more is not kept


@dataclasses.dataclass(frozen=True)
class Setup:
    """How to solve."""

    C: float
    B: float | None = None  # from the data if not given
    method: Method = "lp"
    iterations: int = 10_000  # of all methods but the LP

    def __post_init__(self) -> None:
        if not self.C > 0:
            raise PdocrlError(f"C is {self.C}; the bound on w must be positive.")


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """A saddle point and the one stationary policy that goes with it."""

    L: Lagrangian
    sets: Sets
    point: Point
    policy: Floats  # [S, A]
    mixture: Mixture | None  # of the paper's algorithms

    @cached_property
    def estimate(self) -> Floats:
        """[1+I] value and constraint rewards of the policy in the data's own model."""
        return outcome(pessimistic_model(self.L), self.policy)

    @cached_property
    def margin(self) -> float:
        """How far inside all limits a covered policy can be; negative if none keeps them."""
        return margin(self.L, self.sets.C)

    @property
    def status(self) -> Status:
        """If no covered policy keeps the limits: does one of the log's own model, when it may go as far as it likes?"""
        if self.margin >= -TOLERANCE:
            return "optimal"
        return "infeasible" if margin(self.L, np.inf) < -TOLERANCE else "infeasible_covered"


def solve_saddle(L: Lagrangian, setup: Setup) -> Solution:
    """The saddle point of L over the sets that C and B give."""
    # A mass never exceeds one, so a larger C than this does not bind, and infinity becomes a number.
    C = min(setup.C, 1 / float(L.mu_D[L.seen].min()))
    sets = Sets.tight(L, C, choose_B(L, C) if setup.B is None else setup.B)
    mixture = None
    if setup.method == "lp":
        point = saddle_lp(L, sets)
    else:
        point, mixture = _play(L, sets, setup.method, setup.iterations)
    return Solution(L, sets, point, policy_of(L, point.nu), mixture)


def outcome(model: CMDP, pi: Floats) -> Floats:
    """[1+I] what a policy earns in a model: value, then constraint rewards."""
    value, constraints = evaluate(model, pi)
    return np.array([value, *constraints])


def _play(L: Lagrangian, sets: Sets, algorithm: Algorithm, iterations: int) -> tuple[Point, Mixture | None]:
    kept = algorithm in {"pdocrl", "pdorl"} and iterations * L.r.size <= LARGEST_MIXTURE
    policies = np.empty((iterations, *L.r.shape)) if kept else None
    point = list(run(L, make_players(algorithm, L, sets, iterations), iterations, policies=policies))[-1]
    return point, None if policies is None else Mixture(policies)
