"""The saddle problem with entropy: a smooth convex function of Q's coefficients and λ, minimised by Newton's method.

    U_τ(Q, λ) = (1−γ) d₀·V + Σ_k max_{θ_k} [θ_k g_k + τ m_k H(θ_k)] − λ·τ_limits,    V(x) = τ log mean_a exp(Q(x, a)/τ)
    g_k = ⟨b_k, μ_D (r_λ + γPV − Q)⟩,  m_k = ⟨b_k, μ_D⟩,  H the entropy of θ_k between the ends of its box

As τ falls, U_τ → U. Its minimisers are the regularised saddle points: π = softmax(Q/τ), so linear logits in Q's own
basis, a policy for every state; θ_k = low + (high − low) σ(g_k/τm_k); the gradient is that of L̂ at these plays,
⟨ν − μ, b⟩ for Q and ⟨μ, g⟩ − τ for λ, and 0 where the flow is met. A step costs O(X D²); tens of steps do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse as sp

from pdocrl.approximate.classes import Box
from pdocrl.approximate.features import Matrix
from pdocrl.approximate.game import Game, Saddle
from pdocrl.approximate.oracles import softmax
from pdocrl.errors import PdocrlError

Floats = NDArray[np.float64]
TEMPERATURES = tuple(10.0 ** (-k / 2) for k in range(0, 9))  # 1 … 1e-4, signals being within ±1
STEPS = 60  # of Newton, at each temperature
PENALTY = 100.0  # on Σλ beyond B
DAMPING = 1e-10


class Smoothed(NamedTuple):
    """The regularised saddle point of one temperature."""

    temperature: float
    point: Saddle
    logits: Floats  # [D_Q] of its policy
    pi: Floats  # [X, A]


class _Value(NamedTuple):
    """U_τ at one place, and what it is made of."""

    value: float
    gradient: Floats
    theta_w: Floats
    steepness: Floats  # [D_w] dθ_w/dg
    pi: Floats
    inflow: Floats


def smoothed_saddles(game: Game, temperatures: tuple[float, ...] = TEMPERATURES) -> Iterator[Smoothed]:
    """Regularised saddle points for falling temperatures, each begun at the last."""
    if not (isinstance(game.W.coefficients, Box) and isinstance(game.Q.coefficients, Box)):
        raise PdocrlError("the smoothed method takes boxes of coefficients; use the linear program for finite classes.")
    L, D, n = game.L, game.Q.size, len(game.L.tau)
    dual = _Dual(game)
    low = np.r_[game.Q.coefficients.low, np.zeros(n)]
    high = np.r_[game.Q.coefficients.high, np.full(n, game.B)]
    z = np.clip(np.zeros(D + n), low, high)
    for temperature in temperatures:
        z, at = _newton(dual, z, low, high, temperature)
        lam = z[D:] * (game.B / max(float(z[D:].sum()), game.B) if game.B else 0.0)
        nu = game.nu(L.mu_D * game.W(at.theta_w), at.pi)
        yield Smoothed(temperature, Saddle(at.theta_w, nu, z[:D], lam), z[:D] / temperature, at.pi)


class _Dual:
    """U_τ, its gradient and its Hessian."""

    def __init__(self, game: Game) -> None:
        self.game, L = game, game.L
        assert isinstance(game.W.coefficients, Box)
        self.low, self.span = game.W.coefficients.low, game.W.coefficients.high - game.W.coefficients.low
        weighted = sp.csr_array(sp.diags_array(L.mu_D.ravel()) @ game.W.basis.matrix())  # [X·A, D_w]
        self.mass = np.maximum(np.asarray(weighted.sum(axis=0)).ravel(), 1e-300)
        self.into = _dense_if_full(L.gamma * (L.P.T @ weighted))  # [X, D_w]
        fixed = -(weighted.T @ game.Q.basis.matrix())  # [D_w, D]
        self.fixed = np.asarray(fixed.toarray())
        self.of_lam = np.asarray((L.g.reshape(len(L.tau), L.r.size) @ weighted).T)  # [D_w, I]

    def __call__(self, z: Floats, temperature: float) -> _Value:
        game, L, D = self.game, self.game.L, self.game.Q.size
        Q, lam = game.Q(z[:D]), z[D:]
        pi = softmax(Q / temperature)
        top = Q.max(axis=1, keepdims=True)
        V = top[:, 0] + temperature * np.log(np.exp((Q - top) / temperature).mean(axis=1))
        g = game.W.basis.moments(L.mu_D * L.residual(V, Q, lam))
        scale = temperature * self.mass
        at = np.clip(g / scale, -700, 700)
        share = 1 / (1 + np.exp(-at))
        theta_w = self.low + self.span * share
        mu = game.mu(theta_w)
        inflow = np.maximum(L.inflow(mu), 0)
        over = max(0.0, float(lam.sum()) - game.B)
        value = (1 - L.gamma) * L.d0 @ V + self.low @ g + self.span @ (scale * np.logaddexp(0, g / scale)) - lam @ L.tau
        gradient = np.r_[game.Q.basis.moments(inflow[:, None] * pi - mu), L.slack(mu) + PENALTY * over]
        steepness = self.span * share * (1 - share) / scale
        return _Value(float(value + PENALTY / 2 * over**2), gradient, theta_w, steepness, pi, inflow)

    def hessian(self, z: Floats, at: _Value, temperature: float) -> Floats:
        """J diag(dθ/dg) Jᵀ + Σ_x inflow Cov_π(b)/τ."""
        D = self.game.Q.size
        expected = self.game.Q.basis.expected(at.pi)  # [X, D]
        through = expected.T @ self.into
        jacobian = np.concatenate([self.fixed + _array(through).T, self.of_lam], axis=1)  # [D_w, D + I]
        found = jacobian.T @ (at.steepness[:, None] * jacobian)
        mean = expected.T @ (at.inflow[:, None] * expected)
        found[:D, :D] += (self.game.Q.basis.gram(at.inflow[:, None] * at.pi) - _array(mean)) / temperature
        if z[D:].sum() > self.game.B:
            found[D:, D:] += PENALTY
        return np.asarray(found)


def _newton(dual: _Dual, z: Floats, low: Floats, high: Floats, temperature: float) -> tuple[Floats, _Value]:
    """Projected Newton: coordinates at a bound that the gradient pushes outwards rest, the others take the step."""
    at, damping = dual(z, temperature), DAMPING
    for _ in range(STEPS):
        resting = ((z <= low) & (at.gradient > 0)) | ((z >= high) & (at.gradient < 0))
        free = np.flatnonzero(~resting)
        H = dual.hessian(z, at, temperature)[np.ix_(free, free)]
        size = 1 + np.trace(H) / max(len(free), 1)
        then, decrement = None, 0.0
        while then is None and damping < 1:  # features that are nearly dependent take more damping
            step = np.zeros_like(z)
            step[free] = -_solve(H, damping * size, at.gradient[free])
            decrement = -float(at.gradient @ step)
            then = _search(dual, z, step, at, low, high, temperature)
            damping = max(damping / 10, DAMPING) if then else damping * 100
        if then is None:
            break
        ahead, at_ahead = then
        done = decrement <= 1e-12 or at.value - at_ahead.value <= 1e-15 * (1 + abs(at.value))
        z, at = ahead, at_ahead
        if done:
            break
    return z, at


def _search(
    dual: _Dual, z: Floats, step: Floats, at: _Value, low: Floats, high: Floats, temperature: float
) -> tuple[Floats, _Value] | None:
    """Armijo's rule along the projected path; None if no length will do."""
    length = 1.0
    while length > 1e-4:
        ahead = np.clip(z + length * step, low, high)
        then = dual(ahead, temperature)
        if then.value <= at.value + 1e-4 * float(at.gradient @ (ahead - z)):
            return ahead, then
        length /= 3
    return None


def _solve(H: Floats, damping: float, gradient: Floats) -> Floats:
    """(H + damping)⁻¹ gradient; more damping where rounding has made H indefinite."""
    while True:
        try:
            factor = scipy.linalg.cho_factor(H + damping * np.eye(len(H)))
            return np.asarray(scipy.linalg.cho_solve(factor, gradient))
        except np.linalg.LinAlgError:
            damping *= 10


def _dense_if_full(matrix: sp.csr_array) -> Floats | sp.csr_array:
    return np.asarray(matrix.toarray()) if matrix.nnz > 0.2 * np.prod(matrix.shape) else sp.csr_array(matrix)


def _array(matrix: Matrix) -> Floats:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
