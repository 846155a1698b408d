"""Limits per episode: the log as a problem whose states are (state, step), so that totals are totals.

A discounted average is not an episode's total when costs come at certain times: a cost of 1 on the last of 30 steps has
(1−γ)J = 0.013 at γ = 0.97. Here every state is told apart by its step, "calm 10 @ 3", and the weights

    r′(s @ t, a) = γᵗ δ⁻ᵗ r / (1−δ),   c′(s @ t, a) = δ⁻ᵗ c / (1−δ),   δ = 1 − 1/(H+1)

make (1−δ)J′ the discounted return of an episode and the undiscounted total of each cost. So all that solves, bounds and
certifies discounted problems works on episodes as it is. The weights stay below e = 2.72 times 1/(1−δ) whatever H is.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.io.rows import split_label


def steps(counts: Counts) -> NDArray[np.int64]:
    """[S] the step of each state."""
    return np.array([split_label(label)[1] for label in counts.states], np.int64)


def weighted(counts: Counts, gamma: float) -> tuple[Counts, float]:
    """Counts whose (1−δ)J are per episode, and δ; the reward is discounted by γ ≤ 1, costs are not."""
    if counts.horizon is None:
        raise DataError("the counts do not tell steps apart; count the log with a horizon.")
    if not 0 < gamma <= 1:
        raise DataError(f"gamma is {gamma}; for episodes it must be above 0 and at most 1.")
    delta = 1 - 1 / (counts.horizon + 1)
    t = steps(counts)[counts.pair // counts.n_actions]  # [M]
    weight = np.repeat(delta ** -t[None] / (1 - delta), len(counts.mean), axis=0)
    weight[0] *= float(gamma) ** t
    groups = counts.groups
    if groups is not None:
        groups = dataclasses.replace(groups, mean=groups.mean * weight[:, groups.cell])
    paths = counts.trajectories
    if paths is not None:
        each = np.repeat(delta ** -steps(counts)[None] / (1 - delta), len(counts.mean), axis=0)
        each[0] *= float(gamma) ** steps(counts)
        paths = paths.scaled(each, counts.n_actions)
    changes = {
        "mean": counts.mean * weight,
        "variance": counts.variance * weight**2,
        "groups": groups,
        "trajectories": paths,
    }
    return dataclasses.replace(counts, **changes, horizon=None), delta
