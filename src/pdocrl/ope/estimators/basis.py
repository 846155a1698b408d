"""Features f(s) of a row's state, for linear functions: a one, the encoded columns, hinges of the numeric ones, time.

    f(s) = [ 1, x, max(0, x_j − q) for the quartiles q of each numeric x_j, τ, τ² ],   τ = step/longest episode

Time is in where totals are not discounted: what is left to come then depends on how long it can come.
"""

from __future__ import annotations

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Floats

QUARTILES = (0.25, 0.5, 0.75)
MOST = 600  # features × actions, so that the linear systems stay small


def basis(log: EventLog, time: bool) -> Floats:
    """[N, F]"""
    matrix, names = log.features()
    parts = [np.ones((len(log), 1)), matrix]
    longest = int(log.step.max())
    if time and longest > 0:
        clock = log.step / longest
        parts.append(np.stack([clock, clock**2], axis=1))
    numeric = [names.index(column.name) for column in log.columns if column.kind == "numeric"]
    width = sum(part.shape[1] for part in parts) + len(QUARTILES) * len(numeric)
    if width * len(log.actions) <= MOST:
        for j in numeric:
            knots = np.unique(np.quantile(matrix[:, j], QUARTILES))
            inside = knots[(knots > matrix[:, j].min()) & (knots < matrix[:, j].max())]
            parts.append(np.maximum(0.0, matrix[:, j, None] - inside))
    return np.concatenate(parts, axis=1)
