"""Algorithm 1 (PDOCRL), Algorithm 2 (PDORL) and faster relatives: one loop, four oracles.

    for t = 1 … T:   w_t, π_t from the past;   λ_t, Q_t in view of w_t, π_t;   then w and π are told what they earned

They differ in the oracles and in how plays are averaged. The paper returns the uniform mixture of π_1 … π_T, drawn once
per episode; averaging (μ_t, ν_t) instead gives one stationary policy with a certificate no worse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import CMDP, Evaluation, evaluate, evaluate_occupancy
from pdocrl.tabular.solvers.certificate import Point
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, Sets, expected
from pdocrl.tabular.solvers.oracles import (
    GreedyBox,
    GreedyMultipliers,
    Hedge,
    Multipliers,
    OptimisticBox,
    OptimisticSimplex,
    Oracle,
    ProjectedGradient,
    RegretMatching,
    RegretMatchingBox,
    Steps,
)

Algorithm = Literal["pdocrl", "pdorl", "regret_matching", "optimistic"]


@dataclasses.dataclass
class Players:
    """One oracle per variable, and the weight of play t in the average, t^power."""

    w: Oracle
    pi: Oracle
    Q: Oracle
    lam: Oracle
    power: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Uniform(π_1, …, π_T): one of the policies, drawn at the start of an episode and kept through it."""

    policies: Floats  # [T, S, A]

    def draw(self, rng: np.random.Generator) -> Floats:
        """The policy of one episode."""
        return np.asarray(self.policies[rng.integers(len(self.policies))])

    def evaluate(self, cmdp: CMDP) -> Evaluation:
        """J(mixture) = mean of J(π_t)."""
        S, A = cmdp.r.shape
        if max(len(self.policies), A) * S * S > 10**7:
            each = [evaluate(cmdp, pi) for pi in self.policies]
            return Evaluation(float(np.mean([e.value for e in each])), np.mean([e.constraints for e in each], axis=0))
        # A small problem: all occupancies at once.
        moves = np.einsum("tsa,saz->tzs", self.policies, cmdp.P.toarray().reshape(S, A, S), optimize=True)
        starts = np.broadcast_to((1 - cmdp.gamma) * cmdp.d0[:, None], (len(moves), S, 1))
        visits = np.linalg.solve(np.eye(S) - cmdp.gamma * moves, starts)
        return evaluate_occupancy(cmdp, (self.policies * np.maximum(visits, 0)).mean(axis=0))


def run(
    L: Lagrangian, players: Players, iterations: int, every: int | None = None, policies: Floats | None = None
) -> Iterator[Point]:
    """Play; yield the weighted average of all plays so far, every so many iterations and at the end.

    `policies` [T, S, A] is filled with π_1 … π_T if given.
    """
    total, sums = 0.0, Point(*(np.zeros(x.shape) for x in (L.r, L.r, L.r, L.tau)))
    for t in range(1, iterations + 1):
        w, pi = players.w.play, players.pi.play
        mu = w * L.mu_D
        nu = pi * L.inflow(mu)[:, None]
        lam = players.lam.respond(-L.slack(mu))
        Q = players.Q.respond(mu - nu)
        weight = float(t) ** players.power
        total += weight
        sums = Point(*(s + weight * x for s, x in zip(sums, (mu, nu, Q, lam), strict=True)))
        if policies is not None:
            policies[t - 1] = pi
        # In the space of samples, where the paper projects, the gradient of w(s, a) is the residual itself: μ_D only
        # says how many samples share it.
        players.w.respond(L.residual(expected(Q, pi), Q, lam))
        players.pi.respond(Q)
        if t == iterations or (every and t % every == 0):
            yield Point(*(s / total for s in sums))


def make_players(
    algorithm: Algorithm,
    L: Lagrangian,
    sets: Sets,
    iterations: int,
    eta: float | None = None,
    alpha: float | None = None,
    averaging: Literal["uniform", "linear"] = "uniform",
) -> Players:
    """The oracles of an algorithm.

    Args:
        algorithm: pdocrl and pdorl are the paper's; the others need no step sizes chosen.
        L: the data.
        sets: where they play.
        iterations: T, on which constant step sizes depend.
        eta: w's step; C/(G√T) by default with G the largest gradient (Appendix D.2 says so but drops C).
        alpha: π's step; √(8 log A / T) over the range of Q by default, the usual rate of Hedge.
        averaging: "linear" also lets the paper's steps fall as 1/√t; not what the paper does, but far better.
    """
    shape, n = L.r.shape, len(L.tau)
    span = sets.q_high - sets.q_low
    largest = max(np.abs(L.r_range)) + sets.B * np.abs(L.g_range).max(initial=0)
    G = largest + span if sets.q_low >= 0 else largest + 2 * max(-sets.q_low, sets.q_high)
    eta = sets.C / (G * np.sqrt(iterations)) if eta is None else eta
    alpha = np.sqrt(8 * np.log(shape[1]) / iterations) / span if alpha is None else alpha
    match algorithm:
        case "pdocrl" | "pdorl":
            if algorithm == "pdorl" and n:
                raise PdocrlError("Algorithm 2 (pdorl) is for problems without limits; use pdocrl.")

            def falling(base: float) -> Steps:
                return lambda t: base * np.sqrt(iterations / t) if averaging == "linear" else base

            return Players(
                w=ProjectedGradient(np.ones(shape), 0.0, sets.C, falling(eta)),
                pi=Hedge(shape, falling(alpha)),
                Q=GreedyBox(shape, sets.q_low, sets.q_high),
                lam=GreedyMultipliers(n, sets.B),
                power=1.0 if averaging == "linear" else 0.0,
            )
        case "regret_matching":
            return Players(
                w=RegretMatchingBox(shape, 0.0, sets.C),
                pi=RegretMatching(shape),
                Q=RegretMatchingBox(shape, sets.q_low, sets.q_high),
                lam=Multipliers(RegretMatching((n + 1,)), sets.B),
                power=2.0,
            )
        case "optimistic":
            return Players(
                w=OptimisticBox(shape, 0.0, sets.C),
                pi=OptimisticSimplex(shape),
                Q=OptimisticBox(shape, sets.q_low, sets.q_high),
                lam=Multipliers(OptimisticSimplex((n + 1,)), sets.B),
                power=1.0,
            )
