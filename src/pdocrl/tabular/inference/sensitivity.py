"""Choosing C, the bound on w = μ^π/μ_D: a small C stays near the data, a large one believes it further away.

The theory wants C ≥ C*, the concentrability of the optimal policy, and is silent about what C* is. Here each
candidate's policy is scored by what it can be expected to earn: the mean over redrawn logs of its value, less B times
its largest violation, less the optimism of learning with that C (see `bootstrap`). `solve` takes the best score among
those C within which the limits can be kept, if there are any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import redraw
from pdocrl.tabular.inference.coverage import cover
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian
from pdocrl.tabular.solvers.saddle import TOLERANCE, Setup, Solution, solve_saddle

GRID = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 200.0, np.inf)
COARSE = (2.0, 5.0, 20.0, np.inf)  # for logs where one linear program takes seconds


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """One row of the sensitivity table."""

    C: float
    value: float
    costs: Floats  # [I]
    score: float  # what it can be expected to earn, less the price of missed limits
    optimism: Floats  # [1+I] by how much value and constraint rewards are probably overrated
    concentrability: float
    limits: Literal["kept", "missed"]  # whether covered policies can keep them


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
    solved: list[Solution] = []
    for C in sorted(grid):
        progress(f"solving with C = {C:g}")
        solved.append(solve_saddle(L, Setup(C)))
        if np.isfinite(C) and np.all(solved[-1].point.mu <= 0.999 * solved[-1].sets.C * L.mu_D):
            break
    redrawn = redraw(counts, chosen, solved, resamples, refits, seed, progress)
    B = float(np.median([s.sets.B for s in solved]))  # one for all, so that scores compare
    price = B * solved[0].units.multipliers

    def penalised(outcomes: Floats) -> Floats:
        missed = np.maximum(price * (L.tau - outcomes[..., 1:]), 0).max(axis=-1, initial=0)
        return np.asarray(outcomes[..., 0] - missed)

    overrated = (penalised(redrawn.there) - penalised(redrawn.here)).sum(axis=1) / max(refits, 1)
    score = penalised(redrawn.outcomes).mean(axis=1) - overrated
    signs = np.array([limit.sign for limit in chosen])
    return tuple(
        Choice(
            C=s.sets.C,
            value=float(s.estimate[0]),
            costs=signs * s.estimate[1:] + 0.0,  # no −0
            score=float(score[index]),
            optimism=redrawn.optimism[index],
            concentrability=cover(L, s.policy, counts.states).concentrability,
            limits="kept" if s.slater_margin >= -TOLERANCE else "missed",
        )
        for index, s in enumerate(solved)
    )
