"""Cells, ranks and comparisons on episodes whose answers can be worked out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.bench.results import Row, make_runs
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.score import Summary, at_limits, measure, summarise
from pdocrl.report.statistics import best_safe, compare, merit, standings
from rows import runs_of

Play = Callable[..., list[Row]]


def summaries(rows: list[Row]) -> list[Summary]:
    return summarise(make_runs(rows))


def test_a_cell_is_the_mean_over_limits_and_seeds(play: Play) -> None:
    rows = play(
        {
            (10.0, 0): [(0.2, 5.0), (0.4, 15.0)],  # run: reward .3, cost 1
            (10.0, 1): [(0.6, 0.0), (0.6, 0.0)],  # .6, 0
            (40.0, 0): [(1.0, 80.0), (1.0, 80.0)],  # 1, 2
            (40.0, 1): [(1.0, 40.0), (1.0, 40.0)],  # 1, 1
        }
    )
    (score,) = summaries(rows)
    assert score.reward == pytest.approx((0.3 + 0.6 + 1 + 1) / 4)
    assert score.cost == pytest.approx((1 + 0 + 2 + 1) / 4)
    assert score.reward_iqm == pytest.approx((0.6 + 1) / 2)  # the middle half of four
    assert score.reward_std == pytest.approx(np.std([0.3, 0.6, 1, 1]))
    assert score.cost_std == pytest.approx(np.std([1, 0, 2, 1]))
    assert [at.safe for at in score.by_limit] == [True, False]
    assert (score.safe, score.safe_limits, score.runs, score.trainings, score.episodes) == (True, 1, 4, 4, 2)


def test_the_mean_of_a_limit_that_is_broken_and_one_that_is_kept_can_hide_the_break(play: Play) -> None:
    (score,) = summaries(play({(10.0, 0): [(0.0, 15.0)], (40.0, 0): [(0.0, 0.0)]}))
    assert score.cost == 0.75
    assert score.safe
    assert score.safe_limits == 1


def test_of_two_constraints_the_worse_decides(row: Row) -> None:
    (score,) = summaries([dataclasses.replace(row, cost_limit=(10.0, 2.0), cost=(5.0, 3.0))])
    assert score.cost == 1.5
    assert not score.safe


def test_without_constraints_every_method_is_safe(row: Row) -> None:
    (score,) = summaries([dataclasses.replace(row, cost_limit=(), cost=())])
    assert (score.cost, score.safe, score.cost_interval) == (0.0, True, None)


def test_runs_of_different_length_are_refused(play: Play) -> None:
    rows = play({(10.0, 0): [(0.1, 1.0)], (10.0, 1): [(0.1, 1.0), (0.2, 1.0)]})
    with pytest.raises(PdocrlError, match="1, 2 episodes"):
        summaries(rows)
    with pytest.raises(PdocrlError, match="cannot be averaged"):  # the same episode twice
        summaries([*rows[:1], *rows[:1]])


def test_the_best_is_the_safe_method_of_highest_reward(play: Play) -> None:
    rows = (
        play({(10.0, 0): [(0.9, 11.0)]}, agent="greedy")
        + play({(10.0, 0): [(0.5, 10.0)]}, agent="good")
        + play({(10.0, 0): [(0.4, 0.0)]}, agent="meek")
    )
    assert best_safe(summaries(rows), "BallRun") == "good"
    assert best_safe(summaries(rows[:1]), "BallRun") is None


def test_no_winner_is_named_among_equals(play: Play) -> None:
    rows = [row for agent in "ab" for row in play({(10.0, 0): [(0.5, 1.0)]}, agent=agent)]
    assert best_safe(summaries(rows), "BallRun") is None


def test_an_interval_of_two_trainings_is_student_s(play: Play) -> None:
    """Means 0 and 1: ½ ± 12.706 · ½; the cost, 0 and 2, is cut at 0, below which no cost lies."""
    (score,) = summaries(play({(10.0, 0): [(0.0, 0.0)] * 3, (10.0, 1): [(1.0, 20.0)] * 3}))
    reach = 12.7062 / 2
    assert score.reward_interval == pytest.approx((0.5 - reach, 0.5 + reach), rel=1e-4)
    assert score.cost_interval == pytest.approx((0.0, 1 + 2 * reach), rel=1e-4)
    assert score.intervals_over == "trainings"


def test_runs_that_share_a_training_are_one_contribution(play: Play) -> None:
    """Three seeds whose three limits agree: as if each had been played once, not three times as sure."""
    runs = {(limit, seed): [(0.1 * seed, 0.0)] * 4 for limit in (10.0, 20.0, 40.0) for seed in (0, 5, 10)}
    (once,) = summaries(play({key: own for key, own in runs.items() if key[0] == 10.0}))
    (shared,) = summaries(play(runs, shared=True))
    (own,) = summaries(play(runs))
    assert shared.reward_interval == pytest.approx(once.reward_interval)
    assert (shared.trainings, own.trainings) == (3, 9)
    errors = [measure(at_limits(make_runs(play(runs, shared=one))))[0].error for one in (True, False)]
    assert errors[1] == pytest.approx(errors[0] / 3**0.5)


def test_of_one_training_the_interval_is_over_episodes_and_says_so(play: Play) -> None:
    (score,) = summaries(play({(10.0, 0): [(0.1, 1.0), (0.3, 2.0)]}))
    assert score.intervals_over == "episodes"
    assert score.words("reward").endswith("] episodes")
    (single,) = summaries(play({(10.0, 0): [(0.1, 1.0)]}))
    assert single.reward_interval is None
    assert single.words("reward") == "–"


def test_ranks_put_safe_before_unsafe(play: Play) -> None:
    """On BallRun: good, meek, then the unsafe by cost. On CarRun meek is alone with greedy."""
    rows = (
        play({(10.0, 0): [(0.9, 30.0)]}, agent="greedy")
        + play({(10.0, 0): [(0.8, 11.0)]}, agent="careless")
        + play({(10.0, 0): [(0.5, 10.0)]}, agent="good")
        + play({(10.0, 0): [(0.4, 0.0)]}, agent="meek")
        + play({(10.0, 0): [(0.4, 0.0)]}, agent="meek", task="CarRun")
        + play({(10.0, 0): [(0.9, 30.0)]}, agent="greedy", task="CarRun")
    )
    found = {s.method: s for s in standings(make_runs(rows))}
    assert {m: s.rank for m, s in found.items()} == {"good": 1, "meek": 1.5, "careless": 3, "greedy": 3}
    assert found["greedy"].rank_interval is None  # of one episode each nothing is known
    assert (found["meek"].tasks, found["meek"].safe_tasks, found["greedy"].safe_tasks) == (2, 2, 0)
    assert next(iter(found)) == "good"


def test_of_equal_average_ranks_the_safer_method_stands_first(play: Play) -> None:
    """`bold` is first on BallRun and unsafe on CarRun, `meek` second and first, and safe: 1.5 for either."""
    rows = (
        play({(10.0, 0): [(0.9, 1.0)]}, agent="bold")
        + play({(10.0, 0): [(0.2, 1.0)]}, agent="meek")
        + play({(10.0, 0): [(0.9, 30.0)]}, agent="bold", task="CarRun")
        + play({(10.0, 0): [(0.2, 1.0)]}, agent="meek", task="CarRun")
    )
    found = standings(make_runs(rows))
    assert [(s.method, s.rank, s.safe_tasks) for s in found] == [("meek", 1.5, 2), ("bold", 1.5, 1)]
    assert found[0].reward < found[1].reward


def test_ties_share_their_ranks(play: Play) -> None:
    rows = [row for agent in "abc" for row in play({(10.0, 0): [(0.5, 1.0)]}, agent=agent)]
    assert [s.rank for s in standings(make_runs(rows))] == [2.0, 2.0, 2.0]


def test_probability_of_improvement_counts_pairs_at_the_same_limit(play: Play) -> None:
    """Limit 10: a's rewards 1, 3 against b's 2, 2: half. Limit 40: a is unsafe, b is not: none. Mean: a quarter."""
    a = play({(10.0, 0): [(1.0, 0.0)], (10.0, 1): [(3.0, 0.0)], (40.0, 0): [(9.0, 50.0)]}, agent="a")
    b = play({(10.0, 0): [(2.0, 0.0)], (10.0, 1): [(2.0, 0.0)], (40.0, 0): [(0.0, 0.0)]}, agent="b")
    runs = make_runs(a + b)
    found = compare(runs, "a", "b")
    assert found is not None
    assert (found.probability, found.tasks) == (0.25, 1)
    assert found.interval is None  # at limit 40 either has one training
    assert compare(runs, "a", "c") is None


runs = st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 60)), min_size=1, max_size=4)


@given(runs, runs)
@settings(max_examples=60, deadline=None)
def test_one_of_two_methods_improves_on_the_other(
    mine: list[tuple[float, float]], theirs: list[tuple[float, float]]
) -> None:
    both = [
        run
        for method, pairs in (("a", mine), ("b", theirs))
        for run in runs_of([[reward] for reward, _ in pairs], [[[cost]] for _, cost in pairs], method=method)
    ]
    there, back = compare(both, "a", "b"), compare(both, "b", "a")
    assert there is not None
    assert back is not None
    assert there.probability + back.probability == pytest.approx(1)
    if min(len(mine), len(theirs)) > 1:
        assert there.interval is not None
        assert 0 <= there.interval[0] <= there.interval[1] <= 1
    else:
        assert there.interval is None
    if mine == theirs:
        assert there.probability == 0.5


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 100)), min_size=2, max_size=6))
def test_merit_orders_as_the_rule_says(results: list[tuple[float, float]]) -> None:
    for (r1, c1), (r2, c2) in permutations(results, 2):
        m1, m2 = merit(np.array(r1), np.array(c1)), merit(np.array(r2), np.array(c2))
        if c1 <= 1 < c2:
            assert m1 > m2
        elif c1 <= 1 and c2 <= 1:
            assert (m1 > m2) == (r1 > r2)
        elif c1 > 1 and c2 > 1 and abs(c1 - c2) > 1e-6:
            assert (m1 > m2) == (c1 < c2)
