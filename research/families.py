"""The problems on which all methods are measured, each with its exact optimum and two ways to have logged it.

    random, garnet       random CMDPs, dense and sparse
    lucky2               a log full of mediocre behaviour, with lucky tries of bad arms
    inventory            the corner shops of the example log
    frozenlake           Gymnasium's 4 × 4 lake, slippery; falling in is the cost
    icu_sepsis           716 states, 25 treatments (the extra `icu`): survival is the reward, vasopressors the cost
    lucky_bandit, costly_reference, phantom_mass        counterexamples of the field

A log with full coverage is half a uniform policy's and half spread over all pairs. One with partial coverage is half
the optimal policy's, nearly half a bad one's, and a few stray tries: the optimum is covered within C* ≤ 2, others are
hardly covered at all.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from pdocrl.errors import MissingExtraError, UnknownNameError
from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import CMDP, Floats, as_matrix, bind, occupancy, plan, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.examples import inventory
from pdocrl.tabular.solvers import exact
from research.field import LuckyBandit, costly_reference, phantom_mass
from research.generators import garnet
from research.lucky import lucky2

Coverage = Literal["full", "partial"]
EPISODIC = ("frozenlake", "icu_sepsis")
STRAY = 0.02  # the share of stray tries in a log with partial coverage


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A problem, its optimum, and the distribution a log is drawn from."""

    cmdp: CMDP
    mu_D: Floats  # [S, A]
    best: Floats  # [S, A] an optimal policy
    optimum: float
    C_star: float  # max μ*/μ_D
    B: float  # 1 + 2‖λ*‖₁
    unit: float  # errors are in units of (1−γ)J, or of J where episodes end: this many times as large
    V_max: float | None  # the range of values where episodes end, elsewhere that of rewards over 1−γ

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits on the columns of a sampled log, where costs are −g."""
        names = ["cost"] if len(self.cmdp.tau) == 1 else [f"cost_{i}" for i in range(len(self.cmdp.tau))]
        return tuple(Limit(name, -float(tau)) for name, tau in zip(names, self.cmdp.tau, strict=True))

    def log(self, size: int, seed: int) -> Counts:
        """A log of so many independent transitions, as counts."""
        return Counts.sample(self.cmdp, self.mu_D, size, seed)


def make_case(family: str, coverage: Coverage, limited: bool, seed: int) -> Case:
    """One problem of a family; random families have one per seed, the others are the same for all."""
    if family not in FAMILIES:
        raise UnknownNameError("family", family, FAMILIES)
    return _case(family, coverage, limited, seed if family in {"random", "garnet"} else 0)


@lru_cache(maxsize=32)
def _case(family: str, coverage: Coverage, limited: bool, seed: int) -> Case:
    cmdp, mu_D = FAMILIES[family](seed)
    if not limited:
        cmdp = cmdp.replace(g=np.zeros((0, *cmdp.r.shape)), tau=np.zeros(0))
    found = exact.solve(cmdp)
    best = found.pi
    if family == "lucky2":  # of its many optimal policies, the one its log covers
        lucky = lucky2(constrained=limited)
        best, mu_D = lucky.best, lucky.mu_D
    mu = occupancy(cmdp, best)
    if mu_D is None or coverage == "full":
        mu_D = spread(cmdp, mu, coverage)
    mu_D = mu_D / mu_D.sum()
    C_star = float((mu[mu_D > 0] / mu_D[mu_D > 0]).max())
    unit = 1 / (1 - cmdp.gamma) if family in EPISODIC else 1.0
    V_max = float(np.ptp(np.append(plan(cmdp, cmdp.r).V, 0.0))) if family in EPISODIC else None
    return Case(cmdp, mu_D, best, found.value, C_star, 1 + 2 * float(found.lam.sum()), unit, V_max)


def spread(cmdp: CMDP, best: Floats, coverage: Coverage) -> Floats:
    """μ_D [S, A] of a log with full or partial coverage; `best` is the optimum's occupancy."""
    uniform = occupancy(cmdp, np.full(cmdp.r.shape, 1 / cmdp.n_actions))
    if coverage == "full":
        return np.asarray((uniform / uniform.sum() + 1 / cmdp.r.size) / 2)
    bad = occupancy(cmdp, as_matrix(plan(cmdp, -cmdp.r).actions, cmdp.n_actions))
    parts = ((0.5, best), (0.5 - STRAY, bad), (STRAY, uniform))
    return np.asarray(sum(share * mu / mu.sum() for share, mu in parts))


def frozen_lake(gamma: float = 0.99) -> CMDP:
    """Gymnasium's FrozenLake-v1, 4 × 4, slippery. Reaching the goal pays 1, falling in costs 1; both end the episode.

    As in the game: left, down, right, up, each with both neighbours as likely as itself.
    """
    lake = "SFFFFHFHFFFHHFFG"
    S, A = 16, 4
    row, column = np.divmod(np.arange(S), 4)
    step = [(0, -1), (1, 0), (0, 1), (-1, 0)]
    P, r, cost = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((S, A))
    for s in range(S):
        if lake[s] in "HG":  # over: acting there ends the episode, and pays or costs nothing more
            continue
        for a in range(A):
            for moved in (a - 1, a, a + 1):
                down, right = step[moved % 4]
                to = np.clip(row[s] + down, 0, 3) * 4 + np.clip(column[s] + right, 0, 3)
                P[s, a, to] += 1 / 3
    r[15], cost[[5, 7, 11, 12]] = 1, 1
    return bind(CMDP.from_costs(P, r, [cost], [0.0], np.eye(S)[0], gamma), 0.5)


def icu_sepsis(gamma: float = 0.99) -> tuple[CMDP, Floats]:
    """The simulator of Choudhary, Gupta and Thomas (2024) and the clinicians' own occupancy.

    States 713 and 714 are death and survival: one more step ends the episode, and in 714 pays 1. The cost is the
    vasopressor level, 0 to 1; its limit lies four fifths of the way from what the best policy gives to the least.
    """
    spec = importlib.util.find_spec("icu_sepsis")
    if spec is None or spec.origin is None:
        raise MissingExtraError("the family icu_sepsis", "icu")
    with np.load(Path(spec.origin).parent / "envs" / "assets" / "dynamics.npz") as file:
        P, d0, expert = file["tx_mat"][:715, :, :715].copy(), file["d_0"][:715], file["expert_policy"][:715].copy()
    P[713:] = 0
    r, dose = np.zeros((2, *P.shape[:2]))
    r[714] = 1
    dose[:713] = np.arange(25) % 5 / 4
    expert[713:] = 1 / 25
    cmdp = bind(CMDP.from_costs(P, r, [dose], [0.0], d0 / d0.sum(), gamma), 0.8)
    return cmdp, occupancy(cmdp.replace(gamma=0.999), expert / expert.sum(axis=1, keepdims=True))


def _lucky_bandit(seed: int) -> tuple[CMDP, Floats | None]:
    bandit = LuckyBandit(rare=40)
    mu_D = np.zeros(bandit.cmdp.r.shape)
    mu_D[0, 0], mu_D[0, 1:], mu_D[1:, 0] = 0.3, 0.1 / bandit.rare, 0.3
    return bandit.cmdp, mu_D


FAMILIES: dict[str, Callable[[int], tuple[CMDP, Floats | None]]] = {
    "random": lambda seed: (_as_costs(random_cmdp(10, 3, 1, 0.9, seed=seed)), None),
    "garnet": lambda seed: (_as_costs(garnet(30, 4, 3, 1, 0.9, seed=seed)), None),
    "lucky2": lambda _: (lucky2().cmdp, None),
    "inventory": lambda _: (inventory.model(0.95, 0.02, 0.3), None),
    "frozenlake": lambda _: (frozen_lake(), None),
    "lucky_bandit": _lucky_bandit,
    "costly_reference": lambda _: (costly_reference().cmdp, costly_reference().mu_D),
    "phantom_mass": lambda _: (phantom_mass().cmdp, phantom_mass().mu_D),
    "icu_sepsis": lambda _: icu_sepsis(),
}


def _as_costs(cmdp: CMDP) -> CMDP:
    """Constraint rewards in [0, 1] as costs 1 − g in [0, 1]."""
    return cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
