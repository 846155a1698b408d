"""Hidden confounding: the worst case over weights is found, and Γ grows with the room."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.problem import Problem
from pdocrl.ope.sensitivity import LARGEST, largest_mean, overturned_at, shift, weight_ends
from tests.ope.estimators.worlds import World

WORLD = World.random(0)
PROBLEM = WORLD.problem(WORLD.log(200, seed=1))
Y = PROBLEM.log.totals(PROBLEM.log.costs["cost"])


def test_the_worst_case_is_that_of_a_search_through_all_ends() -> None:
    rng = np.random.default_rng(0)
    low, y = rng.random(8), rng.normal(size=8)
    high = low + rng.random(8)
    every = [np.array(w) for w in itertools.product(*zip(low, high, strict=True))]
    assert largest_mean(low, high, y) == pytest.approx(max(float(w @ y / w.sum()) for w in every))


def test_without_confounding_nothing_moves_and_ends_hold_the_weights() -> None:
    assert shift(PROBLEM, Y, 1.0) == pytest.approx((0.0, 0.0), abs=1e-12)
    low, high = weight_ends(PROBLEM, 1.5)
    now = PROBLEM.weights[:, -1]
    assert (low <= now * (1 + 1e-12)).all()
    assert (now <= high * (1 + 1e-12)).all()


def test_a_hidden_cause_within_gamma_moves_the_estimate_no_further_than_said() -> None:
    """A hidden coin doubles the odds of action 1 and the cost: odds are off by at most 2 (in fact by less)."""
    rng = np.random.default_rng(5)
    n = 4000
    hidden = rng.random(n) < 0.5
    chance = np.where(hidden, 2 / 3, 1 / 3)
    action = (rng.random(n) < chance).astype(int)
    log = EventLog.read({"action": action, "reward": np.zeros(n), "cost": hidden.astype(float)}, episode=None)
    problem = Problem(log, np.tile([0.0, 1.0], (n, 1)), np.full(n, 0.5), False, np.ones((n, 1)))
    y = log.costs["cost"]
    believed, true = float(y[action == 1].mean()), 0.5
    down, _ = shift(problem, y, 2.0)
    assert believed > true + 0.1
    assert believed + down <= true + 0.03


def test_gamma_grows_with_the_room_to_the_limit() -> None:
    found = [overturned_at(PROBLEM, Y, room, up=True) for room in (0.0, 0.3, 1.0, 1e9)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(1.0, abs=1e-4)
    assert found[-1] == LARGEST
