"""What the log covers of a policy: how much it tried, and where the policy goes that the log hardly went."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.tabular.cmdp import occupancy
from pdocrl.tabular.counts import Label
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model


@dataclasses.dataclass(frozen=True)
class ThinState:
    """A state where the policy spends much time for how little of the log there is."""

    state: Label
    ratio: float  # d^π(s) / μ̂_D(s)
    time: float  # d^π(s), the policy's share of time there
    data: float  # μ̂_D(s), the log's share


@dataclasses.dataclass(frozen=True, eq=False)
class Coverage:
    """Of a policy in the log's own model."""

    pairs: int  # pairs (s, a) tried
    pairs_total: int
    states: int  # states acted in
    states_total: int
    concentrability: float  # max μ^π/μ̂_D over tried pairs: the estimate of C^π
    outside: float  # the policy's share of time after leaving the tried pairs
    mu: Floats  # [S, A] μ^π, the policy's share of time at each pair
    mu_D: Floats  # [S, A] μ̂_D, the log's
    thinnest: tuple[ThinState, ...]  # the least covered states it visits, worst first


def cover(L: Lagrangian, pi: Floats, states: Sequence[Label], most: int = 5) -> Coverage:
    """How the data of L covers the policy π [S, A]."""
    mu = occupancy(pessimistic_model(L), pi)
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
        mu=mu,
        mu_D=L.mu_D,
        thinnest=tuple(ThinState(states[s], float(thin[s]), float(time[s]), float(data[s])) for s in visited[:most]),
    )
