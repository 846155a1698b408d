"""Function approximation between tables and networks: `pdocrl.approximate.solve`.

log of vectors, discrete actions → distinct states → features → classes of w and Q → saddle point → policy, certificate
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy.sparse import issparse

from pdocrl.approximate.certificate import certify, lower_value, upper_value
from pdocrl.approximate.classes import FunctionClass, StateBasis
from pdocrl.approximate.distinct_states import Data, Log, lagrangian, read
from pdocrl.approximate.features import AnyFeatures, Kind, Matrix, OneHot, make_features
from pdocrl.approximate.game import Floats, Game, Saddle
from pdocrl.approximate.lp import best_response, saddle_lp
from pdocrl.approximate.record import Solved
from pdocrl.approximate.saddle import make_players, run
from pdocrl.approximate.smoothed import Smoothed, smoothed_saddles
from pdocrl.approximate.softmax_policy import LinearPolicy, averager, fit_softmax
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets, Units, policy_of

Method = Literal["newton", "lp", "pdocrl", "optimistic"]

NEWTON_UP_TO = 3e9  # distinct states times coefficients squared; beyond, iterate
RESPONSE_UP_TO = 20_000_000  # distinct states times coefficients: of the program that finds a policy's best w
CLOSE_ENOUGH = 1e-3  # of the largest reward: a gap at which the temperature falls no further
SPREAD = 10.0  # a coefficient of overlapping, signed combinations may be so many times a value of Q
POLICIES = 100  # of an average of iterations that are kept
LARGEST_PRICE = 1000.0  # limits that take more cannot be satisfied
PRICE = 10.0  # B of iterations, in units of the largest signals, where none is given


def solve(
    data: Data,
    gamma: float,
    limits: Limits = (),
    features: Kind | AnyFeatures = "cells",
    size: int | None = None,
    w_features: Kind | AnyFeatures | None = None,
    C: float = 5.0,
    B: float | None = None,
    method: Method | None = None,
    iterations: int = 2000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Solved:
    """Algorithm 1 of the paper with classes linear in features: w, Q on real-valued states, discrete actions.

    Values, costs and limits are (1−γ)J, as in `pdocrl.tabular.solve`. Q_λ^π must be near the class for every policy,
    and some w of the class must carry the best policy's moments (all-policy and single-policy realisability): the
    certificate is about the classes, and cannot see what they cannot express.

    Args:
        data: arrays {"state": [N, S], "action": [N], "next_state": [N, S], "reward": [N], "costs": …, "terminal": …,
            "initial": …}, a `Dataset` with discrete actions, an `EventLog`, or `Counts` (whose states are one column).
        gamma: the discount, strictly between 0 and 1.
        limits: on means, such as ["cost<=0.1"], of (1−γ)J.
        features: of Q, with coefficients of their own for each action: "one_hot", "cells", "trees", "fourier",
            "polynomial", or features made beforehand.
        size: how many features (by default 64, of "fourier" 200); for "polynomial" the degree (2).
        w_features: of w; by default those of Q where they sum to one, otherwise soft cells, no more of them.
        C: the bound on the coefficients of w, and on w where its features sum to one.
        B: the bound on multipliers, in units in which the largest reward and cost are 1; by default from the data.
        method: "newton" (see `smoothed`) closes the gap to a thousandth, "lp" wholly, in a minute at 10,000 states;
            "pdocrl" is the paper's algorithm, "optimistic" the same with oracles that converge faster. By default "lp"
            for tables, "newton" as far as it fits.
        iterations: T, of "pdocrl" and "optimistic".
        seed: of centres, trees and frequencies.
        progress: is told in words what is being done.

    Raises:
        PdocrlError: where data, limits or settings are wrong; in one line.
    """
    if method is not None and method not in get_args(Method):
        raise UnknownNameError("method", method, get_args(Method))
    if not (C > 0 and iterations > 0):
        raise PdocrlError("C and iterations must be positive.")
    chosen = as_limits(limits)
    log = read(data)
    q, phi, w, psi = _features(log, features, size, w_features, seed)
    tables = q.partition and phi.shape[1] == phi.shape[0] == len(log.states) and q is w
    L = lagrangian(log.counts, gamma, chosen, tables)
    notes = _notes(log, q, w, L)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    units = Units.of(L)
    coefficients = q.size * L.r.shape[1]
    small = len(log.states) * coefficients**2 <= NEWTON_UP_TO
    method = method or ("lp" if tables else "newton" if small else "optimistic")
    problem = _Problem(units.scale(L), phi, psi, q.partition, w.partition, C)
    game = problem.game(PRICE if B is None and len(chosen) else B or 0.0)
    if B is None and len(chosen) and small:
        progress("pricing the limits")
        game = problem.game(_price(problem, exact=tables))
    progress(f"{method} with {game.W.size} coefficients of w and {game.Q.size} of Q")
    otherwise = _otherwise(L)
    base = LinearPolicy(
        features=q,
        actions=list(log.counts.actions),
        columns=log.states.shape[1],
        weights=[],
        logits=[],
        table=[],
        otherwise=otherwise.tolist(),
    )
    mixture, mixture_lower = None, None
    if method == "lp":
        point = saddle_lp(game)
        candidates = _of_program(base, game, point, phi, q.partition)
    elif method == "newton":
        found = _close(game)
        point, candidates = found.point, [_replace(base, np.ones(1), found.logits[None])]
    else:
        played = run(game, make_players(method, game, iterations), iterations)
        point = played.average
        candidates = [_replace(base, *_thinned(played.logits, method == "optimistic"))]
        if method == "pdocrl":
            mixture = _replace(base, np.full(iterations, 1 / iterations), played.logits)
            mixture_lower = played.mixture_lower * units.reward
    progress("certifying the policy")
    respond = len(log.states) * coefficients <= RESPONSE_UP_TO
    answers = [_lower(game, policy.on_features(phi), point, respond) for policy in candidates]
    best = int(np.argmax([value for value, _ in answers]))
    lower, theta_w = answers[best]
    upper = upper_value(game, point.theta_Q, point.lam)
    mu = game.mu(theta_w)
    signs = np.array([limit.sign for limit in chosen])
    missed = float(-game.L.slack(mu).min(initial=0))
    gap = max(upper - lower, 0.0)
    return Solved(
        status="infeasible" if missed > max(1e-6, gap) else ("optimal" if gap <= 0.01 else "approximate"),
        method=method,
        gamma=gamma,
        limits=list(chosen),
        value=float(np.vdot(mu, L.r)),
        costs=(signs * np.tensordot(L.g, mu, axes=2) + 0.0).tolist(),
        log_value=float(np.vdot(L.mu_D, L.r)),
        log_costs=(signs * np.tensordot(L.g, L.mu_D, axes=2) + 0.0).tolist(),
        multipliers=(point.lam * units.multipliers).tolist(),
        lower=lower * units.reward,
        upper=upper * units.reward,
        mixture_lower=mixture_lower,
        C=C,
        B=game.B,
        q_size=game.Q.size,
        w_size=game.W.size,
        rows=log.counts.size,
        states=len(log.states),
        iterations=None if method == "lp" else iterations,
        notes=notes,
        policy=candidates[best],
        mixture=mixture,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """What the classes are made of, once B is known."""

    L: Lagrangian
    phi: Matrix
    psi: Matrix
    q_partition: bool
    w_partition: bool
    C: float

    def game(self, B: float) -> Game:
        """Coefficients of w within [0, C], of Q within what Q_λ can be, λ within BΔ."""
        A = self.L.r.shape[1]
        sets = Sets.tight(self.L, self.C, B)
        low, high = sets.q_low, sets.q_high
        if not self.q_partition:
            high = SPREAD * max(-low, high)
            low = -high
        largest = 1.0 if self.w_partition else float(np.asarray(self.psi.sum(axis=1)).max())
        return Game(
            self.L,
            FunctionClass.box(StateBasis(self.psi, A), 0.0, self.C / largest),
            FunctionClass.box(StateBasis(self.phi, A), low, high),
            B,
        )


def _features(
    log: Log, kind: Kind | AnyFeatures, size: int | None, w_kind: Kind | AnyFeatures | None, seed: int
) -> tuple[AnyFeatures, Matrix, AnyFeatures, Matrix]:
    """Features of Q and of w, and their values at the distinct states."""
    if isinstance(kind, str):
        default = {"polynomial": 2, "fourier": 200}.get(kind, 64)
        q = make_features(kind, log.states, default if size is None else size, seed)
    else:
        q = kind
    phi = q(log.states)
    if w_kind is None and q.partition:
        return q, phi, q, phi
    if w_kind is None:
        w_kind = "cells"
    w = make_features(w_kind, log.states, min(64, q.size), seed) if isinstance(w_kind, str) else w_kind
    return q, phi, w, w(log.states)


def _notes(log: Log, q: AnyFeatures, w: AnyFeatures, L: Lagrangian) -> list[str]:
    found = []
    if w.size > q.size:
        found.append(
            f"w has {w.size} features and Q {q.size}: w meets Q's equations by what only seems connected, and the "
            "value is overestimated; give w no more features than Q."
        )
    if log.dropped:
        found.append(f"{log.dropped} last rows of cut episodes were left out: their next state is unknown.")
    seen = int(L.seen.sum())
    if not isinstance(q, OneHot) and q.size * L.r.shape[1] > seen:
        found.append(f"Q has {q.size * L.r.shape[1]} coefficients for {seen} distinct pairs; take fewer features.")
    return found


def _price(problem: _Problem, exact: bool) -> float:
    """B = 1 + 2‖λ*‖₁, increased until λ* is inside (`lp.choose_B` of the tables)."""
    B = 3.0
    while True:
        game = problem.game(B)
        lam = float((saddle_lp(game) if exact else _close(game, 0.01).point).lam.sum())
        if lam < 0.75 * B or B > LARGEST_PRICE:
            return 1 + 2 * lam if lam < 0.75 * B else B
        B *= 4


def _close(game: Game, tolerance: float = CLOSE_ENOUGH) -> Smoothed:
    """The regularised saddle point of the highest temperature whose gap is small enough."""
    for found in smoothed_saddles(game):
        if certify(game, found.point).gap <= tolerance:
            break
    return found


def _of_program(base: LinearPolicy, game: Game, point: Saddle, phi: Matrix, partition: bool) -> list[LinearPolicy]:
    """What a program's ν, known at logged states alone, can be as a policy for all states; certificates choose."""
    found: list[LinearPolicy] = []
    if partition:
        # First μ's policy: where mass leaves the log every action has the same price, and ν's choice means nothing.
        for mass in (game.mu(point.theta_w), point.nu):
            weight = np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
            table = averager(phi, policy_of(game.L, mass) * weight, base.otherwise)
            found.append(LinearPolicy(**{**_fields(base), "table": table.tolist()}))
        if issparse(phi) and phi.nnz == phi.shape[0]:
            return found  # each state has one feature: no other policies
    basis = game.Q.basis
    assert isinstance(basis, StateBasis)
    size = float(np.abs(point.theta_Q).max()) or 1.0
    fitted = fit_softmax(basis, point.nu, point.theta_Q / size)
    sharp = point.theta_Q / size * 1e4  # greedy by Q
    return [*found, *(_replace(base, np.ones(1), theta[None]) for theta in (fitted, sharp))]


def _lower(game: Game, pi: Floats, point: Saddle, respond: bool) -> tuple[float, Floats]:
    """D of a policy with the best w, or with the averaged one where that program is too large."""
    theta_w = best_response(game, pi).theta_w if respond else point.theta_w
    return lower_value(game, theta_w, game.nu(game.mu(theta_w), pi)), theta_w


def _thinned(logits: Floats, rising: bool) -> tuple[Floats, Floats]:
    """At most POLICIES of π_1 … π_T, evenly, with the weights of the average."""
    T = len(logits)
    at = np.unique(np.linspace(0, T - 1, min(T, POLICIES)).round().astype(np.int64))
    weights = (at + 1.0) if rising else np.ones(len(at))
    return weights / weights.sum(), logits[at]


def _replace(base: LinearPolicy, weights: Floats, logits: Floats) -> LinearPolicy:
    return LinearPolicy(**{**_fields(base), "weights": weights.tolist(), "logits": logits.tolist()})


def _fields(policy: LinearPolicy) -> dict[str, object]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}


def _otherwise(L: Lagrangian) -> Floats:
    """[A] the log's mix of actions."""
    often = L.mu_D.sum(axis=0)
    return np.asarray(often / often.sum())
