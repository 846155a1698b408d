import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.tabular.cmdp import CMDP, evaluate, extract, occupancy, plan, random_cmdp
from pdocrl.tabular.solvers.exact import dual_bound, slater_margin, solve, solve_columns, solve_lp, upper_bound
from research.generators import garnet, gridworld

SOLVERS = {"simplex": solve_lp, "ipm": lambda cmdp: solve_lp(cmdp, "ipm"), "columns": solve_columns}


def random_problem(seed, **fixed):
    rng = np.random.default_rng(seed)
    return random_cmdp(
        n_states=int(rng.integers(3, 25)),
        n_actions=int(rng.integers(2, 6)),
        n_constraints=fixed.get("n_constraints", 1 + seed % 3),
        gamma=float(rng.choice([0.5, 0.9, 0.95, 0.99])),
        tightness=float(rng.uniform(0.2, 0.8)),
        seed=seed,
    )


@pytest.mark.parametrize("block", range(6))
def test_duality_extraction_and_the_dual_bound_hold_on_sixty_random_problems(block):
    for seed in range(10 * block, 10 * block + 10):
        cmdp = random_problem(seed)
        lp, ipm, columns = (solver(cmdp) for solver in SOLVERS.values())
        assert lp.status == ipm.status == columns.status == "optimal"
        dual = (1 - cmdp.gamma) * cmdp.d0 @ lp.V - lp.lam @ cmdp.tau
        assert dual == pytest.approx(lp.value, abs=1e-10)
        assert abs(lp.gap) <= 1e-10
        assert abs(ipm.gap) <= 1e-10
        assert np.abs(occupancy(cmdp, extract(lp.mu)) - lp.mu).max() <= 1e-10
        assert (lp.constraints >= cmdp.tau - 1e-11).all()
        assert ipm.value == pytest.approx(lp.value, abs=1e-10)
        assert columns.value == pytest.approx(lp.value, abs=2e-8)
        assert (columns.constraints >= cmdp.tau - 1e-9).all()
        phi = slater_margin(cmdp)
        assert phi > 0
        for solution in (lp, ipm, columns):
            assert solution.lam.sum() * phi <= 1
            assert solution.lam.sum() <= dual_bound(cmdp) - 1


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 8])
def test_multipliers_are_the_slope_of_the_optimum_in_the_limits(solver, seed):
    """∂V*/∂τ_i = −λ_i, by central differences; V* is piecewise linear, so they are exact away from its corners."""
    cmdp = random_problem(seed)
    lam = SOLVERS[solver](cmdp).lam
    for i in range(cmdp.n_constraints):
        step = 1e-6 * np.eye(cmdp.n_constraints)[i]
        up, down = (solve_lp(cmdp.replace(tau=cmdp.tau + sign * step)).value for sign in (1, -1))
        assert (down - up) / 2e-6 == pytest.approx(lam[i], abs=1e-4)


def test_flow_multipliers_are_the_slope_of_the_optimum_in_the_start_distribution():
    """∂V*/∂d_0(s) = (1−γ)V(s)."""
    cmdp = random_problem(4)
    V = solve_lp(cmdp).V
    towards = np.random.default_rng(0).dirichlet(np.ones(cmdp.n_states)) - cmdp.d0
    up, down = (solve_lp(cmdp.replace(d0=cmdp.d0 + h * towards)).value for h in (1e-6, -1e-6))
    assert (up - down) / 2e-6 == pytest.approx((1 - cmdp.gamma) * towards @ V, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_is_the_best_mixture_of_two_of_all_deterministic_policies(seed):
    """With one constraint the optimum mixes two deterministic policies; here all pairs are tried."""
    cmdp = random_cmdp(n_states=4, n_actions=2, seed=seed)
    earned = [evaluate(cmdp, np.array(actions)) for actions in itertools.product(range(2), repeat=4)]
    best = -np.inf
    for (v, (g,)), (v2, (g2,)) in itertools.product(earned, repeat=2):
        if g >= cmdp.tau[0] > g2:
            weight = (cmdp.tau[0] - g2) / (g - g2)
            best = max(best, weight * v + (1 - weight) * v2, v)
        elif g >= cmdp.tau[0]:
            best = max(best, v)
    for name, solver in SOLVERS.items():
        assert solver(cmdp).value == pytest.approx(best, abs=1e-8), name


@pytest.mark.parametrize("n_constraints", [1, 2, 3])
def test_few_deterministic_policies_mix_to_the_optimum_and_one_stationary_policy_equals_their_mixture(n_constraints):
    cmdp = garnet(500, n_constraints=n_constraints, gamma=0.99)
    found = solve_columns(cmdp)
    assert found.status == "optimal"
    assert 1 <= len(found.weights) <= n_constraints + 1
    mixed = sum(w * evaluate(cmdp, a).value for w, a in zip(found.weights, found.policies, strict=True))
    assert found.value == pytest.approx(mixed, abs=1e-10)
    assert evaluate(cmdp, found.pi).value == pytest.approx(mixed, abs=1e-10)
    assert found.value == pytest.approx(solve_lp(cmdp).value, abs=1e-7)


@given(seed=st.integers(0, 1000), scale=st.floats(0, 3))
@settings(max_examples=40, deadline=None)
def test_any_value_function_and_any_multipliers_bound_the_optimum(seed, scale):
    cmdp = random_cmdp(n_states=6, n_constraints=2, seed=seed % 7)
    rng = np.random.default_rng(seed)
    V, lam = rng.normal(scale=scale, size=6) + 5, rng.exponential(scale, size=2)
    assert upper_bound(cmdp, V, lam) >= solve_lp(cmdp).value - 1e-11


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_constraints", [1, 3])
def test_limits_no_policy_keeps_are_reported_with_a_proof(solver, n_constraints):
    cmdp = random_problem(7, n_constraints=n_constraints)
    cmdp = cmdp.replace(tau=cmdp.tau + slater_margin(cmdp) + 0.01)
    assert slater_margin(cmdp) == pytest.approx(-0.01, abs=1e-9)
    assert dual_bound(cmdp) == np.inf
    found = SOLVERS[solver](cmdp)
    assert found.status == "infeasible"
    assert found.bound == -np.inf
    assert (found.constraints - cmdp.tau).min() == pytest.approx(-0.01, abs=1e-8)  # the smallest possible violation
    assert found.lam.sum() == pytest.approx(1, abs=1e-9)
    assert upper_bound(cmdp, found.V, found.lam, reward=False) < 0  # so no policy is feasible


@pytest.mark.parametrize("solver", SOLVERS)
def test_limits_that_leave_no_room_are_still_feasible(solver):
    cmdp = random_problem(9, n_constraints=1)
    cmdp = cmdp.replace(tau=cmdp.tau + slater_margin(cmdp) - 1e-12)
    found = SOLVERS[solver](cmdp)
    assert found.status != "infeasible"
    safest = evaluate(cmdp, plan(cmdp, cmdp.g[0]).actions)
    assert found.value == pytest.approx(safest.value, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_constraints_the_optimum_is_the_plan(solver):
    cmdp = random_problem(3).replace(g=[], tau=[])
    assert SOLVERS[solver](cmdp).value == pytest.approx(evaluate(cmdp, plan(cmdp, cmdp.r).actions).value, abs=1e-10)
    assert slater_margin(cmdp) == np.inf
    assert dual_bound(cmdp) == 1


def test_both_methods_agree_where_episodes_end():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(8), size=24) * rng.uniform(0.5, 1, size=(24, 1))
    r, cost = rng.uniform(size=(2, 8, 3))
    free = CMDP.from_costs(P, r, [cost], [10.0], np.full(8, 1 / 8), 0.95)
    cmdp = free.replace(tau=evaluate(free, plan(free, r).actions).constraints / 2)
    lp, columns = solve_lp(cmdp), solve_columns(cmdp)
    assert lp.lam[0] > 0
    assert columns.value == pytest.approx(lp.value, abs=2e-8)
    assert lp.mu.sum() < 0.9


def test_rare_transitions_are_not_dropped():
    """HiGHS ignores matrix entries below 1e-9 unless told otherwise; here they decide which action is better."""
    P = np.array([[[1 - 1e-10, 1e-10, 0], [1 - 1e-10, 0, 1e-10]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2])
    r = np.array([[0.0, 0.0], [1e4, 1e4], [2e4, 2e4]])
    found = solve_lp(CMDP(P, r, [], [], [1.0, 0, 0], 0.9))
    assert found.pi[0].tolist() == [0.0, 1.0]


def test_large_problems_go_to_the_decomposition_and_small_ones_to_the_simplex_method():
    assert len(solve(garnet(20)).weights) == 0
    large = solve(gridworld(20, 20))
    assert len(large.weights) == 2
    assert large.value == pytest.approx(solve_lp(gridworld(20, 20)).value, abs=1e-7)


def test_a_cap_on_policies_is_reported_as_approximate():
    found = solve_columns(garnet(100), max_policies=4)
    assert found.status == "approximate"
    assert found.value <= solve_lp(garnet(100)).value <= found.bound
