"""dial under limits on tails: which settings are allowed, what is predicted, and from which first states."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom

from pdocrl.agents.base import make_config
from pdocrl.agents.common.conditional_fqe import SHARES
from pdocrl.agents.common.conditioning import NO_CAP, Targets
from pdocrl.agents.common.tail_estimates import Drawn, Exceedance, exceedance, quantiles, share_bounds, tails
from pdocrl.agents.common.two_estimates import Selected, probes
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.policies.dial import prediction, serves_tails
from pdocrl.policies.mlp import PolicyInputError
from pdocrl.policies.policy import DialPolicy, load, save
from pdocrl.training.trainer import Run, Trainer

N = 100
COSTS = np.stack(  # of four settings: sure and cheap; rarely 30; often 12; mostly 30
    [np.full(N, 1.0), np.r_[np.zeros(97), np.full(3, 30.0)], np.r_[np.zeros(50), np.full(50, 12.0)], np.full(N, 30.0)]
)
REWARD = [1.0, 2.0, 3.0, 4.0]


def table_policy(costs: NDArray[Any] = COSTS, names: tuple[str, ...] = ()) -> DialPolicy:
    """A dial of settings whose costs are given; the network answers 0."""
    table = costs[..., None].astype(np.float32).repeat(max(len(names), 1), -1)
    mean, k = table.mean(1), table.shape[-1]
    return DialPolicy(
        (np.zeros((2 + 2 + 8 * k, 1), np.float32),),
        (np.zeros(1, np.float32),),
        10.0,
        np.full(k, 30, np.float32),
        (10.0,) * k,
        np.ones(len(mean), np.float32),
        mean,
        np.full_like(mean, NO_CAP),
        np.asarray(REWARD, np.float32),
        mean,
        mean,
        episode_costs=table,
        worst_start_costs=table + 5,
        start_excess=np.full_like(mean, 5),
        max_step_cost=table.max(1),
        share_bound=share_bounds(N, N, 0.975),
        cost_names=names,
    )


@pytest.mark.parametrize(
    ("limit", "setting"),
    [
        ("P(cost>20)<=0.1", 2),
        ("P(cost>20)<=0.05", 2),
        ("P(cost>10)<=0.1", 1),  # 3 of 100, bounded at 8.5 %
        ("P(cost>10)<=0.05", 0),
        ("P(cost>30)<=0.05", 3),  # no more than 30
        ("CVaR90(cost)<=11.9", 1),
        ("CVaR90(cost)<=12", 2),
        ("max(cost)<=20", 2),
        (["P(cost>20)<=0.1", "cost<=5"], 1),
        (["P(cost>20)<=0.1", "CVaR90(cost)<=5"], 0),
        (20.0, 2),
    ],
)
def test_the_setting_of_largest_predicted_return_within_limits_on_tails_acts(limit: Any, setting: int) -> None:
    policy = table_policy()
    said = policy.predicted(limit)
    assert said.reward == REWARD[setting]
    assert said.within
    if isinstance(limit, str):
        (tail,) = said.tails
        assert tail.value == pytest.approx(Limit.parse(limit).of(COSTS[setting]), abs=1e-5)
        assert tail.value <= tail.bound <= Limit.parse(limit).value + 1e-6
    assert policy.with_limit(limit).predicted().reward == REWARD[setting]


def test_bounds_of_shares_are_those_of_clopper_and_pearson() -> None:
    bound = share_bounds(120, 120, 0.975)
    assert bound[0] == pytest.approx(1 - 0.025 ** (1 / 120))
    assert bound[7] == pytest.approx(beta.ppf(0.975, 8, 113))
    assert bound[-1] == 1
    assert share_bounds(120, 12, 0.975)[0] == pytest.approx(1 - 0.025 ** (1 / 12))  # of twelve first states


def test_where_no_setting_is_within_the_one_of_least_excess_acts_and_says_so() -> None:
    policy = table_policy()
    with pytest.warns(UserWarning, match=r"cost limit P\(cost>10\)<=0.01 is not predicted.*predicted bound is 0\.0362"):
        policy.begin(0, limit="P(cost>10)<=0.01")
    said = policy.predicted("P(cost>10)<=0.01")  # of those that exceed it equally, the cheapest on average
    assert (said.within, said.reward) == (False, 1.0)


def test_a_limit_changes_on_the_way_from_words_to_numbers_and_back() -> None:
    policy = table_policy()
    policy = dataclasses.replace(policy, weights=(np.eye(12, 1, -2, dtype=np.float32),))  # tells the relative return
    policy = dataclasses.replace(policy, relative_return=np.asarray([0.1, 0.2, 0.3, 0.4], np.float32))
    step, obs = policy.begin(0, limit="P(cost>10)<=0.1"), np.zeros(2)
    told = [float(np.arctanh(step(obs, limit=limit)[0])) for limit in (None, 30.0, "CVaR90(cost)<=12", 0.95)]
    np.testing.assert_allclose(told, [0.2, 0.4, 0.3, 0.2], atol=1e-6)


def test_limits_on_tails_are_saved_and_loaded(tmp_path: Path) -> None:
    policy = table_policy().with_limit(["P(cost>10)<=0.1", "cost<=25"], from_every_start=True)
    save(tmp_path / "policy.npz", [policy])
    found: Any = load(tmp_path / "policy.npz")
    assert (found.tails, found.limit, found.from_every_start) == (policy.tails, (25.0,), True)
    assert found.predicted() == policy.predicted()


def test_from_every_start_the_costliest_first_states_count() -> None:
    policy = table_policy()
    assert policy.with_limit(6.0).predicted().reward == 3.0
    assert policy.with_limit(6.0, from_every_start=True).predicted().reward == 2.0  # .9, and 5 more
    assert policy.with_limit("P(cost>15)<=0.1").predicted().reward == 3.0
    assert policy.with_limit("P(cost>15)<=0.1", from_every_start=True).predicted().reward == 2.0


def test_limits_name_the_costs_they_are_on() -> None:
    policy = table_policy(names=("contact", "wear"))
    assert policy.predicted(["P(wear>10)<=0.1", "contact<=30"]).reward == 2.0
    with pytest.raises(PdocrlError, match="unknown cost column 'cost'"):
        policy.predicted("P(cost>10)<=0.1")


def test_policies_of_older_files_serve_no_tails() -> None:
    older = dataclasses.replace(table_policy(), episode_costs=np.zeros(0, np.float32))
    assert not serves_tails(older)
    assert older.predicted("cost<=12").reward == 3.0  # a mean in words is a number
    with pytest.raises(PolicyInputError, match=r"before version 0\.3"):
        older.with_limit("P(cost>10)<=0.1")


def test_quantiles_have_the_shares_they_are_made_of() -> None:
    largest = np.asarray([8.0, 100.0], np.float32)
    thresholds = np.asarray(SHARES, np.float32) * largest[:, None]
    share = np.sort(np.random.default_rng(0).random((5, 2, len(SHARES))), -1)[..., ::-1]
    found = quantiles(share, thresholds, largest, 400)
    assert (np.diff(found, axis=1) >= 0).all()
    np.testing.assert_allclose(exceedance(found, thresholds), share, atol=0.005)


def test_the_larger_of_two_distributions_counts_and_targets_are_not_undercut() -> None:
    """Of nine settings the models and the critic agree; of the tenth the critic says that half of all cost 8."""
    largest, n, uncapped = np.asarray([8.0], np.float32), 200, np.ones(10, bool)
    thresholds = np.asarray(SHARES) * 8
    model = np.zeros((10, n, 1), np.float32)
    model[:, :20] = 8.0
    share = np.tile(np.where(thresholds < 8, 0.1, 0.0), (10, 30, 1, 1))
    share[9] = 0.5
    outcomes = np.random.default_rng(0).random((40, 2)).astype(np.float32) * 8
    probed = probes(outcomes, np.ones(40, np.float32))
    critic = Exceedance(np.concatenate([share, share[:1].repeat(len(probed.outcomes), 0)]), 8 * share[..., 0])
    drawn = Drawn(model, np.arange(n) % 30, model.max(1), np.zeros_like(model))
    targets = Targets(np.ones(10, np.float32), np.zeros((10, 1), np.float32), np.full((10, 1), 1e6, np.float32))
    targets.target_cost[3] = 2.0
    none = np.zeros(10, np.float32)
    chosen = Selected(np.arange(10), none, none[:, None], none[:, None], False, np.zeros(1, bool))
    found = tails(targets, uncapped, drawn, critic, largest, chosen, outcomes, probed)
    over = (found.episode_costs[:, :, 0] > 4).mean(1)
    assert over[0] == pytest.approx(0.1)
    assert over[9] == pytest.approx(0.5, abs=0.02)
    assert found.episode_costs[3].mean() == pytest.approx(2.0)
    failed = chosen._replace(failed=True)
    alone = tails(targets, uncapped, drawn, critic, largest, failed, outcomes, probed)
    assert (alone.episode_costs[:, :, 0] > 4).mean(1)[0] > 0.3  # with what the critic misses of the logged costs
    assert np.isinf(alone.max_step_cost).all()
    unlearned = chosen._replace(unlearned=np.ones(1, bool))
    above = tails(targets, uncapped, drawn, critic, largest, unlearned, outcomes, probed)
    assert above.episode_costs.min() >= outcomes[:, 1].max()
    assert np.isinf(above.max_step_cost).all()


HORIZON = 4


def world(count: int = 600) -> Dataset:
    """Every step costs 1 by chance, whatever is done: one time in ten, from half of the first states one in two."""
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(count) % 2, HORIZON)
    obs = np.stack([2.0 * kind - 1, np.ones(kind.size)], -1)
    cost = rng.random(kind.size) < np.where(kind == 1, 0.5, 0.1)
    action, ends = rng.uniform(-1, 1, (kind.size, 1)), np.tile(np.arange(HORIZON) == HORIZON - 1, count)
    return make_dataset(obs, action, action[:, 0], cost[:, None] * 1.0, obs, 0 * ends, ends, name="chance")


@lru_cache
def trained() -> Any:
    agent = find_agent("dial")
    small = {"hidden": (32, 32), "model_hidden": (32, 32), "batch_size": 128, "model_batch": 64}
    trainer = Trainer(agent, world(), [Run(make_config(agent, cost_limit=(4.0,), horizon=float(HORIZON), **small), 0)])
    trainer.advance(1200)
    return trainer.policies()[0]


@pytest.mark.parametrize("b", [0, 1])  # thresholds of the critics; between them shares are interpolated
def test_the_share_of_episodes_that_is_predicted_is_the_world_s(b: int) -> None:
    """On average over the first states, and from the costlier ones."""
    truth = [1 - binom.cdf(b, HORIZON, p) for p in (0.1, 0.5)]
    policy = trained().network
    settings = policy.target_cost[:, 0] < 0.5  # larger targets are believed
    for every, expected in ((False, np.mean(truth)), (True, truth[1])):
        asked = policy.with_limit(f"P(cost>{b})<=0.99", from_every_start=every)
        share = asked.measured(asked.tails[0])[0][settings]
        assert expected - 0.08 <= np.median(share) <= expected + 0.15  # the larger of two estimates
    assert policy.max_step_cost.max() == 1


def test_a_trained_policy_states_a_tail_and_keeps_it_from_every_start() -> None:
    average, every = (prediction(trained().with_limit("P(cost>3)<=0.1", from_every_start=x)) for x in (False, True))
    assert average is not None
    assert every is not None
    assert every.tails[0].bound > average.tails[0].bound
