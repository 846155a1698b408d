"""Propensities of the history, and policies tilted as far as the held-out part can test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pdocrl.approximate.multipliers import search
from pdocrl.approximate.rows import Rows
from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.limits import as_limits
from pdocrl.portfolio import history
from pdocrl.portfolio.tilted import effective_share
from tests.portfolio.conftest import LIMIT, STEPS, make_log, true_values


def rows_of(frame: pd.DataFrame) -> Rows:
    log = EventLog.read(frame, costs=["cost"], step="step", terminal="terminal", decider="decider")
    return Rows.of(log, Encoding.fit(log.columns), as_limits([f"cost<={LIMIT}"]), 1.0, STEPS)


def chances(rows: Rows, go: float) -> Any:
    table = np.full((len(rows), 2), 1 - go)
    table[:, rows.log.actions.index("go")] = go
    return table


def test_an_episode_has_the_probability_of_a_mixture_of_deciders(log: pd.DataFrame) -> None:
    rows = rows_of(log)
    each = [chances(rows, 0.8), chances(rows, 0.4)]
    prior = np.tile(np.log([0.3, 0.7]), (len(rows.starts), 1))
    table = history.of_history(rows, each, prior)
    np.testing.assert_allclose(table.sum(1), 1.0)
    logged = np.arange(len(rows)), rows.log.action
    product = [np.exp(np.bincount(rows.log.episode, np.log(one[logged]))) for one in (table, *each)]
    np.testing.assert_allclose(product[0], 0.3 * product[1] + 0.7 * product[2])


def test_weights_of_a_decider_are_bounded_by_the_share_of_episodes(log: pd.DataFrame) -> None:
    rows = rows_of(log)
    each = [chances(rows, 0.8), chances(rows, 0.4)]
    prior = np.tile(np.log([0.5, 0.5]), (len(rows.starts), 1))
    logged = np.arange(len(rows)), rows.log.action
    by_history = history.of_history(rows, each, prior)[logged]
    who = rows.log.decider
    by_decider = np.where(who == rows.log.deciders.index("bold"), each[0][logged], each[1][logged])
    assert effective_share(rows, each[0], by_history) > 0.5
    assert effective_share(rows, each[0], by_decider) < 0.5


def test_who_is_given_which_episodes_is_noticed() -> None:
    frame = make_log(300, 2).sort_values(["episode", "step"], ignore_index=True)
    assert history.Allotment.of(rows_of(frame), [0, 1], 0).beta is None
    first = frame.groupby("episode")["noise"].transform("first")
    frame["decider"] = np.where(first > 0, "bold", "shy")
    rows = rows_of(frame)
    found = history.Allotment.of(rows, [rows.log.deciders.index("bold"), rows.log.deciders.index("shy")], 0)
    assert found.beta is not None
    given = np.exp(found(rows.x[rows.starts]))[:, 0]
    assert given[first.to_numpy()[frame["step"] == 0] > 1].min() > 0.7


def test_tilted_policies_are_what_they_are_estimated_to_be(found: Any) -> None:
    tilted = [one for one in found.record.candidates if found.candidates[one.name].tilted is not None]
    assert len(tilted) >= 3
    for one in tilted:
        reward, cost = true_values(found.candidates[one.name].policy)
        assert one.held_out["cost"].overlap
        assert one.held_out["reward"].value == pytest.approx(reward, abs=0.06 + 3 * one.held_out["reward"].error)
        assert one.held_out["cost"].value == pytest.approx(cost, abs=0.12 + 3 * one.held_out["cost"].error)


def test_a_tilt_brings_more_than_the_decider_within_the_limit(found: Any) -> None:
    shy = true_values(found.candidates["shy"].policy)
    tilted = true_values(found.candidates["shy, tilted further"].policy)
    assert tilted[0] > shy[0] + 0.3
    assert tilted[1] < LIMIT


def test_policies_near_the_log_are_as_near_as_they_are_said_to_be(found: Any) -> None:
    """Σ_t KL(π ‖ everybody's clone) of an episode, at most .45 and .9 of log E of the held-out part."""
    rows = found.learner.rows
    base = found.learner.behaviour.probabilities(rows.x)
    nats = {}
    for name, one in found.candidates.items():
        if name.startswith("fitted Q near the log"):
            table = one.policy.chances(rows.x)
            each = (table * (np.log(np.maximum(table, 1e-12)) - np.log(base))).sum()
            nats[name] = each / len(rows.starts) / np.log(140)
    assert len(nats) == 4
    for name, share in nats.items():
        assert share <= (0.9 if name.endswith("further") else 0.45) + 0.01


def test_the_search_for_multipliers_ends_within_the_limit_and_near_it() -> None:
    """Reward −(x − 3)², cost x = 3 − λ/2 at the optimum: λ = 2 where x ≤ 2. Steps do not shrink for ever."""

    def trial(price: Any) -> tuple[float, Any, float]:
        x = 3 - price[0] / 2
        return float(-((x - 3) ** 2)), np.array([x - 2]), float(price[0])

    assert 2.0 <= search(trial, np.zeros(1), 0.3, 10, 100.0) < 2.2
