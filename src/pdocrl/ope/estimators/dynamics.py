"""The dynamics model where states are finite: counted transitions and rewards, solved exactly.

    P̂(s'|s, a) = n(s, a, s')/n(s, a),   r̂(s, a) = mean of x,   Q = r̂ + γ P̂ V,   V(s) = Σ_a π(a|s) Q(s, a)
    v = mean_e V(s_e0)

Mannor, Simester, Sun and Tsitsiklis, "Bias and variance approximation in value function estimates", 2007. A state is a
combination of the columns' values; the time step belongs to it where all episodes are equally long and totals are not
discounted. The interval is that of the influence values, with w = d_π/d_D of the same model, clustered by episode.
Pairs that were never logged contribute nothing; where the policy would spend more than `MOST_UNSEEN` of its steps on
them there is no estimate.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.double_reinforcement import MARKOV, by_episode, influence_of
from pdocrl.ope.estimators.problem import Estimate, Floats, Ints, Problem, summarise

NAME = "dynamics model (counts)"
MOST_STATES = 3000
FEWEST_ROWS = 5.0  # per state, on average
MOST_UNSEEN = 0.01


def states(log: EventLog, discount: float) -> Ints | None:
    """[N] the state of each row; None where they are too many to be counted."""
    lengths = np.bincount(log.episode)
    columns: list[Any] = [c.values for c in log.columns] + [c.missing for c in log.columns if c.missing.any()]
    if discount == 1 and lengths.max() > 1 and (lengths == lengths[0]).all():
        columns.append(log.step)
    if not columns:
        return np.zeros(len(log), np.int64)
    found, codes = np.unique(np.stack(columns, axis=1).astype(np.float64), axis=0, return_inverse=True)
    few = len(found) <= MOST_STATES and len(found) * FEWEST_ROWS <= len(log)
    return codes.ravel().astype(np.int64) if few else None


def dynamics(problem: Problem, signal: str, state: Ints) -> Estimate:
    """`state` [N] from `states`."""
    log, actions = problem.log, problem.target.shape[1]
    known = problem.following > -2
    size = int(state.max()) + 1
    pair = state * actions + log.action
    count = np.bincount(pair[known], minlength=size * actions).astype(np.float64)
    seen = np.maximum(count, 1)
    x = np.bincount(pair[known], log.signals[signal][known], minlength=size * actions) / seen
    goes_on = problem.following >= 0
    after = sparse.csr_matrix(
        (1 / seen[pair[goes_on]], (pair[goes_on], state[problem.following[goes_on]])), (size * actions, size)
    )
    policy = _policy(problem, state, size)
    if np.abs(policy[state] - problem.target).max() > 1e-6:
        return summarise(problem, NAME, signal, None, None, MARKOV, "the policy does more than look at the columns")
    choose = sparse.csr_matrix(
        (policy.ravel(), (np.repeat(np.arange(size), actions), np.arange(size * actions))), (size, size * actions)
    )
    try:
        matrix = splu(sparse.identity(size, format="csc") - problem.discount * (choose @ after).tocsc())
    except RuntimeError:  # exactly singular
        return summarise(problem, NAME, signal, None, None, MARKOV, "by the counts the policy's episodes never end")
    v = matrix.solve(choose @ x)
    q = (x + problem.discount * (after @ v)).reshape(size, actions)
    first = np.bincount(state[problem.starts], minlength=size).astype(np.float64)
    occupancy = (matrix.solve(first, trans="T")[:, None] * policy).ravel()  # Σ_e Σ_t γ^t of each pair
    unseen = float(occupancy[count == 0].sum() / occupancy.sum())
    weights = occupancy[pair] / seen[pair]
    averaged = dataclasses.replace(problem, target=policy[state])
    influence = influence_of(averaged, signal, np.where(known, weights, 0.0), q[state])
    assumed = (MARKOV, f"{100 * unseen:.2g} % of the policy's steps are pairs that were never logged, counted as 0")
    return summarise(
        problem,
        NAME,
        signal,
        influence if unseen <= MOST_UNSEEN else None,
        by_episode(problem, weights),
        *assumed[: 2 if unseen else 1],
    )


def _policy(problem: Problem, state: Ints, size: int) -> Floats:
    """[S, A] the target, averaged over the rows of a state."""
    count = np.bincount(state, minlength=size)
    return np.stack([np.bincount(state, column, minlength=size) / count for column in problem.target.T], axis=1)
