"""Counterexamples of the field: one small problem for each weakness the paper's tables claim of a baseline.

    ratio_without_validity()   the bandit CORAL answers: a density ratio that leaves a context out
    ratio_without_penalty()    the MDP PRO-RL answers: a ratio that moves mass where no action leads
    LuckyBandit                full-coverage methods believe an arm tried once; w ≤ C does not
    costly_reference()         WSAC knows a limit only through its reference policy: no λ finds the best that keeps it
    phantom_mass()             a flow held to ζ lets POCC satisfy a limit with mass that comes from nowhere

The first two are after the examples of Rashidinejad et al. (2022) and Zhan et al. (2022), rebuilt here. Numbers are
fields where a proof states them, and methods where they are computed.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pdocrl.tabular.cmdp import CMDP, Floats, backup, evaluate, extract, occupancy
from pdocrl.tabular.counts import Counts


@dataclasses.dataclass(frozen=True, eq=False)
class SpuriousRatio:
    """Over {w*, w̃} × {V*} both ratios are saddle points of the V-form, and π(w̃ μ_D) is not optimal."""

    cmdp: CMDP
    mu_D: Floats  # [S, A]
    V_star: Floats  # [S]
    best: Floats  # [S, A] w*
    spurious: Floats  # [S, A] w̃
    error: float  # what π(w̃ μ_D) loses

    def lagrangian(self, w: Floats, V: Floats) -> float:
        """(1−γ)d₀·V + ⟨w, r + γPV − V⟩_{μ_D}."""
        residual = backup(self.cmdp, self.cmdp.r, V) - V[:, None]
        return float((1 - self.cmdp.gamma) * self.cmdp.d0 @ V + np.vdot(w * self.mu_D, residual))

    def loss(self, w: Floats) -> float:
        """What the policy extracted from w loses against the optimum."""
        optimum = (1 - self.cmdp.gamma) * float(self.cmdp.d0 @ self.V_star)
        return optimum - evaluate(self.cmdp, extract(w * self.mu_D)).value

    def invalidity(self, w: Floats) -> float:
        """CORAL's term E_{d^π}(d_w/d^π − 1)² over states, π = π(w μ_D): 0 for a true occupancy."""
        d_w = (w * self.mu_D).sum(axis=1)
        d_pi = occupancy(self.cmdp, extract(w * self.mu_D)).sum(axis=1)
        reached = d_pi > 0
        return float((d_pi[reached] * (d_w[reached] / d_pi[reached] - 1) ** 2).sum())


def ratio_without_validity() -> SpuriousRatio:
    """Three contexts, two arms, one of them right: w̃ has nothing of the third context, where its policy must guess.

    It guesses right half the time on a third of all rounds: the loss is 1/6. CORAL's term is 1/2 at w̃ and 0 at w*.
    """
    r = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    cmdp = CMDP(np.zeros((6, 3)), r, np.zeros((0, 3, 2)), np.zeros(0), np.full(3, 1 / 3), 0.0)
    spurious = 3.0 * r
    spurious[2] = 0
    return SpuriousRatio(cmdp, np.full((3, 2), 1 / 6), np.ones(3), 2.0 * r, spurious, 1 / 6)


def ratio_without_penalty() -> SpuriousRatio:
    """From A, left to B, where every action pays 1, or right to C, where one of two does: both ways are optimal.

    w̃ goes right in A, yet has its mass in B. Its policy arrives in C, of which w̃ says nothing, and guesses: it is
    worth 1/4 instead of 1/2. γ = 1/2.
    """
    A, B, C = range(3)
    P, r = np.zeros((3, 2, 3)), np.zeros((3, 2))
    P[A, 0, B] = P[A, 1, C] = 1
    P[B, :, B] = P[C, :, C] = 1
    r[B], r[C, 0] = 1, 1
    cmdp = CMDP(P, r, np.zeros((0, 3, 2)), np.zeros(0), np.eye(3)[A], 0.5)
    mu_D = np.full((3, 2), 1 / 6)
    best, spurious = np.zeros((2, 3, 2))
    best[A, 0], best[B] = 3, 3 / 2
    spurious[A, 1], spurious[B] = 3, 3 / 2
    return SpuriousRatio(cmdp, mu_D, np.array([1.0, 2.0, 2.0]), best, spurious, 1 / 4)


@dataclasses.dataclass(frozen=True)
class LuckyBandit:
    """One choice: a sure arm tried often that wins 3 in 5, or arms tried once each that win 1 in 4.

    Whoever believes frequencies takes a rare arm if any of them won: with probability 1 − (3/4)^rare, whatever the
    size of the log. A policy with w ≤ C plays all of them together at most C·rare/(n(1−γ)) of the time.
    """

    rare: int = 4
    gamma: float = 0.5
    SURE = 0.6
    RARE = 0.25

    @property
    def cmdp(self) -> CMDP:
        """States: the choice, won (pays 1 for ever), lost."""
        P = np.zeros((3, 1 + self.rare, 3))
        P[0, :, 1], P[0, :, 2] = self.RARE, 1 - self.RARE
        P[0, 0, 1:] = self.SURE, 1 - self.SURE
        P[1, :, 1] = P[2, :, 2] = 1
        r = np.zeros((3, 1 + self.rare))
        r[1] = 1
        return CMDP(P, r, np.zeros((0, *r.shape)), np.zeros(0), np.eye(3)[0], self.gamma)

    @property
    def optimum(self) -> float:
        return self.gamma * self.SURE

    @property
    def fooled(self) -> float:
        """The probability that some rare arm won."""
        return 1 - (1 - self.RARE) ** self.rare

    @property
    def loss(self) -> float:
        """Of a policy that plays a rare arm."""
        return self.gamma * (self.SURE - self.RARE)

    def sample(self, tries: int, seed: int) -> Counts:
        """`tries` rows of the sure arm, one of each rare arm, and `tries` rows of each outcome state."""
        rng = np.random.default_rng(seed)
        arms = np.r_[np.zeros(tries, int), 1 + np.arange(self.rare)]
        lost = rng.random(len(arms)) >= np.where(arms == 0, self.SURE, self.RARE)
        state = np.r_[np.zeros(len(arms), int), np.repeat([1, 2], tries)]
        action = np.r_[arms, np.zeros(2 * tries, int)]
        then = np.r_[1 + lost, np.repeat([1, 2], tries)]
        reward = (state == 1).astype(float)
        return Counts.from_arrays(
            state, action, then, reward, n_states=3, n_actions=1 + self.rare, d0=np.array([1.0, 0.0, 0.0])
        )

    def bound(self, C: float, rows: int) -> float:
        """The most a policy with w ≤ C can lose, once the sure arm is estimated exactly."""
        return self.loss * min(C * self.rare / (rows * (1 - self.gamma)), 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class CostlyReference:
    """A machine that may run fast (pays 1, costs 1) or slow (pays 1/2, costs nothing), under a limit on its cost.

    The log runs fast 4 times in 5. Against that reference, WSAC charges λ(1 − 4/5) for a fast step, which earns 1/2
    more: below λ = 5/2 it always runs fast and misses the limit by 4/5, above it always runs slow and loses 1/10.
    """

    cmdp: CMDP
    mu_D: Floats  # [1, 2]
    limit: float
    optimum: float  # fast one step in five: 1/5 + 4/5 · 1/2
    threshold: float  # of λ


def costly_reference() -> CostlyReference:
    """The limit is 1/5; the log costs 4/5."""
    cmdp = CMDP.from_costs(np.ones((2, 1)), [[1.0, 0.5]], [[[1.0, 0.0]]], [0.2], [1.0], 0.5)
    return CostlyReference(cmdp, np.array([[0.8, 0.2]]), 0.2, 0.6, 2.5)


@dataclasses.dataclass(frozen=True, eq=False)
class PhantomMass:
    """A workshop that earns or serves, and a state of pure service that no action leads to.

    With the flow held to ζ, mass ζ/(1−γ) appears in that state and serves there, so that the program's ratio keeps the
    limit `served ≥ τ` while the policy extracted from it earns that much more and serves that much less.
    """

    cmdp: CMDP  # states workshop, heaven; actions earn, serve; γ = 0.9
    mu_D: Floats  # [2, 2] uniform
    tau: float

    def phantom(self, zeta: float) -> float:
        """What the extracted policy misses of the limit."""
        return min(zeta / (1 - self.cmdp.gamma), self.tau)


def phantom_mass() -> PhantomMass:
    """Serving in the workshop counts half; the limit is served ≥ 1/5, which takes two steps in five."""
    P = np.zeros((2, 2, 2))
    P[0, :, 0] = P[1, :, 1] = 1
    served = np.array([[0.0, 0.5], [1.0, 1.0]])
    cmdp = CMDP(P, np.array([[1.0, 0.0], [0.0, 0.0]]), served[None], np.array([0.2]), np.array([1.0, 0.0]), 0.9)
    return PhantomMass(cmdp, np.full((2, 2), 1 / 4), 0.2)
