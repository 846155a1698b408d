"""What every estimator is given: a log, the target policy on its rows, and the propensities of the logged actions.

The estimand is the expected sum over an episode of each signal x (the reward, or a cost) under the target policy π:

    v = E_π[ Σ_t γ^t x_t ],   γ = 1 by default: totals per episode.

N rows, E episodes of at most T steps, A actions. An episode that was cut short ends, for importance sampling, where its
record ends; estimators with a Q function leave out the transition that nobody saw.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.ope.assumptions import INDEPENDENT, NO_HIDDEN_CONFOUNDER, SAME_PROCESS
from pdocrl.ope.estimators.intervals import LEVEL as LEVEL
from pdocrl.ope.estimators.intervals import interval

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

LEAST, SHORT = 0.5, 4.0  # mean weight of episodes, less by so many standard errors
MOST_LOG_WEIGHT = 230.0  # so that squares of weights stay finite


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """One estimator's word on one signal. Without overlap there is no value; without a variance, no interval."""

    estimator: str
    signal: str
    value: float | None
    interval: tuple[float, float] | None
    effective_sample_size: float | None = None  # of episodes, (Σw)²/Σw²
    largest_weight: float | None = None  # the largest share of one episode in the sum of all weights
    assumptions: tuple[str, ...] = ()
    influence: Floats | None = None  # [E] whose mean is the value; differences of them compare policies in pairs
    sound: bool = True  # whether its weights can have a mean of 1, see `falls_short`


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A target policy on a log."""

    log: EventLog
    target: Floats  # [N, A] π(a | row)
    propensity: Floats  # [N] probability of the logged action under who decided
    estimated: bool  # whether the propensities were estimated
    features: Floats  # [N, D] of the state of each row, with a column of ones
    discount: float = 1.0
    seed: int = 0
    level: float = LEVEL  # of intervals
    whole_episodes: bool = False  # a row stands for an episode, its ratio for the product of its decisions
    fold: Ints | None = None  # [E] 0 or 1; drawn by the seed where it is not given
    fitted: dict[int, Any] = dataclasses.field(default_factory=dict)  # fold → the linear system fitted without it

    def __post_init__(self) -> None:
        shape = (len(self.log), len(self.log.actions))
        if self.target.shape != shape:
            raise PdocrlError(f"the policy's probabilities have the shape {self.target.shape}, expected {shape}.")
        off = np.flatnonzero(~(np.abs(self.target.sum(1) - 1) < 1e-6) | (self.target < -1e-9).any(1))
        if off.size:
            raise PdocrlError(f"the policy's probabilities of row {off[0] + 1} are {self.target[off[0]].tolist()}.")
        if not 0 < self.discount <= 1:
            raise PdocrlError(f"discount {self.discount}: expected a number in (0, 1].")

    @property
    def episodes(self) -> int:
        return int(self.log.episode[-1]) + 1

    @functools.cached_property
    def folds(self) -> Ints:
        """[N] 0 or 1: which part of the episodes a row belongs to; functions are fitted on the other."""
        fold = self.log.folds(self.seed) if self.fold is None else self.fold
        return fold[self.log.episode]

    @functools.cached_property
    def starts(self) -> Ints:
        """[E] the first row of each episode."""
        return np.flatnonzero(self.log.step == 0)

    @functools.cached_property
    def following(self) -> Ints:
        """[N] the next row of the episode; −1 after a terminal one, −2 where the record was cut."""
        last = np.r_[self.log.step[1:] == 0, True]
        after: Ints = np.where(last, np.where(self.log.terminal, -1, -2), np.arange(1, len(self.log) + 1))
        return after

    @functools.cached_property
    def inputs(self) -> Floats:
        """[N, D + 1] the encoded columns and, where totals are not discounted, the time step: what trees are given."""
        time = self.log.step if self.discount == 1 else np.zeros(len(self.log))
        return np.asarray(np.c_[self.log.features()[0], time], np.float64)

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return int(self.log.step.max()) + 1

    @functools.cached_property
    def ratio(self) -> Floats:
        """[N] π(a|s)/b(a|s) of the logged actions."""
        logged = np.take_along_axis(self.target, self.log.action[:, None], 1)[:, 0]
        return np.asarray(logged / self.propensity, np.float64)

    @functools.cached_property
    def weights(self) -> Floats:
        """[E, T] Π_{u≤t} π(a_u|s_u)/b(a_u|s_u); after the end of an episode its last weight."""
        with np.errstate(divide="ignore"):
            logs = np.cumsum(np.log(self.padded(self.ratio, fill=1.0)), axis=1)
        return np.asarray(np.exp(np.minimum(logs, MOST_LOG_WEIGHT)), np.float64)

    def padded(self, values: Floats, fill: float = 0.0) -> Floats:
        """[N] → [E, T]."""
        table = np.full((self.episodes, self.longest), fill)
        table[self.log.episode, self.log.step] = values
        return table

    def discounted(self, values: Floats) -> Floats:
        """[N] → [E, T], times γ^t."""
        return self.padded(values * self.discount**self.log.step)

    @property
    def assumptions(self) -> list[str]:
        """In words: what all estimators here rest on."""
        who = "estimated from the columns by multinomial logistic regression" if self.estimated else "as logged"
        cut = int(self.log.cut_short.sum())
        return [
            f"propensities are {who}",
            NO_HIDDEN_CONFOUNDER.format("the columns"),
            SAME_PROCESS,
            INDEPENDENT,
            *([f"{cut} of {self.episodes} episodes were cut short"] if cut else []),
        ]


def summarise(
    problem: Problem, estimator: str, signal: str, influence: Floats | None, weights: Floats | None, *assumed: str
) -> Estimate:
    """The mean of E influence values and its interval (`intervals`). `weights` [E] are those of whole episodes."""
    size = largest = None
    if weights is not None and weights.sum() > 0:
        size, largest = effective_size(weights), float(weights.max() / weights.sum())
    value = found = None
    if influence is not None:
        value = float(influence.mean())
        found = interval(influence, size or float(len(influence)), problem.level)
    return Estimate(
        estimator=estimator,
        signal=signal,
        value=value,
        interval=found,
        effective_sample_size=size,
        largest_weight=largest,
        assumptions=tuple(assumed),
        influence=influence,
    )


def effective_size(weights: Floats) -> float:
    """(Σw)²/Σw²: so many episodes of equal weight say as much."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def falls_short(weights: Floats) -> bool:
    """Whether the weights [E] of whole episodes average less than half of 1, their expectation, beyond chance.

    Then most of the policy's episodes are of a kind that the log lacks. So it is where one of several deciders of long
    episodes is judged: that decider's own have weight 1, all others 0, and the effective sample size at the end says
    nothing of the handful of episodes that have the weight on the way.
    """
    if len(weights) < 2:
        return False
    return bool(weights.mean() + SHORT * weights.std(ddof=1) / np.sqrt(len(weights)) < LEAST)


def self_normalised(weights: Floats, values: Floats) -> Floats | None:
    """[E] influence values of Σ_t m_t with m_t = Σ_e w_et y_et / Σ_e w_et, by the delta method:

        ψ_e = Σ_t [ m_t + (w_et/w̄_t)(y_et − m_t) ].

    None where no episode has weight at some step.
    """
    mean = weights.mean(0)
    if (mean <= 0).any():
        return None
    share = weights / mean
    value = (share * values).mean(0)
    return np.asarray((value + share * (values - value)).sum(1), np.float64)
