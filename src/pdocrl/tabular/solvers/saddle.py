"""One saddle problem solved by one method: sets, saddle point, policy."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import CMDP, as_matrix, evaluate, occupancy, plan
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.algorithms import Algorithm, Mixture, make_players, run
from pdocrl.tabular.solvers.lagrangian import (
    Certificate,
    Floats,
    Lagrangian,
    Point,
    Sets,
    Units,
    certify,
    pessimistic_model,
    policy_of,
)
from pdocrl.tabular.solvers.lp import Optimum, choose_B, margin, saddle_lp, strict

Method = Literal["lp", "pdocrl", "pdorl", "regret_matching", "optimistic"]
Status = Literal["optimal", "approximate", "shown", "not_shown", "not_markov", "infeasible", "infeasible_covered"]

TOLERANCE = 1e-9  # by how much a limit may be missed and still count as satisfied
CLOSE = 0.01  # of the largest reward: a policy certified to be no further from the best is called optimal
LARGEST_MIXTURE = 2**25  # numbers; a mixture of more is not kept


@dataclasses.dataclass(frozen=True)
class Setup:
    """How to solve."""

    C: float
    B: float | None = None  # on multipliers in units of the largest signals; from the data if not given
    method: Method = "lp"
    iterations: int = 10_000  # of all methods but the LP

    def __post_init__(self) -> None:
        if not self.C > 0:
            raise PdocrlError(f"C is {self.C}; the bound on w must be positive.")


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """A saddle point and the one stationary policy that goes with it.

    The problem was solved in units in which every signal lies within ±1, so that neither B nor the solver's tolerances
    depend on how the log's author measures; `sets` and `point` are in those units.
    """

    L: Lagrangian  # as it was given
    units: Units
    sets: Sets
    point: Point
    policy: Floats  # [S, A]
    mixture: Mixture | None  # of the paper's algorithms
    planned: exact.ExactSolution | None  # where w is not bounded: the optimum of the log's own model, with its proof

    @cached_property
    def scaled(self) -> Lagrangian:
        """L in `units`."""
        return self.units.scale(self.L)

    @cached_property
    def estimate(self) -> Floats:
        """[1+I] value and constraint rewards of the policy in the data's own model."""
        return outcome(pessimistic_model(self.L), self.policy)

    @property
    def keeps_limits(self) -> bool:
        """Whether the policy does so in the data's own model, to rounding."""
        missed = (self.L.tau - self.estimate[1:]) / self.units.constraints
        return bool(np.all(missed <= 1e-7))

    @property
    def multipliers(self) -> Floats:
        """[I] λ: what one unit of each limit is worth in reward."""
        return self.point.lam * self.units.multipliers

    @cached_property
    def certificate(self) -> Certificate:
        """Bounds on the saddle value, in the reward's own unit."""
        if self.planned is not None:
            return self._proof(self.planned)
        lower, upper = certify(self.scaled, self.sets, self.point)
        return Certificate(lower * self.units.reward, upper * self.units.reward)

    def _proof(self, planned: exact.ExactSolution) -> Certificate:
        """No policy of the log's own model that satisfies the limits is worth more than the upper end."""
        upper = planned.bound if planned.status != "infeasible" else planned.value
        return Certificate(planned.value * self.units.reward, upper * self.units.reward)

    @cached_property
    def slater_margin(self) -> float:
        """How far inside all limits a covered policy can be, in shares of each signal; negative if none is."""
        return slater_margin(self.scaled, np.inf if self.planned is not None else self.sets.C)

    @property
    def margin(self) -> float:
        """`slater_margin` in the limits' own unit; with several of different size, in that of the largest signal."""
        return self.slater_margin * float(self.units.constraints.max(initial=0.0)) if len(self.L.tau) else np.inf

    @property
    def status(self) -> Status:
        """If no covered policy satisfies the limits: does one of the log's own model, without the bound C?"""
        if self.planned is not None:
            return "infeasible" if self.planned.status == "infeasible" else self._best
        if self.slater_margin >= -TOLERANCE:
            return self._best
        anywhere = exact.slater_margin(pessimistic_model(self.scaled))
        return "infeasible" if anywhere < -TOLERANCE else "infeasible_covered"

    @property
    def _best(self) -> Status:
        """An iteration that was stopped early has a point, but its certificate says how far from the best."""
        return "optimal" if self.certificate.gap <= CLOSE * self.units.reward else "approximate"


def slater_margin(scaled: Lagrangian, C: float) -> float:
    """How far inside all limits a policy covered within C, or any of the log's own model if C = ∞, can be."""
    if np.isinf(C):
        return exact.slater_margin(pessimistic_model(scaled))
    return margin(scaled, C)


def solve_saddle(L: Lagrangian, setup: Setup) -> Solution:
    """The saddle point of L over the sets that C and B give.

    Without a bound on w, C = ∞, it is the optimum of the log's own model, where what the log never tried is followed by
    the worst; that is a CMDP, and is solved as one, which is quick even where the linear program would not fit.
    """
    units = Units.of(L)
    scaled = units.scale(L)
    if setup.method == "lp" and np.isinf(setup.C):
        return _plan(L, units, scaled, setup.B)
    # A mass never exceeds one, so a larger C than this does not bind, and infinity becomes a number.
    C = min(setup.C, 1 / float(L.mu_D[L.seen].min()))
    sets = Sets.tight(scaled, C, choose_B(scaled, C) if setup.B is None else setup.B)
    mixture = None
    if setup.method == "lp":
        point = saddle_lp(scaled, sets)
    else:
        point, mixture = _play(scaled, sets, setup.method, setup.iterations)
    policy = complete_policy(scaled, point.nu.sum(axis=1), policy_of(scaled, point.nu), sets.B)
    solution = Solution(L, units, sets, point, policy, mixture, None)
    if setup.method == "lp" and not solution.keeps_limits:
        return _kept(solution)
    return solution


def with_policy(solution: Solution, policy: Floats, mixture: Mixture | None = None) -> Solution:
    """The same with another policy, where that goes in the data's own model, and how far it is from the best there."""
    L = solution.L
    mu = np.where(L.seen, occupancy(pessimistic_model(L), policy), 0.0)
    point = solution.point._replace(mu=mu, nu=policy * solution.scaled.inflow(mu)[:, None])
    changed = dataclasses.replace(solution, policy=policy, mixture=mixture, point=point)
    if solution.planned is None:
        return changed
    missed = (L.tau - changed.estimate[1:]) / solution.units.constraints
    lower = changed.estimate[0] / solution.units.reward - solution.sets.B * max(0.0, float(missed.max(initial=0.0)))
    return dataclasses.replace(changed, planned=dataclasses.replace(solution.planned, value=float(lower)))


def best_policy(L: Lagrangian, setup: Setup) -> Floats:
    """The policy [S, A] of `solve_saddle` alone, by one program where it is exact and the limits can be satisfied."""
    if setup.method == "lp" and np.isfinite(setup.C):
        scaled = Units.of(L).scale(L)
        found = strict(scaled, min(setup.C, 1 / float(L.mu_D[L.seen].min())))
        if found is not None:
            return _spread(scaled, found, setup.B)
    return solve_saddle(L, setup).policy


def _kept(solution: Solution) -> Solution:
    """The same with a policy that satisfies the limits also where it leaves the data, if that is possible within C."""
    scaled = solution.scaled
    found = strict(scaled, solution.sets.C)
    if found is None:
        return solution
    policy = _spread(scaled, found, solution.sets.B)
    point = solution.point._replace(mu=found.mu, nu=policy * scaled.inflow(found.mu)[:, None])
    return dataclasses.replace(solution, point=point, policy=policy)


def _spread(scaled: Lagrangian, found: Optimum, B: float | None) -> Floats:
    """The policy of a program's μ, with a plan where that has none."""
    price = 1 + 2 * float(found.lam.sum()) if B is None else B
    return complete_policy(scaled, found.mu.sum(axis=1), policy_of(scaled, found.mu), price)


def _plan(L: Lagrangian, units: Units, scaled: Lagrangian, B: float | None) -> Solution:
    """The optimum of the log's own model, as a point of the saddle problem without a bound on w."""
    found = exact.solve(pessimistic_model(scaled))
    sets = Sets.tight(scaled, np.inf, 1 + 2 * float(found.lam.sum()) if B is None and len(L.tau) else B or 0.0)
    mu = np.where(L.seen, found.mu, 0.0)
    # What the plan does in states the log has nothing of is arbitrary, since everything is as bad there.
    reached = np.where(L.seen.any(axis=1), found.mu.sum(axis=1), 0.0)
    policy = complete_policy(scaled, reached, found.pi, sets.B)
    nu = policy * scaled.inflow(mu)[:, None]
    lam = found.lam * (sets.B if found.status == "infeasible" else 1.0)
    Q = np.clip(scaled.residual(found.V, np.zeros_like(mu), lam), sets.q_low, sets.q_high)
    point = Point(mu, nu, np.where(L.seen, Q, sets.q_low), lam)
    return Solution(L, units, sets, point, policy, None, found)


def outcome(model: CMDP, pi: Floats) -> Floats:
    """[1+I] value of a policy in a model, then its constraint rewards."""
    value, constraints = evaluate(model, pi)
    return np.array([value, *constraints])


def _play(L: Lagrangian, sets: Sets, algorithm: Algorithm, iterations: int) -> tuple[Point, Mixture | None]:
    kept = algorithm in {"pdocrl", "pdorl"} and iterations * L.r.size <= LARGEST_MIXTURE
    policies = np.empty((iterations, *L.r.shape)) if kept else None
    point = list(run(L, make_players(algorithm, L, sets, iterations), iterations, policies=policies))[-1]
    return point, None if policies is None else Mixture(policies)


ACCURACY = 1e-8  # of the plan, relative to the values


def complete_policy(scaled: Lagrangian, mass: Floats, planned: Floats, price: float) -> Floats:
    """The policy planned [S, A] where it has mass [S]; off that support a second plan, or `behaviour` without rows.

    A policy may reach states the plan never visits, such as a start the log has not seen. The behaviour policy may cost
    there what the limits forbid. So off the planned support actions are planned from each state:

        V(s) = max_{a tried in s} r(s, a) + price · Σ_i g_i(s, a) + γ P̂V

    at the price above which limits come before reward (B, see `lp.choose_B`). A state without any rows is taken to lead
    back to the states of the log: with the worst value for ever, all ways there would be equally bad.
    """
    known = np.asarray(scaled.seen.any(axis=1))
    open_ended = np.asarray(known & (mass <= 1e-12))
    policy = np.where((mass > 1e-12)[:, None], planned, scaled.behaviour)
    if open_ended.any():
        policy[open_ended] = plan_off_support(scaled, price)[open_ended]
    return policy


def plan_off_support(scaled: Lagrangian, price: float) -> Floats:
    """[S, A] the best tried action of each state by r + price · Σ g, in units in which signals lie within ±1."""
    S, A = scaled.r.shape
    known = np.asarray(scaled.seen.any(axis=1))
    reward = scaled.r + price * scaled.g.sum(axis=0)
    never = -4 * (1 + np.abs(reward).max()) / (1 - scaled.gamma)
    reward = np.where(scaled.seen, reward, np.where(known[:, None], never, 0.0))
    # One more state, S, is anywhere in the log; states without rows lead to it.
    lost = np.flatnonzero(np.repeat(~known, A))
    lead = sp.csr_array((np.ones(len(lost)), (lost, np.zeros(len(lost), int))), shape=(S * A, 1))
    back = sp.csr_array(np.append(scaled.mu_D.sum(axis=1) / scaled.mu_D.sum(), 0.0)[None])
    P = sp.vstack([sp.hstack([scaled.P, lead]), *[back] * A]).tocsr()
    model = CMDP(
        sp.csr_array(P),
        np.vstack([reward, np.zeros(A)]),
        np.zeros((0, S + 1, A)),
        np.zeros(0),
        np.append(scaled.d0, 0.0),
        scaled.gamma,
    )
    return as_matrix(plan(model, model.r, accuracy=ACCURACY).actions, A)[:S]
