import itertools

import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular.cmdp import evaluate, extract, occupancy, random_cmdp, values
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import slater_margin, solve_lp
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets
from research.counterexamples import spurious_v_saddle
from research.known import lagrangian, lower_value, solve_known, upper_value


def problem(seed=0, n_constraints=1, n_states=8):
    """A CMDP with costs, a data distribution that covers everything, and sets as the theory asks for them."""
    cmdp = random_cmdp(n_states=n_states, n_constraints=n_constraints, seed=seed)
    cmdp = cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
    mu_D = np.random.default_rng(seed).dirichlet(np.full(cmdp.r.size, 5.0)).reshape(cmdp.r.shape)
    L = Lagrangian.population(cmdp, mu_D)
    C = 1.5 * (solve_lp(cmdp).mu / mu_D).max()
    return cmdp, mu_D, L, Sets.tight(L, C, 1 + 1 / slater_margin(cmdp))


def empirical(cmdp, mu_D, size, seed=0):
    names = ["cost"] if cmdp.n_constraints == 1 else [f"cost_{i}" for i in range(cmdp.n_constraints)]
    limits = as_limits({name: -tau for name, tau in zip(names, cmdp.tau, strict=True)})
    return Lagrangian.empirical(Counts.sample(cmdp, mu_D, size, seed), cmdp.gamma, limits)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_constraints", [1, 3])
def test_on_the_population_the_extracted_policy_is_optimal(seed, n_constraints):
    cmdp, mu_D, L, sets = problem(seed, n_constraints)
    found = solve_known(L, sets, mu_D)
    optimum = solve_lp(cmdp)
    assert found.lower == pytest.approx(optimum.value, abs=1e-9)
    assert 0 <= found.gap + 1e-12 <= 1e-9
    assert evaluate(cmdp, found.pi).error(cmdp, optimum.value) <= 1e-8


def test_its_error_falls_with_the_square_root_of_the_data():
    cmdp, mu_D, _, sets = problem()
    optimum = solve_lp(cmdp).value
    errors = []
    for size in (10**3, 10**5, 10**7):
        each = [solve_known(empirical(cmdp, mu_D, size, seed), sets, mu_D).pi for seed in range(5)]
        errors.append(np.mean([evaluate(cmdp, pi).error(cmdp, optimum) for pi in each]))
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3
    assert errors[2] < 1e-3


def test_extraction_uses_the_true_distribution_and_not_the_frequencies():
    cmdp, mu_D, _, sets = problem()
    found = solve_known(empirical(cmdp, mu_D, 2000), sets, mu_D)
    assert found.pi == pytest.approx(extract(found.w * mu_D))
    assert np.abs(found.pi - extract(found.w * empirical(cmdp, mu_D, 2000).mu_D)).max() > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_the_two_values_are_the_players_best_responses(seed):
    """min over V and λ is at corners of their sets, max over w at corners of its box; here all are tried."""
    _, _, L, sets = problem(seed, n_constraints=2, n_states=3)
    rng = np.random.default_rng(seed)
    w, V = rng.uniform(0, sets.C, size=L.r.shape), rng.uniform(sets.q_low, sets.q_high, size=3)
    lam = rng.dirichlet(np.ones(3))[:2] * sets.B
    corners_V = [np.array(v) for v in itertools.product((sets.q_low, sets.q_high), repeat=3)]
    corners_lam = [np.zeros(2), *(sets.B * np.eye(2))]
    least = min(lagrangian(L, w, v, l) for v in corners_V for l in corners_lam)
    assert lower_value(L, sets, w) == pytest.approx(least, abs=1e-10)
    most = max(lagrangian(L, np.reshape(u, L.r.shape), V, lam) for u in itertools.product((0, sets.C), repeat=L.r.size))
    assert upper_value(L, sets, V, lam) == pytest.approx(most, abs=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_the_v_form_identities_hold_with_the_extracted_policy_and_only_with_it(seed):
    """L(w^π; V, λ) for any V, and L(w; V_λ^π(w), λ) = (1−γ)J_0(π) + Σ λ_i((1−γ)J_i(π) − τ_i) for π = π(w).

    The paper states the second for any μ (proof of Lemma 10); with another policy's value function it is false.
    """
    cmdp, mu_D, L, _ = problem(seed, n_constraints=2)
    rng = np.random.default_rng(seed)
    lam = rng.uniform(0, 2, size=2)

    def payoff(pi):
        earned = evaluate(cmdp, pi)
        return earned.value + lam @ (earned.constraints - cmdp.tau)

    pi, other = rng.dirichlet(np.ones(3), size=(2, 8))
    V = rng.normal(size=8)
    assert lagrangian(L, occupancy(cmdp, pi) / mu_D, V, lam) == pytest.approx(payoff(pi), abs=1e-11)
    w = rng.uniform(0, 2, size=L.r.shape)
    r_lam = cmdp.r + np.tensordot(lam, cmdp.g, axes=1)
    own, _ = values(cmdp, extract(w * mu_D), r_lam)
    assert lagrangian(L, w, own, lam) == pytest.approx(payoff(extract(w * mu_D)), abs=1e-11)
    others, _ = values(cmdp, other, r_lam)
    assert abs(lagrangian(L, w, others, lam) - payoff(other)) > 1e-3


def test_all_value_functions_in_the_box_rule_out_the_papers_spurious_saddle_point():
    example = spurious_v_saddle()
    mu_D = np.full((5, 2), 1 / 10)
    L = Lagrangian.population(example.cmdp, mu_D)
    found = solve_known(L, Sets.tight(L, C=20.0, B=2.0), mu_D, unvisited=1)
    assert evaluate(example.cmdp, found.pi).value == pytest.approx(1 / 2, abs=1e-9)


def test_the_printed_bound_on_violation_is_too_strong_and_twice_epsilon_holds():
    """Theorem 12 promises (1−γ)J_i ≥ τ_i − 4ε/B; the last step of its proof needs the opposite inequality.

    Three arms and one state: `safe` is inside the limit by φ, `best` on it, `over` outside. The frequency of `best` is
    off by a factor ρ, which makes ε = (1−ρ)Bτ. Every condition of the theorem holds, ŵ on `over` is a saddle point, and
    it breaks the limit by 1.6 times what is promised. From the inequality before, −m ≤ 2ε/(B − ‖λ*‖₁) ≤ 2ε.
    """
    tau, phi, slope, miss = 0.5, 0.1, 9.3, 0.006
    B = 1 + 1 / phi
    reward, signal = np.array([0, 0.94, 0.94 + slope * miss]), np.array([tau + phi, tau, tau - miss])
    epsilon = miss * (B - slope)
    rho = np.array([1, 1 - epsilon / (B * tau), 1])  # μ̂_D/μ_D; `safe` could absorb the rest and is not in W
    gamma, values_of = 0.5, []  # one state: (1−γ)V of arm a is its reward, plus B times its signal
    for arm in (1, 2):
        values_of += [reward[arm], reward[arm] + B * signal[arm]]

    def L_hat(arm, v, lam, ratio):
        """v = (1−γ)V: (1−γ)V + w μ (r_λ + γV − V) − λτ with w μ_D = 1 on one arm."""
        V = v / (1 - gamma)
        return (1 - gamma) * V + ratio * (reward[arm] + lam * signal[arm] + gamma * V - V) - lam * tau

    grid = [(arm, v, lam) for arm in (1, 2) for v in values_of for lam in np.linspace(0, B, 101)]
    off = max(abs(L_hat(arm, v, lam, rho[arm]) - L_hat(arm, v, lam, 1)) for arm, v, lam in grid)
    assert off == pytest.approx(epsilon)  # uniform over the classes, as the theorem asks

    v_hat, lam_hat = reward[1], B
    at = L_hat(2, v_hat, lam_hat, rho[2])
    assert at >= L_hat(1, v_hat, lam_hat, rho[1]) - 1e-12  # no better w
    assert all(at <= L_hat(2, v, lam, rho[2]) + 1e-12 for arm, v, lam in grid if arm == 2)  # no better (V, λ)

    mixtures = np.random.default_rng(0).dirichlet(np.ones(3), size=20_000)
    feasible = mixtures @ signal >= tau
    assert (mixtures[feasible] @ reward).max() <= reward[1]  # `best` is the optimum …
    assert signal.max() - tau == pytest.approx(phi)  # … and φ the Slater margin
    assert miss > 1.6 * 4 * epsilon / B
    assert miss <= 2 * epsilon


def test_a_distribution_of_the_wrong_shape_is_refused():
    _, mu_D, L, sets = problem()
    with pytest.raises(PdocrlError, match="mu_D must be a distribution"):
        solve_known(L, sets, mu_D.ravel())
