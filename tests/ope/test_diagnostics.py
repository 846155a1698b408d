"""What a log cannot carry is said in one line: propensities that do not fit, copies, drift, no overlap."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.ope.drift import drift
from tests.ope.estimators.worlds import World

WORLD = World.random(0)
LOG = WORLD.log(300, seed=1)
ROWS: dict[str, Any] = {"x": np.tile([0.0, 1.0, 2.0], 40), "action": np.tile([0, 1], 60), "reward": np.arange(120.0)}


def constant(columns: dict[str, Any]) -> Any:
    return np.zeros(len(columns["x"]), int)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"p": np.full(120, 0.0)}, {"propensity": "p"}, r"column `p`, row 1 .*probability in \(0, 1\]"),
        ({"p": np.full(120, 1.5)}, {"propensity": "p"}, r"1.5, expected a probability in \(0, 1\]"),
        ({"p": np.r_[np.nan, np.full(119, 0.5)]}, {"propensity": "p"}, "a missing value"),
        ({"p": np.full(120, 0.02)}, {"propensity": "p"}, "less probability than their plain frequencies"),
        ({"reward": np.r_[np.nan, np.ones(119)]}, {}, "column `reward`, row 1"),
        ({"action": np.r_[[None], np.tile([0, 1], 60)[1:]]}, {}, "column `action`, row 1"),
        ({"episode": np.zeros(120)}, {"episode": "episode"}, "one episode tells nothing"),
        ({}, {"step": "tt"}, "no column `tt`"),
        ({}, {"confidence": 95}, "number between 0 and 1"),
        ({}, {"limits": "coast<=1"}, "unknown cost column 'coast'|no column `coast`"),
        ({}, {"limits": "CVaR(cost)<=1"}, "is not understood"),
    ],
)
def test_bad_input_is_one_line(change: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(PdocrlError, match=says) as error:
        pdocrl.ope(constant, ROWS | change, **({"episode": None} | options))
    assert "\n" not in str(error.value)


def test_propensities_of_the_other_action_are_refused() -> None:
    assert LOG.propensity is not None
    strong = dataclasses.replace(WORLD, behaviour=np.tile([0.9, 0.1], (4, 1)))
    log = strong.log(200, seed=3)
    assert log.propensity is not None
    with pytest.raises(PdocrlError, match="must be the probability of the logged action"):
        pdocrl.ope("new", dataclasses.replace(log, propensity=1 - log.propensity))


def test_no_overlap_constant_rewards_and_copies_are_warned_of() -> None:
    never = np.eye(2)[1 - LOG.action]
    flat = dataclasses.replace(LOG, reward=np.ones(len(LOG)))
    report = pdocrl.ope({"never": never}, flat, "cost<=1")
    assert report.policies[0].verdict == "not shown"
    assert "no overlap" in report.policies[0].warnings[0]
    assert any("all rewards are 1" in line for line in report.warnings)
    twice = np.r_[np.arange(len(LOG)), np.arange(len(LOG))]
    long = int((np.bincount(LOG.episode) >= 3).sum())
    copied = pdocrl.ope("new", LOG.take(twice))
    assert any(line.startswith(f"{long} of 600 episodes are copies") for line in copied.warnings)


def test_a_cost_that_never_occurred_has_no_verdict() -> None:
    free = dataclasses.replace(LOG, costs={"cost": np.zeros(len(LOG))})
    told = pdocrl.ope(WORLD.target_rows(LOG), free, "cost<=1").policies[0].limits[0]
    assert told.verdict == "not shown"
    assert "never occurred" in told.why


def test_drift_is_seen_where_there_is_some_and_seldom_where_there_is_none() -> None:
    assert sum(bool(drift(WORLD.log(150, seed=2 * i), WORLD.log(150, seed=2 * i + 1))) for i in range(20)) <= 1
    dearer = dataclasses.replace(WORLD, cost=np.minimum(WORLD.cost + 0.3, 1))
    assert any("`cost`" in line for line in drift(LOG, dearer.log(300, seed=9)))
    moved = dataclasses.replace(WORLD, transitions=WORLD.transitions[:, ::-1])
    assert any("next `s=" in line for line in drift(WORLD.log(800, seed=4), moved.log(800, seed=5)))
    acting = dataclasses.replace(WORLD, behaviour=WORLD.target)
    assert drift(WORLD.log(400, seed=6), acting.log(400, seed=7)) == []


def test_a_log_read_from_columns_is_judged_like_one_that_was_read() -> None:
    columns = {"s": LOG.columns[0].raw(), "action": np.array(LOG.actions)[LOG.action], "episode": LOG.episode}
    columns |= {"reward": LOG.reward, "stockout": LOG.costs["cost"], "p": LOG.propensity, "new": LOG.extras["new"]}
    told = pdocrl.ope("new", columns, "stockout<=4", propensity="p")
    again = pdocrl.ope("new", dataclasses.replace(LOG, name="the log"), "cost<=4")
    assert told.costs == ["stockout"]
    assert told.policies[0].of("weighted doubly robust") == again.policies[0].of("weighted doubly robust")
    with pytest.raises(PdocrlError, match="is read already"):
        pdocrl.ope("new", LOG, propensity="p")


def test_event_logs_are_needed_for_event_log_options() -> None:
    with pytest.raises(PdocrlError, match="give a log"):
        pdocrl.ope(constant)
    assert isinstance(LOG, EventLog)


def test_why_nothing_is_shown_names_what_is_missing() -> None:
    """Nobody took in the first steps what the policy always takes."""
    log = {
        "episode": np.repeat(np.arange(100), 4),
        "x": np.tile(np.arange(4), 100),
        "action": ["a", "a", "a", "b"] * 100,
    }
    log |= {"reward": np.zeros(400), "cost": np.arange(400) % 3 == 0}
    always = pdocrl.ope(lambda columns: np.array(["b"] * len(columns["x"])), log, ["cost<=1", "P(cost>1)<=0.5"])
    assert {v.why for v in always.policies[0].limits} == {"no overlap: no logged episode follows the policy to its end"}
