import itertools
from math import comb

import numpy as np
import pytest

from pdocrl.tabular.cmdp import evaluate, extract, occupancy, plan, values
from research.counterexamples import (
    L1,
    L2,
    R1,
    R2,
    S0,
    L,
    R,
    spurious_q_saddle,
    spurious_v_saddle,
    weighted_cloning_fails,
)

EXACT = {"abs": 1e-12}


class TestWeightedCloning:
    """Proposition 1."""

    example = weighted_cloning_fails()

    def test_one_policy_is_worth_a_half_and_the_other_a_fourteenth(self):
        assert evaluate(self.example.cmdp, self.example.best).value == pytest.approx(1 / 2, **EXACT)
        assert evaluate(self.example.cmdp, self.example.other).value == pytest.approx(1 / 14, **EXACT)
        assert plan(self.example.cmdp, self.example.cmdp.r).V @ self.example.cmdp.d0 == pytest.approx(1 / 2, **EXACT)

    def test_the_data_covers_the_optimal_policy_within_two(self):
        w = occupancy(self.example.cmdp, self.example.best) / self.example.mu_D
        assert w == pytest.approx(np.array([[1 / 4, 7 / 4], [0, 2]]), **EXACT)

    @pytest.mark.parametrize("n", [1, 2, 10, 1000])
    def test_with_the_data_distribution_known_the_ratio_yields_an_optimal_policy(self, n):
        w = self.example.ratio(n)
        assert w.min() >= 0
        assert w.max() <= 2
        assert evaluate(self.example.cmdp, extract(w * self.example.mu_D)).value == pytest.approx(1 / 2, **EXACT)

    @pytest.mark.parametrize("n", [1, 2, 10, 1000])
    def test_the_population_objective_prefers_the_optimal_policy_by_log_7_over_2n(self, n):
        weights = self.example.mu_D * self.example.ratio(n)
        best, other = (self.example.objective(pi, weights) for pi in (self.example.best, self.example.other))
        assert best - other == pytest.approx(np.log(7) / (2 * n), **EXACT)

    def test_the_empirical_difference_is_that_of_the_proof(self):
        """log 7 / n · [−2(N_c0 − N_r1) + (N_c0 + N_c1)/n] (Appendix A)."""
        n = 50
        for counts in self.example.sample(n, runs=20):
            weights = counts * self.example.ratio(n) / n
            best, other = (self.example.objective(pi, weights) for pi in (self.example.best, self.example.other))
            proof = np.log(7) / n * (-2 * (counts[0, 0] - counts[1, 1]) + counts[0].sum() / n)
            assert best - other == pytest.approx(proof, **EXACT)

    @pytest.mark.parametrize("n", [1, 2, 3, 6])
    def test_the_closed_form_is_the_sum_over_all_data_sets(self, n):
        pairs = list(itertools.product(range(4), repeat=n))
        counts = np.array([np.bincount(draw, minlength=4).reshape(2, 2) for draw in pairs])
        assert self.example.fails(n, counts).mean() == pytest.approx(self.example.failure_probability(n), **EXACT)

    def test_the_closed_form_is_stable_to_ten_thousand_samples(self):
        for n in (1, 2, 10, 100, 1000, 10_000):
            exact = (4**n - comb(2 * n, n)) / (2 * 4**n)  # Python's integers: no rounding before the division
            assert self.example.failure_probability(n) == pytest.approx(exact, abs=1e-11)
        assert self.example.failure_probability([1, 2, 10, 100, 10_000]) == pytest.approx(
            [0.25, 0.3125, 0.412, 0.472, 0.497], abs=5e-4
        )
        every = self.example.failure_probability(np.arange(1, 10_001))
        assert (every >= 1 / 4).all()
        assert (np.diff(every) > 0).all()

    @pytest.mark.parametrize("n", [1, 3, 10, 100, 1000, 10_000])
    def test_simulated_failures_match_the_closed_form_within_a_hundredth(self, n):
        counts = self.example.sample(n, runs=100_000, seed=n)
        assert self.example.fails(n, counts).mean() == pytest.approx(self.example.failure_probability(n), abs=0.01)

    def test_with_all_policies_to_choose_from_failure_vanishes(self):
        """Weighted cloning over all policies is extraction from ŵ·μ̂; it fails when (r, 1) was never seen."""
        for n in (1, 3, 10):
            counts = self.example.sample(n, runs=1000, seed=n)
            policies = [extract(c * self.example.ratio(n)) for c in counts]
            failed = np.mean([evaluate(self.example.cmdp, pi).value < 1 / 2 - 1e-9 for pi in policies])
            assert failed == pytest.approx(self.example.tabular_failure_probability(n), abs=0.05)

    @pytest.mark.parametrize(("n", "rate"), [(10, 0.22), (100, 0.006), (1000, 0.0)])
    def test_the_saddle_point_over_the_same_two_policies_stops_failing(self, n, rate):
        counts = self.example.sample(n, runs=50_000, seed=n)
        assert self.example.saddle_fails(n, counts).mean() == pytest.approx(rate, abs=0.01)


class TestVSaddle:
    """The spurious saddle point of the V-form."""

    example = spurious_v_saddle()

    def test_the_optimal_values_and_occupancy_are_those_of_the_proof(self):
        best = plan(self.example.cmdp, self.example.cmdp.r)
        assert self.example.V_star == pytest.approx(best.V, **EXACT)
        assert occupancy(self.example.cmdp, np.full(5, L)) == pytest.approx(self.example.mu_star, **EXACT)
        assert evaluate(self.example.cmdp, np.full(5, L)).value == pytest.approx(1 / 2, **EXACT)

    def test_every_bellman_residual_vanishes_except_that_of_r1_and_R(self):
        expected = np.zeros((5, 2))
        expected[R1, R] = -1
        assert self.example.bellman_residual(self.example.V_star) == pytest.approx(expected, **EXACT)

    def test_the_spurious_measure_is_a_saddle_point(self):
        """Both measures give ½ at (V*, 0), and moving λ up from 0 only helps the maximiser."""
        for mu in (self.example.mu_star, self.example.mu_spurious):
            assert self.example.lagrangian(mu, self.example.V_star, 0) == pytest.approx(1 / 2, **EXACT)
        slope = self.example.lagrangian(self.example.mu_spurious, self.example.V_star, 1) - 1 / 2
        assert slope == pytest.approx(np.vdot(self.example.mu_spurious, self.example.cmdp.r), **EXACT)
        assert slope > 0

    def test_the_spurious_measure_belongs_to_no_policy(self):
        residual = np.zeros(5)
        residual[[L1, R1]] = -3 / 16, 3 / 16
        assert self.example.mu_spurious.sum() == pytest.approx(1, **EXACT)
        assert self.example.flow_residual(self.example.mu_spurious) == pytest.approx(residual, **EXACT)
        assert np.abs(self.example.flow_residual(self.example.mu_star)).max() <= 1e-15

    def test_the_extracted_policy_is_not_optimal_with_either_default(self):
        for default, expected in (
            (R, self.example.value_default_R),
            ("uniform", self.example.value_default_uniform),
        ):
            pi = extract(self.example.mu_spurious, unvisited=default)
            V, _ = values(self.example.cmdp, pi, self.example.cmdp.r)
            assert V[S0] == pytest.approx(expected, **EXACT)
            assert V[S0] < self.example.V_star[S0] - 0.1
        V, _ = values(self.example.cmdp, extract(self.example.mu_spurious, unvisited=R), self.example.cmdp.r)
        assert V[[R1, L2, R2]] == pytest.approx([1, 8, 0], **EXACT)

    def test_adding_the_value_function_of_the_extracted_policy_removes_the_saddle_point(self):
        pi = extract(self.example.mu_spurious, unvisited=R)
        V, _ = values(self.example.cmdp, pi, self.example.cmdp.r)
        assert self.example.lagrangian(self.example.mu_spurious, V, 0) == pytest.approx(5 / 16, **EXACT)


class TestQSaddle:
    """The spurious saddle point of the Q-form."""

    example = spurious_q_saddle()

    def test_the_optimal_values_and_occupancy_are_those_of_the_proof(self):
        V = plan(self.example.cmdp, self.example.cmdp.r).V
        _, Q = values(self.example.cmdp, self.example.best, self.example.cmdp.r)
        assert V[S0] == pytest.approx(1, **EXACT)
        assert self.example.Q_star.max(axis=1) == pytest.approx(V, **EXACT)
        backup = self.example.cmdp.r + 0.5 * (self.example.cmdp.P @ V).reshape(5, 2)
        assert backup == pytest.approx(self.example.Q_star, **EXACT)
        assert Q[S0, L] == pytest.approx(1, **EXACT)
        assert occupancy(self.example.cmdp, self.example.best) == pytest.approx(self.example.mu_star, **EXACT)

    def test_one_policy_is_optimal_and_the_other_worth_nothing(self):
        assert values(self.example.cmdp, self.example.best, self.example.cmdp.r)[0][S0] == pytest.approx(1, **EXACT)
        assert values(self.example.cmdp, self.example.spurious, self.example.cmdp.r)[0][S0] == pytest.approx(0, **EXACT)

    @pytest.mark.parametrize("alpha", [0, 0.5, 3])
    @pytest.mark.parametrize("lam", [0, 0.5, 3])
    def test_the_lagrangian_at_the_spurious_policy_is_half_of_one_plus_lambda(self, alpha, lam):
        at = self.example.lagrangian(
            self.example.mu_star, self.example.spurious, (1 + alpha) * self.example.Q_star, lam
        )
        assert at == pytest.approx((1 + lam) / 2, **EXACT)

    def test_both_policies_are_best_responses(self):
        for pi in (self.example.best, self.example.spurious):
            at = self.example.lagrangian(self.example.mu_star, pi, self.example.Q_star, 0)
            assert at == pytest.approx(1 / 2, **EXACT)

    def test_eight_of_the_thirty_two_deterministic_policies_are_spurious(self):
        policies = [np.array(actions) for actions in itertools.product((L, R), repeat=5)]
        spurious = [pi for pi in policies if self.example.is_spurious(pi)]
        assert len(spurious) == 8
        assert all(pi[S0] == R and pi[R1] == R for pi in spurious)
        assert self.example.is_spurious(self.example.spurious)
        assert not self.example.is_spurious(self.example.best)

    def test_adding_the_spurious_policys_own_values_removes_the_saddle_point(self):
        _, Q = values(self.example.cmdp, self.example.spurious, self.example.cmdp.r)
        at = self.example.lagrangian(self.example.mu_star, self.example.spurious, Q, 0)
        assert at == pytest.approx(0, **EXACT)
