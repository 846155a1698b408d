"""The certificate is the exact gap of the game, and bounds the true error of every solver's every iterate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy, random_cmdp
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.algorithms import Algorithm, make_players, run
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Point, Sets, certify, lower_value, policy_of, upper_value
from pdocrl.tabular.solvers.lp import saddle_lp

ALGORITHMS: tuple[Algorithm, ...] = ("pdocrl", "regret_matching", "optimistic")


def problem(seed: int, n_constraints: int = 1, costs: bool = False) -> tuple[CMDP, float, Lagrangian, float]:
    """A random CMDP, its optimum, the Lagrangian of half optimal and half uniform data, and C*."""
    cmdp = random_cmdp(6, 3, n_constraints, 0.9, seed=seed)
    if costs:  # r_i ≥ τ_i as 1 − r_i ≤ 1 − τ_i
        cmdp = CMDP.from_costs(cmdp.P, cmdp.r, 1 - cmdp.g, 1 - cmdp.tau, cmdp.d0, cmdp.gamma)
    best = exact.solve(cmdp)
    mu_D = (best.mu + occupancy(cmdp, np.full((6, 3), 1 / 3))) / 2
    return cmdp, best.value, Lagrangian.population(cmdp, mu_D), float((best.mu / mu_D).max())


def random_point(L: Lagrangian, sets: Sets, rng: np.random.Generator) -> Point:
    mu = rng.uniform(0, sets.C, L.r.shape) * L.mu_D
    nu = rng.dirichlet(np.ones(L.r.shape[1]), size=L.r.shape[0]) * L.inflow(mu)[:, None]
    lam = sets.B * rng.dirichlet(np.ones(1 + len(L.tau)))[1:]
    return Point(mu, nu, rng.uniform(sets.q_low, sets.q_high, L.r.shape), lam)


@pytest.mark.parametrize("seed", range(8))
def test_the_closed_forms_are_the_extremes_over_all_corners(seed: int) -> None:
    """D and U against enumeration: L is linear in each variable, so extremes are at corners of the sets."""
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(2, 2, 2, 0.8, seed=seed)
    L = Lagrangian.population(cmdp, rng.dirichlet(np.ones(4)).reshape(2, 2))
    sets = Sets.tight(L, C=1.7, B=2.5)
    point = random_point(L, sets, rng)
    w, pi = point.mu / L.mu_D, point.nu / point.nu.sum(axis=1, keepdims=True)
    lams = [np.zeros(2), np.array([sets.B, 0]), np.array([0, sets.B])]
    Qs = [np.reshape(q, (2, 2)) for q in itertools.product((sets.q_low, sets.q_high), repeat=4)]
    ws = [np.reshape(x, (2, 2)) for x in itertools.product((0.0, sets.C), repeat=4)]
    pis = [np.eye(2)[list(actions)] for actions in itertools.product(range(2), repeat=2)]
    lowest = min(L(w, pi, Q, lam) for Q in Qs for lam in lams)
    highest = max(L(x, p, point.Q, point.lam) for x in ws for p in pis)
    assert lower_value(L, sets, point.mu, point.nu) == pytest.approx(lowest, abs=1e-12)
    assert upper_value(L, sets, point.Q, point.lam) == pytest.approx(highest, abs=1e-12)


def test_the_gap_is_never_negative_and_averaging_never_hurts() -> None:
    rng = np.random.default_rng(0)
    _, _, L, C = problem(0, n_constraints=2)
    sets = Sets.tight(L, C, 3.0)
    points = [random_point(L, sets, rng) for _ in range(20)]
    gaps = [certify(L, sets, p).gap for p in points]
    assert min(gaps) > 0
    average = Point(*(np.mean(x, axis=0) for x in zip(*points, strict=True)))
    assert certify(L, sets, average).gap <= np.mean(gaps) + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_the_error_of_every_iterate_is_at_most_its_certificate(seed: int) -> None:
    """err ≤ ξ for 3 algorithms × 90 averages × 8 problems, 2,160 iterates, with 1–3 constraints, half of them costs."""
    cmdp, optimum, L, C_star = problem(seed, n_constraints=1 + seed % 3, costs=seed % 2 == 1)
    phi = exact.slater_margin(cmdp)
    sets = Sets.paper(L, 1.2 * C_star, phi) if seed < 2 else Sets.tight(L, 1.2 * C_star, 1 + 1 / phi)
    checked = 0
    for algorithm in ALGORITHMS:
        for point in run(L, make_players(algorithm, L, sets, 900), 900, every=10):
            error = evaluate(cmdp, policy_of(L, point.nu)).error(cmdp, optimum)
            assert error <= certify(L, sets, point).gap + 1e-12
            checked += 1
    assert checked == 270


@pytest.mark.parametrize("seed", range(10))
def test_the_linear_program_finds_a_saddle_point_and_with_it_the_optimum(seed: int) -> None:
    cmdp, optimum, L, C_star = problem(seed, n_constraints=1 + seed % 3, costs=seed % 2 == 1)
    sets = Sets.tight(L, 1.2 * C_star, 1 + 1 / exact.slater_margin(cmdp))
    point = saddle_lp(L, sets)
    assert certify(L, sets, point).gap <= 1e-8
    assert evaluate(cmdp, policy_of(L, point.nu)).error(cmdp, optimum) <= 1e-8
    np.testing.assert_allclose(point.lam, exact.solve(cmdp).lam, atol=1e-7)


def test_a_point_outside_its_sets_is_not_certified() -> None:
    _, _, L, C = problem(0)
    sets = Sets.tight(L, C, 2.0)
    point = saddle_lp(L, sets)
    for outside in (
        point._replace(mu=2 * C * L.mu_D),
        point._replace(nu=2 * point.nu),
        point._replace(Q=point.Q - 1000),
        point._replace(lam=point.lam + 10),
        point._replace(lam=point.lam - 10),
    ):
        with pytest.raises(AssertionError):
            certify(L, sets, outside)
