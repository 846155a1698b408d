"""Small problems with known answers, as datasets: what a deep agent must find.

Each probe gives a dataset, the cost limits, the optimum, and the exact reward and cost rates (1−γ)J of any policy
obs [B, S] → action [B, A].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.tabular.cmdp import CMDP, evaluate, random_cmdp
from pdocrl.tabular.solvers.exact import solve

HORIZON = 10
Policy = Callable[[NDArray[Any]], NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Probe:
    """A problem whose optimum is known."""

    dataset: Dataset
    cost_limit: tuple[float, ...]  # per episode of HORIZON steps, as agents are told
    reward: float  # the optimum's reward rate
    multipliers: tuple[float, ...]  # the prices of the limits there
    evaluate: Callable[[Policy], tuple[float, NDArray[np.float64]]]  # → reward rate, cost rates [K]


def _episodes(n: int) -> dict[str, NDArray[np.bool_]]:
    """Flags of logs that only ever time out."""
    return {"terminal": np.zeros(n, bool), "timeout": np.arange(n) % HORIZON == HORIZON - 1}


def bandit(limits: tuple[float, ...] = (0.25,), n: int = 20_000, seed: int = 0) -> Probe:
    """One state, one action coordinate per constraint: r = Σ a_i, c_i = a_i². Optimum a_i = √κ_i, λ_i = 1/(2√κ_i)."""
    kappa = np.asarray(limits)
    action = np.random.default_rng(seed).uniform(-1, 1, (n, len(limits))).astype(np.float32)
    state = np.ones((n, 1), np.float32)
    dataset = make_dataset(state, action, action.sum(1), action**2, state, **_episodes(n), name="bandit")

    def rates(policy: Policy) -> tuple[float, NDArray[np.float64]]:
        chosen = np.asarray(policy(np.ones((1, 1), np.float32)), np.float64)[0]
        return float(chosen.sum()), chosen**2

    prices = tuple(1 / (2 * np.sqrt(kappa)))
    return Probe(dataset, tuple(kappa * HORIZON), float(np.sqrt(kappa).sum()), prices, rates)


def play_bandit(policy: Any) -> tuple[float, float]:
    """What a policy with memory earns and spends in an episode of the bandit with one action."""
    step, action, earned, spent = policy.begin(0), 0.0, 0.0, 0.0
    for _ in range(HORIZON):
        action = float(step(np.zeros(1, np.float32), action, np.array([action**2]))[0])  # the one state, standardised
        earned, spent = earned + action, spent + action**2
    return earned, spent


def chain(limit: float = 0.25, gamma: float = 0.9, n: int = 20_000, seed: int = 0) -> Probe:
    """Two states ±1; x = (1+a)/2 is the chance that the next is +1, where reward is 1; c = x². Optimum x = √κ."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    x = (1 + action[:, 0]) / 2
    state = np.empty(n + 1, np.float32)
    state[0] = -1
    state[1:] = np.where(rng.random(n) < x, 1, -1)
    state[:-1][np.arange(n) % HORIZON == 0] = -1  # episodes start at −1
    after = np.where(rng.random(n) < x, 1, -1).astype(np.float32)
    inside = np.arange(n) % HORIZON != HORIZON - 1
    after[inside] = state[1:][inside]
    dataset = make_dataset(state[:-1], action, state[:-1] > 0, x**2, after, **_episodes(n), name="chain")

    def rates(policy: Policy) -> tuple[float, NDArray[np.float64]]:
        chosen = (1 + np.asarray(policy(np.asarray([[-1.0], [1.0]], np.float32)), np.float64)[:, 0]) / 2
        move = np.stack([1 - chosen, chosen], 1)  # [from, to]
        occupancy = np.linalg.solve(np.eye(2) - gamma * move.T, (1 - gamma) * np.asarray([1.0, 0.0]))
        return float(occupancy[1]), np.asarray([occupancy @ chosen**2])

    # V(+1) − V(−1) = 1 at equal x, so one more unit of x earns γ and costs 2λx.
    return Probe(dataset, (limit * HORIZON,), gamma * np.sqrt(limit), (gamma / (2 * np.sqrt(limit)),), rates)


def small_cmdp(n_costs: int, seed: int = 0) -> Probe:
    """Four states, two actions, costs in [0, 1] whose limits bind: `embedded`, its optimum by linear programming."""
    drawn = random_cmdp(4, 2, n_costs, gamma=0.9, seed=seed)
    return embedded(CMDP.from_costs(drawn.P, drawn.r, 1 - drawn.g, 1 - drawn.tau, drawn.d0, drawn.gamma))


def embedded(cmdp: CMDP, n: int = 20_000, seed: int = 0) -> Probe:
    """A finite CMDP with two actions as a continuous one: one-hot states, x = (1+a)/2 the chance of action 1.

    Deterministic policies here are exactly the stochastic policies there, so the LP's optimum is the optimum.
    """
    states, rng = cmdp.r.shape[0], np.random.default_rng(seed)
    transition = cmdp.P.toarray().reshape(states, 2, states)
    action = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    x = (1 + action[:, 0]) / 2
    state, following = np.empty(n, int), np.empty(n, int)
    for t in range(n):
        state[t] = rng.choice(states, p=cmdp.d0) if t % HORIZON == 0 else following[t - 1]
        mixed = (1 - x[t]) * transition[state[t], 0] + x[t] * transition[state[t], 1]
        following[t] = np.searchsorted(np.cumsum(mixed), rng.random()).clip(0, states - 1)
    one_hot = np.eye(states, dtype=np.float32)
    both = np.stack([1 - x, x], 1)
    reward = (cmdp.r[state] * both).sum(1)
    cost = -np.einsum("kna,na->nk", cmdp.g[:, state], both)
    dataset = make_dataset(one_hot[state], action, reward, cost, one_hot[following], **_episodes(n), name="embedded")
    best = solve(cmdp)

    def rates(policy: Policy) -> tuple[float, NDArray[np.float64]]:
        chosen = (1 + np.asarray(policy(one_hot), np.float64)[:, 0]) / 2
        found = evaluate(cmdp, np.stack([1 - chosen, chosen], 1))
        return found.value, -found.constraints

    return Probe(dataset, tuple(-cmdp.tau * HORIZON), best.value, tuple(best.lam), rates)
