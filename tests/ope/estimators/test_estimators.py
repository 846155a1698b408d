"""Estimators against exact values of small MDPs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.ope.estimators import propensity
from pdocrl.ope.estimators.double_reinforcement import double
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.fqe import direct, q_values
from pdocrl.ope.estimators.importance import KINDS, per_decision, trajectory
from pdocrl.ope.estimators.linear import LinearSystem, basis, values
from pdocrl.ope.estimators.marginalised import logged, marginalised, ratios
from pdocrl.ope.estimators.problem import Estimate, Problem
from tests.ope.estimators.worlds import Floats, World

WORLD = World.random(0)


def counted_value(problem: Problem, signal: str) -> float:
    """The value of the target in the MDP of counts, by its own linear system."""
    log = problem.log
    state, action = log.columns[0].values.astype(int), log.action
    states, actions = 4, 2
    count = np.zeros((states, actions))
    total = np.zeros((states, actions))
    moved = np.zeros((states, actions, states))
    np.add.at(count, (state, action), 1)
    np.add.at(total, (state, action), log.signals[signal])
    goes_on = problem.following >= 0
    np.add.at(moved, (state[goes_on], action[goes_on], state[problem.following[goes_on]]), 1)
    moves = np.einsum("sa,saz->sz", WORLD.target, moved / count[:, :, None])
    v = np.linalg.solve(np.eye(states) - moves, (WORLD.target * total / count).sum(1))
    return float(v[state[problem.starts]].mean())


@pytest.mark.parametrize("signal", ["reward", "cost"])
def test_marginalised_is_exact_for_the_counted_mdp(signal: str) -> None:
    problem = WORLD.problem(WORLD.log(300, seed=1))
    found = marginalised(problem, signal, ridge=0.0).value
    assert found == pytest.approx(counted_value(problem, signal), abs=1e-8)


def test_weights_times_signal_is_the_value() -> None:
    problem = WORLD.problem(WORLD.log(300, seed=1))
    system = LinearSystem.of(problem, ridge=0.0)
    w = logged(problem, values(problem, system.w(problem.starts)))
    total = float(w @ problem.log.reward) / problem.episodes
    assert total == pytest.approx(counted_value(problem, "reward"), abs=1e-8)


def estimates(problem: Problem, signal: str) -> dict[str, Estimate]:
    q = q_values(problem, signal)
    found = [f(problem, signal, w) for f in (trajectory, per_decision) for w in KINDS]
    found += [doubly_robust(problem, signal, q, weighted=w) for w in (False, True)]
    found += [direct(problem, signal, q), marginalised(problem, signal), double(problem, signal, q, ratios(problem))]
    return {one.estimator: one for one in found}


def test_all_estimators_are_near_the_truth_and_most_intervals_cover_it() -> None:
    truth = WORLD.value(WORLD.cost, WORLD.target)
    logs = [estimates(WORLD.problem(WORLD.log(400, seed=s)), "cost") for s in range(30)]
    for name in logs[0]:
        errors = np.array([log[name].value for log in logs], float) - truth
        assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(30) + 0.01 * truth, name
        intervals = [log[name].interval for log in logs]
        if intervals[0] is not None:
            covered = sum(i is not None and i[0] <= truth <= i[1] for i in intervals)
            assert covered >= 24, (name, covered)


def test_importance_weights_by_hand() -> None:
    problem = WORLD.problem(WORLD.log(20, seed=2))
    log = problem.log
    by_hand, by_step = [], []
    for rows in log.episodes:
        ratio = np.array(
            [problem.target[i, log.action[i]] / problem.propensity[i] for i in range(rows.start, rows.stop)]
        )
        by_hand.append(ratio.prod() * log.reward[rows].sum())
        by_step.append(float(np.cumprod(ratio) @ log.reward[rows]))
    assert trajectory(problem, "reward", "plain").value == pytest.approx(np.mean(by_hand))
    assert per_decision(problem, "reward", "plain").value == pytest.approx(np.mean(by_step))


def test_doubly_robust_with_the_true_q_has_no_error_but_the_starts_where_nothing_is_random() -> None:
    """Without noise, and with deterministic moves and endings, every residual of the true Q is zero."""
    chain = {"episode": np.repeat(np.arange(40), 2), "action": np.tile([0, 1, 1, 0], 20)}
    log = EventLog.read({**chain, "reward": chain["action"] + 1.0})
    target = np.tile([0.25, 0.75], (80, 1))
    problem = Problem(log, target, np.full(80, 0.5), False, basis(log, time=False))
    v = np.where(log.step == 0, 3.5, 1.75)
    q = np.array([1.0, 2.0]) + np.where(log.step == 0, 1.75, 0.0)[:, None]
    np.testing.assert_allclose((target * q).sum(1), v)
    for weighted in (False, True):
        found = doubly_robust(problem, "reward", q, weighted)
        assert found.value == pytest.approx(3.5, abs=1e-12)


def test_no_overlap_gives_no_value() -> None:
    log = WORLD.log(50, seed=3)
    never: Floats = np.eye(2)[1 - log.action]
    problem = dataclasses.replace(WORLD.problem(log), target=never)
    assert trajectory(problem, "reward").value is None
    assert doubly_robust(problem, "reward", q_values(problem, "reward")).interval is None


def test_bad_probabilities_are_refused() -> None:
    log = WORLD.log(5, seed=3)
    with pytest.raises(PdocrlError, match="probabilities of row 1"):
        Problem(log, np.full((len(log), 2), 0.6), np.ones(len(log)), False, basis(log, time=False))


def test_estimated_propensities_approach_the_behaviour() -> None:
    log = WORLD.log(3000, seed=4)
    found = propensity.estimate(log, basis(log, time=False))
    truth = WORLD.behaviour[log.columns[0].values.astype(int)]
    assert np.abs(found - truth).max() < 0.05


@pytest.mark.parametrize("curved", ["trees", "network"])
def test_trees_and_networks_beat_a_line_where_q_is_curved(curved: str) -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    x, z, action = rng.uniform(-1, 1, 3000), rng.uniform(-1, 1, 3000), rng.integers(0, 2, 3000)
    log = EventLog.read({"x": x, "z": z, "action": action, "reward": np.sign(x * z) * (2.0 * action - 1)}, episode=None)
    target = np.eye(2)[(x * z > 0).astype(int)]
    problem = Problem(log, target, np.full(3000, 0.5), False, basis(log, time=False))
    line, found = (
        direct(problem, "reward", q_values(problem, "reward", kind), kind).value for kind in ("linear", curved)
    )
    assert line is not None
    assert found is not None
    assert abs(found - 1) < 0.1 < abs(line - 1)


def test_the_ridge_of_propensities_is_chosen_where_rows_of_each_action_are_few() -> None:
    """Twelve actions that no column explains: the largest ridge; two that x decides: the smallest."""
    rng = np.random.default_rng(0)
    features = np.c_[np.ones(300), rng.normal(size=(300, 6))]
    fold = np.arange(300) % 2
    nothing = propensity.chosen(features, rng.integers(0, 12, 300), 12, fold)
    assert np.abs(nothing[1:]).max() < 0.15
    decided = propensity.chosen(features, (features[:, 1] > 0).astype(np.int64), 2, fold)
    assert decided[1, 1] - decided[1, 0] > 2
