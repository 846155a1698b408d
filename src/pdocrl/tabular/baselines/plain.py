"""What else one could do with the counts of a log: the methods the tabular half is compared with.

    behaviour_cloning   imitate the log
    plug_in             believe the empirical model and solve its CMDP; optionally only pairs seen often enough
    fqi                 fitted Q-iteration: the same without constraints (Munos & Szepesvári, 2008)
    mbcl                a game between a planner and the multipliers (Le, Voloshin & Yue, 2019)
    coptidice           a density ratio kept close to the data by a χ² penalty (Lee et al., 2022)

Limits are on (1−γ)J. A pair the log never tried is followed by the worst of every signal (`pessimistic_model`), so that
none of them is tempted by what nobody has seen; what they do differ in is how far they trust what was seen rarely.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.cmdp import CMDP, Floats, as_matrix, evaluate, extract, plan
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Lagrangian, pessimistic_model


def behaviour_cloning(counts: Counts) -> Floats:
    """π(a|s) = n(s, a)/n(s) [S, A]; uniform in states never seen."""
    return extract(counts.n.astype(np.float64))


def plug_in(counts: Counts, gamma: float, limits: Limits = (), min_count: int = 1) -> Floats:
    """The optimal policy [S, A] of the empirical CMDP, restricted to pairs seen at least `min_count` times.

    If the empirical CMDP cannot satisfy the limits, the policy that misses them least.
    """
    return exact.solve(_empirical_model(counts, gamma, limits, min_count)).pi


def fqi(counts: Counts, gamma: float, iterations: int = 1000) -> Floats:
    """Fitted Q-iteration Q ← r̂ + γP̂ max_a Q over the pairs seen; returns its greedy policy [S, A].

    Starts from zero, as usual; actions never tried in a state are not considered there.
    """
    seen = counts.n > 0
    Q = np.where(seen, 0.0, -np.inf)
    for _ in range(iterations):
        V = np.where(seen.any(axis=1), Q.max(axis=1), 0.0)
        Q = np.where(seen, counts.r + gamma * (counts.P @ V).reshape(counts.shape), -np.inf)
    return as_matrix(Q.argmax(axis=1), counts.n_actions)


@dataclasses.dataclass(frozen=True, eq=False)
class Game(Mixture):
    """MBCL's answer: the mixture of all plans, the average multipliers, and how far from the end the game was."""

    lam: Floats  # [I]
    gap: float  # max_π L(π, λ̄) − min_{λ ∈ BΔ} L(π̄, λ) ≥ 0, in the empirical model


def mbcl(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    B: float = 10.0,
    iterations: int = 200,
    rate: float = 1.0,
    tolerance: float = 0.0,
) -> Game:
    """Constrained batch learning as a game: the policy player plans for r_λ (FQI), the multipliers follow by
    exponentiated gradient on what the plan misses (FQE), and the mixture of all plans is returned.

    λ lives in BΔ, with one more coordinate for the unused part. Both fits are at their fixed points, which for tables
    are the plan and the value in the empirical model. The game ends when its own gap, the value of the best answer to λ̄
    less what the worst λ leaves the mixture, is at most `tolerance`; it costs one more plan, so it is looked at every
    tenth time. Different from the paper: its gradient step is constant, here it falls as 1/√t.
    """
    model = _empirical_model(counts, gamma, limits)
    I = model.n_constraints
    weights = np.full(I + 1, 1 / (I + 1))
    policies = np.zeros((iterations, *counts.shape))
    V, lam, earned = np.zeros(counts.n_states), np.zeros(I), np.zeros(1 + I)
    gap = np.inf
    for t in range(1, iterations + 1):
        found = plan(model, model.r + np.tensordot(B * weights[1:], model.g, axes=1), start=V)
        V = found.V
        policies[t - 1] = as_matrix(found.actions, counts.n_actions)
        value, constraints = evaluate(model, found.actions)
        lam, earned = lam + B * weights[1:], earned + np.r_[value, constraints]
        if t == iterations or t % 10 == 0:
            gap = _game_gap(model, lam / t, earned / t, B, V)
            if gap <= tolerance:
                break
        weights = weights * np.exp(rate / np.sqrt(t) * B * np.r_[0.0, model.tau - constraints])
        weights /= weights.sum()
    return Game(policies[:t], lam / t, gap)


def _game_gap(model: CMDP, lam: Floats, earned: Floats, B: float, start: Floats) -> float:
    """max_π L(π, λ) − min_λ L(π̄, λ) for a mixture whose values in the model are `earned` [1+I]."""
    answer = plan(model, model.r + np.tensordot(lam, model.g, axes=1), start=start)
    upper = (1 - model.gamma) * float(model.d0 @ answer.V) + answer.excess - float(lam @ model.tau)
    lower = float(earned[0]) - B * max(0.0, float((model.tau - earned[1:]).max(initial=0.0)))
    return max(upper - lower, 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class DensityRatio:
    """COptiDICE's answer: the ratio w, the multipliers, and the policy extracted from w·μ̂_D."""

    pi: Floats  # [S, A]
    w: Floats  # [S, A]
    V: Floats  # [S]
    lam: Floats  # [I]


def coptidice(
    counts: Counts, gamma: float, limits: Limits = (), alpha: float = 0.01, largest_multiplier: float = 1e3
) -> DensityRatio:
    """min_{V, λ ≥ 0} (1−γ)d_0·V + α Σ μ̂_D f*([r_λ + γP̂V − V]/α) − λ·τ  with f(w) = ½(w−1)², w = [1 + e/α]₊.

    COptiDICE without its inflation of the estimated cost (ε = 0). The objective is convex and piecewise quadratic, so
    Newton's method with an exact line search ends at the minimum. If none satisfies the limits, a multiplier ends at
    `largest_multiplier`.
    """
    if not alpha > 0:
        raise PdocrlError(f"coptidice: alpha is {alpha}; it must be positive.")
    L = Lagrangian.empirical(counts, gamma, as_limits(limits))
    acted, I = L.seen.any(axis=1), len(L.tau)
    S, seen = int(acted.sum()), np.flatnonzero(L.seen)
    mu_D, least = L.mu_D.ravel()[seen], np.r_[L.r_range[0], L.g_range[:, 0]] / (1 - gamma)
    # The residual e = r + A·x is affine in x = (V, λ); where the log never acted, V is the least there is.
    E = sp.csr_array((np.ones(L.r.size), (np.arange(L.r.size), np.arange(L.r.size) // L.r.shape[1])), shape=L.P.shape)
    flow = (gamma * L.P - E)[seen].toarray()
    away = flow[:, ~acted].sum(axis=1)
    r = L.r.ravel()[seen] + least[0] * away
    A = np.hstack([flow[:, acted], L.g.reshape(I, L.r.size)[:, seen].T + np.outer(away, least[1:])])
    linear = np.r_[(1 - gamma) * L.d0[acted], (1 - gamma) * L.d0[~acted].sum() * least[1:] - L.tau]
    lower, upper = np.r_[np.full(S, -np.inf), np.zeros(I)], np.r_[np.full(S, np.inf), np.full(I, largest_multiplier)]

    def ratio(x: Floats) -> Floats:
        w: Floats = np.maximum(1 + (r + A @ x) / alpha, 0)
        return w

    def gradient(x: Floats) -> Floats:
        slope: Floats = linear + A.T @ (mu_D * ratio(x))
        return slope

    x = np.zeros(S + I)
    for _ in range(500):
        slope = gradient(x)
        if np.abs(x - np.clip(x - slope, lower, upper)).max() <= 1e-12:
            break
        hessian = (A.T * (mu_D * (ratio(x) > 0) / alpha)) @ A
        ridge = 1e-12 * max(float(np.diag(hessian).max()), 1.0)  # it is flat where w = 0
        root = np.linalg.cholesky(hessian + ridge * np.eye(S + I)).T
        # The Newton step within the bounds: min ½|root·step|² + slope·step. Only λ, the last part, has bounds.
        target = -scipy.linalg.solve_triangular(root, slope, trans="T")
        step = np.zeros(S + I)
        if I:
            within = ((lower - x)[S:], (upper - x)[S:])
            step[S:] = scipy.optimize.lsq_linear(root[S:, S:], target[S:], within, method="bvls").x
        step[:S] = scipy.linalg.solve_triangular(root[:S, :S], target[:S] - root[:S, S:] @ step[S:])
        # Along the step the objective is convex: go all the way, or to where its slope turns.
        length = 1.0
        if gradient(x + step) @ step > 0:
            length = scipy.optimize.brentq(lambda t: gradient(x + t * step) @ step, 0.0, 1.0, xtol=1e-12)  # noqa: B023
        x = np.clip(x + length * step, lower, upper)
    w = np.zeros(L.r.shape)
    w.ravel()[seen] = ratio(x)
    V = np.full(counts.n_states, least[0] + x[S:] @ least[1:])
    V[acted] = x[:S]
    return DensityRatio(extract(w * L.mu_D), w, V, x[S:])


def _empirical_model(counts: Counts, gamma: float, limits: Limits, min_count: int = 1) -> CMDP:
    """The log's own CMDP; a pair seen fewer than `min_count` times counts as never tried."""
    L = Lagrangian.empirical(counts, gamma, as_limits(limits))
    keep = counts.n >= min_count
    P = sp.diags_array(keep.ravel().astype(np.float64)) @ L.P
    return pessimistic_model(dataclasses.replace(L, mu_D=L.mu_D * keep, P=sp.csr_array(P)))
