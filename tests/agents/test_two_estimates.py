"""Settings are chosen by two estimates: both must agree, a failed model is left out, larger limits choose no worse."""

from __future__ import annotations

import numpy as np
import pytest

from pdocrl.agents.common.conditioning import NO_CAP, Targets
from pdocrl.agents.common.two_estimates import (
    Estimate,
    Probes,
    logged_evidence,
    misses,
    monotone,
    probes,
    select,
)

COSTS = np.linspace(0, 20, 21, dtype=np.float32)


def log() -> tuple[np.ndarray, np.ndarray]:
    """Return and cost of 210 episodes whose best ones return 2 a unit of cost, and their relative returns."""
    cost = np.tile(COSTS, 10)
    relative = np.repeat(np.linspace(0.1, 1, 10), 21).astype(np.float32)
    return np.stack([10 + 2 * cost * relative, cost], -1).astype(np.float32), relative


def table(targets: list[float], relative: float = 1.0) -> tuple[Targets, np.ndarray]:
    target = np.asarray(targets, np.float32)[:, None]
    return Targets(np.full(len(target), relative, np.float32), target, np.full_like(target, NO_CAP)), np.ones(
        len(target), bool
    )


def estimate(reward: np.ndarray, cost: np.ndarray, probed: Probes, off: float = 0.0) -> Estimate:
    """Of settings, then of the probes: right, or a share off in both."""
    both = np.concatenate([reward, probed.outcomes[:, 0] * (1 - off)]), np.concatenate([cost, probed.outcomes[:, 1]])
    return Estimate(both[0].astype(np.float32), both[1][:, None].astype(np.float32), np.zeros((len(both[0]), 1)))


def test_the_critic_objects_by_more_than_it_differs_at_most_settings() -> None:
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 5.0, 10.0])
    reward = np.asarray([10.0, 20.0, 30.0])
    model = estimate(reward, np.asarray([0.0, 3.0, 18.0]), probed)
    critic = estimate(reward, np.asarray([8.0, 4.0, 17.0]), probed)  # differs by 1 at the median
    right = select(targets, uncapped, model, critic, outcomes, probed)  # of the logged episodes it overstates nothing:
    np.testing.assert_allclose(right.cost[:, 0], [8.0, 4.0, 18.0])  # where they differ, the models are wrong
    critic.cost[3:] += 1.5  # more than that
    found = select(targets, uncapped, model, critic, outcomes, probed)
    np.testing.assert_allclose(found.cost[:, 0], [7.0, 3.0, 18.0])
    np.testing.assert_allclose(found.bound[:, 0], [7.0, 5.0, 18.0])  # no less than the target
    model = model._replace(error=np.full_like(model.cost, 2.5))
    found = select(targets, uncapped, model, critic, outcomes, probed)
    np.testing.assert_allclose(found.bound[:, 0], [9.5, 5.5, 20.5])


def test_a_model_that_misses_the_log_where_the_critic_does_not_is_left_out() -> None:
    """It predicts two thirds of the returns; the critic then has what it misses itself added."""
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 5.0, 10.0])
    reward = np.asarray([10.0, 19.0, 28.0])
    failed = estimate(0.6 * reward, np.asarray([9.0, 9.0, 9.0]), probed, off=0.5)
    critic = estimate(reward, np.asarray([0.0, 5.0, 10.0]), probed)
    assert misses(failed.at(slice(3, None)), probed.outcomes)[0] > 0.25
    assert misses(critic.at(slice(3, None)), probed.outcomes) == (0.0, 0.0)
    found = select(targets, uncapped, failed, critic, outcomes, probed)
    np.testing.assert_allclose(found.bound[:, 0], [0.0, 5.0, 10.0], atol=1e-5)
    np.testing.assert_allclose(found.reward, reward)
    critic.cost[3:] -= 2.0  # of logged episodes it misses two units
    found = select(targets, uncapped, failed, critic, outcomes, probed)
    np.testing.assert_allclose(found.bound[:, 0], [2.0, 7.0, 12.0], atol=1e-5)


def test_the_critic_s_objection_is_discounted_where_it_overstates_logged_groups() -> None:
    """Here the cheap ones, by 4: costs begin at a threshold, and it smooths over that."""
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 0.0, 15.0])
    reward = np.asarray([10.0, 20.0, 30.0])
    model = estimate(reward, np.asarray([0.0, 1.0, 12.0]), probed)
    critic = estimate(reward, np.asarray([5.0, 6.0, 17.0]), probed)  # by 5 everywhere
    critic.cost[3:] = np.maximum(critic.cost[3:], 4 + 0.6 * critic.cost[3:])
    found = select(targets, uncapped, model, critic, outcomes, probed)
    real = np.interp([5.0, 6.0], critic.cost[3:, 0], probed.outcomes[:, 1])
    assert (real < [3.0, 4.0]).all()
    np.testing.assert_allclose(found.cost[:, 0], [*real, 17.0], atol=0.1)


def test_a_model_that_misses_returns_is_not_left_out_where_the_critic_misses_costs() -> None:
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 5.0])
    model, critic = (estimate(np.asarray([10.0, 20.0]), np.asarray([0.0, 5.0]), probed) for _ in range(2))
    model.reward[2:] += 0.4 * np.ptp(probed.outcomes[:, 0])
    assert select(targets, uncapped, model, critic, outcomes, probed).failed
    critic.cost[2:] += 0.5 * probed.outcomes[:, 1:].mean(0)
    assert not select(targets, uncapped, model, critic, outcomes, probed).failed


def test_nothing_is_predicted_before_both_estimates_account_for_the_logged_cost() -> None:
    """The critic for three quarters of the groups' mean, or of what the models say of it where that is less."""
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 5.0, 10.0])
    reward, cost = np.asarray([10.0, 20.0, 30.0]), np.asarray([0.0, 5.0, 10.0])
    model, critic = (estimate(reward, cost, probed) for _ in range(2))
    critic.cost[-1] = 0.0  # of the costliest group, a sixth of the cost
    found = select(targets, uncapped, model, critic, outcomes, probed)
    assert not found.unlearned.any()
    assert found.bound.max() < COSTS.max()
    late = select(targets, uncapped, model, critic, outcomes, probed, np.ones(1, bool))
    critic.cost[-4:] = 0.0  # more than half
    early = select(targets, uncapped, model, critic, outcomes, probed)
    for found in (late, early):
        assert found.unlearned.all()
        np.testing.assert_allclose(found.bound[:, 0], cost + COSTS.max())  # the least of them still acts
        np.testing.assert_allclose(found.cost[:, 0], cost)
    model.cost[-4:] = 1.0  # the policy is more careful than the log
    assert not select(targets, uncapped, model, critic, outcomes, probed).unlearned.any()


def test_returns_are_the_models_unless_the_log_bears_the_critic_out() -> None:
    outcomes, relative = log()
    probed = probes(outcomes, relative)
    targets, uncapped = table([0.0, 5.0])
    cost = np.asarray([0.0, 5.0])
    right = estimate(np.asarray([10.0, 15.0]), cost, probed)
    near = estimate(np.asarray([10.0, 14.0]), cost, probed, off=0.08)
    off = estimate(np.asarray([10.0, 12.0]), cost, probed, off=0.1)
    for model, critic, taken in ((right, off, 15.0), (off, right, 15.0), (off, near, 12.0)):
        found = select(targets, uncapped, model, critic, outcomes, probed)
        np.testing.assert_allclose(found.reward, [10.0, taken])


@pytest.mark.parametrize("costs", [1, 2])
def test_a_larger_limit_never_chooses_a_setting_worse_by_the_log(costs: int) -> None:
    rng, fell = np.random.default_rng(costs), 0
    for _ in range(20):
        bound, reward, evidence = rng.random((60, costs)) * 10, rng.normal(size=60), rng.normal(size=60)
        evidence[::5] = np.nan  # with a cap: no episode did that
        kept = monotone(bound, reward, evidence)
        limits = np.sort(rng.random((300, 2, costs)) * 10, axis=1)

        def falls(among: np.ndarray, given: tuple = (bound, reward, evidence, limits)) -> bool:  # type: ignore[type-arg]
            bound, reward, evidence, limits = given
            within = (bound[None, None, among] <= limits[:, :, None]).all(-1)  # [300, 2, N]
            some = within.any(-1).all(-1)
            chosen = among[np.where(within, reward[among], -np.inf).argmax(-1)][some]
            return bool((evidence[chosen[:, 1]] < evidence[chosen[:, 0]]).any())

        fell += falls(np.arange(60))
        assert not falls(kept)
        if costs == 1:
            assert bound[kept].min() == bound.min()
    assert fell > 10


def test_evidence_is_the_return_of_logged_episodes_of_a_target() -> None:
    outcomes, _ = log()
    targets, uncapped = table([0.0, 10.0, 20.0])
    low = np.quantile(outcomes[:, 0], 0.05)
    best = np.asarray([10.0, 30.0, 50.0])
    found = logged_evidence(targets, uncapped, outcomes)
    np.testing.assert_allclose(found, best, atol=2.5)  # the mean of three
    lower, _ = table([0.0, 10.0, 20.0], relative=0.5)
    np.testing.assert_allclose(logged_evidence(lower, uncapped, outcomes), low + 0.5 * (found - low), rtol=1e-5)
    assert np.isnan(logged_evidence(targets, ~uncapped, outcomes)).all()
