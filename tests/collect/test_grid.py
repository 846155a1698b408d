"""The grid filter over an index of episodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.collect import grid
from pdocrl.collect.episode_log import Entry
from pdocrl.errors import PdocrlError

points = st.lists(st.tuples(st.integers(0, 100), st.integers(-50, 50)), min_size=1, max_size=60)


def entries(places: list[tuple[float, float]]) -> list[Entry]:
    return [Entry((0, 0, i), 0, float(reward), (float(cost),), 1) for i, (cost, reward) in enumerate(places)]


@settings(max_examples=60, deadline=None)
@given(points, st.integers(1, 70), st.integers(0, 3))
def test_the_best_safe_episode_under_every_limit_survives(places, target, seed):
    collected = entries(places)
    wanted = grid.within(collected, [80], -20)
    if not wanted:
        with pytest.raises(PdocrlError, match="no episode has a cost of at most 80"):
            grid.choose(collected, [80], -20, target, seed)
        return
    chosen = grid.choose(collected, [80], -20, target, seed)
    assert set(chosen) <= set(wanted)
    assert len(chosen) >= min(target, len(wanted))
    for limit in range(81):
        best = max((e.reward for e in wanted if e.cost[0] <= limit), default=None)
        assert best == max((e.reward for e in chosen if e.cost[0] <= limit), default=None)


def test_every_cost_has_its_own_largest_value():
    both = [Entry((0, 0, 0), 0, 1.0, (5.0, 1.0), 1), Entry((0, 0, 1), 0, 1.0, (1.0, 5.0), 1)]
    assert grid.within(both, [5, 2]) == both[:1]


def test_coverage_counts_cells_not_episodes():
    assert grid.coverage(entries([]), [60]) == 0
    assert grid.coverage(entries([(0, 0), (0.5, 0.5), (30, 25), (60, 50), (70, 25)]), [60]) == 3
    full = [(cost + 0.5, reward * 50 / 49) for cost in range(60) for reward in range(50)]
    assert grid.coverage(entries(full), [60]) == grid.CELLS
