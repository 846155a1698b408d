"""Algorithm 1 of the paper over function classes: one loop, four oracles on coefficients.

    for t = 1 … T:   w_t, π_t from the past;   λ_t, Q_t in view of w_t, π_t;   then w and π are told what they earned

For one-hot features the plays are those of the tabular algorithm, number by number.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from pdocrl.approximate.classes import Box
from pdocrl.approximate.game import Game, Saddle
from pdocrl.approximate.oracles import Algorithm, SoftmaxPolicies, ascent, greedy, optimistic
from pdocrl.tabular.solvers.algorithms import GreedyMultipliers, Multipliers, OptimisticSimplex, Oracle
from pdocrl.tabular.solvers.lagrangian import expected

Floats = NDArray[np.float64]
BOLD = 5.0  # the optimistic softmax's steps, in those of its worst case


@dataclasses.dataclass
class Players:
    """One oracle per variable, and the weight of play t in the average, t^power."""

    w: Oracle
    pi: SoftmaxPolicies
    Q: Oracle
    lam: Oracle
    power: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """What T rounds leave."""

    average: Saddle
    logits: Floats  # [T, D_Q] coefficients of the logits of π_1 … π_T
    mixture_lower: float  # D of Uniform(π_1 … π_T) drawn per episode: the mean over t of min_Q, min over λ of the mean


def run(game: Game, players: Players, iterations: int) -> Played:
    """Play T rounds."""
    L = game.L
    total, answered, slack = 0.0, 0.0, np.zeros(len(L.tau))
    sums = Saddle(np.zeros(game.W.size), np.zeros(L.r.shape), np.zeros(game.Q.size), np.zeros(len(L.tau)))
    logits = np.empty((iterations, game.Q.size))
    box = isinstance(game.W.coefficients, Box)
    mass = game.W.basis.moments(L.mu_D) if box else np.ones(game.W.size)
    for t in range(1, iterations + 1):
        theta_w, pi, logits[t - 1] = players.w.play, players.pi.play, players.pi.theta
        mu = game.mu(theta_w)
        nu = game.nu(mu, pi)
        lam = players.lam.respond(-L.slack(mu))
        theta_Q = players.Q.respond(game.Q.basis.moments(mu - nu))
        Q = game.Q(theta_Q)
        weight = float(t) ** players.power
        total += weight
        sums = Saddle(*(s + weight * x for s, x in zip(sums, (theta_w, nu, theta_Q, lam), strict=True)))
        answered += weight * (float(np.vdot(mu, L.r)) + game.Q.minimum(nu - mu))
        slack = slack + weight * L.slack(mu)
        # As the paper projects in the space of samples, a coefficient's gradient is the mean residual where its basis
        # function is, and not the share of the samples there.
        gain = game.W.basis.moments(L.mu_D * L.residual(expected(Q, pi), Q, lam))
        players.w.respond(np.where(mass > 0, gain / np.where(mass > 0, mass, 1), 0.0))
        players.pi.respond(theta_Q)
    missed = max(0.0, float(-slack.min(initial=0)) / total)
    return Played(Saddle(*(s / total for s in sums)), logits, answered / total - game.B * missed)


def make_players(
    algorithm: Algorithm, game: Game, iterations: int, eta: float | None = None, alpha: float | None = None
) -> Players:
    """The oracles of an algorithm.

    Args:
        algorithm: "pdocrl" is the paper's, with constant steps and uniform averages; "optimistic" needs no steps
            chosen and converges much faster.
        game: where they play.
        iterations: T, on which constant step sizes depend.
        eta: w's step; C/(G√T) by default with G the largest gradient and C the largest coefficient.
        alpha: π's step; √(8 log A / T) over the range of Q by default, the usual rate of Hedge.
    """
    L, (X, A) = game.L, game.L.r.shape
    if algorithm == "optimistic":
        return Players(
            w=optimistic(game.W),
            pi=SoftmaxPolicies(game.Q.basis, X, A, None, scale=BOLD * float(np.sqrt(np.log(A)))),
            Q=optimistic(game.Q),
            lam=Multipliers(OptimisticSimplex((len(L.tau) + 1,)), game.B),
            power=1.0,
        )
    low, high = _range(game)
    largest = max(np.abs(L.r_range)) + game.B * np.abs(L.g_range).max(initial=0)
    G = largest + high - low if low >= 0 else largest + 2 * max(-low, high)
    box = game.W.coefficients
    C = float(box.high.max()) if isinstance(box, Box) else 1.0
    base_w = C / (G * np.sqrt(iterations)) if eta is None else eta
    base_pi = np.sqrt(8 * np.log(A) / iterations) / (high - low) if alpha is None else alpha
    start = np.ones(game.W.size) if isinstance(box, Box) else np.full(game.W.size, 1 / game.W.size)
    return Players(
        w=ascent(game.W, lambda t: base_w, start),
        pi=SoftmaxPolicies(game.Q.basis, X, A, lambda t: base_pi),
        Q=greedy(game.Q),
        lam=GreedyMultipliers(len(L.tau), game.B),
    )


def _range(game: Game) -> tuple[float, float]:
    """The least and largest value of a member of 𝒬 on the log's states (for a partition, that of the box)."""
    matrix = game.Q.basis.matrix()
    box = game.Q.coefficients
    if not isinstance(box, Box):
        return float(matrix.min()), float(matrix.max())
    up, down = matrix.maximum(0), (-matrix).maximum(0)
    high = up @ box.high - down @ box.low
    low = up @ box.low - down @ box.high
    return float(low.min()), float(high.max())
