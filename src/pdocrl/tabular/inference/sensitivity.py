"""Choosing C, the bound on w = μ^π/μ_D: a small C stays near the data, a large one believes it further away.

The theory wants C ≥ C*, the concentrability of the optimal policy, and is silent about what C* is. Here each
candidate's policy is scored by its expected value: the mean over resampled logs of its value, less B times
its largest violation, less the optimism of learning with that C (see `bootstrap`). `solve` takes the best score among
those C within which some policy satisfies the limits, if any. Where a policy goes that the log hardly went is `cover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pdocrl.limits import Limit, Limits, as_limits, limit_names
from pdocrl.records import Part
from pdocrl.tabular.cmdp import occupancy
from pdocrl.tabular.counts import Counts, Label
from pdocrl.tabular.inference.bootstrap import bootstrap
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import TOLERANCE, Setup, Solution, solve_saddle

GRID = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 200.0, np.inf)
COARSE = (2.0, 5.0, 20.0, np.inf)  # for logs where one linear program takes seconds


class Choice(Part, frozen=True, kw_only=True):
    """One row of the sensitivity table: what one bound C gives."""

    C: float | None  # None: no bound
    value: float
    costs: dict[str, float]
    score: float  # expected value, less the price of missed limits
    optimism: tuple[float, ...] = ()  # [1+I] by how much value and constraint rewards are probably too high
    concentrability: float
    limits: str  # whether covered policies can satisfy them: satisfied or missed


def sensitivity(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    grid: tuple[float, ...] = GRID,
    resamples: int = 100,
    refits: int = 20,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Choice, ...]:
    """What each bound C would give. Once C does not bind, larger ones give the same policy and are left out."""
    chosen = as_limits(limits)
    L = Lagrangian.empirical(counts, gamma, chosen)
    return try_bounds(counts, L, chosen, grid, resamples, refits, seed, progress)[0]


def try_bounds(
    counts: Counts,
    L: Lagrangian,
    limits: Sequence[Limit],
    grid: tuple[float, ...],
    resamples: int,
    refits: int,
    seed: int,
    progress: Callable[[str], None],
) -> tuple[tuple[Choice, ...], list[Solution]]:
    """`sensitivity` of counts and their L, and the solution for each row."""
    solved: list[Solution] = []
    for C in sorted(grid):
        progress(f"solving with C = {C:g}")
        solved.append(solve_saddle(L, Setup(C)))
        if np.isfinite(C) and np.all(solved[-1].point.mu <= 0.999 * solved[-1].sets.C * L.mu_D):
            break
    resampled = bootstrap(counts, limits, solved, resamples, refits, seed, progress)
    B = float(np.median([s.sets.B for s in solved]))  # one for all, so that scores compare
    price = B * solved[0].units.multipliers

    def penalised(outcomes: Floats) -> Floats:
        missed = np.maximum(price * (L.tau - outcomes[..., 1:]), 0).max(axis=-1, initial=0)
        return np.asarray(outcomes[..., 0] - missed)

    bias = (penalised(resampled.there) - penalised(resampled.here)).sum(axis=1) / max(refits, 1)
    score = penalised(resampled.outcomes).mean(axis=1) - bias
    signs = np.array([limit.sign for limit in limits])
    model, names = pessimistic_model(L), limit_names(limits)
    choices = tuple(
        Choice(
            C=s.sets.C if np.isfinite(s.sets.C) else None,
            value=float(s.estimate[0]),
            costs=dict(zip(names, (signs * s.estimate[1:] + 0.0).tolist(), strict=True)),  # no −0
            score=float(score[index]),
            optimism=tuple(resampled.optimism[index].tolist()),
            concentrability=cover(L, occupancy(model, s.policy), counts.states).concentrability,
            limits="satisfied" if s.slater_margin >= -TOLERANCE else "missed",
        )
        for index, s in enumerate(solved)
    )
    return choices, solved


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
