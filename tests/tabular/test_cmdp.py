import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.tabular.cmdp import (
    CMDP,
    ModelError,
    backup,
    evaluate,
    extract,
    occupancy,
    plan,
    random_cmdp,
    solve_linear,
    transition_matrix,
    values,
)
from research.generators import garnet, gridworld


@st.composite
def problems(draw):
    """A random CMDP with a random policy; some transitions end the episode."""
    S, A, I = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    P = rng.dirichlet(np.full(S, 0.5), size=S * A)
    if draw(st.booleans()):
        P *= rng.uniform(size=(S * A, 1))
    r, g = rng.uniform(size=(S, A)), rng.uniform(-1, 1, size=(I, S, A))
    gamma = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    cmdp = CMDP(P, r, g, np.zeros(I), rng.dirichlet(np.ones(S)), gamma)
    return cmdp, rng.dirichlet(np.ones(A), size=S)


@given(problems())
@settings(max_examples=100, deadline=None)
def test_occupancy_obeys_the_flow_equation(problem):
    cmdp, pi = problem
    mu = occupancy(cmdp, pi)
    flow = (1 - cmdp.gamma) * cmdp.d0 + cmdp.gamma * (cmdp.P.T @ mu.ravel())
    assert np.abs(mu.sum(axis=1) - flow).max() <= 1e-13
    assert mu.min() >= 0
    if np.allclose(cmdp.P.sum(axis=1), 1):
        assert mu.sum() == pytest.approx(1, abs=1e-12)
    else:
        assert mu.sum() <= 1 + 1e-12


@given(problems())
@settings(max_examples=100, deadline=None)
def test_occupancy_and_value_function_agree_on_what_a_policy_earns(problem):
    """⟨μ^π, r⟩ = (1−γ) d_0·V^π for every reward, and V^π(s) = Q^π(s, π)."""
    cmdp, pi = problem
    earned = evaluate(cmdp, pi)
    for reward, expected in zip([cmdp.r, *cmdp.g], [earned.value, *earned.constraints], strict=True):
        V, Q = values(cmdp, pi, reward)
        assert (1 - cmdp.gamma) * cmdp.d0 @ V == pytest.approx(expected, abs=1e-11)
        assert (pi * Q).sum(axis=1) == pytest.approx(V, abs=1e-11 / (1 - cmdp.gamma))


@given(problems())
@settings(max_examples=100, deadline=None)
def test_extraction_inverts_occupancy(problem):
    cmdp, pi = problem
    mu = occupancy(cmdp, pi)
    assert np.abs(occupancy(cmdp, extract(mu)) - mu).max() <= 1e-11
    visited = mu.sum(axis=1) > 1e-9
    assert np.abs(extract(mu) - pi)[visited].max(initial=0) <= 1e-11


def test_unvisited_states_take_the_convention_asked_for():
    mu = np.array([[0.3, 0.1, 0.0], [0.0, 0.0, 0.0]])
    assert extract(mu) == pytest.approx(np.array([[0.75, 0.25, 0.0], [1 / 3, 1 / 3, 1 / 3]]), abs=1e-15)
    assert extract(mu, unvisited=2) == pytest.approx(np.array([[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]), abs=1e-15)


def test_missing_probability_ends_the_episode():
    """One state, stop with probability p: J = Σ_t (γ(1−p))^t, and the occupancy weighs (1−γ)/(1−γ(1−p))."""
    gamma, p = 0.9, 0.25
    cmdp = CMDP([[[1 - p]]], [[1.0]], [], [], [1.0], gamma)
    assert occupancy(cmdp, np.ones((1, 1)))[0, 0] == pytest.approx((1 - gamma) / (1 - gamma * (1 - p)), abs=1e-15)


def test_a_vector_of_actions_is_the_same_policy_as_its_one_hot_matrix():
    cmdp = garnet(30)
    actions = np.random.default_rng(0).integers(4, size=30)
    assert np.allclose(occupancy(cmdp, actions), occupancy(cmdp, np.eye(4)[actions]), atol=1e-15)


@pytest.mark.parametrize("cmdp", [garnet(900, gamma=0.99), gridworld(30, 30, gamma=0.99)], ids=["garnet", "grid"])
def test_the_iterative_solver_is_as_accurate_as_factorisation(cmdp):
    pi = np.random.default_rng(0).dirichlet(np.ones(cmdp.n_actions), size=cmdp.n_states)
    M = transition_matrix(cmdp, pi)
    dense = np.eye(cmdp.n_states) - cmdp.gamma * M.toarray()
    r_pi = (pi * cmdp.r).sum(axis=1)
    V, d = np.linalg.solve(dense, r_pi), np.linalg.solve(dense.T, cmdp.d0)
    assert np.abs(solve_linear(M, r_pi, cmdp.gamma) - V).max() <= 1e-11 * np.abs(V).max()
    assert np.abs(solve_linear(M.T.tocsr(), cmdp.d0, cmdp.gamma) - d).max() <= 1e-11 * np.abs(d).max()


def test_planning_finds_the_best_of_all_deterministic_policies():
    for seed in range(10):
        cmdp = random_cmdp(n_states=5, n_actions=3, gamma=0.95, seed=seed)
        best = max(evaluate(cmdp, np.array(actions)).value for actions in itertools.product(range(3), repeat=5))
        found = plan(cmdp, cmdp.r)
        assert evaluate(cmdp, found.actions).value == pytest.approx(best, abs=1e-12)
        assert best <= (1 - cmdp.gamma) * cmdp.d0 @ found.V + found.excess + 1e-12


@pytest.mark.parametrize("cmdp", [garnet(2000, gamma=0.99), gridworld(40, 40, gamma=0.99)], ids=["garnet", "grid"])
def test_large_plans_solve_the_optimality_equation(cmdp):
    found = plan(cmdp, cmdp.r)
    assert np.abs(backup(cmdp, cmdp.r, found.V).max(axis=1) - found.V).max() <= 1e-12 * (1 + np.abs(found.V).max())
    V, _ = values(cmdp, found.actions, cmdp.r)
    assert np.abs(V - found.V).max() <= 1e-9


def test_planning_ends_where_gains_are_as_small_as_its_tolerance():
    """Far from the goal of a large grid an action gains about the tolerance; planning must not go in circles."""
    cmdp = gridworld(200, 200)
    found = plan(cmdp, cmdp.r + 1e-6 * cmdp.g[0])
    assert found.excess <= 1e-11


@pytest.mark.parametrize("gamma", [0.999, 0.99999, 1 - 1e-9])
def test_planning_ends_however_near_one_the_discount_is(gamma):
    for seed in range(5):
        cmdp = random_cmdp(n_states=30, seed=seed).replace(gamma=gamma)
        found = plan(cmdp, cmdp.r)
        assert found.excess <= 1e-9 / (1 - gamma)
        stationary = evaluate(cmdp, found.actions).value
        assert (1 - gamma) * cmdp.d0 @ found.V == pytest.approx(stationary, abs=1e-5)


@pytest.mark.parametrize(
    "cmdp", [random_cmdp(seed=3), random_cmdp(n_constraints=3), garnet(200, n_constraints=2), gridworld()]
)
def test_generated_limits_are_broken_by_the_best_policy_and_kept_with_room_by_another(cmdp):
    greedy = evaluate(cmdp, plan(cmdp, cmdp.r).actions)
    safe = evaluate(cmdp, plan(cmdp, cmdp.g.sum(axis=0)).actions)
    assert (greedy.constraints < cmdp.tau - 1e-3).any()
    assert (safe.constraints > cmdp.tau + 1e-3).all()


def test_costs_under_limits_are_negative_rewards_over_negative_limits():
    base = random_cmdp(n_constraints=2)
    cost = CMDP.from_costs(base.P, base.r, 1 - base.g, 1 - base.tau, base.d0, base.gamma)
    pi = np.full(base.r.shape, 1 / base.n_actions)
    assert evaluate(cost, pi).constraints - cost.tau == pytest.approx(evaluate(base, pi).constraints - base.tau)


def test_error_is_the_larger_of_loss_and_violation():
    cmdp = CMDP([[[1.0]]], [[0.5]], [[[0.2]]], [0.6], [1.0], 0.5)
    earned = evaluate(cmdp, np.ones((1, 1)))
    assert earned.error(cmdp, optimum=0.6) == pytest.approx(0.4)
    assert earned.error(cmdp.replace(tau=[0.1]), optimum=0.6) == pytest.approx(0.1)
    assert earned.error(cmdp.replace(tau=[0.1]), optimum=0.4) == 0


GOOD = {"P": np.full((2, 2, 2), 0.5), "r": np.ones((2, 2)), "g": np.ones((1, 2, 2)), "tau": [0], "d0": [1, 0]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"P": np.full((2, 2, 2), 0.6)}, "state 0, action 0.* sum to 1.2"),
        ({"P": np.array([1.5, -0.5] * 4).reshape(2, 2, 2)}, "negative"),
        ({"P": np.full((2, 2, 3), 1 / 3)}, r"P has shape \(4, 3\)"),
        ({"d0": [0.5, 0.4]}, "d0 sums to 0.9"),
        ({"d0": [1.0]}, "d0 has shape"),
        ({"gamma": 1.0}, "gamma is 1.0"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"r": np.full((2, 2), np.nan)}, "r has an entry that is not a finite number"),
        ({"tau": [0, 1]}, "g has shape"),
        ({"r": np.ones(4)}, "r has shape"),
    ],
)
def test_a_wrong_model_is_refused_in_one_line(change, complaint):
    with pytest.raises(ModelError, match=complaint) as caught:
        CMDP(**{"gamma": 0.9, **GOOD, **change})
    assert "\n" not in str(caught.value)
