"""Propensities that were not logged: multinomial logistic regression on the columns, for each decider by itself.

    b(a | s) ∝ exp(β_aᵀ f(s)),   min_β  −Σ_i log b(a_i | s_i) + (ridge/2) ‖β‖²

Cross-fitted by episodes, so that a row's propensity never saw its own action. The log loss is compared with that of
constant frequencies: columns that tell nothing of the decisions give a gain near 0.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Floats, Ints

RIDGE = 1.0
FEWEST = 50  # rows of a decider to be fitted by itself
SMALLEST = 1e-3  # no estimated propensity is below


def estimate(log: EventLog, features: Floats, seed: int = 0) -> Floats:
    """[N, A] b(a | row) of every action."""
    fold = log.folds(seed)[log.episode]
    found = np.zeros((len(log), len(log.actions)))
    who = np.zeros(len(log), np.int64) if log.decider is None else log.decider
    for part in (0, 1):
        rest = fold != part
        pooled: Floats | None = None
        for decider in np.unique(who[fold == part]):
            own = rest & (who == decider)
            here = (fold == part) & (who == decider)
            if own.sum() >= FEWEST:
                coefficients = fit(features[own], log.action[own], len(log.actions))
            else:
                pooled = fit(features[rest], log.action[rest], len(log.actions)) if pooled is None else pooled
                coefficients = pooled
            found[here] = special.softmax(features[here] @ coefficients, axis=1)
    found = np.maximum(found, SMALLEST)
    return np.asarray(found / found.sum(1, keepdims=True), np.float64)


def fit(features: Floats, action: Ints, count: int, ridge: float = RIDGE) -> Floats:
    """β [F, A]"""
    size = features.shape[1]
    onehot = np.eye(count)[action]

    def loss(flat: Floats) -> tuple[float, Floats]:
        beta = flat.reshape(size, count)
        logits = features @ beta
        total = special.logsumexp(logits, axis=1)
        value = float(total.sum() - (logits * onehot).sum() + ridge / 2 * (beta**2).sum())
        slope = features.T @ (np.exp(logits - total[:, None]) - onehot) + ridge * beta
        return value, slope.ravel()

    found = optimize.minimize(loss, np.zeros(size * count), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x, np.float64).reshape(size, count)
