"""The oracles keep the regret they promise, and the loop that joins them is the paper's Algorithm 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular.cmdp import random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import (
    GreedyBox,
    GreedyMultipliers,
    Hedge,
    Multipliers,
    OptimisticBox,
    OptimisticSimplex,
    Oracle,
    ProjectedGradient,
    RegretMatching,
    RegretMatchingBox,
    make_players,
    project_to_simplex,
    run,
)
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets

T = 400


def play(oracle: Oracle, utilities: np.ndarray) -> np.ndarray:
    """[T, …] what the oracle plays when told these utilities one by one."""
    plays = []
    for utility in utilities:
        plays.append(oracle.play)
        oracle.respond(utility)
    return np.array(plays)


def harsh_utilities(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """[T, …] in [−1, 1], half noise and half a sign that flips: hard for whoever follows the leader."""
    rng = np.random.default_rng(seed)
    flips = np.where(np.arange(T) % 2 == 0, 1.0, -1.0).reshape(-1, *[1] * len(shape))
    return np.where(rng.random(shape) < 0.5, flips * rng.uniform(size=shape), rng.uniform(-1, 1, (T, *shape)))


@pytest.mark.parametrize("seed", range(5))
def test_projected_gradient_keeps_its_regret_bound(seed: int) -> None:
    """Σ⟨x* − x_t, u_t⟩ ≤ ‖x_1 − x*‖²/(2η) + ηΣ‖u_t‖²/2 (Lemma 21)."""
    u, eta = harsh_utilities((6,), seed), 0.07
    oracle = ProjectedGradient(np.ones(6), 0.0, 3.0, lambda _: eta)
    x = play(oracle, u)
    best = np.where(u.sum(axis=0) > 0, 3.0, 0.0)
    bound = ((1 - best) ** 2).sum() / (2 * eta) + eta * (u**2).sum() / 2
    assert ((best - x) * u).sum() <= bound


@pytest.mark.parametrize("seed", range(5))
def test_hedge_keeps_its_regret_bound(seed: int) -> None:
    """√(T log A / 2) times the range of utilities, per state, with the default step of Algorithm 1."""
    A, span = 4, 2.0
    u = harsh_utilities((3, A), seed)
    x = play(Hedge((3, A), lambda _: np.sqrt(8 * np.log(A) / T) / span), u)
    regret = u.sum(axis=0).max(axis=-1) - (u * x).sum(axis=(0, 2))
    assert np.all(regret <= span * np.sqrt(T * np.log(A) / 2))


@pytest.mark.parametrize("seed", range(5))
def test_predictive_regret_matching_keeps_its_regret_bound(seed: int) -> None:
    """regret² ≤ 2 Σ‖u_t − u_{t−1}‖² in instantaneous regrets, at most 2·A·range²·T; here against that crude form."""
    A = 4
    u = harsh_utilities((3, A), seed)
    x = play(RegretMatching((3, A)), u)
    regret = u.sum(axis=0).max(axis=-1) - (u * x).sum(axis=(0, 2))
    assert np.all(regret <= np.sqrt(2 * A * T) * 2)


@pytest.mark.parametrize("make", [RegretMatching, OptimisticSimplex])
def test_predictive_players_lose_only_a_constant_when_nothing_changes(make: type) -> None:
    u = np.tile(np.array([[0.1, 0.9, 0.5]]), (T, 1))
    x = play(make((3,)), u)
    assert (u.max() - (u * x).sum(axis=1)).sum() < 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProjectedGradient(np.ones((2, 3)), 0.0, 3.0, lambda t: t**-0.5),
        lambda: RegretMatchingBox((2, 3), 0.0, 3.0),
        lambda: OptimisticBox((2, 3), 0.0, 3.0),
        lambda: GreedyBox((2, 3), 0.0, 3.0),
    ],
)
def test_players_of_a_box_stay_in_it_and_learn_its_best_corner(make: object) -> None:
    u = np.tile(np.array([[1.0, -1.0, 0.3], [-0.2, 2.0, -3.0]]), (T, 1, 1))
    x = play(make(), u)  # type: ignore[operator]
    assert np.all((x >= 0) & (x <= 3))
    np.testing.assert_allclose(x[-1], np.where(u[0] > 0, 3.0, 0.0), atol=1e-6)


@pytest.mark.parametrize("inner", [RegretMatching((4,)), OptimisticSimplex((4,)), None])
def test_players_of_the_multipliers_stay_in_their_simplex_and_learn(inner: Oracle | None) -> None:
    oracle = GreedyMultipliers(3, 5.0) if inner is None else Multipliers(inner, 5.0)
    for t in range(T):
        lam = oracle.respond(np.array([-1.0, 0.2, 0.1]))
        assert np.all(lam >= 0), t
        assert lam.sum() <= 5 + 1e-12
    np.testing.assert_allclose(lam, [0, 5, 0], atol=1e-6)
    for _ in range(3 * T):
        lam = oracle.respond(np.array([-1.0, -0.2, -0.1]))
    np.testing.assert_allclose(lam, 0, atol=0.05)


@given(arrays(np.float64, (3, 5), elements=st.floats(-50, 50)))
@settings(max_examples=100, deadline=None)
def test_the_projection_is_the_nearest_distribution(x: np.ndarray) -> None:
    """y is the projection iff y is a distribution and ⟨x − y, z − y⟩ ≤ 0 for every corner z."""
    y = project_to_simplex(x)
    assert np.all(y >= 0)
    np.testing.assert_allclose(y.sum(axis=-1), 1, atol=1e-9)
    corners = np.eye(5)
    gain = (x - y) @ corners.T - ((x - y) * y).sum(axis=-1, keepdims=True)
    assert gain.max() <= 1e-9


def log_and_problem(seed: int = 0) -> tuple[dict[str, np.ndarray], Lagrangian, Sets]:
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(6, 3, 2, seed=seed)
    pairs = rng.integers(18, size=300)
    then = np.array([rng.choice(6, p=cmdp.P[[p]].toarray()[0]) for p in pairs])
    s, a = np.divmod(pairs, 3)
    log = {"s": s, "a": a, "then": then, "r": cmdp.r[s, a], "c": 1 - cmdp.g[:, s, a].T}
    counts = Counts.from_arrays(s, a, then, log["r"], log["c"], d0=cmdp.d0, n_states=6, n_actions=3)
    L = Lagrangian.empirical(counts, 0.9, as_limits({"cost_0": 0.4, "cost_1": 0.5}))
    return log, L, Sets.tight(L, C=3.0, B=4.0)


def test_the_loop_is_algorithm_1_as_written_over_the_samples() -> None:
    """Every line of the algorithm done naively, sample by sample, gives the same policies, multipliers and averages."""
    log, L, sets = log_and_problem()
    s, a, then, gamma, steps = log["s"], log["a"], log["then"], 0.9, 60
    limits, (eta, alpha) = np.array([0.4, 0.5]), (0.01, 0.02)
    u = np.ones(len(s))  # w at the samples; equal where (s, a) is
    logits, Q_t = np.zeros((6, 3)), np.zeros((6, 3))
    policies, lams = [], []
    for _ in range(steps):
        pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        missed = (u[:, None] * log["c"]).mean(axis=0) - limits  # −∂L̂/∂λ
        lam = np.zeros(2)
        if missed.max() > 0:
            lam[missed.argmax()] = sets.B
        coefficient = (1 - gamma) * L.d0[:, None] * pi  # ∂L̂/∂Q
        np.add.at(coefficient, then, gamma * u[:, None] * pi[then] / len(s))
        np.add.at(coefficient, (s, a), -u / len(s))
        Q_t = np.where(coefficient < 0, sets.q_high, sets.q_low)
        policies.append(pi)
        lams.append(lam)
        g = log["r"] - log["c"] @ lam + gamma * (pi * Q_t).sum(axis=1)[then] - Q_t[s, a]
        moved = u + eta * g
        for pair in set(zip(s, a, strict=True)):  # the projection onto W̃_D: equal at equal pairs, then clipped
            same = (s == pair[0]) & (a == pair[1])
            u[same] = np.clip(moved[same].mean(), 0, sets.C)
        logits += alpha * Q_t
    kept = np.empty((steps, 6, 3))
    point = next(run(L, make_players("pdocrl", L, sets, steps, eta=eta, alpha=alpha), steps, policies=kept))
    np.testing.assert_allclose(kept, policies, atol=1e-10)
    np.testing.assert_allclose(point.lam, np.mean(lams, axis=0), atol=1e-12)


def test_greedy_players_of_q_and_lambda_never_regret() -> None:
    """L̂(w_t, π_t; Q_t, λ_t) ≤ L̂(w_t, π_t; Q, λ) for every Q and λ of the sets (proof of Theorem 17)."""
    _, L, sets = log_and_problem(1)
    rng = np.random.default_rng(0)
    Q_player, lam_player = GreedyBox((6, 3), sets.q_low, sets.q_high), GreedyMultipliers(2, sets.B)
    for _ in range(50):
        w, pi = rng.uniform(0, sets.C, (6, 3)), rng.dirichlet(np.ones(3), size=6)
        Q, lam = Q_player.respond(-L.grad_Q(w, pi)), lam_player.respond(-L.grad_lam(w))
        other_Q = rng.uniform(sets.q_low, sets.q_high, (6, 3))
        other_lam = sets.B * rng.dirichlet(np.ones(3))[:2]
        assert L(w, pi, Q, lam) <= L(w, pi, other_Q, other_lam) + 1e-12


def test_algorithm_2_is_for_problems_without_limits() -> None:
    _, L, sets = log_and_problem()
    with pytest.raises(PdocrlError, match="without limits"):
        make_players("pdorl", L, sets, 10)
