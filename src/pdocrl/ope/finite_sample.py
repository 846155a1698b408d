"""Off-policy bounds that hold at any number of episodes and at any time, for logged propensities.

With importance weights w = Π π/b of whole episodes, E_b[w f(episode)] = E_π[f]. Costs C in [0, M] have

    E_π[C] = M − E_b[w (M − C)] ≤ M − L,   L a lower confidence sequence of the mean of w (M − C) ≥ 0
    E_π[C] = E_b[w C] ≥ L',                L' one of the mean of w C ≥ 0

and lower sequences by betting need no upper bound on the weights (`evaluation.audit.mean_lower`). So a growing log may
be looked at after every episode. The share P(C > t) is the same with C replaced by 1{C > t} and M = 1. Karampatziakis,
Mineiro and Ramdas, "Off-policy confidence sequences", 2021; Thomas, Theocharous and Ghavamzadeh, "High-confidence
off-policy evaluation", 2015.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pdocrl.errors import PdocrlError
from pdocrl.evaluation.audit import checked, mean_lower
from pdocrl.limits import Limit


def bounds(
    weights: ArrayLike, costs: ArrayLike, limit: Limit, confidence: float = 0.95, cost_max: float | None = None
) -> tuple[float | None, float | None]:
    """One-sided lower and upper bounds of what is limited, each at the confidence; None where nothing is known.

    Args:
        weights: [n] of logged episodes.
        costs: [n] their undiscounted totals.
        limit: on a mean, or on an exceedance.
        confidence: of each bound.
        cost_max: the largest total an episode can have; the upper bound of a mean rests on it.
    """
    c, most = checked(costs, cost_max), cost_max
    if limit.threshold is not None:
        c, most = (c > limit.threshold).astype(np.float64), 1.0
    elif limit.measure != "mean":
        raise PdocrlError(f"limit {limit}: bounds at any number of episodes are of means and shares.")
    w = np.asarray(weights, np.float64)
    lower = mean_lower(w * c, confidence)
    upper = None if most is None else max(most - mean_lower(w * (most - c), confidence), 0.0)
    return min(lower, most if most is not None else np.inf), upper
