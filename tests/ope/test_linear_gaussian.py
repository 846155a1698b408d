"""A linear system with Gaussian noise and linear feedback: what an episode earns and costs has a closed form."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pdocrl.data import Dataset, make_dataset
from pdocrl.ope import bootstrap, model
from pdocrl.ope.linear import Followed, System
from pdocrl.ope.log import Log

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


def test_fitted_q_and_ratio_find_the_closed_form() -> None:
    """With quadratic features reward and first cost are realisable; their estimates lie within 4 standard errors."""
    rng = np.random.default_rng(0)
    log = Log.of(logged(150, rng))
    found, rows = bootstrap.estimates(Followed.of(System.of(log, quadratic, 1e-10), act), HORIZON, rng)
    truth = exact()[:2]
    for name in ("fqe", "ratio"):
        error = np.abs(found[name].value[:2] - truth)
        assert (error < 4 * found[name].resampled[:, :2].std(axis=0) + 0.02 * truth).all(), name
    assert 50 < rows < len(log)


def test_models_find_the_closed_form_noise_and_border_included() -> None:
    """The noise feeds s² and carries s′ beyond the border: without it, reward and first cost would be 61 % of this.

    Two neighbours are a small sample of the noise, so estimates vary from log to log, and their intervals say so.
    """
    rng = np.random.default_rng(1)
    log = Log.of(logged(400, rng))
    models = model.Models.fit(log, 12, rng, starts=20)
    found, outside = model.estimates(models, [act], HORIZON, rng)[0]
    truth = exact()
    spread = found.resampled.std(axis=0)
    assert (np.abs(found.value - truth) < 2.5 * spread).all()
    assert (spread[:2] < 0.4 * truth[:2]).all()
    assert (found.value > 0.8 * truth).all()
    assert outside < 0.05
    assert [head.column for head, _ in models.heads] == [2]
    assert models.heads[0][0].reached  # the border is drawn on s′, and that was found out


def test_a_policy_the_data_does_not_know_is_outside_it() -> None:
    """Actions of ±5, where the data has ±1, are outside at every step."""
    rng = np.random.default_rng(2)
    log = Log.of(logged(100, rng))
    models = model.Models.fit(log, 2, rng)
    known, unknown = model.estimates(models, [act, lambda obs: np.full_like(obs, 5.0)], HORIZON, rng)
    assert known[1] < 0.1
    assert unknown[1] == pytest.approx(1.0)


def test_what_a_policy_is_told_does_not_depend_on_its_company() -> None:
    rng = np.random.default_rng(4)
    models = model.Models.fit(Log.of(logged(40, rng)), 3, rng)
    alone = model.estimates(models, [act], HORIZON, np.random.default_rng(0))[0][0]
    beside = model.estimates(models, [lambda obs: obs, act], HORIZON, np.random.default_rng(0))[1][0]
    np.testing.assert_allclose(alone.resampled, beside.resampled, rtol=1e-4)


def test_the_end_of_an_episode_ends_its_sum() -> None:
    """Where one step in four ends the episode, 1 per step adds up to the mean length, (1 − 0.75ᴴ)/0.25."""
    rng = np.random.default_rng(3)
    rows, length = [], 12
    for _ in range(500):
        for t in range(length):
            ends = rng.random() < 0.25
            rows.append((rng.normal(), rng.uniform(-1, 1), rng.normal(), ends, t == length - 1 and not ends))
            if ends:
                break
    obs, action, after, terminal, timeout = np.asarray(rows).T
    ones = np.ones(len(rows))
    dataset = make_dataset(obs, action, ones, np.stack([ones * 2], axis=1), after, terminal, timeout)
    found, _ = model.estimates(model.Models.fit(Log.of(dataset), 10, rng, starts=60), [act], length, rng)[0]
    expected = (1 - 0.75**length) / 0.25
    assert found.value == pytest.approx([expected, 2 * expected], rel=0.15)
