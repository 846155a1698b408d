"""Policies on real-valued states that a saddle point leaves: mixtures of softmaxes, and averagers.

    π(a|x) = Σ_k weight_k softmax_a(φ(x)·Θ_k)     of iterations, and of a program with overlapping features
    π(a|x) = Σ_k φ_k(x) table[k, a]               where φ sums to one: for one-hot features a table

A policy is a record: it holds its features, acts on states, and is saved with what it came from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from pdocrl.approximate.classes import StateBasis
from pdocrl.approximate.features import AnyFeatures, Matrix, Rows
from pdocrl.approximate.oracles import softmax
from pdocrl.errors import PdocrlError
from pdocrl.records import Part

Floats = NDArray[np.float64]
RIDGE = 1e-6  # of the softmax fitted to a program's policy


class LinearPolicy(Part, frozen=True, kw_only=True):
    """What to do in a state [S], with probabilities; NumPy arithmetic on what the record holds."""

    features: AnyFeatures
    actions: list[str | int]
    columns: int  # S
    weights: list[float]  # [K] of the softmaxes
    logits: Rows  # [K, d·A] Θ_k, of feature k and action a at k·A + a
    table: Rows  # [d, A] of an averager; empty for softmaxes
    otherwise: list[float]  # [A] where a state has no feature at all

    def probabilities(self, states: ArrayLike) -> Floats:
        """[A] for a state [S], [N, A] for states [N, S]."""
        x = np.asarray(states, np.float64)
        one = x.ndim == 1
        x = x[None] if one else x
        if x.ndim != 2 or x.shape[1] != self.columns:
            raise PdocrlError(f"policy: states of shape {np.shape(states)}, expected [N, {self.columns}].")
        if not np.isfinite(x).all():
            raise PdocrlError("policy: a state has a value that is not a finite number.")
        found = self.on_features(self.features(x))
        return np.asarray(found[0] if one else found)

    def on_features(self, phi: Matrix) -> Floats:
        """[N, A] for φ [N, d]."""
        if self.table:
            chances = np.asarray(phi @ np.asarray(self.table))
        else:
            chances = np.zeros((phi.shape[0], len(self.actions)))
            for weight, row in zip(self.weights, self.logits, strict=True):
                chances += weight * softmax(np.asarray(phi @ np.reshape(row, (-1, len(self.actions)))))
        known = np.asarray(phi.sum(axis=1)).ravel() > 0
        return np.asarray(np.where(known[:, None], chances, self.otherwise))

    def act(self, state: ArrayLike, rng: np.random.Generator | None = None) -> str | int:
        """An action, drawn; without a generator the most probable."""
        chances = self.probabilities(np.reshape(np.asarray(state, np.float64), -1))
        at = int(chances.argmax()) if rng is None else int(rng.choice(len(chances), p=chances / chances.sum()))
        return self.actions[at]

    def draw(self, rng: np.random.Generator) -> LinearPolicy:
        """One of the softmaxes, to be kept through an episode: how the paper plays Uniform(π_1 … π_T)."""
        if self.table:
            return self
        weights = np.asarray(self.weights)
        at = int(rng.choice(len(weights), p=weights / weights.sum()))
        return LinearPolicy(
            features=self.features,
            actions=self.actions,
            columns=self.columns,
            weights=[1.0],
            logits=[self.logits[at]],
            table=[],
            otherwise=self.otherwise,
        )


def fit_softmax(basis: StateBasis, nu: Floats, start: Floats, iterations: int = 200) -> Floats:
    """Θ [d·A] of the softmax nearest to ν in likelihood: max Σ ν log softmax(φΘ) − ridge |Θ|²/2.

    Unlike cloning weighted by w, ν is on states as the policy spreads what flows into them, so nothing is divided by
    an unknown density; how good the fit is, the certificate of the fitted policy says.
    """
    rows = np.flatnonzero(nu.sum(axis=1) > 0)
    phi, weight = basis.phi[rows], nu[rows] / nu.sum()
    total = weight.sum(axis=1, keepdims=True)

    def loss(theta: Floats) -> tuple[float, Floats]:
        logits = np.asarray(phi @ theta.reshape(-1, basis.A))
        logits = logits - logits.max(axis=1, keepdims=True)
        log_pi = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        slope = np.asarray(phi.T @ (np.exp(log_pi) * total - weight)).ravel()
        return float(-np.vdot(weight, log_pi) + RIDGE / 2 * theta @ theta), slope + RIDGE * theta

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}).x)


def averager(phi: Matrix, nu: Floats, otherwise: Sequence[float]) -> Floats:
    """[d, A] the mean of the policy over each feature, weighted by ν; for one-hot features the policy itself."""
    mass = np.asarray(phi.T @ nu)
    total = mass.sum(axis=1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1), otherwise)
