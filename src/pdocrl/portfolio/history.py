"""Propensities given the history alone: who decides is drawn before an episode and shows by and by.

    b(a | h_t) = Σ_d p(d | h_t) b_d(a | s_t),   p(d | h_t) ∝ p(d | s_0) Π_{u<t} b_d(a_u | s_u)

A log by several deciders is a log by one policy of the history that first draws a decider. Its importance weights,
Π π/b = Π π / Σ_d p(d|s_0) Π b_d, are at most 1/p(d|s_0) for whoever decides as decider d: the balance heuristic of
multiple importance sampling (Veach and Guibas, 1995). Weights by each episode's own decider are those of the worst
proposal. It assumes that whom an episode was given to depends on its first row at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import special

from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Floats, Ints
from pdocrl.ope.estimators import propensity

RIDGE = 10.0  # of the regression of deciders on first rows
NATS = 2.0  # by which it must predict the deciders of other episodes better than frequencies do


def one_decider_each(rows: Rows) -> bool:
    """Whether nobody hands an episode over."""
    who = rows.log.decider
    return who is not None and bool((who == who[rows.starts][rows.log.episode]).all())


@dataclasses.dataclass(frozen=True, eq=False)
class Allotment:
    """log p(d | s_0) of deciders who are told apart; the rest are one, the last."""

    shares: Floats  # [d] log frequencies
    beta: Floats | None  # [1 + D, d] of a regression; None where frequencies predict as well

    @classmethod
    def of(cls, rows: Rows, places: Sequence[int], seed: int) -> Allotment:
        """Frequencies, or a regression where it predicts the deciders of other episodes better."""
        assert rows.log.decider is not None
        who = rows.log.decider[rows.starts]
        group = np.full(len(who), len(places))
        for k, place in enumerate(places):
            group[who == place] = k
        count = len(places) + int((group == len(places)).any())
        x = _with_one(rows.x[rows.starts])
        half = np.random.default_rng(seed).permutation(len(group)) % 2
        gain = 0.0
        for part in (0, 1):
            rest, here = half != part, half == part
            beta = propensity.fit(x[rest], group[rest], count, RIDGE)
            predicted = special.log_softmax(x[here] @ beta, axis=1)[np.arange(here.sum()), group[here]]
            gain += float(predicted.sum() - _shares(group[rest], count)[group[here]].sum())
        return cls(_shares(group, count), propensity.fit(x, group, count, RIDGE) if gain > NATS else None)

    def __call__(self, first: Floats) -> Floats:
        """[E, D] first rows → [E, d]"""
        if self.beta is None:
            return np.tile(self.shares, (len(first), 1))
        return np.asarray(special.log_softmax(_with_one(first) @ self.beta, axis=1), np.float64)


def of_history(rows: Rows, each: Sequence[Floats], prior: Floats) -> Floats:
    """[N, A] b(a | h_t) for every action.

    Args:
        rows: whose episodes are followed.
        each: b_d(a | s) [N, A] of every decider.
        prior: [E, d] log p(d | s_0).
    """
    logged = np.arange(len(rows)), rows.log.action
    seen = np.log(np.stack([np.maximum(table[logged], propensity.SMALLEST) for table in each], axis=1))
    total = np.cumsum(seen, axis=0)
    before = total - seen
    before -= before[rows.starts][rows.log.episode]
    posterior = special.softmax(prior[rows.log.episode] + before, axis=1)
    return np.asarray(np.einsum("nd,dna->na", posterior, np.stack(each)), np.float64)


def _shares(group: Ints, count: int) -> Floats:
    """[count] log frequencies, with half an episode more for each."""
    found = np.bincount(group, minlength=count) + 0.5
    return np.asarray(np.log(found / found.sum()), np.float64)


def _with_one(x: Floats) -> Floats:
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)
