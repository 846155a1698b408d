"""Test problems of any size: sparse random ones, and grids with hazards."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from pdocrl.tabular.cmdp import CMDP, bind, random_rewards


def garnet(
    n_states: int,
    n_actions: int = 4,
    branching: int = 5,
    n_constraints: int = 1,
    gamma: float = 0.95,
    tightness: float = 0.5,
    seed: int = 0,
) -> CMDP:
    """A sparse random CMDP: each (s, a) leads to at most `branching` states drawn at random; limits that bind."""
    rng = np.random.default_rng(seed)
    rows = n_states * n_actions
    P = sp.csr_array(
        (
            rng.dirichlet(np.ones(branching), size=rows).ravel(),
            rng.integers(n_states, size=rows * branching),
            np.arange(0, rows * branching + 1, branching),
        ),
        shape=(rows, n_states),
    )
    P.sum_duplicates()
    return random_rewards(P, n_states, n_actions, n_constraints, gamma, tightness, rng)


def gridworld(
    width: int = 8,
    height: int = 8,
    slip: float = 0.1,
    hazards: float = 0.25,
    gamma: float = 0.95,
    tightness: float = 0.5,
    seed: int = 0,
) -> CMDP:
    """From the left edge to the goal in the lower right corner, around hazard cells that cost one unit each.

    Actions: up, down, left, right; with probability `slip` the step goes in a random direction; walls hold. The goal
    pays one and sends back to the left edge. The limit on the hazard cost lies between the cost of the quickest policy
    and that of the safest.
    """
    rng = np.random.default_rng(seed)
    S, A = width * height, 4
    row, column = np.divmod(np.arange(S), width)
    step = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    target_row = np.clip(row[:, None] + step[:, 0], 0, height - 1)
    target = target_row * width + np.clip(column[:, None] + step[:, 1], 0, width - 1)  # [S, A]
    probability = np.full((S, A, A), slip / A) + (1 - slip) * np.eye(A)  # [S, chosen, realised]
    edge = np.flatnonzero(column == 0)
    goal = S - 1

    moves = np.delete(np.arange(S), goal)
    state, chosen, realised = np.meshgrid(moves, np.arange(A), np.arange(A), indexing="ij")
    restart_rows = np.repeat(goal * A + np.arange(A), len(edge))
    P = sp.coo_array(
        (
            np.r_[probability[state, chosen, realised].ravel(), np.full(len(restart_rows), 1 / len(edge))],
            (
                np.r_[(state * A + chosen).ravel(), restart_rows],
                np.r_[target[state, realised].ravel(), np.tile(edge, A)],
            ),
        ),
        shape=(S * A, S),
    ).tocsr()
    r = np.zeros((S, A))
    r[goal] = 1
    cost = np.zeros((1, S, A))
    cost[0, rng.uniform(size=S) < hazards] = 1
    cost[0, goal] = 0
    d0 = np.zeros(S)
    d0[edge] = 1 / len(edge)
    return bind(CMDP.from_costs(P, r, cost, [0.0], d0, gamma), tightness)
