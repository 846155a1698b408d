"""Estimators of discounted totals on the population of `test_exact_estimates`: each is exact, whatever Q or w is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from test_exact_estimates import ANY_Q, MOVES, PROBLEM, REWARD, TARGET

from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.importance import per_decision, trajectory
from pdocrl.ope.estimators.marginalised import marginalised
from pdocrl.ope.estimators.problem import Estimate, Problem

DISCOUNT = 0.6


@pytest.mark.parametrize(
    "estimator",
    [
        lambda p: trajectory(p, "reward", "plain"),
        lambda p: per_decision(p, "reward", "plain"),
        lambda p: per_decision(p, "reward", "weighted"),
        lambda p: doubly_robust(p, "reward", ANY_Q, weighted=False),
        lambda p: doubly_robust(p, "reward", ANY_Q, weighted=True),
        lambda p: marginalised(p, "reward", ridge=0.0),
    ],
    ids=["IS", "PDIS", "WPDIS", "DR", "WDR", "marginalised"],
)
def test_discounted_estimates_are_exact_on_a_population(estimator: Callable[[Problem], Estimate]) -> None:
    problem = dataclasses.replace(PROBLEM, discount=DISCOUNT)
    last = (TARGET * REWARD).sum(1)
    after = (1 - MOVES) * last[0] + MOVES * last[1]
    value = float((TARGET * (REWARD + DISCOUNT * after)).sum(1).mean())
    assert estimator(problem).value == pytest.approx(value, abs=1e-8)
