"""The field's counterexamples: every number of every proof, and what the methods do there."""

from typing import ClassVar

import numpy as np
import pytest

from pdocrl.tabular import solve
from pdocrl.tabular.baselines.critics import pdca, wsac
from pdocrl.tabular.baselines.density import coral, near_flow, pocc, pro_rl
from pdocrl.tabular.baselines.plain import mbcl, plug_in
from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.cmdp import evaluate, extract, plan
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import solve_lp
from research.field import (
    LuckyBandit,
    costly_reference,
    phantom_mass,
    ratio_without_penalty,
    ratio_without_validity,
)
from research.lucky import LIMIT, lucky2

EXACT = {"abs": 1e-12}


@pytest.mark.parametrize("example", [ratio_without_validity(), ratio_without_penalty()], ids=["coral", "pro_rl"])
class TestSpuriousRatios:
    def test_both_ratios_are_saddle_points_over_the_class(self, example):
        """Over {V*} the Lagrangian of both is the optimum, and no other ratio of the class is above it."""
        optimum = solve_lp(example.cmdp).value if example.cmdp.gamma else 1.0
        for w in (example.best, example.spurious):
            assert example.lagrangian(w, example.V_star) == pytest.approx(optimum, **EXACT)

    def test_v_star_is_the_optimal_value(self, example):
        assert pytest.approx(example.V_star, **EXACT) == plan(example.cmdp, example.cmdp.r).V

    def test_the_spurious_one_loses_what_the_proof_says_and_the_other_nothing(self, example):
        assert example.loss(example.spurious) == pytest.approx(example.error, **EXACT)
        assert example.loss(example.best) == pytest.approx(0, **EXACT)

    def test_corals_term_tells_them_apart(self, example):
        assert example.invalidity(example.best) == pytest.approx(0, **EXACT)
        assert example.invalidity(example.spurious) >= 0.5 - 1e-12


def test_corals_term_is_one_half_in_its_bandit():
    example = ratio_without_validity()
    assert example.invalidity(example.spurious) == pytest.approx(1 / 2, **EXACT)


def test_complete_tables_are_not_fooled():
    """The failures need the restricted classes: over all w and V, CORAL and PRO-RL solve PRO-RL's MDP."""
    example = ratio_without_penalty()
    counts = Counts.sample(example.cmdp, example.mu_D, 3000, seed=0)
    for pi in (coral(counts, 0.5, C=4.0), pro_rl(counts, 0.5, C=4.0, alpha=0.01)):
        assert evaluate(example.cmdp, pi).value == pytest.approx(1 / 2, abs=1e-3)


class TestLuckyBandit:
    """Partial coverage: the full-coverage methods fail with constant probability, w ≤ C does not."""

    bandit = LuckyBandit(rare=4)

    def test_the_optimum_is_the_sure_arm(self):
        assert solve_lp(self.bandit.cmdp).value == pytest.approx(self.bandit.optimum, abs=1e-9)
        assert self.bandit.fooled == pytest.approx(1 - 0.75**4)
        assert self.bandit.loss == pytest.approx(0.175)

    def test_believing_frequencies_fails_as_often_as_the_closed_form_says(self):
        fooled = [
            evaluate(self.bandit.cmdp, plug_in(self.bandit.sample(300, seed), 0.5)).value < self.bandit.optimum - 0.1
            for seed in range(200)
        ]
        p = self.bandit.fooled
        assert abs(np.mean(fooled) - p) < 4 * (p * (1 - p) / 200) ** 0.5

    @pytest.mark.parametrize("tries", [100, 1000])
    def test_full_coverage_methods_are_fooled_by_a_log_that_pdocrl_survives(self, tries):
        seed = next(
            s for s in range(100) if self.bandit.sample(tries, s).P.toarray()[1 : 1 + self.bandit.rare, 1].max() == 1
        )
        counts = self.bandit.sample(tries, seed)
        C = 3.2 * (1 - self.bandit.gamma)  # a little above that of the sure arm, (1−γ)/(1/3)
        for found in (mbcl(counts, 0.5, iterations=20), pdca(counts, 0.5, iterations=300, step=20.0)):
            assert found.evaluate(self.bandit.cmdp).value < self.bandit.optimum - 0.9 * self.bandit.loss
        ours = evaluate(self.bandit.cmdp, solve(counts, 0.5, C=C, resamples=0).policy).value
        assert self.bandit.optimum - ours <= self.bandit.bound(C, counts.size) + 1e-9
        assert self.bandit.bound(C, counts.size) < self.bandit.loss / 10


def test_on_lucky2_full_coverage_methods_fail_and_pdocrl_does_not():
    lucky = lucky2()
    counts = lucky.counts(10_000, seed=0)
    fail = (pdca(counts, 0.9, {"cost": LIMIT}, iterations=300, step=10.0), mbcl(counts, 0.9, {"cost": LIMIT}))
    for found in fail:
        assert found.evaluate(lucky.cmdp).error(lucky.cmdp, lucky.optimum.value) >= 0.25
    ours = solve(counts, 0.9, {"cost": LIMIT}, C=3.0, resamples=0).policy
    assert evaluate(lucky.cmdp, ours).error(lucky.cmdp, lucky.optimum.value) <= 0.06


class TestCostlyReference:
    example = costly_reference()
    counts = Counts.sample(example.cmdp, example.mu_D, 10**7, seed=0)
    limits: ClassVar = {"cost": example.limit}

    def test_the_numbers_are_those_of_the_text(self):
        assert solve_lp(self.example.cmdp).value == pytest.approx(self.example.optimum, abs=1e-9)
        assert evaluate(self.example.cmdp, self.example.mu_D).constraints[0] == pytest.approx(-0.8, **EXACT)

    @pytest.mark.parametrize(("lam", "cost", "error"), [(2.4, 1.0, 0.8), (2.6, 0.0, 0.1)])
    def test_wsac_is_always_fast_or_always_slow(self, lam, cost, error):
        last = wsac(self.counts, 0.5, self.limits, C=100.0, lam=lam, iterations=50, step=1e4).policies[-1]
        earned = evaluate(self.example.cmdp, last)
        assert earned.constraints[0] == pytest.approx(-cost, abs=1e-6)
        assert earned.error(self.example.cmdp, self.example.optimum) == pytest.approx(error, abs=1e-6)

    def test_the_value_of_the_limit_does_not_matter_to_wsac(self):
        some, other = (wsac(self.counts, 0.5, {"cost": x}, C=5.0, iterations=20).policies for x in (0.1, 0.9))
        assert np.array_equal(some, other)

    def test_pdocrl_finds_the_best_policy_that_keeps_the_limit(self):
        ours = evaluate(self.example.cmdp, solve(self.counts, 0.5, self.limits, C=5.0, resamples=0).policy)
        assert ours.error(self.example.cmdp, self.example.optimum) <= 1e-6


class TestPhantomMass:
    example = phantom_mass()

    @pytest.mark.parametrize("zeta", [0.0, 0.005, 0.01])
    def test_the_extracted_policy_misses_the_limit_by_the_phantom(self, zeta):
        counts = Counts.sample(self.example.cmdp, self.example.mu_D, 10**7, seed=0)
        limits = {"cost": -self.example.tau}  # as a cost, service is negative
        view = LogModel.of(counts, 0.9, limits)
        mu = view.table(near_flow(view, 10.0, zeta, 0.0))
        assert np.vdot(mu, self.example.cmdp.g[0]) >= self.example.tau - 1e-9  # the program believes it is kept
        earned = evaluate(self.example.cmdp, pocc(counts, 0.9, limits, 10.0, zeta))
        assert self.example.tau - earned.constraints[0] == pytest.approx(self.example.phantom(zeta), abs=1e-6)
        assert extract(mu)[0, 1] == pytest.approx(0.4 - 2 * self.example.phantom(zeta), abs=1e-6)

    def test_pdocrl_and_coral_miss_nothing(self):
        counts = Counts.sample(self.example.cmdp, self.example.mu_D, 10_000, seed=0)
        limits = {"cost": -self.example.tau}
        for pi in (solve(counts, 0.9, limits, C=5.0, resamples=0).policy, coral(counts, 0.9, limits, 5.0)):
            assert evaluate(self.example.cmdp, pi).error(self.example.cmdp, 0.6) <= 1e-6
