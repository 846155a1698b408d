"""Confidence intervals of a mean from its influence values, corrected for skewness.

    T = √n (v̂ − v)/s,   g(T) = T + κT²/3 + κ²T³/27 + κ/6,   κ = skewness/√n

g(T) is nearer to Student's t than T (Hall, "On the removal of skewness by transformation", 1992): costs weighted by
importance have a long right tail, of which a symmetric interval reaches too low. The degrees of freedom are those of
the effective sample size, so that few effective episodes widen the interval.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats: TypeAlias = NDArray[np.float64]

LEVEL = 0.95  # of two-sided intervals


def interval(influence: Floats, size: float, level: float = LEVEL) -> tuple[float, float] | None:
    """The two-sided interval of the mean of influence values [n]; None where one value tells of no spread.

    `size` is the effective sample size.
    """
    found = _moments(influence)
    if found is None:
        return None
    value, error, kappa = found
    reach = float(stats.t.ppf((1 + level) / 2, max(size - 1, 1.0)))
    return value - error * _inverse(reach, kappa), value - error * _inverse(-reach, kappa)


def p_value(influence: Floats, size: float, limit: float, sense: str = "<=") -> float:
    """The level 1 − p at which `interval` ends at the limit: the least p at which the mean is shown within it."""
    found = _moments(influence)
    if found is None:
        return 1.0
    value, error, kappa = found
    if error == 0:
        return 0.0 if (value <= limit if sense == "<=" else value >= limit) else 1.0
    t = (value - limit) / error
    below = float(stats.t.cdf(unskewed(t, kappa), max(size - 1, 1.0)))
    return min(1.0, 2 * (below if sense == "<=" else 1 - below))


def unskewed(t: float, kappa: float) -> float:
    """g(T)"""
    return t + kappa * t**2 / 3 + kappa**2 * t**3 / 27 + kappa / 6


def _moments(influence: Floats) -> tuple[float, float, float] | None:
    """The mean, its standard error, and κ."""
    n = len(influence)
    if n < 2:
        return None
    value, deviation = float(influence.mean()), float(influence.std(ddof=1))
    if deviation <= 1e-12 * max(abs(value), 1e-300):
        return value, 0.0, 0.0
    return value, deviation / math.sqrt(n), float(stats.skew(influence)) / math.sqrt(n)


def _inverse(x: float, kappa: float) -> float:
    """g⁻¹(x)"""
    if abs(kappa) < 1e-6:
        return x
    return float(3 / kappa * (np.cbrt(1 + kappa * (x - kappa / 6)) - 1))
