"""Optimism bias by sample splitting: by how much a learner overrates its policy, as the other half of a log has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import extract
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.inference.candidates import Candidate
from pdocrl.tabular.inference.sample_splitting import split

KNOWN = 5  # tries of some action after which a half knows a state
SPLITS = 3  # of a log in two, over which the bias is averaged


def optimism_bias(
    counts: Counts,
    gamma: float,
    limits: Sequence[Limit],
    candidate: Candidate,
    inward: Floats,
    splits: int = SPLITS,
    seed: int = 0,
) -> Floats:
    """[1+I] by how much value and constraint rewards look better to the half that learned than to the other.

    A bootstrap resample cannot have what the log has not seen, so refits miss one kind of optimism: a way round the
    cliff looks safe where no gust blew in ten tries, and is chosen for it. The other half may have seen one. Where one
    half has nothing, the word of the other stands: what nobody tried is no optimism. Halves have half of the rows, and
    are asked for half as many of a pair: they have as much to pick from as the log has.
    """
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in limits)]
    signs = np.array([1.0, *(limit.sign for limit in limits)])
    end = (signs < 0).astype(int)  # pairs the log lacks count at their worst
    behaviour = extract(counts.n.astype(np.float64))
    candidate = dataclasses.replace(candidate, min_count=(candidate.min_count + 1) // 2)
    found = []
    for number in range(splits):
        first, second = split(counts, np.random.default_rng([seed, number]))
        for learner, other_half in ((first, second), (second, first)):
            problem = candidate.problem(learner, gamma, limits)
            aim = np.minimum(inward, 0.99 * problem.margin) if inward.any() else inward
            policy = _known(learner, candidate.policy(problem, aim), behaviour)
            sides = (_filled(learner, other_half), _filled(other_half, learner))
            own, other = (PolicyEstimate(half, gamma, policy).estimate[rows, end] for half in sides)
            found.append(signs * (own - other))
    return np.asarray(np.mean(found, axis=0))


def _filled(other_half: Counts, learner: Counts) -> Counts:
    """The other_half's counts with the learner's at pairs where the other_half has none."""
    lacks = (other_half.n == 0) & (learner.n > 0)
    if not lacks.any():
        return other_half
    more = learner.only(lacks)
    names = ("pair", "to", "count", "mean", "variance")
    both = {name: np.concatenate([getattr(other_half, name), getattr(more, name)], axis=-1) for name in names}
    order = np.lexsort((both["to"], both["pair"]))
    changes: dict[str, Any] = {name: both[name][..., order] for name in names}
    return dataclasses.replace(other_half, **changes, groups=None)


def _known(learner: Counts, policy: Floats, behaviour: Floats) -> Floats:
    """Where a half has hardly been, the whole log will know better what to do: it does at least as the log did."""
    return np.where(learner.n.max(axis=1, keepdims=True) >= KNOWN, policy, behaviour)
