"""Tables are the case of one-hot features, the certificate is the exact gap, counterexamples come out as proved."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pdocrl import approximate
from pdocrl.approximate.certificate import certify, lower_value, upper_value
from pdocrl.approximate.classes import FunctionClass, PairBasis, StateBasis
from pdocrl.approximate.game import Game, Saddle
from pdocrl.approximate.lp import best_response, saddle_lp
from pdocrl.approximate.saddle import make_players, run
from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular import Counts, Lagrangian, Sets, evaluate, random_cmdp, values
from pdocrl.tabular.cmdp import as_matrix
from pdocrl.tabular.solvers import algorithms
from pdocrl.tabular.solvers.lagrangian import Units
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle
from research.counterexamples import QSaddle, spurious_q_saddle


def log_of(seed: int, n_constraints: int, ends: float = 0.0) -> Counts:
    cmdp = random_cmdp(8, 3, n_constraints, 0.9, seed=seed)
    if ends:
        cmdp = cmdp.replace(P=cmdp.P * (1 - ends))
    return Counts.sample(cmdp, np.random.default_rng(seed).dirichlet(np.ones(24)), 3000, seed)


def small_game(seed: int, n_constraints: int = 2) -> Game:
    """Random nonnegative bases on 4 states and 2 actions."""
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(4, 2, n_constraints, 0.8, seed=seed)
    L = Lagrangian.population(cmdp, rng.dirichlet(np.ones(8)).reshape(4, 2))
    W = FunctionClass.box(PairBasis(rng.uniform(size=(8, 2)), 2), 0.0, 1.5)
    Q = FunctionClass.box(PairBasis(rng.normal(size=(8, 3)), 2), -3.0, 4.0)
    return Game(L, W, Q, 2.5)


def random_point(game: Game, rng: np.random.Generator) -> Saddle:
    theta_w, theta_Q = rng.uniform(0, 1.5, 2), rng.uniform(-3, 4, 3)
    pi = rng.dirichlet(np.ones(2), size=4)
    lam = game.B * rng.dirichlet(np.ones(1 + len(game.L.tau)))[1:]
    return Saddle(theta_w, game.nu(game.mu(theta_w), pi), theta_Q, lam)


@pytest.mark.parametrize(("n_constraints", "ends"), [(0, 0.0), (1, 0.0), (2, 0.1)])
def test_one_hot_features_give_the_answer_of_tables(n_constraints: int, ends: float) -> None:
    counts = log_of(n_constraints, n_constraints, ends)
    names = counts.cost_names
    typical = counts.costs.mean(axis=(1, 2)) * (1 if not ends else 0.4)
    limits = as_limits({name: float(x) for name, x in zip(names, typical, strict=True)})
    B = 4.0 if limits else 0.0
    tabular = solve_saddle(Lagrangian.empirical(counts, 0.9, limits), Setup(3.0, B))
    solved = approximate.solve(counts, 0.9, limits, features="one_hot", C=3.0, B=B, method="lp")
    assert solved.lower == pytest.approx(tabular.certificate.lower, abs=1e-8)
    assert solved.upper == pytest.approx(tabular.certificate.upper, abs=1e-8)
    assert solved.gap < 1e-8
    np.testing.assert_allclose(solved.multipliers, tabular.multipliers, atol=1e-8)
    np.testing.assert_allclose(solved.policy.probabilities(np.arange(8.0)[:, None]), tabular.policy, atol=1e-8)


def test_algorithm_1_plays_as_on_tables() -> None:
    counts = log_of(3, 1)
    L = Lagrangian.empirical(counts, 0.9, as_limits({"cost": float(counts.costs.mean())}))
    L = Units.of(L).scale(L)
    sets = Sets.tight(L, 3.0, 2.0)
    eye = np.eye(8)
    game = Game(
        L,
        FunctionClass.box(StateBasis(eye, 3), 0.0, 3.0),
        FunctionClass.box(StateBasis(eye, 3), sets.q_low, sets.q_high),
        2.0,
    )
    average = run(game, make_players("pdocrl", game, 300), 300).average
    theirs = next(algorithms.run(L, algorithms.make_players("pdocrl", L, sets, 300), 300))
    np.testing.assert_allclose(average.nu, theirs.nu, atol=1e-12)
    np.testing.assert_allclose(game.Q(average.theta_Q), theirs.Q, atol=1e-10)
    np.testing.assert_allclose(average.lam, theirs.lam, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_certificate_is_the_extreme_over_all_corners(seed: int) -> None:
    rng = np.random.default_rng(seed)
    game = small_game(seed)
    L, point = game.L, random_point(game, rng)
    corners_w = [np.array(x) for x in itertools.product((0.0, 1.5), repeat=2)]
    corners_Q = [np.array(x) for x in itertools.product((-3.0, 4.0), repeat=3)]
    lams = [np.zeros(2), np.array([game.B, 0]), np.array([0, game.B])]
    policies = [np.eye(2)[list(actions)] for actions in itertools.product(range(2), repeat=4)]
    inflow = point.nu.sum(axis=1)
    pi = point.nu / inflow[:, None]
    w = game.W(point.theta_w)
    lowest = min(L(w, pi, game.Q(q), lam) for q in corners_Q for lam in lams)
    highest = max(L(game.W(x), p, game.Q(point.theta_Q), point.lam) for x in corners_w for p in policies)
    found = certify(game, point)
    assert found.lower == pytest.approx(lowest, abs=1e-11)
    assert found.upper == pytest.approx(highest, abs=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_the_program_closes_the_gap_and_no_w_speaks_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    game = small_game(seed, n_constraints=1)
    point = saddle_lp(game)
    assert certify(game, point).gap < 1e-8
    pi = rng.dirichlet(np.ones(2), size=4)
    answer = best_response(game, pi)
    best = lower_value(game, answer.theta_w, answer.nu)
    for theta in rng.uniform(0, 1.5, (200, 2)):
        assert lower_value(game, theta, game.nu(game.mu(theta), pi)) <= best + 1e-9
    assert best <= upper_value(game, point.theta_Q, point.lam) + 1e-9


def test_finite_classes_are_mixtures_of_their_members() -> None:
    """Over hulls of finite classes the program's value is that of the matrix game of their members, π aside."""
    rng = np.random.default_rng(0)
    game = small_game(0, n_constraints=0)
    ratios, critics = rng.uniform(size=(3, 4, 2)), rng.normal(size=(4, 4, 2))
    game = Game(game.L, FunctionClass.finite(list(ratios)), FunctionClass.finite(list(critics)), 0.0)
    point = saddle_lp(game)
    assert certify(game, point).gap < 1e-8
    played = run(game, make_players("optimistic", game, 3000), 3000)
    found = certify(game, played.average)
    assert found.lower - 1e-9 <= certify(game, point).lower <= found.upper + 1e-9
    assert found.gap < 0.02
    paper = certify(game, run(game, make_players("pdocrl", game, 3000), 3000).average)
    assert paper.lower - 1e-9 <= certify(game, point).lower <= paper.upper + 1e-9


def test_the_mixture_and_the_averages_are_bounded_by_the_saddle_value() -> None:
    game = small_game(1)
    value = certify(game, saddle_lp(game)).lower
    played = run(game, make_players("pdocrl", game, 500), 500)
    assert played.mixture_lower <= lower_value(game, played.average.theta_w, played.average.nu) + 1e-9
    assert played.mixture_lower <= value + 1e-9 <= upper_value(game, played.average.theta_Q, played.average.lam) + 1e-8


def spurious(saddle: QSaddle, members: list[np.ndarray]) -> set[tuple[int, ...]]:
    """The deterministic policies that are part of a saddle point with μ* over a class of Q, and are not optimal."""
    cmdp = saddle.cmdp
    mu_D = np.where(saddle.mu_star > 0, saddle.mu_star, 0.0)
    L = Lagrangian.population(cmdp, mu_D)
    W = FunctionClass.finite([np.ones((5, 2))])  # {w*}
    scaled = [factor * Q for Q in members for factor in (1.0, 2.0)]  # α ∈ {0, 1}: its extremes
    best = evaluate(cmdp, saddle.best).value
    found = set()
    for actions in itertools.product(range(2), repeat=5):
        pi = as_matrix(np.array(actions), 2)
        game = Game(L, W, FunctionClass.finite(scaled), 1.0, policies=np.stack([as_matrix(saddle.best, 2), pi]))
        point = Saddle(np.ones(1), game.nu(L.mu_D, pi), np.eye(len(scaled))[0], np.zeros(1))
        if certify(game, point).gap < 1e-12 and evaluate(cmdp, pi).value < best - 1e-9:
            found.add(actions)
    return found


def test_saddle_points_are_spurious_when_only_the_optimum_is_realisable_and_not_when_all_policies_are() -> None:
    saddle = spurious_q_saddle()
    assert len(spurious(saddle, [saddle.Q_star])) == 8
    assert tuple(saddle.spurious) in spurious(saddle, [saddle.Q_star])
    every = [
        values(saddle.cmdp, np.array(actions), saddle.cmdp.r)[1] for actions in itertools.product(range(2), repeat=5)
    ]
    assert spurious(saddle, [saddle.Q_star, *every]) == set()


def test_a_w_that_can_be_negative_is_refused() -> None:
    game = small_game(0)
    with pytest.raises(PdocrlError, match="negative members"):
        Game(game.L, FunctionClass.box(game.W.basis, -1.0, 1.0), game.Q, 1.0)


def test_a_class_of_w_richer_than_that_of_Q_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 2))
    log = {"state": x, "action": rng.integers(2, size=300), "next_state": rng.uniform(size=(300, 2)), "reward": x[:, 0]}
    with pytest.warns(UserWarning, match="no more features than Q"):
        solved = approximate.solve(
            log, 0.8, features="cells", size=5, w_features="one_hot", method="optimistic", iterations=5
        )
    assert any("no more features" in note for note in solved.notes)
