"""Estimators on a population: a log that holds every trajectory as often as it is likely, so that means are exact."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators import dynamics
from pdocrl.ope.estimators.double_reinforcement import double
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.importance import per_decision, trajectory
from pdocrl.ope.estimators.intervals import interval, p_value
from pdocrl.ope.estimators.marginalised import marginalised
from pdocrl.ope.estimators.on_policy import on_policy
from pdocrl.ope.estimators.problem import Estimate, Problem

BEHAVIOUR = np.array([[0.25, 0.75], [0.5, 0.5]])
TARGET = np.array([[0.9, 0.1], [0.3, 0.7]])
MOVES = np.array([[0.25, 0.5], [0.75, 0.5]])  # probability of state 1 next
REWARD = np.array([[1.0, -2.0], [3.0, 0.5]])
STEPS = 2


def population() -> Problem:
    """Two states, two actions, two steps: 128 episodes hold each trajectory in its exact proportion."""
    rows: dict[str, list[float]] = {key: [] for key in ("episode", "s", "action", "reward", "cost", "p")}
    episode = 0
    for start, first, second, last in itertools.product(range(2), repeat=4):
        moved = MOVES[start, first]
        chance = 0.5 * BEHAVIOUR[start, first] * (moved if second else 1 - moved) * BEHAVIOUR[second, last]
        times = Fraction(chance) * 128
        assert times.denominator == 1
        for _ in range(int(times)):
            for s, a in ((start, first), (second, last)):
                for key, value in zip(rows, (episode, s, a, REWARD[s, a], float(s == a), BEHAVIOUR[s, a]), strict=True):
                    rows[key].append(value)
            episode += 1
    log = EventLog.read(rows | {"s": [f"s{int(s)}" for s in rows["s"]]}, propensity="p")
    state = log.columns[0].values.astype(int)
    assert log.propensity is not None
    saturated = np.eye(4)[2 * state + log.step]
    return Problem(log, TARGET[state], log.propensity, False, saturated)


def truth(signal: np.ndarray, policy: np.ndarray) -> float:
    last = (policy * signal).sum(1)
    after = (1 - MOVES) * last[0] + MOVES * last[1]
    return float((policy * (signal + after)).sum(1).mean())


PROBLEM = population()
VALUE = truth(REWARD, TARGET)
STATE = PROBLEM.log.columns[0].values.astype(int)
ANY_Q = np.random.default_rng(0).normal(size=(4, 2))[2 * STATE + PROBLEM.log.step]  # wrong, but of state and time
ANY_W = np.random.default_rng(1).normal(size=(4, 2))[2 * STATE + PROBLEM.log.step, PROBLEM.log.action]


@pytest.mark.parametrize(
    "estimator",
    [
        lambda p: trajectory(p, "reward", "plain"),
        lambda p: trajectory(p, "reward", "weighted"),
        lambda p: per_decision(p, "reward", "plain"),
        lambda p: per_decision(p, "reward", "weighted"),
        lambda p: doubly_robust(p, "reward", ANY_Q, weighted=False),
        lambda p: doubly_robust(p, "reward", ANY_Q, weighted=True),
        lambda p: marginalised(p, "reward", ridge=0.0),
        lambda p: dynamics.dynamics(p, "reward", dynamics.states(p.log, 1.0)),
    ],
    ids=["IS", "WIS", "PDIS", "WPDIS", "DR", "WDR", "marginalised", "dynamics"],
)
def test_estimators_are_exact_on_a_population(estimator: Callable[[Problem], Estimate]) -> None:
    """Unbiased ones are unbiased, doubly robust ones with a Q that is plainly wrong."""
    assert estimator(PROBLEM).value == pytest.approx(VALUE, abs=1e-8)


def test_double_reinforcement_is_right_if_either_part_is() -> None:
    last = (TARGET * REWARD).sum(1)
    first = (PROBLEM.log.step == 0)[:, None]
    q = np.where(first, (REWARD + (1 - MOVES) * last[0] + MOVES * last[1])[STATE], REWARD[STATE])
    moves = np.einsum("s,sa,sa->", np.full(2, 0.5), TARGET, MOVES)
    later = np.array([1 - moves, moves])  # of the state at the second step under the target
    moved = np.einsum("s,sa,sa->", np.full(2, 0.5), BEHAVIOUR, MOVES)
    state_ratio = np.where(PROBLEM.log.step == 0, 1.0, (later / np.array([1 - moved, moved]))[STATE])
    w = state_ratio * PROBLEM.ratio
    assert double(PROBLEM, "reward", q, ANY_W).value == pytest.approx(VALUE, abs=1e-10)
    assert double(PROBLEM, "reward", ANY_Q, w).value == pytest.approx(VALUE, abs=1e-10)
    assert abs((double(PROBLEM, "reward", ANY_Q, ANY_W).value or 0) - VALUE) > 0.05


def test_clipping_bounds_the_weights_and_on_policy_means_are_those_of_the_log() -> None:
    huge = dataclasses.replace(PROBLEM, propensity=np.full(len(PROBLEM.log), 1e-3))
    clipped = trajectory(huge, "cost", "clipped")
    assert clipped.value == pytest.approx(np.sqrt(128) * PROBLEM.log.totals(PROBLEM.log.costs["cost"]).mean())
    assert on_policy(PROBLEM.log, "reward").value == pytest.approx(truth(REWARD, BEHAVIOUR), abs=1e-10)


def test_weights_of_long_episodes_stay_finite() -> None:
    log = EventLog.read({"episode": [0] * 800 + [1] * 800, "action": [0, 1] * 800, "reward": [1.0] * 1600})
    target = np.tile([0.5, 0.5], (1600, 1))
    problem = Problem(log, target, np.full(1600, 0.01), False, np.ones((1600, 1)))
    assert np.isfinite(trajectory(problem, "reward").value or np.nan)


@pytest.mark.parametrize("skewed", [False, True])
def test_the_p_value_is_where_the_interval_ends_at_the_limit(skewed: bool) -> None:
    rng = np.random.default_rng(3)
    psi = rng.lognormal(0, 1.2, 80) if skewed else rng.normal(5, 1, 80)
    for level in (0.8, 0.95, 0.99):
        found = interval(psi, 60.0, level)
        assert found is not None
        assert found[0] < psi.mean() < found[1]
        assert p_value(psi, 60.0, found[1]) == pytest.approx(1 - level, rel=1e-6)
        assert p_value(psi, 60.0, found[0], ">=") == pytest.approx(1 - level, rel=1e-6)


def test_intervals_of_skewed_costs_miss_less_often_on_the_high_side_than_student_does() -> None:
    rng = np.random.default_rng(0)
    draws = rng.lognormal(0, 1, (800, 60))
    mean = np.exp(0.5)
    corrected = np.mean([interval(x, 60.0)[1] < mean for x in draws])  # type: ignore[index]
    student = np.mean(draws.mean(1) + 2.0 * draws.std(1, ddof=1) / 60**0.5 < mean)
    assert corrected < 0.75 * student
