"""From logs of real-valued states to policies: every door, what comes back, and what it is worth in truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pdocrl import approximate
from pdocrl.approximate.certificate import certify, lower_value
from pdocrl.approximate.classes import FunctionClass, StateBasis
from pdocrl.approximate.features import Fourier, OneHot, Polynomial, SoftCells, Trees, make_features
from pdocrl.approximate.game import Game
from pdocrl.approximate.lp import best_response, saddle_lp
from pdocrl.approximate.smoothed import smoothed_saddles
from pdocrl.approximate.softmax_policy import LinearPolicy
from pdocrl.data import make_dataset
from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.tabular import Lagrangian, random_cmdp

GAMMA = 0.9


def move(x: np.ndarray, a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.clip(x + 0.15 * (a - 1)[:, None] + 0.05 * rng.normal(size=x.shape), 0, 1)


def reward(x: np.ndarray) -> np.ndarray:
    return x[:, 0]


def cost(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] > 0.7).astype(float)


def walk(episodes: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """A walker on [0, 1] pushed left, nowhere or right: the right pays, and the rightmost third costs."""
    rng = np.random.default_rng(seed)
    x, parts = rng.uniform(size=(episodes, 1)), []
    for t in range(length):
        a = rng.integers(3, size=episodes)
        y = move(x, a, rng)
        parts.append((x, a, y, reward(x), cost(x), np.full(episodes, t == 0)))
        x = y
    arrays = (np.concatenate([part[i] for part in parts]) for i in range(6))
    return dict(zip(("state", "action", "next_state", "reward", "costs", "initial"), arrays, strict=True))


def played(policy: LinearPolicy, episodes: int = 3000, length: int = 60) -> np.ndarray:
    """(1−γ)J of reward and cost, by simulation."""
    rng = np.random.default_rng(1)
    x, total = rng.uniform(size=(episodes, 1)), np.zeros(2)
    for t in range(length):
        chances = policy.probabilities(x)
        a = (chances.cumsum(axis=1) > rng.random((episodes, 1))).argmax(axis=1)
        total += (1 - GAMMA) * GAMMA**t * np.array([reward(x).mean(), cost(x).mean()])
        x = move(x, a, rng)
    return total


@pytest.fixture(scope="module")
def solved() -> approximate.Solved:
    return approximate.solve(walk(40, 20, 0), GAMMA, ["cost<=0.1"], size=12)


def test_a_policy_on_real_valued_states_keeps_its_limit_in_truth(solved: approximate.Solved) -> None:
    value, paid = played(solved.policy)
    log_value, log_paid = played(approximate.solve(walk(40, 20, 0), GAMMA, size=1).policy)
    assert solved.status == "optimal"
    assert solved.gap <= 0.01
    assert solved.costs[0] == pytest.approx(0.1, abs=1e-3)
    assert paid == pytest.approx(0.1, abs=0.03)
    assert value == pytest.approx(solved.value, abs=0.04)
    assert solved.multipliers[0] > 0.1
    free, free_paid = played(approximate.solve(walk(40, 20, 0), GAMMA, size=12).policy)
    assert free > value + 0.05
    assert free_paid > 0.3
    assert log_value < free
    assert log_paid < free_paid


def test_newton_agrees_with_the_linear_program() -> None:
    log = walk(8, 15, 3)
    exact = approximate.solve(log, GAMMA, ["cost<=0.15"], size=6, B=3.0, method="lp")
    smooth = approximate.solve(log, GAMMA, ["cost<=0.15"], size=6, B=3.0, method="newton")
    assert exact.upper <= smooth.upper + 1e-9
    assert smooth.upper == pytest.approx(exact.upper, abs=2e-3)
    assert smooth.lower <= exact.upper + 1e-9
    assert smooth.gap <= 2e-3
    assert smooth.multipliers[0] == pytest.approx(exact.multipliers[0], abs=0.05)


def test_regularised_points_are_certified_and_close_in() -> None:
    cmdp = random_cmdp(6, 3, 2, 0.9, seed=1)
    rng = np.random.default_rng(0)
    L = Lagrangian.population(cmdp, rng.dirichlet(np.ones(18)).reshape(6, 3))
    basis = StateBasis(rng.uniform(size=(6, 3)), 3)
    game = Game(L, FunctionClass.box(basis, 0.0, 2.0), FunctionClass.box(basis, -20.0, 30.0), 2.0)
    value = certify(game, saddle_lp(game)).lower
    gaps = []
    for found in smoothed_saddles(game):
        ends = certify(game, found.point)
        assert ends.lower - 1e-8 <= value <= ends.upper + 1e-8
        gaps.append(ends.gap)
    assert gaps[-1] < 1e-3 < gaps[0] / 100
    answer = best_response(game, found.pi)
    assert lower_value(game, answer.theta_w, answer.nu) >= ends.lower - 1e-9


def test_a_saved_solution_acts_the_same(solved: approximate.Solved, tmp_path: Path) -> None:
    solved.save(tmp_path / "solved.json")
    again = approximate.Solved.load(tmp_path / "solved.json")
    x = np.linspace(0, 1, 7)[:, None]
    assert again == solved
    np.testing.assert_array_equal(again.policy.probabilities(x), solved.policy.probabilities(x))
    assert again.policy.act([0.99]) == 0
    assert again.policy.act([0.05], np.random.default_rng(0)) in (0, 1, 2)


def test_every_door_gives_the_same() -> None:
    log = walk(6, 10, 2)
    order = np.lexsort((np.repeat(np.arange(10), 6), np.tile(np.arange(6), 10)))  # whole episodes one after another
    log = {key: values[order] for key, values in log.items()}
    last = np.arange(60) % 10 == 9
    of_arrays = approximate.solve(log, GAMMA, ["cost<=0.2"], size=4, B=2.0, method="lp")
    data = make_dataset(
        obs=log["state"].astype(np.float32),
        action=log["action"],
        reward=log["reward"],
        cost=log["costs"],
        next_obs=log["next_state"].astype(np.float32),
        terminal=np.zeros(60, bool),
        timeout=last,
        discrete_actions=3,
    )
    of_dataset = approximate.solve(data, GAMMA, ["cost<=0.2"], size=4, B=2.0, method="lp")
    assert of_dataset.upper == pytest.approx(of_arrays.upper, abs=1e-4)
    events = EventLog.read(
        {
            "x": log["state"][:, 0],
            "action": np.array(["left", "stay", "right"])[log["action"]],
            "reward": log["reward"],
            "cost": log["costs"],
            "episode": np.repeat(np.arange(6), 10),
            "end": np.zeros(60, bool),
        },
        terminal="end",
    )
    with pytest.warns(UserWarning, match="6 last rows of cut episodes"):
        of_events = approximate.solve(events, GAMMA, ["cost<=0.2"], size=4, B=2.0, method="lp")
    assert of_events.rows == 54
    assert of_events.policy.act([0.0]) in ("left", "stay", "right")


def test_what_cannot_be_solved_is_refused_in_one_line() -> None:
    log = walk(4, 5, 0)
    with pytest.raises(PdocrlError, match="is on a tail"):
        approximate.solve(log, GAMMA, ["P(cost>3)<=0.1"], size=2)
    with pytest.raises(PdocrlError, match="method"):
        approximate.solve(log, GAMMA, method="simplex")  # type: ignore[arg-type]
    with pytest.raises(PdocrlError, match="missing"):
        approximate.solve({"state": log["state"]}, GAMMA)
    broken = {**log, "state": np.where(np.arange(20)[:, None] == 3, np.nan, log["state"])}
    with pytest.raises(PdocrlError, match="row 4"):
        approximate.solve(broken, GAMMA)
    continuous = make_dataset(
        obs=log["state"].astype(np.float32),
        action=np.zeros((20, 1), np.float32),
        reward=log["reward"],
        cost=log["costs"],
        next_obs=log["next_state"].astype(np.float32),
        terminal=np.zeros(20, bool),
        timeout=np.arange(20) % 5 == 4,
    )
    with pytest.raises(PdocrlError, match="continuous"):
        approximate.solve(continuous, GAMMA)


@pytest.mark.parametrize(
    ("kind", "size"), [("one_hot", 1), ("cells", 9), ("trees", 32), ("fourier", 20), ("polynomial", 3)]
)
def test_features_are_bounded_and_partitions_sum_to_one(kind: str, size: int) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(200, 2)), np.full((200, 1), 5.0)], axis=1)
    features = make_features(kind, x, size, seed=0)  # type: ignore[arg-type]
    phi = features(x if kind == "one_hot" else np.concatenate([x, 100 * x]))
    dense = np.asarray(phi.toarray() if hasattr(phi, "toarray") else phi)
    assert dense.shape[1] == features.size
    assert dense.min() >= 0
    assert dense.max() <= 1 + 1e-12
    if features.partition:
        np.testing.assert_allclose(dense.sum(axis=1), 1.0, atol=1e-12)
    assert np.linalg.matrix_rank(dense) > 1
    assert {type(features)} <= {OneHot, SoftCells, Trees, Fourier, Polynomial}


def test_a_state_without_features_plays_the_mix_of_the_log() -> None:
    rng = np.random.default_rng(0)
    log = {
        "state": np.array([[0.0], [1.0]] * 20),
        "action": rng.integers(2, size=40),
        "next_state": np.array([[1.0], [0.0]] * 20),
        "reward": rng.uniform(size=40),
    }
    found = approximate.solve(log, GAMMA, features="one_hot")
    share = np.bincount(log["action"]) / 40
    np.testing.assert_allclose(found.policy.probabilities([7.0]), share)
    with pytest.raises(PdocrlError, match="shape"):
        found.policy.probabilities([1.0, 2.0])
