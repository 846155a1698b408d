"""The computations behind docs/where-the-paper-is-off.md that are not made elsewhere."""

import numpy as np
import pytest

from pdocrl.tabular.cmdp import evaluate, values
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import ProjectedGradient, make_players, run
from pdocrl.tabular.solvers.exact import slater_margin, solve_lp
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Point, Sets, certify, expected
from research.generators import garnet


@pytest.fixture(scope="module")
def setting():
    """A garnet with a cost limit, data uniform over pairs, and the paper's sets."""
    cmdp = garnet(20, gamma=0.9)
    cmdp = cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
    L = Lagrangian.population(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size))
    C = float((solve_lp(cmdp).mu / L.mu_D).max())
    return cmdp, L, Sets.paper(L, C, slater_margin(cmdp))


def test_projected_gradient_has_regret_with_the_square_of_the_gradient():
    """Gradients +G, −G, … on [0, C]: average regret ηG²/2. The paper's bound has ηG/2 there and is passed."""
    T, C, G = 10_000, 2.0, 100.0
    eta = 1 / np.sqrt(T)
    player = ProjectedGradient(np.zeros(1), 0.0, C, lambda t: eta)
    gained, total = 0.0, 0.0
    for t in range(T):
        g = G * (-1) ** t
        gained += g * player.play[0]
        total += g
        player.respond(np.array([g]))
    regret = (C * max(total, 0) - gained) / T
    assert regret == pytest.approx(eta * G**2 / 2)
    assert regret > 50 * (2 * C**2 / (eta * T) + eta * G / 2)  # what Appendix D.2 allows, and far more
    assert regret <= C**2 / (2 * eta * T) + eta * G**2 / 2  # what is true


def test_in_the_game_itself_the_papers_bound_on_the_regret_of_w_fails(setting):
    """Algorithm 1 with η = 1/√T, as Theorem crl-pd sets it."""
    cmdp, L, sets = setting
    T = 2000
    eta = 1 / np.sqrt(T)
    players = make_players("pdocrl", L, sets, T, eta=eta)
    total, gained, G = np.zeros_like(L.r), 0.0, 0.0
    for _ in range(T):
        w, pi = players.w.play, players.pi.play
        mu = w * L.mu_D
        lam = players.lam.respond(-L.slack(mu))
        Q = players.Q.respond(mu - pi * L.inflow(mu)[:, None])
        gradient = L.residual(expected(Q, pi), Q, lam)
        G = max(G, float(np.abs(gradient).max()))
        gained += np.vdot(mu, gradient)
        total += L.mu_D * gradient
        players.w.respond(gradient)
        players.pi.respond(Q)
    regret = (sets.C * np.maximum(total, 0).sum() - gained) / T
    claimed = 2 * sets.C**2 / (eta * T) + eta * (sets.B + 2 / (1 - cmdp.gamma)) / 2
    assert regret > 5 * claimed
    assert regret <= sets.C**2 / (2 * eta * T) + eta * G**2 / 2


def test_the_difference_in_w_is_an_inner_product_over_samples_divided_by_their_number(setting):
    """Appendix D.2 leaves out 1/n."""
    cmdp, L, _ = setting
    rng = np.random.default_rng(0)
    n = 500
    counts = Counts.sample(cmdp, L.mu_D, n)
    L_hat = Lagrangian(counts.mu, counts.P, cmdp.r, cmdp.g, cmdp.tau, cmdp.d0, cmdp.gamma)
    w, other, Q = rng.uniform(size=(3, *L.r.shape))
    pi, lam = rng.dirichlet(np.ones(4), size=20), np.ones(1)
    gradient = L_hat.residual(expected(Q, pi), Q, lam)
    over_samples = float((counts.n * (w - other) * gradient).sum())
    assert L_hat(w, pi, Q, lam) - L_hat(other, pi, Q, lam) == pytest.approx(over_samples / n)


def test_the_value_functions_the_theory_needs_exceed_one_over_one_minus_gamma(setting):
    """Realisability asks for Q_0^π + BQ_i^π; Lemmas 11 and 16 bound the class by 1/(1−γ)."""
    cmdp, _, sets = setting
    pi = np.full(cmdp.r.shape, 1 / cmdp.n_actions)
    _, Q = values(cmdp, pi, cmdp.r + sets.B * (cmdp.g[0] + 1))  # with the signal back in [0, 1]
    assert Q.max() > 1 / (1 - cmdp.gamma)
    assert Q.max() <= (1 + sets.B) / (1 - cmdp.gamma)  # Assumption 5, as B = 1 + 1/φ


def test_the_lagrangian_is_a_mixture_of_its_values_at_zero_and_at_B_times_the_unit_vectors(setting):
    """The proofs of Lemmas 11 and 16 write e_i for Be_i."""
    _, L, sets = setting
    rng = np.random.default_rng(0)
    w, Q = rng.uniform(size=(2, *L.r.shape))
    pi, alpha = rng.dirichlet(np.ones(4), size=20), 0.3
    at = {lam: L(w, pi, Q, np.array([lam])) for lam in (0.0, 1.0, sets.B, alpha * sets.B)}
    assert at[alpha * sets.B] == pytest.approx((1 - alpha) * at[0.0] + alpha * at[sets.B])
    assert abs(at[alpha * sets.B] - (1 - alpha) * at[0.0] - alpha * at[1.0]) > 0.05


def test_multiplier_and_value_function_do_not_meet_in_the_lagrangian(setting):
    """So the greedy λ_t may be chosen at Q_{t−1} or at any other Q."""
    _, L, _ = setting
    rng = np.random.default_rng(0)
    w, Q, other = rng.uniform(size=(3, *L.r.shape))
    pi, lam = rng.dirichlet(np.ones(4), size=20), np.array([0.7])
    zero = np.zeros(1)
    assert L(w, pi, Q, lam) - L(w, pi, Q, zero) == pytest.approx(L(w, pi, other, lam) - L(w, pi, other, zero))


def test_the_printed_practical_objective_falls_in_the_multiplier_at_any_cost(setting):
    """For J_c ≤ limit, −λ·limit beside r − λc (Appendix F.2) has slope −E[wc] − limit < 0; it should be + (1−γ)·limit.

    In our form r_1 = −c and τ = −limit, so that −λτ carries the right sign by itself.
    """
    cmdp, L, _ = setting
    limit, pi = -cmdp.tau[0], np.full(cmdp.r.shape, 1 / cmdp.n_actions)
    for w in (np.zeros(L.r.shape), np.ones(L.r.shape)):
        cost = -np.vdot(w * L.mu_D, cmdp.g[0])
        assert -cost - limit < 0  # as printed: λ grows for ever, even with no cost at all
        slope = L(w, pi, cmdp.r, np.ones(1)) - L(w, pi, cmdp.r, np.zeros(1))
        assert slope == pytest.approx(limit - cost)  # falls only where the cost is over the limit


def test_a_slater_margin_of_one_leaves_only_limits_of_zero():
    """(1−γ)J_i ≤ 1 for signals in [0, 1], so τ_i + φ ≤ 1; Appendix F.3 sets φ = 1."""
    cmdp = garnet(20)
    assert slater_margin(cmdp.replace(tau=[0.05])) < 0.95
    everything = cmdp.replace(g=np.ones_like(cmdp.g), tau=[0.0])
    assert slater_margin(everything) == pytest.approx(1)
    assert slater_margin(everything.replace(tau=[0.05])) == pytest.approx(0.95)


def test_the_last_play_is_no_saddle_point_where_the_averaged_one_is_becoming_one(setting):
    """Greedy Q and λ only ever play the ends of their sets, so their last plays say nothing; the average does.

    The last policy is another matter: Hedge moves slowly, and its last policy is about as good as the averaged one.
    """
    cmdp, L, paper = setting
    sets = Sets.tight(L, paper.C, 2.0)
    T = 3000
    players = make_players("pdocrl", L, sets, T, averaging="linear")
    (average,) = run(L, players, T)
    w, pi = players.w.play, players.pi.play
    mu = w * L.mu_D
    nu = pi * L.inflow(mu)[:, None]
    last = Point(mu, nu, players.Q.respond(mu - nu), players.lam.respond(-L.slack(mu)))
    assert np.isin(last.Q, [sets.q_low, sets.q_high]).all()
    assert last.lam[0] in (0, sets.B)
    assert certify(L, sets, last).gap > 20 * certify(L, sets, average).gap
    optimum = solve_lp(cmdp).value
    averaged = average.nu / average.nu.sum(axis=1, keepdims=True)
    errors = [evaluate(cmdp, policy).error(cmdp, optimum) for policy in (averaged, pi)]
    assert errors[1] == pytest.approx(errors[0], rel=0.3)
