"""Limits that move, and budgets as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdocrl.collect.pipeline import Budget, Speed, parse_budget
from pdocrl.collect.recipes import (
    FALLING,
    RECIPES,
    RISING,
    SCHEDULES,
    TIGHT,
    WARMED,
    Schedule,
    recipe_for,
    with_schedules,
)
from pdocrl.errors import PdocrlError


def test_a_limit_is_straight_between_knots_and_jumps_where_two_meet():
    schedule = Schedule("s", ((0.0, 1.0), (0.5, 3.0), (0.5, 0.0), (1.0, 1.0)))
    assert [schedule.at(done) for done in (0, 0.25, 0.5, 0.75, 1)] == [1.0, 2.0, 0.0, 0.5, 1.0]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_rising_limit_never_falls(one, other):
    assert RISING.at(min(one, other)) <= RISING.at(max(one, other))


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_every_schedule_is_somewhere_tight_and_somewhere_near_the_largest_cost(schedule):
    limits = [schedule.at(done / 1000) for done in range(1001)]
    assert min(limits) == pytest.approx(TIGHT)
    assert max(limits) >= 0.9
    assert not any(math.isnan(limit) for limit in limits)


def test_unconstrained_schedules_are_unconstrained_at_first():
    assert FALLING.at(0) == WARMED.at(0.1) == math.inf
    assert FALLING.words(80) == "0%: none, 25%: none, 25%: 88, 40%: 88, 85%: 4, 100%: 4"


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("800000", Budget(steps=800_000)),
        ("800k", Budget(steps=800_000)),
        ("1.5M", Budget(steps=1_500_000)),
        ("20min", Budget(minutes=20)),
        ("1.5 h", Budget(minutes=90)),
    ],
)
def test_budgets_are_steps_or_time(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "0", "-5", "ten", "5 days", "1e6"])
def test_other_budgets_are_refused_with_the_way_to_write_them(text):
    with pytest.raises(PdocrlError, match="write steps"):
        parse_budget(text)


def test_time_and_steps_are_each_others_inverse():
    speed = Speed(simulate_steps_s=900, steps_s=800, compile_s=4)
    assert speed.minutes(speed.steps(7.0)) == pytest.approx(7.0, rel=1e-3)
    assert speed.steps(0.01) == 1


def test_dsrl_tasks_have_their_own_recipes_and_others_a_plain_one():
    assert len(RECIPES) == 8
    assert recipe_for("CarRun").target == 651
    assert recipe_for("CarRun").reward_min == pytest.approx(204.287, abs=1e-3)
    assert recipe_for("MyRobot").reward_min == -math.inf


def test_a_misspelt_schedule_gets_a_suggestion():
    assert with_schedules(recipe_for("x"), ("warmed",)).schedules == (WARMED,)
    with pytest.raises(PdocrlError, match="Did you mean `rising`"):
        with_schedules(recipe_for("x"), ("risign",))
