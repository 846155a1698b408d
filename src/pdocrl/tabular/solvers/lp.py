"""The empirical saddle problem as one linear program, for sets that are a box per (s, a), solved exactly by HiGHS.

The paper calls max_{w,π} min_{Q,λ} L̂ intractable in general (Section 3.3). For the tabular sets of `Sets` it is

    max  ⟨μ, r⟩ + q_low Σ_s p(s) − B t
    s.t. Σ_a μ(s, a) + p(s) = (1−γ) d₀(s) + γ [P̂ᵀμ](s)      dual V
         ⟨μ, g_i⟩ + t ≥ τ_i                                 dual λ
         0 ≤ μ ≤ C μ̂_D,  p ≥ 0,  t ≥ 0

over the pairs the log has seen. p is the mass that arrives where the log, or the bound C, lets it go no further: it
gets the least Q allowed. (ν < μ would be priced at q_high, more than any mass can get, so it never happens.) Q
follows from V. Two more programs share its rows: how far inside the limits a covered policy can be, and the price of
the limits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from pdocrl.errors import PdocrlError
from pdocrl.tabular.cmdp import plan
from pdocrl.tabular.solvers.highs import Start, maximise
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, Point, Sets, pessimistic_model, policy_of

SIMPLEX_UP_TO = 1000  # pairs; beyond, interior point with crossover is several times faster and as exact …
PLANNED_UP_TO = 30_000  # … and up to here dual simplex from a plan's columns, where there is one, five times faster


def saddle_lp(L: Lagrangian, sets: Sets) -> Point:
    """A saddle point of L over the sets, to rounding."""
    found = _optimise(L, sets.C, L.r, leak=sets.q_low, price=sets.B)
    if found is None:
        raise PdocrlError("HiGHS found no saddle point; try the method `optimistic`, or a smaller C.")
    mu = np.clip(found.mu, 0, sets.C * L.mu_D)
    lam = np.maximum(found.lam, 0)
    lam *= sets.B / max(lam.sum(), sets.B) if sets.B else 0.0
    V = np.clip(found.V, sets.q_low, sets.q_high)
    # Any Q ≤ V that is at least the backup where w = 0 is dual optimal; unseen pairs get the least.
    Q = np.clip(np.minimum(V[:, None], L.residual(V, np.zeros_like(mu), lam)), sets.q_low, sets.q_high)
    # p has the same price for all actions of a state, so any policy there will do: the one of μ.
    nu = policy_of(L, mu) * L.inflow(mu)[:, None]
    return Point(mu, nu, np.where(L.seen, Q, sets.q_low), lam)


def margin(L: Lagrangian, C: float) -> float:
    """The largest φ such that some policy covered within C satisfies every limit by φ; negative if none satisfies all.

    Mass that leaves the data counts at the worst of every constraint.
    """
    if not len(L.tau):
        return np.inf
    found = _optimise(L, C, np.zeros_like(L.r), leak=0.0, leak_g=L.g_range[:, 0] / (1 - L.gamma), price=1.0, below=True)
    if found is None:
        raise PdocrlError("HiGHS could not tell how far inside the limits a policy can be; are they of sensible size?")
    return -found.t


def prices(L: Lagrangian, C: float, tau: Floats) -> Floats | None:
    """λ* [I] of the problem with hard limits τ among policies covered within C; None if none satisfies them."""
    worst = (L.r_range[0] / (1 - L.gamma), L.g_range[:, 0] / (1 - L.gamma))
    found = _optimise(L, C, L.r, leak=worst[0], leak_g=worst[1], tau=tau)
    return None if found is None else np.maximum(found.lam, 0)


def strict(L: Lagrangian, C: float) -> Optimum | None:
    """μ [S, A] and λ of the best policy covered within C when mass that leaves the data counts against limits at once.

    In the saddle problem such mass is only priced, at q_low, so that a little of it may be worth its price.
    """
    worst = (L.r_range[0] / (1 - L.gamma), L.g_range[:, 0] / (1 - L.gamma))
    found = _optimise(L, C, L.r, leak=worst[0], leak_g=worst[1])
    if found is None:
        return None
    return found._replace(mu=np.clip(found.mu, 0, C * L.mu_D), lam=np.maximum(found.lam, 0))


def choose_B(L: Lagrangian, C: float) -> float:
    """B = 1 + 2‖λ*‖₁.

    The guarantee needs B ≥ 1 + ‖λ*‖₁ (Lemma 14); the other ‖λ*‖₁ is room for λ* being an estimate. The paper's 1 + 1/φ
    also does, but is many times larger. If none satisfies the limits, λ* is that of the nearest limits one does, give
    or take a thousandth of the constraints' range: with it, missing them by the least comes before reward.
    """
    if not len(L.tau):
        return 0.0
    lam = prices(L, C, L.tau)
    if lam is None:
        room = 1e-3 * float(np.ptp(L.g_range, axis=1).max())
        lam = prices(L, C, L.tau + margin(L, C) - room)
    if lam is None:
        raise PdocrlError("HiGHS could not price the limits; give B, the bound on the multipliers.")
    return 1 + 2 * float(lam.sum())


class Optimum(NamedTuple):
    """Of one of the programs."""

    mu: Floats  # [S, A]
    t: float
    V: Floats  # [S]
    lam: Floats  # [I]


def _optimise(
    L: Lagrangian,
    C: float,
    reward: Floats,
    leak: float,
    leak_g: Floats | None = None,
    price: float | None = None,
    below: bool = False,
    tau: Floats | None = None,
) -> Optimum | None:
    """max ⟨μ, reward⟩ + leak Σp − price t over the rows above; None if infeasible.

    `leak_g` [I] is what a unit of p adds to each constraint. Without a price there is no t; `below` lets t be negative.
    """
    S, n, pairs = len(L.d0), len(L.tau), np.flatnonzero(L.seen)
    start = (1 - L.gamma) * L.d0
    matrix = _rows(L, pairs, np.zeros(n) if leak_g is None else leak_g)
    planned = None
    if reward.any() and not below and SIMPLEX_UP_TO < len(pairs) <= PLANNED_UP_TO:
        planned = Start.at(plan_columns(L, reward), matrix.shape)
    found = maximise(
        objective=np.r_[reward.ravel()[pairs], np.full(S, leak), -(price or 0.0)],
        matrix=matrix,
        row_lower=np.r_[start, L.tau if tau is None else tau],
        row_upper=np.r_[start, np.full(n, np.inf)],
        column_lower=np.r_[np.zeros(len(pairs) + S), -np.inf if below else 0.0],
        column_upper=np.r_[C * L.mu_D.ravel()[pairs], np.full(S, np.inf), 0.0 if price is None else np.inf],
        method="simplex" if len(pairs) <= SIMPLEX_UP_TO else "ipm",
        start=planned,
    )
    if not found.optimal:
        return None
    mu = np.zeros(L.r.size)
    mu[pairs] = found.x[: len(pairs)]
    return Optimum(mu.reshape(L.r.shape), float(found.x[-1]), -found.dual[:S], found.dual[S:])


def plan_columns(L: Lagrangian, reward: Floats) -> NDArray[np.int64]:
    """[S] columns to start simplex from: each state's action in the best plan of the log's model without limits or C.

    Columns are μ of the pairs tried, then the mass that leaves in each state, taken where the plan has nothing better.
    """
    model = pessimistic_model(L)
    states = np.arange(len(L.d0))
    actions = plan(model, np.where(L.seen, reward, model.r)).actions
    column = np.cumsum(L.seen).reshape(L.seen.shape) - 1
    return np.where(L.seen[states, actions], column[states, actions], L.seen.sum() + states)


def _rows(L: Lagrangian, pairs: NDArray[np.int64], leak_g: Floats) -> csc_array:
    """[S + I, pairs + S + 1] the flow of each state, then the limits; columns μ, p, t."""
    (S, A), n, m = L.r.shape, len(L.tau), len(pairs)
    P, column = L.P[pairs], np.arange(m)
    entering = np.repeat(column, np.diff(P.indptr))
    limit = S + np.arange(n)
    blocks = [  # (row, column, value), added up where they coincide
        (pairs // A, column, np.ones(m)),
        (P.indices, entering, -L.gamma * P.data),
        (np.repeat(limit, m), np.tile(column, n), L.g.reshape(n, L.r.size)[:, pairs].ravel()),
        (np.arange(S), m + np.arange(S), np.ones(S)),
        (np.repeat(limit, S), np.tile(m + np.arange(S), n), np.repeat(leak_g, S)),
        (limit, np.full(n, m + S), np.ones(n)),
    ]
    row, at, value = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return csc_array((value, (row, at)), shape=(S + n, m + S + 1))
