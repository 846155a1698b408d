"""The Lagrangian is the paper's: its identities, its gradients, and its empirical form as an average over samples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, as_limits
from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy, random_cmdp, values
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets, behaviour_mass, pessimistic_model, policy_of


def random_play(cmdp: CMDP, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """μ_D, w, π, Q, λ at random."""
    shape, n = cmdp.r.shape, cmdp.n_constraints
    mu_D = rng.dirichlet(np.ones(cmdp.r.size)).reshape(shape)
    pi = rng.dirichlet(np.ones(shape[1]), size=shape[0])
    return mu_D, rng.uniform(0, 5, shape), pi, rng.normal(size=shape) * 10, rng.uniform(0, 3, n)


@pytest.mark.parametrize("seed", range(50))
def test_both_identities_hold(seed: int) -> None:
    """L(w^π, π; Q, λ) and L(w, π; Q_λ^π, λ) are both (1−γ)J_0 + λ·((1−γ)J − τ), for any Q and any w (Lemma 13)."""
    rng = np.random.default_rng(seed)
    gamma, constraints = (0.5, 0.9, 0.95, 0.99)[seed % 4], 1 + seed % 3
    cmdp = random_cmdp(8, 3, constraints, gamma, seed=seed)
    mu_D, w, pi, Q, lam = random_play(cmdp, rng)
    L = Lagrangian.population(cmdp, mu_D)
    earned = evaluate(cmdp, pi)
    expected = earned.value + lam @ (earned.constraints - cmdp.tau)
    assert L(occupancy(cmdp, pi) / mu_D, pi, Q, lam) == pytest.approx(expected, abs=1e-11)
    _, Q_pi = values(cmdp, pi, L.reward(lam))
    assert L(w, pi, Q_pi, lam) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("seed", range(10))
def test_gradients_are_those_of_the_function(seed: int) -> None:
    """L is linear in each player, so a step along a gradient changes it by exactly the inner product."""
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(6, 3, 2, seed=seed)
    mu_D, w, pi, Q, lam = random_play(cmdp, rng)
    L = Lagrangian.population(cmdp, mu_D)
    steps = [rng.normal(size=x.shape) for x in (w, pi, Q, lam)]
    gradients = (L.grad_w(pi, Q, lam), L.grad_pi(w, Q), L.grad_Q(w, pi), L.grad_lam(w))
    base = L(w, pi, Q, lam)
    for i, (step, gradient) in enumerate(zip(steps, gradients, strict=True)):
        moved = [x + step if i == j else x for j, x in enumerate((w, pi, Q, lam))]
        assert L(*moved) - base == pytest.approx(np.vdot(step, gradient), rel=1e-9, abs=1e-11)


def test_the_empirical_lagrangian_is_the_average_over_samples() -> None:
    """L̂ of counts is the sum over samples of Section 3.3, term by term; where some were terminal, μ̂_D has less mass."""
    rng = np.random.default_rng(0)
    n, S, A, gamma = 500, 5, 3, 0.9
    s, a, then = rng.integers(S, size=n), rng.integers(A, size=n), rng.integers(S, size=n)
    r, c, over = rng.normal(size=n), rng.uniform(size=(n, 2)), rng.random(n) < 0.1
    counts = Counts.from_arrays(s, a, then, r, c, terminal=over, d0=np.eye(S)[2])
    L = Lagrangian.empirical(counts, gamma, [Limit("cost_0", 0.3), Limit("cost_1", 0.2, ">=")])
    w, pi = rng.uniform(0, 4, (S, A)), rng.dirichlet(np.ones(A), size=S)
    Q, lam = rng.normal(size=(S, A)), np.array([0.7, 1.9])
    V = (pi * Q).sum(axis=1)
    r_lam = r - lam[0] * c[:, 0] + lam[1] * c[:, 1]
    average = behaviour_mass(counts, gamma) * np.mean(w[s, a] * (r_lam + gamma * np.where(over, 0, V[then]) - Q[s, a]))
    assert L(w, pi, Q, lam) == pytest.approx((1 - gamma) * V[2] + average - lam @ [-0.3, 0.2], abs=1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_every_value_function_lies_in_the_sets(seed: int) -> None:
    """All-policy realisability: Q_λ^π ∈ [q_low, q_high] for every π and λ ∈ BΔ, with costs and negative rewards too."""
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(5, 2, 2, float(rng.uniform(0.3, 0.98)), seed=seed)
    cmdp = cmdp.replace(r=cmdp.r - rng.uniform(0, 1.5), g=cmdp.g - rng.uniform(0, 1.5))
    L = Lagrangian.population(cmdp, np.full(cmdp.r.shape, 0.1))
    sets = Sets.tight(L, C=2, B=float(rng.uniform(0, 10)))
    pi = rng.dirichlet(np.full(2, 0.2), size=5)
    lam = sets.B * rng.dirichlet(np.full(3, 0.3))[:2]
    _, Q = values(cmdp, pi, L.reward(lam))
    assert sets.q_low - 1e-9 <= Q.min()
    assert Q.max() <= sets.q_high + 1e-9
    paper = Sets.paper(L, C=2, phi=0.5)
    assert paper.q_low <= Sets.tight(L, 2, paper.B).q_low
    assert paper.q_high >= Sets.tight(L, 2, paper.B).q_high


def test_the_papers_box_for_rewards_in_the_unit_interval() -> None:
    cmdp = random_cmdp(4, 2, 1, gamma=0.9, seed=0)
    r, g = cmdp.r.copy(), cmdp.g.copy()
    r[0, 0] = g[0, 0, 0] = 1
    sets = Sets.paper(Lagrangian.population(cmdp.replace(r=r, g=g), np.full((4, 2), 0.125)), C=3, phi=0.25)
    assert sets.B == 5
    assert sets.q_high == -sets.q_low == pytest.approx((2 + 1 / 0.25) / 0.1)


def test_leaving_the_data_is_followed_by_the_worst_of_every_signal() -> None:
    counts = Counts.from_arrays([0, 0, 0], [0, 1, 0], [0, 1, 0], [1.0, 0.2, 1.0], [0.0, 0.5, 0.0], d0=[1.0, 0.0])
    L = Lagrangian.empirical(counts, 0.9, as_limits(["cost<=0.1"]))
    model = pessimistic_model(L)
    stay, leave = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    assert evaluate(model, stay).value == pytest.approx(1.0)
    # One step of 0.2 and cost 0.5, then state 1, of which the log knows nothing: reward 0 and cost 0.5 for ever.
    assert evaluate(model, leave).value == pytest.approx(0.1 * 0.2)
    assert evaluate(model, leave).constraints[0] == pytest.approx(-0.5)


def test_a_state_without_mass_keeps_the_logs_own_policy_and_an_unseen_one_its_mix() -> None:
    counts = Counts.from_arrays([0, 0, 1, 1, 1], [0, 1, 0, 1, 1], [1, 2, 0, 0, 0], np.zeros(5), n_states=3, n_actions=2)
    L = Lagrangian.empirical(counts, 0.9)
    nu = np.array([[0.2, 0.6], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(policy_of(L, nu), [[0.25, 0.75], [1 / 3, 2 / 3], [2 / 5, 3 / 5]])


@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_gamma_lies_strictly_between_0_and_1(gamma: float) -> None:
    counts = Counts.from_arrays([0], [0], [0], [1.0])
    with pytest.raises(PdocrlError, match="strictly between 0 and 1"):
        Lagrangian.empirical(counts, gamma)


def test_a_limit_on_a_column_that_is_not_there_is_refused_with_a_suggestion() -> None:
    counts = Counts.from_arrays([0], [0], [0], [1.0], {"stockout": [0.0]})
    with pytest.raises(PdocrlError, match=r"'stokout'. Did you mean `stockout`\?"):
        Lagrangian.empirical(counts, 0.9, [Limit("stokout", 0.1)])


def test_sets_refuse_what_would_make_the_theory_void() -> None:
    L = Lagrangian.population(random_cmdp(3, 2, 1), np.full((3, 2), 1 / 6))
    for bad in ({"C": 0.0, "B": 1.0}, {"C": 1.0, "B": -1.0}, {"C": np.nan, "B": 1.0}):
        with pytest.raises(PdocrlError):
            Sets.tight(L, **bad)
    with pytest.raises(PdocrlError, match="multipliers are unbounded"):
        Sets.paper(L, C=1, phi=0.0)
    assert dataclasses.replace(Sets.tight(L, 1, 1), C=2).C == 2
