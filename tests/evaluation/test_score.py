"""Scores: the field's normalisation, its protocols, and intervals that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pdocrl.data import find_task
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.evaluation.normalise import normalised_cost, normalised_reward
from pdocrl.evaluation.protocols import PROTOCOLS, find_protocol, protocol_of
from pdocrl.evaluation.score import EpisodeScore, RunScore, Summary, score_run, summary_of
from pdocrl.records import as_plain
from rows import runs_of


def played(reward: ArrayLike, cost: ArrayLike, limit: float | tuple[float, ...]) -> list[RunScore]:
    return runs_of(reward, cost, (limit,) if isinstance(limit, float) else limit)


def score(*given) -> Summary:
    return summary_of(played(*given)).by_limit[0]


def score_limits(runs) -> Summary:
    return summary_of([run for limit, own in runs.items() for run in played(*own, limit)])


def test_reference_scores_are_zero_and_one():
    task = find_task("CarRun")
    assert np.array_equal(normalised_reward("CarRun", [task.reward_min, task.reward_max]), [0.0, 1.0])


@given(st.floats(0, 1e3), st.just(0.0) | st.floats(1e-6, 1e3))
def test_a_cost_is_within_its_limit_exactly_when_its_normalised_value_is_at_most_one(cost: float, limit: float):
    assert (normalised_cost(cost, limit) <= 1) == (cost <= limit) or np.isclose(cost, limit, rtol=1e-12, atol=1e-15)


def test_one_is_added_on_both_sides_at_limit_zero_only():
    """At limit 10 DSRL's formula is plainly C/10; a shift there would call a cost of 10.5 less than it is."""
    assert normalised_cost(10.5, 10.0) == 1.05
    assert normalised_cost([0.0, 3.0], 0.0).tolist() == [1.0, 4.0]
    assert normalised_cost([[3.0, 5.0]], [0.0, 10.0]).tolist() == [[4.0, 0.5]]


def test_protocols_are_those_of_the_field():
    assert {name: (p.limits, p.episodes, len(p.seeds)) for name, p in PROTOCOLS.items()} == {
        "dsrl": ((10, 20, 40), 20, 3),
        "paper": ((20, 40, 80), 20, 3),
        "tight": ((5,), 20, 3),
    }
    with pytest.raises(UnknownNameError, match="Did you mean `tight`"):
        find_protocol("tigth")


def test_safe_is_decided_by_the_mean_not_by_single_episodes():
    assert score([0.5, 0.5], [1.0, 19.0], 10.0).safe
    assert not score([0.5, 0.5], [1.0, 19.1], 10.0).safe


def test_with_several_constraints_the_worst_decides():
    result = score(np.zeros((2, 3)), np.tile([5.0, 12.0], (2, 3, 1)), (10.0, 8.0))
    assert result.costs == [0.5, 1.5]
    assert (result.cost, result.safe) == (1.5, False)


def test_a_task_without_costs_is_safe():
    result = score(np.ones((1, 4)), np.zeros((1, 4, 0)), ())
    assert (result.reward, result.cost, result.safe) == (1.0, 0.0, True)


def test_the_mean_over_limits_is_the_mean_of_the_limits_scores():
    rng = np.random.default_rng(0)
    runs = {limit: (rng.random((3, 20)), rng.random((3, 20)) * 2 * limit) for limit in (10.0, 20.0, 40.0)}
    scores = score_limits(runs)
    assert scores.reward == pytest.approx(np.mean([s.reward for s in scores.by_limit]))
    assert scores.cost == pytest.approx(np.mean([s.cost for s in scores.by_limit]))
    assert scores.safe == (scores.cost <= 1)
    assert scores.safe_limits == sum(s.safe for s in scores.by_limit)
    assert as_plain(scores)["by_limit"][1]["limit"] == [20.0]


def test_a_safe_mean_can_hide_an_unsafe_limit():
    runs = {10.0: ([0.0], [15.0]), 40.0: ([0.0], [4.0])}
    scores = score_limits(runs)
    assert scores.safe
    assert scores.safe_limits == 1


def test_the_same_episodes_give_the_same_interval_around_their_mean():
    rng = np.random.default_rng(1)
    reward, cost = rng.normal(size=(3, 20)), rng.random((3, 20, 1))
    first, again = score(reward, cost, 1.0), score(reward, cost, 1.0)
    assert first == again
    assert first.reward_interval[0] < first.reward < first.reward_interval[1]
    assert first.cost_interval[0] < first.cost < first.cost_interval[1]


def test_a_sentence_has_the_interval_of_the_cost_too():
    result = score([[0.4, 0.4], [0.6, 0.6]], [[5.0, 5.0], [10.0, 10.0]], 10.0)
    said = "reward 0.500 [-0.77, 1.77], cost 0.750 [0.00, 3.93], safe at 1 of 1 limits"
    assert result.sentence() == f"{said}; over the limit on average: 0 of 2 trainings [0, 84] %"
    one = score([0.4, 0.6], [5.0, 10.0], 10.0)
    assert "cost 0.750 [0.00, 3.93] episodes, safe at 1 of 1 limits" in one.sentence()


def test_differences_between_runs_widen_the_interval():
    """Episodes that agree within a run tell little when the runs disagree."""
    agreeing = score(np.full((3, 20), 0.5), np.zeros((3, 20)), 1.0)
    disagreeing = score(np.repeat([[0.0], [0.5], [1.0]], 20, axis=1), np.zeros((3, 20)), 1.0)
    assert agreeing.reward_interval == (0.5, 0.5)
    assert disagreeing.reward_interval[1] - disagreeing.reward_interval[0] > 0.6


def test_the_worst_constraint_is_that_of_the_largest_mean_not_the_mean_of_each_run_s_worst():
    """Two runs, each over another limit: both constraints average 1, each run's worst averages 2."""
    cost = np.array([[[2.0, 0.0]], [[0.0, 2.0]]])
    result = score(np.zeros((2, 1)), cost, (1.0, 1.0))
    assert (result.cost, result.costs, result.safe) == (1.0, [1.0, 1.0], True)


def test_a_protocol_is_its_limits_seeds_and_episodes():
    limits, seeds = [[10.0], [40.0], [20.0]], [5, 0, 10]
    assert protocol_of(limits, seeds, 20) == "dsrl"
    assert protocol_of(limits, [*seeds, 15, 20], 20) == "dsrl"  # more seeds tell the same number better
    assert protocol_of(limits, [0, 1, 2], 20) == protocol_of(limits, seeds, 10) == "custom"
    assert protocol_of([[10.0, 5.0]], seeds, 20) == "custom"


@pytest.mark.parametrize(
    ("reward", "cost", "limit", "complaint"),
    [
        ([1.0], [[1.0, 2.0]], (10.0,), "2.*cannot be scored at 1 cost limits"),
        ([1.0], [[1.0]], (10.0, 20.0), "cannot be scored at 2 cost limits"),
        ([], [], (10.0,), "0 episodes"),
        ([np.nan], [[1.0]], (10.0,), "not finite"),
        ([1.0], [[np.inf]], (10.0,), "not finite"),
        ([1.0], [[1.0]], (-3.0,), "at least 0"),
        ([1.0], [[1.0]], (float("nan"),), "at least 0"),
    ],
)
def test_what_cannot_be_scored_says_why(reward, cost, limit, complaint: str):
    episodes = [
        EpisodeScore(seed=0, reward=earned, cost=paid, length=1, normalized_reward=earned, normalized_cost=0.0)
        for earned, paid in zip(reward, cost, strict=True)
    ]
    with pytest.raises(PdocrlError, match=complaint):
        score_run(episodes, limit, agent="a", run=0, training=0, trained_limit=[], seed=0, settings={}, failure=None)


def test_the_tail_counts_episodes_over_in_any_constraint_and_averages_the_costliest_tenth():
    costs = np.zeros((2, 20, 2))
    costs[0, :3, 0], costs[1, 0, 1] = [11, 12, 30], 6
    found = score(np.zeros((2, 20)), costs, (10.0, 5.0)).tail
    assert (found.over, found.episodes, found.share) == (4, 40, 0.1)
    assert found.cvar == pytest.approx((1.1 + 1.2 + 3.0 + 0) / 4)  # of the constraint whose mean is the larger
    assert found.words()[0] == "4 of 40 (10 %)"


def test_the_tail_of_several_limits_pools_their_episodes():
    runs = {10.0: (np.zeros(10), np.full(10, 20.0)), 40.0: (np.zeros(10), np.full(10, 20.0))}
    found = score_limits(runs).tail
    assert (found.over, found.episodes) == (10, 20)
    assert found.cvar == pytest.approx((2.0 + 0.5) / 2)
