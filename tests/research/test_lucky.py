import numpy as np
import pytest

from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import evaluate, occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import solve_lp
from research.lucky import FAILED, FIRST_RARE, LIMIT, lucky2


@pytest.mark.parametrize("constrained", [True, False])
def test_the_policy_said_to_be_best_is(constrained):
    lucky = lucky2(constrained=constrained)
    assert solve_lp(lucky.cmdp).value == pytest.approx(lucky.optimum.value, abs=1e-12)
    assert lucky.optimum.value == pytest.approx(0.9 if not constrained else LIMIT * 0.9 + (1 - LIMIT) * 0.65, abs=1e-12)


def test_the_limit_binds():
    lucky = lucky2()
    assert lucky.optimum.constraints == pytest.approx(lucky.cmdp.tau, abs=1e-12)
    assert solve_lp(lucky.cmdp).lam[0] == pytest.approx(
        0.25, abs=1e-9
    )  # fast earns 0.25 more than safe, for a cost of 1


@pytest.mark.parametrize("constrained", [True, False])
def test_the_best_policy_is_covered_within_two_and_nearly_all_rare_arms_are_rare(constrained):
    lucky = lucky2(constrained=constrained)
    assert lucky.mu_D.sum() == pytest.approx(1, abs=1e-12)
    assert lucky.concentrability == pytest.approx(2, abs=1e-12)
    assert (occupancy(lucky.cmdp, lucky.best) <= 2 * lucky.mu_D + 1e-15).all()
    assert lucky.mu_D[:, FIRST_RARE:].sum() == pytest.approx(0.03, abs=1e-12)


def test_a_rare_arm_breaks_down_half_the_time_and_is_worse_than_any_other():
    lucky = lucky2()
    P = lucky.cmdp.P.toarray().reshape(7, -1, 7)
    assert P[:FAILED, FIRST_RARE:, FAILED] == pytest.approx(0.5)
    always_rare = np.full(7, FIRST_RARE)
    assert evaluate(lucky.cmdp, always_rare).value < lucky.optimum.value - 0.3


def test_small_logs_have_rare_arms_that_never_broke():
    counts = lucky2().counts(10_000, seed=0)
    failures = counts.next.toarray().reshape(7, -1, 7)[:FAILED, FIRST_RARE:, FAILED]
    tried = counts.n[:FAILED, FIRST_RARE:]
    assert ((tried > 0) & (failures == 0)).any(axis=1).all()  # in every working state


@pytest.mark.parametrize("constrained", [True, False])
def test_a_log_as_columns_has_the_distribution_of_the_counts(constrained):
    lucky = lucky2(constrained=constrained)
    log = lucky.log(200_000, seed=1)
    assert ("cost" in log) == constrained
    counts = Counts.from_arrays(
        log["state"], log["action"], log["next_state"], log["reward"], log.get("cost"), n_states=7, n_actions=43
    )
    assert np.abs(counts.mu - lucky.mu_D).max() < 5 * np.sqrt(0.25 / 200_000)
    tried = counts.n.ravel() > 2000
    assert np.abs((counts.P - lucky.cmdp.P).toarray()[tried]).max() < 0.05
    seen = counts.n > 0
    assert counts.r[seen] == pytest.approx(lucky.cmdp.r[seen])


def test_staying_near_the_data_is_not_being_fooled_by_luck():
    """PDOCRL at C = 1.5 C* and n = 10⁴; the plug-in solution on the same logs is in test_baselines.py."""
    lucky = lucky2()
    errors = []
    for seed in range(10):
        found = solve(lucky.counts(10_000, seed), 0.9, {"cost": LIMIT}, C=1.5 * lucky.concentrability, resamples=0)
        errors.append(evaluate(lucky.cmdp, found.policy).error(lucky.cmdp, lucky.optimum.value))
    assert np.mean(errors) <= 0.045
    assert max(errors) <= 0.06
