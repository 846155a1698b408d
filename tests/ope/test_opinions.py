"""Two estimates of one policy: rare costs in rollouts, logged behaviours like it, and what both say together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from test_ope_command import SMALL, constant, drifting, trained

from pdocrl.data import Dataset, make_dataset
from pdocrl.ope import Prepared, estimate
from pdocrl.ope.ensemble.behaviours import Behaviours, Likeness
from pdocrl.ope.ensemble.calibrate import Calibrated, Calibration
from pdocrl.ope.ensemble.judge import judge_each
from pdocrl.ope.ensemble.opinions import WIDER, Similar, together
from pdocrl.ope.ensemble.rollouts import on_rows
from pdocrl.policies.policy import DialPolicy

STEPS, CRASH, SIZE = 20, 0.1, 5.0


def crashing(episodes: int = 200, seed: int = 0) -> Dataset:
    """An action above 0 crashes one time in ten, which costs 5 and shows; every episode has its share of them."""
    rng = np.random.default_rng(seed)
    bold = rng.random((episodes, STEPS)) < np.linspace(0, 1, episodes)[:, None]
    action = np.where(bold, 0.6, -0.6) + 0.1 * rng.standard_normal((episodes, STEPS))
    crash = (action > 0) & (rng.random((episodes, STEPS)) < CRASH)
    place = rng.standard_normal((episodes, STEPS + 1))
    seen = np.concatenate([np.zeros((episodes, 1)), crash], axis=1)
    obs = np.stack([place, seen], axis=-1)
    return make_dataset(
        obs[:, :-1].reshape(-1, 2),
        action.reshape(-1, 1),
        (action > 0).ravel() * 1.0,
        SIZE * crash.reshape(-1, 1),
        obs[:, 1:].reshape(-1, 2),
        np.zeros(action.size),
        np.tile(np.arange(STEPS) == STEPS - 1, episodes),
        name="crashing",
    )


@pytest.fixture(scope="module")
def ready() -> Prepared:
    return Prepared.of(crashing(), config=dataclasses.replace(SMALL, steps=1500), cache=False)


def policy(action: float) -> Any:
    return dataclasses.replace(constant(action), weights=(np.zeros((2, 1), np.float32),))


def test_a_crash_of_one_step_in_ten_costs_in_rollouts_what_it_costs(ready: Prepared) -> None:
    """Twenty bold steps: ten on average, and episodes without a crash as often as there are, .9^20."""
    bold, safe = judge_each([policy(0.6), policy(-0.6)], ["bold", "safe"], ready, STEPS)
    data = ready.dataset
    logged = STEPS * data.cost[data.action > 0].mean()
    assert logged == pytest.approx(STEPS * CRASH * SIZE, rel=0.15)
    assert bold.told.value[1] == pytest.approx(logged, rel=0.12)
    assert (bold.told.simulated[:, 1] == 0).mean() == pytest.approx((1 - logged / STEPS / SIZE) ** STEPS, abs=0.05)
    assert set(np.unique(bold.told.simulated[:, 1] % SIZE)) == {0.0}
    assert bold.told.within([8.0]) is not True
    assert safe.told.value[1] < 0.3


def constantly(action: float) -> Any:
    return lambda rows: np.full((len(rows), 1), action)


def test_a_policy_has_the_value_of_the_behaviour_it_copies() -> None:
    """Forty behaviours, each a constant action of its own: one between two of them is worth what they came to."""
    rng = np.random.default_rng(0)
    acts = np.linspace(0.2, 0.9, 40)
    action = np.repeat(acts, 6 * 10).reshape(-1, 1) + 0.02 * rng.standard_normal((2400, 1))
    obs = rng.standard_normal((2400, 3))
    ends = np.tile(np.arange(10) == 9, 240)
    data = make_dataset(obs, action, action[:, 0], np.exp(action), obs, 0 * ends, ends)
    known = Behaviours.of(data, 6, np.random.default_rng(1))
    calibration = known.calibration
    assert (calibration.skill > 0.95).all()
    possible = np.array([[-10.0, 10.0], [0.0, 30.0]])
    for own in (0.3, 0.5, 0.8):
        found = Similar.of(known, known.likeness(constantly(own)), possible, 0.95)
        assert found.usable.all()
        np.testing.assert_allclose(found.value, [10 * own, 10 * np.exp(own)], atol=1.5)
        assert found.interval[1, 0] <= 10 * np.exp(own) <= found.interval[1, 1]
        assert (np.diff(found.interval, axis=1) < 16).all()
    far = Similar.of(known, known.likeness(constantly(-1.0)), possible, 0.95)
    assert not far.usable.any()
    copy = known.likeness(constantly(0.5))
    assert known.stands_for(copy)
    assert not known.stands_for(Likeness(copy.distance, 1.3 * copy.product))  # as near, and stronger than any


def test_behaviours_without_skill_are_not_usable() -> None:
    """What an episode costs has nothing to do with what was done."""
    data = crashing()
    rng = np.random.default_rng(3)
    luck = np.repeat(rng.random(data.n_episodes) < 0.5, STEPS)[:, None] * np.float32(1.0)
    known = Behaviours.of(dataclasses.replace(data, cost=luck), 6, np.random.default_rng(1))
    assert known.calibration.skill[1] < 0.5


def model(cost: float, error: float) -> tuple[Calibrated, Calibration]:
    """Sixty groups of costs 0 … 59 and rewards alike, missed by `error` to both sides."""
    truth = np.tile(np.arange(60.0)[:, None], 2)
    sign = np.where(np.arange(60) % 2, 1.0, -1.0)[:, None]
    calibration = Calibration(truth, truth + error * sign, np.zeros(60), np.zeros(60, int))
    sums = np.full((1, 400, 2), cost)
    return Calibrated.judge(sums, np.zeros(1), calibration, np.array([100.0])), calibration


def similar(low: float, high: float, usable: bool = True) -> Similar:
    ends = np.array([[low, high]] * 2)
    return Similar(ends.mean(1), ends, ends[1:, 1], ends[1:, 0], np.full(2, usable), np.full((8, 2), low))


def test_a_model_that_predicts_is_believed_unless_behaviours_lie_apart() -> None:
    by_model = model(10.0, 1.0)
    agreed, carried = together(*by_model, similar(5.0, 18.0))
    assert (agreed.above, carried) == (by_model[0].above, False)
    assert agreed.within([20.0]) is True
    doubted, carried = together(*by_model, similar(30.0, 40.0))
    assert not carried
    assert doubted.within([20.0]) is None
    assert doubted.interval[1, 1] == 40
    assert together(*by_model, similar(30.0, 40.0, usable=False))[0].within([20.0]) is True
    assert together(*by_model, None) == (by_model[0], False)


def test_where_the_model_fails_on_the_log_behaviours_alone_decide() -> None:
    by_model = model(10.0, 40.0)
    assert (by_model[1].skill < 0).all()
    found, carried = together(*by_model, similar(5.0, 18.0))
    assert carried
    assert found.within([20.0]) is True
    assert found.within([15.0]) is None
    assert found.value[1] == 11.5
    unusable, carried = together(*by_model, similar(5.0, 18.0, usable=False))
    assert (unusable.above, carried) == (by_model[0].above, False)


def test_a_statement_carried_by_behaviours_says_so(ready: Prepared) -> None:
    """Models whose held-out predictions are all wrong: verdicts come from behaviours, and a limit can be shown."""
    data = drifting(episodes=160)
    known = Prepared.of(data, config=dataclasses.replace(SMALL, steps=20), cache=False)
    models, calibration, behaviours = known.learned
    wrong = dataclasses.replace(calibration, predicted=calibration.truth[::-1] + 5.0)
    known.__dict__["learned"] = models, wrong, behaviours
    run = estimate(trained(data, [(6.0,)], [constant(-0.3)]), known).runs[0]
    told = run.by_method["behaviours"]
    assert run.cost == told.cost
    assert run.cost_interval == told.cost_interval
    assert run.within_limit is True
    assert run.trusted


def test_what_spends_is_asked_at_rows_with_what_was_spent_by_then() -> None:
    """A dial's actions at logged rows are those it has in that episode at that step."""
    data = drifting(episodes=4)
    rng = np.random.default_rng(0)
    own = DialPolicy(
        (rng.normal(size=(11, 1)).astype(np.float32),),
        (np.zeros(1, np.float32),),
        horizon=10.0,
        max_episode_cost=np.array([4.0], np.float32),
        limit=(2.0,),
        relative_return=np.ones(1, np.float32),
        target_cost=np.array([[1.0]], np.float32),
        cost_cap=np.array([[9.0]], np.float32),
        reward=np.array([1.0], np.float32),
        bound=np.array([[1.0]], np.float32),
        mean_cost=np.array([[1.0]], np.float32),
    )
    found = on_rows(own, data, "own", 0)
    assert found is not None
    step = own.begin(0)
    rows = np.arange(20, 30)  # the third episode
    alone = [step(data.obs[t], 0.0, data.cost[t - 1] if t > 20 else np.zeros(1)) for t in rows]
    np.testing.assert_allclose(found(rows), np.stack(alone), atol=1e-5)
    assert WIDER > 1
