"""Limits on tails against brute force: mixtures of all deterministic policies that depend on the whole history."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog

from pdocrl.limits import Limit, as_limits
from pdocrl.tabular import Counts
from pdocrl.tabular.tails import solve_tails


class World(NamedTuple):
    """Each (state, action) leads to (next state, cost, reward) with a number of rows; three steps at most."""

    horizon: int
    moves: dict[tuple[int, int], list[tuple[int, float, float, int]]]  # (s, a) → [(s′, c, r, rows)]


def random_world(seed: int, horizon: int = 3) -> World:
    """The second action pays more and costs more, by 0 to 3 a step."""
    rng = np.random.default_rng(seed)
    moves = {}
    for s, a in itertools.product(range(2), repeat=2):
        costs = rng.choice((0.0, 1.0) if a == 0 else (0.0, 1.0, 2.0, 3.0), size=2)
        moves[s, a] = [(z, float(c), float(rng.uniform() + a), int(rng.integers(1, 6))) for z, c in enumerate(costs)]
    return World(horizon, moves)


def count(world: World, d0: tuple[float, float] = (1.0, 0.0)) -> Counts:
    """Its log: every row at every step."""
    rows = []
    for t in range(world.horizon):
        for (s, a), outcomes in world.moves.items():
            for z, c, r, n in outcomes:
                rows += [(f"{s} @ {t}", a, f"{z} @ {t + 1}", r, c, t == world.horizon - 1)] * n
    state, action, then, reward, cost, over = zip(*rows, strict=True)
    labels = sorted({*state, *(z for z, end in zip(then, over, strict=True) if not end)})
    starts = [d0[int(label[0])] * label.endswith("@ 0") for label in labels]
    counts = Counts.from_arrays(
        state, action, then, reward, {"cost": cost}, over, d0=starts, episode=np.arange(len(rows))
    )
    return dataclasses.replace(counts, horizon=world.horizon)


class Outcome(NamedTuple):
    """Of one deterministic policy: reward, and the distribution of the total and of the largest step."""

    reward: float
    total: dict[float, float]
    largest: dict[float, float]


def policies(world: World, start: int) -> Iterator[Outcome]:
    """All deterministic policies that depend on the history of states, actions and costs."""

    def tree(s: int, t: int) -> Iterator[Outcome]:
        if t == world.horizon:
            yield Outcome(0.0, {0.0: 1.0}, {0.0: 1.0})
            return
        for a in range(2):
            outcomes = world.moves[s, a]
            rows = sum(n for *_, n in outcomes)
            for after in itertools.product(*(list(tree(z, t + 1)) for z, *_ in outcomes)):
                reward = 0.0
                total: dict[float, float] = {}
                largest: dict[float, float] = {}
                for (_, c, r, n), then in zip(outcomes, after, strict=True):
                    p = n / rows
                    reward += p * (r + then.reward)
                    for k, q in then.total.items():
                        total[round(c + k, 9)] = total.get(round(c + k, 9), 0.0) + p * q
                    for k, q in then.largest.items():
                        largest[max(c, k)] = largest.get(max(c, k), 0.0) + p * q
                yield Outcome(reward, total, largest)

    return tree(start, 0)


def brute_force(found: list[Outcome], limits: tuple[Limit, ...]) -> float:
    """The best mixture, by a linear program over policies for each choice of the CVaRs' t; −∞ if none keeps them."""
    support = sorted({k for one in found for k in one.total})
    grids = [support if limit.measure == "cvar" else [0.0] for limit in limits]
    best = -np.inf
    for thresholds in itertools.product(*grids):
        rows, room = [], []
        for limit, t in zip(limits, thresholds, strict=True):
            theta, level = limit.threshold or 0.0, limit.level or 0.0
            if limit.measure == "mean":
                rows.append([sum(p * k for k, p in one.total.items()) for one in found])
                room.append(limit.value)
            elif limit.measure == "exceedance":
                rows.append([sum(p for k, p in one.total.items() if k > theta) for one in found])
                room.append(limit.value)
            elif limit.measure == "max":
                rows.append([sum(p for k, p in one.largest.items() if k > limit.value) for one in found])
                room.append(0.0)
            else:
                rows.append([sum(p * max(k - t, 0) for k, p in one.total.items()) for one in found])
                room.append((1 - level) * (limit.value - t))
        answer = linprog(
            [-one.reward for one in found],
            A_ub=np.array(rows),
            b_ub=np.array(room),
            A_eq=np.ones((1, len(found))),
            b_eq=[1.0],
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if answer.status == 0:
            best = max(best, -answer.fun)
    return best


LIMITS = (
    ["P(cost>3)<=0.3"],
    ["P(cost>3)<=0.3", "P(cost>4)<=0.1"],
    ["CVaR80(cost)<=4"],
    ["CVaR60(cost)<=4", "cost<=2"],
    ["P(cost>2)<=0.4", "CVaR70(cost)<=4.5", "cost<=2.5"],
    ["max(cost)<=1"],
    ["max(cost)<=2", "P(cost>2)<=0.5"],
)
SEEDS = range(5)


@pytest.fixture(scope="module")
def enumerated() -> list[tuple[World, list[Outcome]]]:
    return [(world, list(policies(world, 0))) for world in map(random_world, SEEDS)]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_the_optimum_is_that_of_all_history_dependent_policies(
    limits: list[str], enumerated: list[tuple[World, list[Outcome]]]
) -> None:
    chosen = as_limits(limits)
    binding = 0
    for world, found in enumerated:
        best = brute_force(found, chosen)
        result = solve_tails(count(world), chosen, min_count=1)
        assert (result.status == "infeasible") == (best == -np.inf)
        if best == -np.inf:
            continue
        assert result.status == "optimal"
        assert result.value == pytest.approx(best, abs=1e-8)
        assert result.upper == pytest.approx(best, abs=1e-8)
        for limit, cost in zip(chosen, result.costs, strict=True):
            assert cost <= (0.0 if limit.measure == "max" else limit.value) + 1e-8
        binding += best < max(one.reward for one in found) - 1e-6
    assert binding >= 2
