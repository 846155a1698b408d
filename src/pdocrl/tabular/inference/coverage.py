"""What the log covers of a policy: how much it tried, and where the policy goes that the log hardly went."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdocrl.records import Part
from pdocrl.tabular.counts import Label
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian


class ThinState(Part, frozen=True, kw_only=True):
    """A state where the policy spends much time for how little of the log there is."""

    state: Label
    ratio: float  # d^π(s) / μ̂_D(s)
    time: float  # d^π(s), the policy's share of time there
    data: float  # μ̂_D(s), the log's share


class Coverage(Part, frozen=True, kw_only=True):
    """Of a policy in the log's own model."""

    pairs: int  # pairs (s, a) tried
    pairs_total: int
    states: int  # states acted in
    states_total: int
    concentrability: float  # max μ^π/μ̂_D over tried pairs: the estimate of C^π
    outside: float  # the policy's share of time after leaving the tried pairs
    thinnest: list[ThinState]  # the least covered states it visits, worst first


def cover(L: Lagrangian, mu: Floats, states: Sequence[Label], most: int = 5) -> Coverage:
    """How the data of L covers a policy of occupancy μ [S, A] in its own model."""
    time, data = mu.sum(axis=1), L.mu_D.sum(axis=1)
    ratio = np.divide(mu, L.mu_D, out=np.zeros_like(mu), where=L.seen)
    thin = np.divide(time, data, out=np.zeros_like(time), where=data > 0)
    visited = [int(s) for s in np.argsort(-thin, kind="stable") if thin[s] > 0]
    return Coverage(
        pairs=int(L.seen.sum()),
        pairs_total=L.seen.size,
        states=int((data > 0).sum()),
        states_total=len(data),
        concentrability=float(ratio.max()),
        outside=float(mu[~L.seen].sum() / (1 - L.gamma)),
        thinnest=[
            ThinState(state=states[s], ratio=float(thin[s]), time=float(time[s]), data=float(data[s]))
            for s in visited[:most]
        ],
    )
