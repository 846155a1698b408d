"""A linear system with Gaussian noise and linear feedback: what an episode earns and costs has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pdocrl.data import Dataset, make_dataset
from pdocrl.ope.ensemble.fqe import System

DECAY, PUSH, NOISE, GAIN, HORIZON = 0.9, 0.3, 0.1, 0.8, 25
START = 0.6  # every episode starts at ±START
BORDER = 0.35  # the second cost is 1 beyond it


def logged(episodes: int, rng: np.random.Generator) -> Dataset:
    """s′ = 0.9 s + 0.3 a + 0.1 ε under random actions; r = s² + a², costs s² and whether |s′| > BORDER."""
    state = np.empty((episodes, HORIZON + 1))
    state[:, 0] = START * rng.choice([-1, 1], episodes)
    action = np.clip(-GAIN * state[:, :1] + rng.uniform(-1, 1, (episodes, HORIZON)), -1, 1)
    for t in range(HORIZON):
        state[:, t + 1] = DECAY * state[:, t] + PUSH * action[:, t] + NOISE * rng.standard_normal(episodes)
    before, after = state[:, :-1].ravel(), state[:, 1:].ravel()
    chosen = action.ravel()
    return make_dataset(
        obs=before,
        action=chosen,
        reward=before**2 + chosen**2,
        cost=np.stack([before**2, np.abs(after) > BORDER], axis=1),
        next_obs=after,
        terminal=np.zeros(len(before)),
        timeout=np.tile(np.arange(HORIZON) == HORIZON - 1, episodes),
    )


def act(obs: NDArray[np.floating]) -> NDArray[np.floating]:
    return -GAIN * obs


def exact() -> NDArray[np.float64]:
    """[3] sums of an episode: E s_t² = m_t² + v_t, and the normal distribution's tails."""
    from scipy.stats import norm

    keep, mean, variance, total = DECAY - PUSH * GAIN, START, 0.0, np.zeros(3)
    for _ in range(HORIZON):
        second = mean**2 + variance
        mean, variance = keep * mean, keep**2 * variance + NOISE**2
        beyond = norm.sf((BORDER - mean) / variance**0.5) + norm.cdf((-BORDER - mean) / variance**0.5)
        total += [(1 + GAIN**2) * second, second, beyond]
    return total


def quadratic(pairs: NDArray[np.floating]) -> NDArray[np.float64]:
    """1, s, a, s², sa, a²: the class that holds every value here but the border's."""
    s, a = np.asarray(pairs, np.float64).T
    return np.stack([np.ones_like(s), s, a, s * s, s * a, a * a], axis=1)


def test_fitted_q_finds_the_closed_form() -> None:
    system = System.of(logged(400, np.random.default_rng(0)), quadratic, 1e-9)
    assert system.values(act, HORIZON)[:2] == pytest.approx(exact()[:2], rel=0.1)


def test_the_end_of_an_episode_ends_its_sum() -> None:
    """Reward 1 a step, and every episode truly ends after three: three steps to go or ten are worth the same."""
    rng = np.random.default_rng(0)
    obs = np.tile(np.arange(3.0), 50)[:, None]
    ends = np.tile([0.0, 0.0, 1.0], 50)
    data = make_dataset(obs, rng.uniform(-1, 1, (150, 1)), np.ones(150), np.zeros((150, 1)), obs + 1, ends, 0 * ends)
    system = System.of(data, lambda pairs: np.eye(4)[pairs[:, 0].astype(int)], 1e-9)
    assert system.values(lambda obs: 0 * obs, 10)[0] == pytest.approx(3, abs=1e-5)
