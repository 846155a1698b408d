"""On-policy mean: what the logged decisions themselves gained and cost.

    v = mean_e Σ_t γ^t x_et

No assumption beyond independent episodes. It is the estimate of the behaviour policy, against which others are
compared, and of each decider where they are named.
"""

from __future__ import annotations

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.intervals import LEVEL, interval
from pdocrl.ope.estimators.problem import Estimate, Floats

NAME = "on-policy mean"


def on_policy(log: EventLog, signal: str, discount: float = 1.0, level: float = LEVEL) -> Estimate:
    """The mean total of the logged episodes."""
    totals = log.totals(log.signals[signal], discount)
    return of_totals(totals, signal, level)


def of_totals(totals: Floats, signal: str, level: float = LEVEL) -> Estimate:
    """From the totals [E] of some episodes."""
    size = float(len(totals))
    return Estimate(
        estimator=NAME,
        signal=signal,
        value=float(totals.mean()),
        interval=interval(totals, size, level),
        effective_sample_size=size,
        largest_weight=1 / size,
        assumptions=("episodes are independent",),
        influence=np.asarray(totals, np.float64),
    )
