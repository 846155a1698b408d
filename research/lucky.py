"""Where coverage matters: a log full of mediocre behaviour, with a few lucky tries of bad arms.

Six working states in a cycle and a failed state. In a working state

    fast   pays 0.9, costs 1       safe   pays 0.65, costs 0       bad   pays 0.3, costs 0.3, sometimes breaks
    rare   40 arms: pay 1, cost nothing, and break down half the time

Each rare arm appears in a log only a few times, so that some of them look as if they never broke. Whoever believes the
empirical model takes those; whoever stays near the data (w ≤ C) cannot put much weight on them. The cost limit of 0.35
makes the best policy fast 35 % of the time. The data is half that policy, nearly half the bad arm and 3 % rare arms, so
the best policy's concentrability is exactly 2.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pdocrl.tabular.cmdp import CMDP, Evaluation, Floats, Ints, evaluate, occupancy
from pdocrl.tabular.counts import Counts

FAST, SAFE, BAD, FIRST_RARE = range(4)
FAILED = 6
WORKING = np.arange(6)
LIMIT = 0.35


@dataclasses.dataclass(frozen=True, eq=False)
class Lucky:
    """The problem, the data distribution, and the best policy, which μ_D covers within C* = 2."""

    cmdp: CMDP
    mu_D: Floats  # [7, 3 + rare]
    best: Floats  # [7, 3 + rare]
    concentrability: float  # C* = max μ*/μ_D

    @property
    def optimum(self) -> Evaluation:
        """What the best policy earns and costs."""
        return evaluate(self.cmdp, self.best)

    def counts(self, size: int, seed: int | np.random.Generator = 0) -> Counts:
        """A log of `size` independent transitions, as counts."""
        return Counts.sample(self.cmdp, self.mu_D, size, seed)

    def log(self, size: int, seed: int = 0) -> dict[str, Ints | Floats]:
        """The same as columns: state, action, next_state, reward and, if there is a limit, cost."""
        rng = np.random.default_rng(seed)
        pair = rng.choice(self.mu_D.size, size=size, p=self.mu_D.ravel())
        cumulative = self.cmdp.P.toarray().cumsum(axis=1)
        to = (rng.uniform(size=(size, 1)) > cumulative[pair]).sum(axis=1)
        state, action = np.divmod(pair, self.cmdp.n_actions)
        columns = {"state": state, "action": action, "next_state": to, "reward": self.cmdp.r.ravel()[pair]}
        return columns | ({"cost": -self.cmdp.g[0].ravel()[pair]} if self.cmdp.n_constraints else {})


def lucky2(rare: int = 40, constrained: bool = True) -> Lucky:
    """The problem above. Without the constraint the best policy is always fast, and again covered within 2."""
    S, A = 7, FIRST_RARE + rare
    onward = np.zeros((S, S))
    onward[WORKING, (WORKING + 1) % 6] = 1
    broken = np.zeros((S, S))
    broken[WORKING, FAILED] = 1
    P = np.zeros((S, A, S))
    P[:, [FAST, SAFE]] = onward[:, None]
    P[:, BAD] = 0.95 * onward + 0.05 * broken
    P[:, FIRST_RARE:] = (onward + broken)[:, None] / 2
    P[FAILED] = 0
    P[FAILED, :, FAILED], P[FAILED, :, 0] = 0.8, 0.2  # repair takes five steps on average
    r, cost = np.zeros((2, S, A))
    r[WORKING, FAST], r[WORKING, SAFE], r[WORKING, BAD], r[:FAILED, FIRST_RARE:] = 0.9, 0.65, 0.3, 1
    cost[WORKING, FAST], cost[WORKING, BAD] = 1, 0.3

    best = np.zeros((S, A))
    best[:, FAST], best[:, SAFE] = (LIMIT, 1 - LIMIT) if constrained else (1, 0)
    bad = np.eye(A)[np.full(S, BAD)]
    tries = np.zeros((S, A))
    tries[:FAILED, FIRST_RARE:] = 1 / (6 * rare)
    cmdp = CMDP.from_costs(P, r, [cost], [LIMIT], np.eye(S)[0], 0.9)
    if not constrained:
        cmdp = cmdp.replace(g=np.zeros((0, S, A)), tau=np.zeros(0))
    mu_star = occupancy(cmdp, best)
    mu_D = 0.5 * mu_star + 0.47 * occupancy(cmdp, bad) + 0.03 * tries
    covered = mu_star > 0
    return Lucky(cmdp, mu_D, best, float((mu_star[covered] / mu_D[covered]).max()))
