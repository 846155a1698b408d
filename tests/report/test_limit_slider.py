"""The slider of a training's page: what stands at each of its positions."""

from __future__ import annotations

import dataclasses
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from pdocrl.report.limit_slider import find_stops, limit_slider
from pdocrl.report.pictures import asked_and_played
from pdocrl.report.record import read_results


@pytest.fixture
def record(make_run):
    return read_results(make_run({1.0: [0.0, 1.0], 3.0: [2.0, 6.0]}))


def serving(record):
    """The same training with policies that serve every limit: a setting at each whole cost up to 8, 10 a unit of it."""
    cost = np.arange(9.0)[:, None]
    network = SimpleNamespace(
        max_episode_cost=np.array([8.0]),
        relative_return=np.ones(9),
        target_cost=cost,
        cost_cap=cost,
        reward=10 * cost[:, 0],
        bound=cost,
        setting=lambda limit: np.floor(limit[:, 0]).astype(int),
    )
    return dataclasses.replace(record, trained=dataclasses.replace(record.trained, policies=[network] * 4))


def test_a_policy_of_one_limit_stops_where_it_was_trained(record):
    assert [(stop.limit, stop.predicted, stop.played.safe) for stop in find_stops(record)] == [
        (1.0, None, True),
        (3.0, None, False),
    ]


def test_a_policy_for_every_limit_is_predicted_at_all_and_played_at_some(record):
    stops = find_stops(serving(record))
    assert (stops[0].limit, stops[-1].limit) == (0.0, 8.0)
    assert all(stop.predicted == (10 * np.floor(stop.limit), np.floor(stop.limit)) for stop in stops)
    assert [stop.limit for stop in stops if stop.played is not None] == [1.0, 3.0]
    assert find_stops(serving(record))[-2].targets == "relative return 1.00, target cost 7.0, cost cap 7.0"


def test_every_position_has_its_numbers_and_places(record):
    slider = limit_slider(serving(record), film=False)
    assert slider is not None
    at = {stop["limit"]: stop for stop in slider.stops}
    assert slider.stops[slider.start]["limit"] == "1"
    assert [name for _, name in slider.jumps] == ["1", "3"]
    assert at["3"]["cells"] == [["30", "at most 3.0", "", ""], ["1", "4.0", "2 of 4 (50 %), 95 % [7, 93] %", "6.0"]]
    assert (at["3"]["verdict"], at["1"]["verdict"], at["2"]["verdict"]) == ("no", "yes", "")
    assert at["2"]["at"]["plane-played"] is None
    lines = [stop["at"]["cost-limit"][0] for stop in slider.stops]
    assert lines == sorted(set(lines))  # the line moves right with every position


@pytest.mark.parametrize("costs", [{1.0: [0.0, 1.0], 3.0: [2.0, 6.0]}, {1.0: [0.5, 0.5], 3.0: [0.5, 0.5]}])
def test_no_mark_lies_on_another_and_over_the_limit_is_hollow_also_at_the_largest(make_run, costs):
    record = read_results(make_run(costs))
    drawings = [*limit_slider(record, film=False).drawings.values(), asked_and_played(record)["Toy"]]
    mark = r'<use href="#mark-\d" class="s0( hollow)?" x="([\d.]+)" y="([\d.]+)"'
    for svg in re.findall(r"<svg.*?</svg>", "".join(drawings), re.DOTALL):
        found = re.findall(mark, svg)
        assert [bool(hollow) for hollow, *_ in found] == [False, costs[3.0] == [2.0, 6.0]]
        assert math.dist(*((float(x), float(y)) for _, x, y in found)) >= 9.8


def test_two_constraints_have_no_slider(make_run):
    assert limit_slider(read_results(make_run(n_costs=2)), film=False) is None
