"""The saddle problem over linear and finite classes as one linear program, where all policies are allowed.

    max  ⟨μ, r⟩ + min_{Q ∈ 𝒬} ⟨ν − μ, Q⟩ − B t      μ = μ_D·w_θ
    s.t. Σ_a ν(x, a) = (1−γ) d₀(x) + γ [P̂ᵀμ](x)      at each distinct state
         ⟨μ, g_i⟩ + t ≥ τ_i                          dual λ
         θ ∈ Θ_W,  ν ≥ 0,  t ≥ 0

With m_k = ⟨ν − μ, b_k⟩ = p_k − q_k for each of Q's basis functions, min over a box is Σ low·p − high·q, and the dual
of those rows is Q's coefficients; over a finite class it is min_k m_k. For a given policy ν follows from w, and the
program has D_w columns: the w that speaks best for it, hence the policy's exact D.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pdocrl.approximate.classes import Box
from pdocrl.approximate.game import Game, Saddle
from pdocrl.errors import PdocrlError
from pdocrl.tabular.solvers.highs import maximise

Floats = NDArray[np.float64]
SIMPLEX_UP_TO = 20_000  # entries; beyond, interior point


class _Columns(NamedTuple):
    """Columns of a program and their rows: the flow, Q's basis, the limits, the simplex of w."""

    objective: Floats
    flow: sp.csr_array
    moments: sp.csr_array
    limits: sp.csr_array
    low: Floats
    high: Floats


def saddle_lp(game: Game) -> Saddle:
    """A saddle point, to rounding."""
    if game.policies is not None:
        raise PdocrlError("with finitely many policies the saddle problem is no linear program.")
    L, (X, A) = game.L, game.L.r.shape
    into = np.asarray(abs(L.P[np.flatnonzero(L.seen)]).sum(axis=0)).ravel() > 0
    reached = np.flatnonzero(into | (L.d0 > 0))
    pairs = (reached[:, None] * A + np.arange(A)).ravel()
    w, inflow = _ratio_columns(game)
    n = len(pairs)
    flow = sp.kron(sp.eye_array(len(reached)), np.ones((1, A)), format="csr")
    nu = _Columns(
        objective=np.zeros(n),
        flow=flow,
        moments=sp.csr_array(game.Q.basis.matrix()[pairs].T),
        limits=sp.csr_array((len(L.tau), n)),
        low=np.zeros(n),
        high=np.full(n, np.inf),
    )
    w = w._replace(flow=-inflow[reached])
    start = (1 - L.gamma) * L.d0[reached]
    theta_w, mass, theta_Q, lam = _optimise(game, [w, nu], start, np.zeros(game.Q.size))
    found = np.zeros(X * A)
    found[pairs] = np.maximum(mass, 0)
    # To rounding: ν spreads exactly what flows in.
    inside = L.inflow(game.mu(theta_w))
    total = found.reshape(X, A).sum(axis=1)
    pi = np.where((total > 0)[:, None], found.reshape(X, A) / np.where(total > 0, total, 1)[:, None], L.behaviour)
    return Saddle(theta_w, np.maximum(inside, 0)[:, None] * pi, theta_Q, lam)


def best_response(game: Game, pi: Floats) -> Saddle:
    """The w of the class that maximises D(w, π), and Q and λ that answer it best."""
    L = game.L
    w, inflow = _ratio_columns(game)
    expected = sp.csr_array(sp.csr_array(game.Q.basis.expected(pi)).T)  # [D_Q, X] E_π b_k(x, ·)
    w = w._replace(moments=sp.csr_array(w.moments + expected @ inflow), flow=sp.csr_array((0, game.W.size)))
    start = (1 - L.gamma) * np.asarray(expected @ L.d0)
    theta_w, _, theta_Q, lam = _optimise(game, [w], np.zeros(0), start)
    mu = game.mu(theta_w)
    return Saddle(theta_w, game.nu(mu, pi), theta_Q, lam)


def _ratio_columns(game: Game) -> tuple[_Columns, sp.csr_array]:
    """The columns of θ_w, less their flow, and [X, D_w] what flows into each state."""
    L = game.L
    weighted = sp.csr_array(sp.diags_array(L.mu_D.ravel()) @ game.W.basis.matrix())  # [X·A, D_w]
    box = game.W.coefficients
    size = game.W.size
    columns = _Columns(
        objective=np.asarray(weighted.T @ L.r.ravel()),
        flow=sp.csr_array((0, size)),
        moments=sp.csr_array(-(game.Q.basis.matrix().T @ weighted)),
        limits=sp.csr_array(L.g.reshape(len(L.tau), L.r.size) @ weighted),
        low=box.low if isinstance(box, Box) else np.zeros(size),
        high=box.high if isinstance(box, Box) else np.full(size, np.inf),
    )
    return columns, sp.csr_array(L.gamma * (L.P.T @ weighted))


def _optimise(
    game: Game, columns: list[_Columns], flow: Floats, start: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """θ_w, the next columns, θ_Q and λ of the optimum; `start` [D_Q] is the part of Q's moments that is fixed."""
    L, D, n = game.L, game.Q.size, len(game.L.tau)
    first = columns[0]
    box = game.Q.coefficients
    if isinstance(box, Box):
        answers = sp.hstack([-sp.eye_array(D), sp.eye_array(D)], format="csr")
        prices, top = np.r_[box.low, -box.high], -start
    else:
        answers, prices, top = sp.csr_array(-np.ones((D, 1))), np.ones(1), np.full(D, np.inf)
    free = -np.inf if not isinstance(box, Box) else 0.0
    simplex = not isinstance(game.W.coefficients, Box)
    blocks = [
        [*(c.flow for c in columns), None, None],
        [*(c.moments for c in columns), answers, None],
        [*(c.limits for c in columns), None, sp.csr_array(np.ones((n, 1)))],
        [sp.csr_array(np.ones((1, game.W.size)) * simplex), *(None for _ in columns[1:]), None, None],
    ]
    rows = (len(flow), D, n, 1)
    widths = [*(len(c.objective) for c in columns), len(prices), 1]
    filled = [
        [sp.csr_array((height, width)) if block is None else block for block, width in zip(line, widths, strict=True)]
        for line, height in zip(blocks, rows, strict=True)
    ]
    small = sum(block.nnz for line in filled for block in line) <= SIMPLEX_UP_TO
    found = maximise(
        objective=np.r_[*(c.objective for c in columns), prices, -game.B],
        matrix=sp.vstack([sp.hstack(line, format="csr") for line in filled], format="csc"),
        row_lower=np.r_[flow, -start, L.tau, float(simplex)],
        row_upper=np.r_[flow, top, np.full(n, np.inf), float(simplex)],
        column_lower=np.r_[*(c.low for c in columns), np.full(len(prices), free), 0.0],
        column_upper=np.r_[*(c.high for c in columns), np.full(len(prices), np.inf), np.inf],
        method="simplex" if small else "ipm",
        crossover=False,
    )
    if not found.optimal:
        raise PdocrlError("HiGHS found no saddle point over these classes; try the method `optimistic`.")
    theta_w = found.x[: first.objective.size]
    if isinstance(game.W.coefficients, Box):
        theta_w = np.clip(theta_w, first.low, first.high)
    else:
        theta_w = np.maximum(theta_w, 0) / np.maximum(theta_w, 0).sum()
    rest = found.x[first.objective.size : sum(len(c.objective) for c in columns)]
    theta_Q = found.dual[len(flow) : len(flow) + D]
    if isinstance(box, Box):
        theta_Q = np.clip(theta_Q, box.low, box.high)
    else:
        theta_Q = np.maximum(theta_Q, 0) / np.maximum(theta_Q, 0).sum()
    lam = np.maximum(found.dual[len(flow) + D : len(flow) + D + n], 0)
    lam *= game.B / max(lam.sum(), game.B) if game.B else 0.0
    return theta_w, rest, theta_Q, lam
