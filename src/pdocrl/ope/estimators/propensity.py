"""Propensities that were not logged: multinomial logistic regression on the columns, for each decider by itself.

    b(a | s) ∝ exp(β_aᵀ f(s)),   min_β  −Σ_i log b(a_i | s_i) + (ridge/2) ‖β‖²,   constants not penalised

Cross-fitted by episodes, so that a row's propensity never saw its own action. The ridge is chosen, for each decider, by
the log loss on held-out episodes of the rows that are fitted: with many actions and few rows of each, noise in b would
bias what is divided by it. The log loss is compared with that of
constant frequencies: columns that tell nothing of the decisions give a gain near 0.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Floats, Ints

RIDGES = (1.0, 10.0, 100.0)
FEWEST = 50  # rows of a decider to be fitted by itself
SMALLEST = 1e-3  # no estimated propensity is below


def estimate(log: EventLog, features: Floats, seed: int = 0) -> Floats:
    """[N, A] b(a | row) of every action."""
    fold = log.folds(seed)[log.episode]
    inner = log.folds(seed + 1)[log.episode]
    found = np.zeros((len(log), len(log.actions)))
    who = np.zeros(len(log), np.int64) if log.decider is None else log.decider
    for part in (0, 1):
        rest = fold != part
        pooled: Floats | None = None
        for decider in np.unique(who[fold == part]):
            own = rest & (who == decider)
            here = (fold == part) & (who == decider)
            if own.sum() >= FEWEST:
                coefficients = chosen(features[own], log.action[own], len(log.actions), inner[own])
            else:
                if pooled is None:
                    pooled = chosen(features[rest], log.action[rest], len(log.actions), inner[rest])
                coefficients = pooled
            found[here] = special.softmax(features[here] @ coefficients, axis=1)
    found = np.maximum(found, SMALLEST)
    return np.asarray(found / found.sum(1, keepdims=True), np.float64)


def chosen(features: Floats, action: Ints, count: int, fold: Ints) -> Floats:
    """β [F, A] with the ridge of least log loss where rows of one fold [n] are predicted from the other's."""

    def loss(ridge: float) -> float:
        logits = features[fold == 1] @ fit(features[fold == 0], action[fold == 0], count, ridge)
        return -float(np.take_along_axis(special.log_softmax(logits, axis=1), action[fold == 1][:, None], 1).sum())

    several = (fold == 0).any() and (fold == 1).any()
    return fit(features, action, count, min(RIDGES, key=loss) if several else RIDGES[0])


def fit(features: Floats, action: Ints, count: int, ridge: float = RIDGES[0]) -> Floats:
    """β [F, A]"""
    size = features.shape[1]
    onehot = np.eye(count)[action]
    penalty = np.where(np.ptp(features, axis=0) > 0, ridge, 1e-3)[:, None]  # a little keeps constants finite

    def loss(flat: Floats) -> tuple[float, Floats]:
        beta = flat.reshape(size, count)
        logits = features @ beta
        total = special.logsumexp(logits, axis=1)
        value = float(total.sum() - (logits * onehot).sum() + (penalty * beta**2).sum() / 2)
        slope = features.T @ (np.exp(logits - total[:, None]) - onehot) + penalty * beta
        return value, slope.ravel()

    found = optimize.minimize(loss, np.zeros(size * count), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x, np.float64).reshape(size, count)
