"""Hidden confounding: how strong it would have to be to overturn a verdict (marginal sensitivity model).

Whoever acted may have known more than the columns. Then the true odds of a logged action differ from the propensity's,
at each decision by a factor of at most Γ:

    1/Γ ≤ [b*/(1 − b*)] / [b/(1 − b)] ≤ Γ   ⇒   1 + (1/b − 1)/Γ ≤ 1/b* ≤ 1 + Γ (1/b − 1)

(Tan, "A distributional approach for causal inference using propensity scores", 2006). So the weight of an episode lies
between products of these ends times π, and the largest weighted mean Σ w y/Σ w is that of w at its upper end where y
exceeds some threshold and at its lower end elsewhere (Zhao, Small and Bhattacharya, "Sensitivity analysis for inverse
probability weighting estimators", 2019). A verdict is overturned at the least Γ whose shift moves its bound over the
limit. Γ = 1.2 is a slight hidden cause, 3 a strong one.
"""

from __future__ import annotations

import numpy as np

from pdocrl.ope.estimators.problem import MOST_LOG_WEIGHT, Floats, Problem

LARGEST = 100.0


def weight_ends(problem: Problem, gamma: float) -> tuple[Floats, Floats]:
    """[E], [E] the least and the largest weight of each episode."""
    odds = 1 / problem.propensity - 1
    with np.errstate(divide="ignore"):
        chosen = np.log(np.take_along_axis(problem.target, problem.log.action[:, None], 1)[:, 0])
    ends = []
    for factor in (1 / gamma, gamma):
        logs = np.bincount(problem.log.episode, np.where(np.isinf(chosen), 0.0, chosen) + np.log1p(odds * factor))
        never = np.bincount(problem.log.episode, np.isinf(chosen)) > 0
        ends.append(np.where(never, 0.0, np.exp(np.minimum(logs, MOST_LOG_WEIGHT))))
    return ends[0], ends[1]


def largest_mean(low: Floats, high: Floats, y: Floats) -> float:
    """max Σ w y/Σ w over low ≤ w ≤ high, all [E]: exact, by the threshold."""
    order = np.argsort(-y)
    gain = (high - low)[order]
    total = np.r_[low.sum(), low.sum() + np.cumsum(gain)]
    weighted = np.r_[low @ y, low @ y + np.cumsum(gain * y[order])]
    return float((weighted[total > 0] / total[total > 0]).max())


def shift(problem: Problem, y: Floats, gamma: float) -> tuple[float, float]:
    """How far the weighted mean of y [E] may move down and up if odds are off by a factor Γ; (≤ 0, ≥ 0)."""
    now = problem.weights[:, -1]
    value = float(now @ y / now.sum())
    low, high = weight_ends(problem, gamma)
    return min(-largest_mean(low, high, -y) - value, 0.0), max(largest_mean(low, high, y) - value, 0.0)


def overturned_at(problem: Problem, y: Floats, room: float, up: bool) -> float:
    """The least Γ at which the weighted mean of y [E] moves by `room` up (or down); at most `LARGEST`."""

    def moves(gamma: float) -> bool:
        down, above = shift(problem, y, gamma)
        return (above if up else -down) > room

    if not moves(LARGEST):
        return LARGEST
    low, high = 0.0, float(np.log(LARGEST))
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if moves(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))
