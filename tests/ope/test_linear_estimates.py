"""Fitted Q evaluation and the density ratio where the right answer is known exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdocrl.data import Dataset, make_dataset
from pdocrl.ope import bootstrap, fqe, ratio
from pdocrl.ope.linear import Followed, System
from pdocrl.ope.log import Log

EXACT = 1e-12  # ridge that regularises nothing


@dataclasses.dataclass(frozen=True)
class Finite:
    """A finite problem: S states, two actions, a policy, K costs; some steps end the episode for good."""

    move: NDArray[np.float64]  # [S, 2, S] the rest of a row's probability is the end
    signal: NDArray[np.float64]  # [S, 2, 1 + K]
    chosen: NDArray[np.int64]  # [S] the policy's action
    horizon: int

    @staticmethod
    def draw(states: int, costs: int, horizon: int, ends: bool, rng: np.random.Generator) -> Finite:
        move = rng.dirichlet(np.full(states, 0.7), size=(states, 2)) * (0.9 if ends else 1.0)
        return Finite(move, rng.normal(size=(states, 2, 1 + costs)), rng.integers(2, size=states), horizon)

    def log(self, episodes: int, rng: np.random.Generator) -> Dataset:
        """Episodes under random actions from uniform starts; states and actions are written as numbers."""
        rows = []
        for _ in range(episodes):
            s = int(rng.integers(len(self.move)))
            for t in range(self.horizon):
                a = int(rng.integers(2))
                chances = np.append(self.move[s, a], max(0.0, 1 - self.move[s, a].sum()))
                to = int(rng.choice(len(chances), p=chances / chances.sum()))
                ended = to == len(self.move)
                following = s if ended else to
                rows.append((s, a, *self.signal[s, a], following, ended, t == self.horizon - 1 and not ended))
                if ended:
                    break
                s = to
        table = np.asarray(rows, np.float64)
        return make_dataset(
            obs=table[:, 0],
            action=table[:, 1],
            reward=table[:, 2],
            cost=table[:, 3:-3],
            next_obs=table[:, -3],
            terminal=table[:, -2],
            timeout=table[:, -1],
        )

    def act(self, obs: NDArray[np.floating]) -> NDArray[np.float64]:
        return self.chosen[obs[:, 0].astype(int)][:, None].astype(np.float64)

    def features(self, pairs: NDArray[np.floating]) -> NDArray[np.float64]:
        """One-hot of (s, a)."""
        return np.eye(2 * len(self.move))[(2 * pairs[:, 0] + pairs[:, 1]).astype(int)]

    def exact(self, start: NDArray[np.float64]) -> NDArray[np.float64]:
        """[1 + K] the expected sums of an episode from the distribution of starts [S], by enumeration."""
        rows = np.arange(len(self.move))
        value = np.zeros((len(rows), self.signal.shape[2]))
        for _ in range(self.horizon):
            value = self.signal[rows, self.chosen] + self.move[rows, self.chosen] @ value
        return start @ value

    def empirical(self, log: Log) -> tuple[Finite, NDArray[np.float64]]:
        """The problem as counted in the log, and its distribution of starts."""
        counts, move, signal = np.zeros((len(self.move), 2)), np.zeros_like(self.move), np.zeros_like(self.signal)
        s, a, to = log.obs[:, 0].astype(int), log.action[:, 0].astype(int), log.next_obs[:, 0].astype(int)
        np.add.at(counts, (s, a), 1)
        np.add.at(move, (s, a, to), log.not_done)
        np.add.at(signal, (s, a), log.signal)
        seen = np.maximum(counts, 1)[..., None]
        start = np.bincount(log.start[:, 0].astype(int), minlength=len(self.move)) / len(log.start)
        return dataclasses.replace(self, move=move / seen, signal=signal / seen), start


def both(problem: Finite, log: Log) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[1 + K] by fitted Q evaluation and by the density ratio."""
    followed = Followed.of(System.of(log, problem.features, EXACT), problem.act)
    value, _, _ = fqe.backward(followed, problem.horizon)
    weights = ratio.forward(followed, problem.horizon)
    return value.mean(axis=0), weights.sum(axis=0) @ log.signal


@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(2, 6),
    costs=st.integers(0, 2),
    horizon=st.integers(1, 30),
    ends=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_both_equal_exact_evaluation_of_the_counted_model(
    seed: int, states: int, costs: int, horizon: int, ends: bool
) -> None:
    """With one-hot features the value, the ratio's sum, and enumeration in the empirical model are one number."""
    rng = np.random.default_rng(seed)
    problem = Finite.draw(states, costs, horizon, ends, rng)
    log = Log.of(problem.log(80 + 400 // horizon, rng))
    counted, start = problem.empirical(log)
    expected = counted.exact(start)
    by_value, by_ratio = both(problem, log)
    np.testing.assert_allclose(by_value, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_ratio, expected, rtol=1e-6, atol=1e-6)


def test_weights_add_up_to_the_steps_of_an_episode_and_are_a_density() -> None:
    """Without terminals every step weighs one in all; with them, the share of episodes still going on."""
    rng = np.random.default_rng(0)
    for ends in (False, True):
        problem = Finite.draw(4, 1, 12, ends, rng)
        log = Log.of(problem.log(200, rng))
        weights = ratio.forward(Followed.of(System.of(log, problem.features, EXACT), problem.act), 12)
        assert (weights >= 0).all()
        each = weights.sum(axis=1)
        if ends:
            assert (np.diff(each) < 0).all()
            counted, start = problem.empirical(log)
            going = dataclasses.replace(counted, signal=np.ones_like(counted.signal)).exact(start)[0]
            assert each.sum() == pytest.approx(going, abs=1e-6)
        else:
            np.testing.assert_allclose(each, 1, atol=1e-9)


def test_first_order_bootstrap_is_the_refit_when_few_episodes_change() -> None:
    """Counting one episode twice moves the refitted value by that episode's influence, to second order."""
    rng = np.random.default_rng(3)
    problem = Finite.draw(3, 1, 8, True, rng)
    dataset = problem.log(400, rng)
    log = Log.of(dataset)
    followed = Followed.of(System.of(log, problem.features, EXACT), problem.act)
    value, theta, following = fqe.backward(followed, 8)
    psi = bootstrap.influence(followed, value, theta, following, ratio.forward(followed, 8))
    moved = []
    for episode in range(40):
        twice = dataset.episodes([*range(dataset.n_episodes), episode])
        moved.append(both(problem, Log.of(twice))[0] - value.mean(axis=0))
    moved = np.asarray(moved)
    assert np.abs(moved - psi[:40]).max() < 0.05 * np.abs(moved).max()


def test_intervals_cover_the_true_value_about_as_often_as_they_say() -> None:
    """120 logs of 60 episodes from one world: the 95 % interval holds the world's own value in most of them.

    A nominal 95 % with 120 trials would be below 88 % once in two thousand times; first-order intervals are a little
    narrow in small logs.
    """
    rng = np.random.default_rng(7)
    problem = Finite.draw(4, 1, 10, False, rng)
    truth = problem.exact(np.full(4, 1 / 4))
    hits = []
    for _ in range(120):
        log = Log.of(problem.log(60, rng))
        followed = Followed.of(System.of(log, problem.features, EXACT), problem.act)
        interval = bootstrap.estimates(followed, 10, rng)[0]["fqe"].interval
        hits.append((interval[:, 0] <= truth) & (truth <= interval[:, 1]))
    rate = np.mean(hits, axis=0)
    print("coverage of the 95 % interval (reward, cost):", rate)
    assert (rate >= 0.88).all()


def test_effective_sample_size_counts_rows_of_equal_weight() -> None:
    """Ten rows of one weight are ten; one row that carries everything is one; none at all is zero."""
    assert ratio.effective_sample_size(np.full((3, 10), 0.1)) == pytest.approx(10)
    assert ratio.effective_sample_size(np.eye(1, 10)) == pytest.approx(1)
    assert ratio.effective_sample_size(np.zeros((2, 5))) == 0
