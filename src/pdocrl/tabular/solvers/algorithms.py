"""Algorithm 1 (PDOCRL), Algorithm 2 (PDORL) and faster relatives: one loop, four oracles.

    for t = 1 … T:   w_t, π_t from the past;   λ_t, Q_t in view of w_t, π_t;   then w and π are told what they earned

They differ in the oracles and in how plays are averaged. The paper returns the uniform mixture of π_1 … π_T, drawn once
per episode; averaging (μ_t, ν_t) instead gives one stationary policy with a certificate no worse.

    OLO    online linear optimisation for w ∈ [0, C]    ProjectedGradient (the paper), RegretMatchingBox, OptimisticBox
    PO     policy optimisation, a simplex per state     Hedge (the paper), RegretMatching, OptimisticSimplex
    LMO    linear minimisation for Q and λ              GreedyBox, GreedyMultipliers (the paper)

Each oracle is told the utility of its last play, coordinate by coordinate, and answers with its next. Utilities are to
be maximised; minimising players are told the negative gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import CMDP, Evaluation, evaluate, evaluate_occupancy
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, Point, Sets, expected

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


Steps = Callable[[int], float]

TINY = np.finfo(np.float64).tiny


class Oracle(Protocol):
    """`play` is the current play; `respond` updates it."""

    play: Floats

    def respond(self, utility: Floats) -> Floats: ...


class ProjectedGradient:
    """x ← clip(x + η_t u, low, high): projected gradient ascent on a box, the paper's OLO for w (Appendix D.2)."""

    def __init__(self, start: Floats, low: float | Floats, high: float | Floats, step: Steps) -> None:
        self.play, self.low, self.high, self.step, self.t = start, low, high, step, 0

    def respond(self, utility: Floats) -> Floats:
        self.t += 1
        self.play = np.clip(self.play + self.step(self.t) * utility, self.low, self.high)
        return self.play


class Hedge:
    """π(a|s) ∝ exp(α Σ u(s, a)): mirror descent, which is natural policy gradient, the paper's PO (Section 3.4)."""

    def __init__(self, shape: tuple[int, ...], step: Steps) -> None:
        self.play = np.full(shape, 1 / shape[-1])
        self.logits, self.step, self.t = np.zeros(shape), step, 0

    def respond(self, utility: Floats) -> Floats:
        self.t += 1
        self.logits = self.logits + self.step(self.t) * utility
        self.play = _softmax(self.logits)
        return self.play


class RegretMatching:
    """Predictive regret matching⁺ on simplices [..., k] (Farina, Kroer and Sandholm, 2021).

    z ← [z + u − ⟨u, x⟩]₊, and x ∝ [z + û − ⟨û, x⟩]₊ where û, the prediction, is the last utility. It has no step size
    and is unmoved by the scale of the utilities.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.play = np.full(shape, 1 / shape[-1])
        self.regret = np.zeros(shape)

    def respond(self, utility: Floats) -> Floats:
        gain = utility - (utility * self.play).sum(axis=-1, keepdims=True)
        self.regret = np.maximum(self.regret + gain, 0)
        # The prediction's gain is measured against the play of the updated regrets, not the one just made.
        centre = _normalise(self.regret, self.play)
        ahead = utility - (utility * centre).sum(axis=-1, keepdims=True)
        self.play = _normalise(np.maximum(self.regret + ahead, 0), centre)
        return self.play


class RegretMatchingBox:
    """Predictive regret matching⁺ on a box: every coordinate is a simplex over its two ends."""

    def __init__(self, shape: tuple[int, ...], low: float, high: float) -> None:
        self.ends = np.array([low, high])
        self.matching = RegretMatching((*shape, 2))
        self.play: Floats = self.matching.play @ self.ends

    def respond(self, utility: Floats) -> Floats:
        self.play = self.matching.respond(utility[..., None] * self.ends) @ self.ends
        return self.play


class OptimisticBox:
    """Gradient ascent on a box that expects the last utility to come again (Rakhlin and Sridharan, 2013).

    y ← clip(y + ηu), play = clip(y + ηu), with η = (high − low) / √Σ(u_t − u_{t−1})² per coordinate: nothing to tune,
    and steps are small only where the expectation failed.
    """

    def __init__(self, shape: tuple[int, ...], low: float | Floats, high: float | Floats) -> None:
        self.play = self.anchor = np.full(shape, (low + high) / 2)
        self.low, self.high = low, high
        self.last = self.surprise = np.zeros(shape)

    def respond(self, utility: Floats) -> Floats:
        self.surprise = self.surprise + (utility - self.last) ** 2
        self.last = utility
        step = (self.high - self.low) * utility / np.sqrt(np.maximum(self.surprise, TINY))
        self.anchor = np.clip(self.anchor + step, self.low, self.high)
        self.play = np.clip(self.anchor + step, self.low, self.high)
        return self.play


class OptimisticSimplex:
    """The same on simplices [..., k], one step size each."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.play = self.anchor = np.full(shape, 1 / shape[-1])
        self.last, self.surprise = np.zeros(shape), np.zeros((*shape[:-1], 1))

    def respond(self, utility: Floats) -> Floats:
        self.surprise = self.surprise + ((utility - self.last) ** 2).sum(axis=-1, keepdims=True)
        self.last = utility
        step = utility / np.sqrt(np.maximum(self.surprise, TINY))
        self.anchor = project_to_simplex(self.anchor + step)
        self.play = project_to_simplex(self.anchor + step)
        return self.play


class Multipliers:
    """An oracle for simplices as one for BΔ, the simplex over 0, B e_1, …, B e_I."""

    def __init__(self, simplex: Oracle, B: float) -> None:
        self.simplex, self.B = simplex, B
        self.play = B * simplex.play[1:]

    def respond(self, utility: Floats) -> Floats:
        self.play = self.B * self.simplex.respond(np.concatenate([[0.0], self.B * utility]))[1:]
        return self.play


class GreedyBox:
    """The linear oracle of a box: the better end of every coordinate. LMO_Q of Algorithm 1."""

    def __init__(self, shape: tuple[int, ...], low: float | Floats, high: float | Floats) -> None:
        self.play, self.low, self.high = np.zeros(shape), low, high

    def respond(self, utility: Floats) -> Floats:
        self.play = np.where(utility > 0, self.high, self.low)
        return self.play


class GreedyMultipliers:
    """The linear oracle of BΔ: all of B on the best coordinate, or 0 if none helps. LMO_{BΔ} of Algorithm 1."""

    def __init__(self, n: int, B: float) -> None:
        self.play, self.B = np.zeros(n), B

    def respond(self, utility: Floats) -> Floats:
        self.play = np.zeros_like(utility)
        if utility.size and utility.max() > 0:
            self.play[utility.argmax()] = self.B
        return self.play


def _normalise(weights: Floats, otherwise: Floats) -> Floats:
    """Weights as a distribution along the last axis; where all are 0, `otherwise`."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), otherwise)


def project_to_simplex(x: Floats) -> Floats:
    """The nearest distribution to each row [..., k]: subtract what makes the positive part sum to one."""
    ordered = -np.sort(-x, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, x.shape[-1] + 1)
    kept = (ordered > excess).sum(axis=-1, keepdims=True)
    return np.maximum(x - np.take_along_axis(excess, kept - 1, axis=-1), 0)


def _softmax(logits: Floats) -> Floats:
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=-1, keepdims=True))
