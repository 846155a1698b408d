"""Each baseline against an independent check: brute force, another solver, a closed form, conditions of its optimum."""

import itertools

import numpy as np
import pytest
import scipy.optimize

from pdocrl.errors import PdocrlError
from pdocrl.tabular.baselines.critics import Adversary, a_crab, atac, pdca, pspi, quadratic_critic, wsac
from pdocrl.tabular.baselines.density import coral, deviation, dpdl, near_flow, pessimistic, pocc, pro_rl
from pdocrl.tabular.baselines.plain import fqi, mbcl, plug_in
from pdocrl.tabular.baselines.problem import LogModel, best_occupancy, occupancy_cone
from pdocrl.tabular.baselines.spibb import (
    Bootstrapped,
    Budgeted,
    _hard,
    _soft,
    best_near,
    errors,
    mo_spibb,
    soft_spibb,
    spibb,
)
from pdocrl.tabular.cmdp import as_matrix, backup, evaluate, occupancy, plan, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.exact import solve_lp
from pdocrl.tabular.solvers.highs import Start
from pdocrl.tabular.solvers.lp import strict

GAMMA = 0.8
EXACT = {"abs": 1e-8, "rel": 1e-8}


def problem(seed=0, states=4, actions=2, n=400, constraints=1, missing=False):
    """A random CMDP with costs, the counts of a log, its limits, and the baselines' view of it."""
    cmdp = random_cmdp(states, actions, constraints, GAMMA, seed=seed)
    cmdp = cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
    names = ["cost"] if constraints == 1 else [f"cost_{i}" for i in range(constraints)]
    limits = dict(zip(names, -cmdp.tau, strict=True))
    mu_D = np.random.default_rng(seed).dirichlet(np.ones(cmdp.r.size)).reshape(cmdp.r.shape)
    if missing:
        mu_D[0, 0] = mu_D[-1] = 0
    counts = Counts.sample(cmdp, mu_D / mu_D.sum(), n, seed)
    return cmdp, counts, limits, LogModel.of(counts, GAMMA, limits)


def policies(shape, rng, count=200):
    return rng.dirichlet(np.ones(shape[1]), size=(count, shape[0]))


def free(cmdp):
    return cmdp.replace(g=np.zeros((0, *cmdp.r.shape)), tau=np.zeros(0))


def residual(view, pi, f, reward):
    """δ = f − r̂ − γP̂f(·, π) of the pairs tried [m]."""
    return (f - backup(view.model, reward, (pi * f).sum(axis=1))).ravel()[view.pairs]


class TestProblem:
    @pytest.mark.parametrize("missing", [False, True])
    def test_the_adjoint_moves_the_model_to_the_other_side(self, missing):
        _, _, _, view = problem(missing=missing)
        rng = np.random.default_rng(0)
        pi, x, reward = policies(view.L.r.shape, rng, 1)[0], rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
        assert np.vdot(x, view.under(pi).Q(reward)) == pytest.approx(
            np.vdot(view.under(pi).adjoint(x), reward), **EXACT
        )

    @pytest.mark.parametrize("missing", [False, True])
    def test_the_best_occupancy_is_that_of_the_log_s_own_model(self, missing):
        _, _, _, view = problem(seed=1, missing=missing)
        mu = view.table(best_occupancy(view))
        best = solve_lp(view.model)
        assert evaluate(view.model, view.policy(best_occupancy(view))).value == pytest.approx(best.value, **EXACT)
        assert np.tensordot(view.L.g, mu, axes=2)[0] >= view.L.tau[0] - 1e-9

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("C", [0.8, 2.0, 50.0])
    def test_simplex_from_a_plan_ends_where_it_ends_from_nothing(self, C, missing, monkeypatch):
        _, _, _, view = problem(seed=3, states=8, actions=3, constraints=2, missing=missing)

        def optima():
            found = strict(view.L, C)
            earned = [] if found is None else [np.vdot(found.mu, view.L.r)]
            return [*earned, *(view.signals()[0] @ x for x in (near_flow(view, C, 0.0, 0.0), best_occupancy(view, C)))]

        cold = optima()
        for module in ("tabular.solvers.lp", "tabular.baselines.problem", "tabular.baselines.density"):
            monkeypatch.setattr(f"pdocrl.{module}.SIMPLEX_UP_TO", 0)
        assert optima() == pytest.approx(cold, **EXACT)

    def test_limits_that_cannot_be_kept_are_missed_by_the_least(self):
        _, counts, _, _ = problem()
        view = LogModel.of(counts, GAMMA, {"cost": 0.01})
        least = evaluate(view.model, plan(view.model, view.model.g[0]).actions).constraints[0]
        assert evaluate(view.model, view.policy(best_occupancy(view))).constraints[0] == pytest.approx(least, abs=1e-7)

    @pytest.mark.parametrize("method", [a_crab, pspi, atac, spibb, soft_spibb])
    def test_methods_without_limits_refuse_them(self, method):
        _, counts, limits, _ = problem()
        with pytest.raises(PdocrlError, match="knows no limits"):
            method(counts, GAMMA, limits)


class TestPDCA:
    def test_exact_evaluation_is_the_critic_that_no_weight_can_blame(self):
        """max_w |⟨w, δ⟩| is 0 at Q^π, and positive anywhere else: here by linear programming over f."""
        _, _, _, view = problem(seed=3)
        pi = policies(view.L.r.shape, np.random.default_rng(0), 1)[0]
        f = view.under(pi).Q(view.model.r)
        assert np.abs(residual(view, pi, f, view.model.r)).max() <= 1e-12
        shift = np.random.default_rng(1).normal(size=f.shape)
        assert np.abs(residual(view, pi, f + shift, view.model.r)).max() > 0.01

    @pytest.mark.parametrize("constraints", [1, 2])
    def test_the_game_nears_the_optimum_of_the_empirical_problem(self, constraints):
        """Its regret bound at T iterations: span·√(log A / 2T) per unit of 1/(1−γ)·(1−γ)."""
        _, counts, limits, view = problem(seed=2, constraints=constraints, n=3000)
        optimum = solve_lp(view.model).value
        earned = pdca(counts, GAMMA, limits, B=5.0, iterations=1000, step=5.0).evaluate(view.model)
        assert earned.error(view.model, optimum) <= 0.04

    def test_without_limits_it_is_policy_iteration_for_large_steps(self):
        _, counts, _, view = problem(seed=4)
        best = evaluate(view.model, plan(view.model, view.model.r).actions).value
        last = pdca(counts, GAMMA, (), iterations=30, step=1e4).policies[-1]
        assert evaluate(view.model, last).value == pytest.approx(best, **EXACT)


def brute_critic(view, pi, reward, box, weight):
    """The same minimum with the inner maximum written out: one row per vertex w ∈ {0, 1}^m and sign."""
    m, (S, A), L = len(view.pairs), view.L.r.shape, view.L
    mu_D = L.mu_D.ravel()[view.pairs]
    onward = view.model.P.toarray()[view.pairs] @ np.kron(np.eye(S), np.ones((1, A))) * pi.ravel()
    D = (np.eye(S * A)[view.pairs] - GAMMA * onward)[:, view.pairs]
    unseen = np.setdiff1d(np.arange(S * A), view.pairs)
    fixed = reward.ravel()[view.pairs] + GAMMA * onward[:, unseen] @ reward.ravel()[unseen]
    vertices = np.array([*itertools.product([0, 1], repeat=m)]) * mu_D
    slope = ((pi * L.mu_D.sum(axis=1, keepdims=True)) - L.mu_D).ravel()[view.pairs]
    rows = np.vstack([np.c_[sign * vertices @ D, -np.ones(len(vertices))] for sign in (1, -1)])
    right = np.concatenate([sign * vertices @ fixed for sign in (1, -1)])
    bounds = [box] * m + [(0, None)]
    return scipy.optimize.linprog(np.r_[slope, weight], rows, right, bounds=bounds).fun


class TestAdversarialCritics:
    @pytest.mark.parametrize("weight", [0.3, 1.0, 3.0, 30.0])
    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("signal", ["reward", "constraint"])
    def test_the_program_agrees_with_all_vertices_of_the_weights(self, weight, missing, signal, monkeypatch):
        _, _, _, view = problem(seed=5, missing=missing)
        reward, box = (view.model.r, view.box) if signal == "reward" else (view.model.g[0], (-1 / (1 - GAMMA), 0.0))
        pi = policies(view.L.r.shape, np.random.default_rng(2), 1)[0]

        def objective(f):
            delta = residual(view, pi, f, reward) * view.L.mu_D.ravel()[view.pairs]
            improvement = pi * view.L.mu_D.sum(axis=1, keepdims=True) - view.L.mu_D
            return np.vdot(np.where(view.L.seen, improvement, 0), f) + weight * max(
                delta[delta > 0].sum(), -delta[delta < 0].sum()
            )

        best = brute_critic(view, pi, reward, box, weight)
        adversary, start = Adversary(view, pi), Start()
        for solve, simplex_up_to, begin in (
            (adversary.critic, 1000, None),
            (adversary.program, 1000, start),
            (adversary.program, 1000, start),  # from the basis of the last
            (adversary.program, 0, None),
        ):
            monkeypatch.setattr("pdocrl.tabular.baselines.critics.SIMPLEX_UP_TO", simplex_up_to)
            f = solve(reward, box, weight, begin)
            assert objective(f) == pytest.approx(best, **EXACT)
            assert f[view.L.seen].min() >= box[0] - 1e-9
            assert f[view.L.seen].max() <= box[1] + 1e-9

    def test_a_covered_policy_meets_no_adversary_when_the_log_is_a_policy_s_own(self):
        """Then ρ = w^π − 1: with βC above its range, the critic is Q^π."""
        cmdp = free(problem(seed=6)[0])
        behaviour = np.full(cmdp.r.shape, 1 / 2)
        counts = Counts.sample(cmdp, occupancy(cmdp, behaviour), 10**14, 0)
        view = LogModel.of(counts, GAMMA)
        pi = policies(cmdp.r.shape, np.random.default_rng(0), 1)[0]
        rho = view.under(pi).adjoint(pi * view.L.mu_D.sum(axis=1, keepdims=True) - view.L.mu_D) / view.L.mu_D
        ratio = occupancy(view.model, pi) / view.L.mu_D
        assert rho == pytest.approx(ratio - 1, abs=1e-5)
        f = Adversary(view, pi).program(view.model.r, view.box, float(np.ptp(ratio)) + 1)
        assert f == pytest.approx(view.under(pi).Q(view.model.r), abs=1e-7)

    def test_with_full_coverage_a_crab_is_optimal_and_wsac_no_dearer_than_its_reference(self):
        cmdp, _, limits, _ = problem(seed=7)
        counts = Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 10**12, 0)
        best = evaluate(free(cmdp), plan(cmdp, cmdp.r).actions).value
        assert a_crab(counts, GAMMA, C=100.0, iterations=40, step=1e3).evaluate(free(cmdp)).value >= best - 0.01
        reference = np.full(cmdp.r.shape, 1 / 2)
        found = wsac(counts, GAMMA, limits, C=100.0, lam=20.0, reference=reference, iterations=300, step=3.0)
        earned, limit = found.evaluate(cmdp), evaluate(cmdp, reference)
        assert earned.constraints[0] >= limit.constraints[0] - 0.02
        assert earned.value >= limit.value - 0.02


class TestQuadraticCritics:
    @pytest.mark.parametrize("beta", [0.1, 1.0, 50.0])
    @pytest.mark.parametrize("missing", [False, True])
    def test_the_closed_form_solves_the_normal_equations(self, beta, missing):
        """⟨x, f⟩ + βΣμ̂δ² with δ = Df + δ₀, D read off unit vectors: its minimum is 2βDᵀM(Df + δ₀) = −x."""
        _, _, _, view = problem(seed=8, missing=missing)
        pi, mu_D = policies(view.L.r.shape, np.random.default_rng(0), 1)[0], view.L.mu_D.ravel()[view.pairs]

        def delta(f):
            full = np.where(view.L.seen, 0.0, view.model.r)
            full.ravel()[view.pairs] = f
            return residual(view, pi, full, view.model.r)

        zero = delta(np.zeros(len(mu_D)))
        D = np.stack([delta(unit) - zero for unit in np.eye(len(mu_D))], axis=1)
        for x in (view.L.d0[:, None] * pi, pi * view.L.mu_D.sum(axis=1, keepdims=True) - view.L.mu_D):
            right = -x.ravel()[view.pairs] - 2 * beta * D.T @ (mu_D * zero)
            expected = np.linalg.solve(2 * beta * D.T @ (mu_D[:, None] * D), right)
            assert quadratic_critic(view, pi, x, beta).ravel()[view.pairs] == pytest.approx(expected, **EXACT)

    @pytest.mark.parametrize("method", [pspi, atac])
    def test_dear_residuals_and_large_steps_make_it_policy_iteration(self, method):
        _, counts, _, _ = problem(seed=9)
        view = LogModel.of(counts, GAMMA)
        best = evaluate(view.model, plan(view.model, view.model.r).actions).value
        last = method(counts, GAMMA, beta=1e9, iterations=30, step=1e4).policies[-1]
        assert evaluate(view.model, last).value == pytest.approx(best, **EXACT)

    def test_pspi_s_critic_values_the_policy_at_its_mean_less_half_the_penalty(self):
        """min_f f(s₀, π) + β‖δ‖² = J − Σ (μ^π)²/μ̂ / (4β(1−γ)²)."""
        _, _, _, view = problem(seed=10)
        pi, beta = policies(view.L.r.shape, np.random.default_rng(1), 1)[0], 3.0
        f = quadratic_critic(view, pi, view.L.d0[:, None] * pi, beta)
        mu = occupancy(view.model, pi)
        size = (mu**2 / view.L.mu_D).sum() / (1 - GAMMA) ** 2
        least = view.L.d0 @ (pi * f).sum(axis=1) + beta * np.vdot(
            view.L.mu_D.ravel(), residual(view, pi, f, view.model.r) ** 2
        )
        assert least == pytest.approx(np.vdot(mu, view.model.r) / (1 - GAMMA) - size / (4 * beta), **EXACT)


class TestDensityRatios:
    @pytest.mark.parametrize("seed", range(3))
    def test_coral_with_room_is_the_plug_in_solution(self, seed):
        _, counts, limits, view = problem(seed=seed, n=2000)
        best = evaluate(view.model, plug_in(counts, GAMMA, limits))
        found = evaluate(view.model, coral(counts, GAMMA, limits, C=1e6))
        assert found.value == pytest.approx(best.value, **EXACT)

    @pytest.mark.parametrize(("zeta", "kappa"), [(0.0, 0.0), (0.05, 0.0), (0.05, 0.02), (0.5, 0.1)])
    def test_pocc_s_program_agrees_with_another_solver(self, zeta, kappa):
        _, _, _, view = problem(seed=1, n=2000)
        C = 20.0
        mu = near_flow(view, C, zeta, kappa)
        m, S = len(view.pairs), len(view.L.d0)
        flow = view.flow.toarray()
        # u bounds the residual from both sides; columns μ, u.
        rows = [
            np.c_[flow, -np.eye(S)],
            np.c_[-flow, -np.eye(S)],
            np.r_[np.zeros(m), np.ones(S)][None],
            np.r_[-view.signals()[1], np.zeros(S)][None],
        ]
        right = np.r_[view.start, -view.start, zeta, -view.L.tau[0] + kappa]
        bounds = [(0, C * x) for x in view.L.mu_D.ravel()[view.pairs]] + [(0, None)] * S
        other = scipy.optimize.linprog(np.r_[-view.signals()[0], np.zeros(S)], np.vstack(rows), right, bounds=bounds)
        assert view.signals()[0] @ mu == pytest.approx(-other.fun, **EXACT)
        assert np.abs(flow @ mu - view.start).sum() <= zeta + 1e-8

    def test_a_start_the_log_never_saw_widens_the_flow_just_enough(self):
        counts = Counts.from_arrays([1, 1], [0, 1], [1, 1], [0.3, 0.7], n_states=2, n_actions=2, d0=[0.5, 0.5])
        assert coral(counts, GAMMA, C=10.0)[1] == pytest.approx([0, 1], abs=1e-6)
        assert pocc(counts, GAMMA, C=10.0, zeta=10.0).shape == (2, 2)

    @pytest.mark.parametrize("alpha", [1e-3, 0.1, 3.0])
    def test_pro_rl_agrees_with_a_general_solver(self, alpha):
        _, counts, limits, view = problem(seed=2, n=1000)
        C, mu_D = 20.0, view.L.mu_D.ravel()[view.pairs]
        mu = occupancy_cone(view, C, alpha=alpha)

        def loss(w):
            return -view.signals()[0] @ (w * mu_D) + alpha / 2 * mu_D @ w**2

        constraints = [
            {"type": "eq", "fun": lambda w: view.flow @ (w * mu_D) - view.start},
            {"type": "ineq", "fun": lambda w: view.signals()[1] @ (w * mu_D) - view.L.tau[0]},
        ]
        options = {"ftol": 1e-15, "maxiter": 1000}
        other = scipy.optimize.minimize(
            loss, np.ones(len(mu)), bounds=[(0, C)] * len(mu), constraints=constraints, method="SLSQP", options=options
        )
        assert loss(mu / mu_D) == pytest.approx(other.fun, abs=1e-8)
        assert pro_rl(counts, GAMMA, limits, C, alpha) == pytest.approx(view.policy(mu))

    def test_pro_rl_without_penalty_is_coral(self):
        _, counts, limits, view = problem(seed=3, n=1000)
        ours, theirs = pro_rl(counts, GAMMA, limits, 20.0, 0.0), coral(counts, GAMMA, limits, 20.0)
        assert evaluate(view.model, ours).value == pytest.approx(evaluate(view.model, theirs).value, abs=1e-7)


def least_values(problem: LogModel, pi: np.ndarray, epsilon: float) -> np.ndarray:
    """[1+I] min_f (1−γ)f(s₀, π) over ‖δ‖²_μ̂ ≤ ε, for the reward and each constraint reward."""
    mu, L = occupancy(problem.model, pi), problem.L
    size = float(np.sqrt((mu[L.seen] ** 2 / L.mu_D[L.seen]).sum()))
    earned = np.r_[np.vdot(mu, problem.model.r), np.tensordot(problem.model.g, mu, axes=2)]
    return np.asarray(earned - np.sqrt(epsilon) * size)


class TestPessimism:
    @pytest.mark.parametrize("epsilon", [1e-4, 1e-2, 0.3])
    @pytest.mark.parametrize("missing", [False, True])
    def test_the_inner_minimum_is_the_least_value_of_functions_within_the_ball(self, epsilon, missing):
        """The value is linear in δ, with slopes read off unit vectors: its least in an ellipsoid has a closed form."""
        _, _, _, view = problem(seed=4, missing=missing)
        pi, mu_D = view.L.behaviour, view.L.mu_D.ravel()[view.pairs]

        def value(delta):
            reward = view.model.r.copy()
            reward.ravel()[view.pairs] += delta
            return (1 - GAMMA) * view.L.d0 @ (pi * view.under(pi).Q(reward)).sum(axis=1)

        centre = value(np.zeros(len(mu_D)))
        slopes = np.array([value(unit) - centre for unit in np.eye(len(mu_D))])
        worst = -np.sqrt(epsilon / (slopes**2 / mu_D).sum()) * slopes / mu_D
        assert mu_D @ worst**2 == pytest.approx(epsilon)
        assert least_values(view, pi, epsilon)[0] == pytest.approx(value(worst), **EXACT)

    @pytest.mark.parametrize("epsilon", [1e-4, 1e-2])
    def test_no_policy_has_a_larger_least_value(self, epsilon):
        _, counts, _, _ = problem(seed=5)
        view = LogModel.of(counts, GAMMA)
        found = least_values(view, pessimistic(counts, GAMMA, epsilon=epsilon), epsilon)[0]
        mixed = policies(view.L.r.shape, np.random.default_rng(0), 2000)
        pure = [as_matrix(np.array(a), 2) for a in itertools.product([0, 1], repeat=4)]
        others = [least_values(view, pi, epsilon)[0] for pi in (*mixed, *pure)]
        assert found >= max(others) - 1e-8

        def loss(logits):
            x = np.exp(logits.reshape(4, 2))
            return -least_values(view, x / x.sum(axis=1, keepdims=True), epsilon)[0]

        start = np.log(mixed[int(np.argmax(others[:2000]))]).ravel()
        polished = scipy.optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-12})
        assert found >= -polished.fun - 1e-8
        assert found <= -polished.fun + 1e-4

    def test_limits_hold_for_every_cost_the_log_does_not_rule_out(self):
        _, counts, limits, view = problem(seed=6, n=5000)
        pi = pessimistic(counts, GAMMA, limits, epsilon=1e-4)
        assert least_values(view, pi, 1e-4)[1] == pytest.approx(view.L.tau[0], abs=1e-7)

    def test_it_is_pro_rl_at_the_penalty_that_goes_with_its_radius(self):
        _, counts, _, _ = problem(seed=7, n=1000)
        view = LogModel.of(counts, GAMMA)
        mu = occupancy_cone(view, radius=0.1)
        size = np.sqrt((mu**2 / view.L.mu_D.ravel()[view.pairs]).sum())
        assert occupancy_cone(view, alpha=0.1 / size) == pytest.approx(mu, abs=1e-7)

    def test_without_uncertainty_it_is_the_plug_in_solution(self):
        _, counts, limits, view = problem(seed=8, n=1000)
        found = evaluate(view.model, pessimistic(counts, GAMMA, limits, epsilon=0.0)).value
        assert found == pytest.approx(evaluate(view.model, plug_in(counts, GAMMA, limits)).value, abs=1e-7)


class TestDPDL:
    def test_it_is_the_plug_in_solution_of_a_problem_made_worse_by_the_deviation(self):
        _, counts, limits, view = problem(seed=9, n=10**6)
        worse = view.model.replace(
            r=view.model.r - deviation(view, 0.1), g=view.model.g - deviation(view, 0.1), tau=view.model.tau + 0.003
        )
        best = solve_lp(worse)
        assert best.status == "optimal"
        pi = dpdl(counts, GAMMA, limits, bonus=0.1, kappa=0.003)
        assert evaluate(worse, pi).value == pytest.approx(best.value, **EXACT)
        assert evaluate(worse, pi).constraints[0] >= worse.tau[0] - 1e-9

    @pytest.mark.parametrize("kappa", [0.0, 1.0])
    def test_a_plan_in_the_worse_model_is_what_its_program_finds(self, kappa, monkeypatch):
        """Also where no policy keeps the tightened limit, κ = 1."""
        _, counts, limits, view = problem(seed=19, states=6, actions=3, n=500, missing=True)
        by_program = dpdl(counts, GAMMA, limits, bonus=0.03, kappa=kappa)
        monkeypatch.setattr("pdocrl.tabular.baselines.density.SIMPLEX_UP_TO", 0)
        by_plans = dpdl(counts, GAMMA, limits, bonus=0.03, kappa=kappa)
        mine, theirs = (evaluate(view.model, pi) for pi in (by_plans, by_program))
        assert mine.value == pytest.approx(theirs.value, abs=1e-6)
        assert mine.constraints == pytest.approx(theirs.constraints, abs=1e-6)

    def test_it_breaks_no_limit_where_the_plug_in_solution_breaks_it_half_the_time(self):
        broken = np.zeros(2)
        for seed in range(20):
            cmdp, _, limits, _ = problem(seed=11)
            counts = Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 10**5, seed)
            for i, pi in enumerate((plug_in(counts, GAMMA, limits), dpdl(counts, GAMMA, limits, bonus=0.5))):
                broken[i] += evaluate(cmdp, pi).constraints[0] < cmdp.tau[0]
        assert broken[0] >= 4
        assert broken[1] == 0


class TestSPIBB:
    @pytest.mark.parametrize("min_count", [1, 20, 60, 10**6])
    def test_it_is_the_best_of_all_ways_to_move_the_free_mass(self, min_count):
        """Brute force: in each state all mass of well-tried actions goes to one of them."""
        _, counts, _, _ = problem(seed=12, states=3, actions=3, n=300)
        view = LogModel.of(counts, GAMMA)
        baseline, few = view.L.behaviour, counts.n < min_count
        best = -np.inf
        for choice in itertools.product(range(3), repeat=3):
            pi = np.where(few, baseline, 0.0)
            for s, a in enumerate(choice):
                open_to = np.flatnonzero(~few[s])
                if len(open_to):
                    pi[s, open_to[a % len(open_to)]] += 1 - pi[s].sum()
            best = max(best, evaluate(view.model, pi / pi.sum(axis=1, keepdims=True)).value)
        found = spibb(counts, GAMMA, min_count=min_count)
        assert evaluate(view.model, found).value == pytest.approx(best, **EXACT)
        assert found[few] == pytest.approx(baseline[few], abs=1e-8)

    def test_nothing_known_is_the_baseline_and_everything_known_the_plug_in_solution(self):
        _, counts, limits, view = problem(seed=13)
        assert soft_spibb(counts, GAMMA, epsilon=0.0) == pytest.approx(view.L.behaviour, abs=1e-8)
        assert spibb(counts, GAMMA, min_count=10**9) == pytest.approx(view.L.behaviour, abs=1e-8)
        best = evaluate(view.model, plug_in(counts, GAMMA, limits)).value
        assert evaluate(view.model, mo_spibb(counts, GAMMA, limits, epsilon=1e6)).value == pytest.approx(best, **EXACT)
        assert evaluate(view.model, mo_spibb(counts, GAMMA, limits, min_count=0)).value == pytest.approx(best, **EXACT)

    @pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
    def test_soft_spibb_is_the_fixed_point_of_its_policy_iteration(self, epsilon):
        """State by state, no policy within the budget is better against the values of the one found."""
        _, counts, _, _ = problem(seed=14, states=3, actions=3, n=300)
        view = LogModel.of(counts, GAMMA)
        pi, e, baseline = soft_spibb(counts, GAMMA, epsilon=epsilon), errors(view), view.L.behaviour
        assert (e * np.abs(pi - baseline)).sum(axis=1).max() <= epsilon + 1e-8
        Q = view.under(pi).Q(view.model.r)
        for s in range(3):
            # Columns π, u ≥ |π − π_b|.
            rows = np.r_[np.c_[np.eye(3), -np.eye(3)], np.c_[-np.eye(3), -np.eye(3)], np.r_[np.zeros(3), e[s]][None]]
            right = np.r_[baseline[s], -baseline[s], epsilon]
            best = scipy.optimize.linprog(np.r_[-Q[s], 0, 0, 0], rows, right, [[1, 1, 1, 0, 0, 0]], [1])
            assert pi[s] @ Q[s] == pytest.approx(-best.fun, abs=1e-7)

    def test_with_limits_no_policy_of_the_set_earns_more(self):
        _, counts, limits, view = problem(seed=15, states=3, actions=2, n=300)
        pi, e, epsilon = mo_spibb(counts, GAMMA, limits, epsilon=1.2), errors(view), 1.2
        found = evaluate(view.model, pi)
        assert found.constraints[0] >= view.L.tau[0] - 1e-9
        assert (e * np.abs(pi - view.L.behaviour)).sum(axis=1).max() <= epsilon + 1e-8
        grid = np.linspace(0, 1, 13)
        for choice in itertools.product(grid, repeat=3):
            other = np.stack([choice, 1 - np.array(choice)], axis=1)
            if (e * np.abs(other - view.L.behaviour)).sum(axis=1).max() <= epsilon:
                earned = evaluate(view.model, other)
                assert earned.constraints[0] < view.L.tau[0] or earned.value <= found.value + 1e-9

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("constraints", [0, 1, 2])
    @pytest.mark.parametrize("near", [lambda v: Bootstrapped(v, 30), lambda v: Budgeted(v, 0.7)])
    def test_policy_iteration_finds_what_the_program_finds(self, near, constraints, missing):
        _, counts, limits, _ = problem(seed=17, states=6, actions=4, n=500, constraints=2, missing=missing)
        limits = dict(list(limits.items())[:constraints])
        view = LogModel.of(counts, GAMMA, limits)
        rows = _hard(view, 30) if isinstance(near(view), Bootstrapped) else _soft(view, 0.7)
        by_program, by_plans = best_occupancy(view, extra=rows), best_near(view, near(view))
        assert view.signals() @ by_plans == pytest.approx(view.signals() @ by_program, abs=1e-7)
        assert view.signals()[0] @ by_plans == pytest.approx(view.signals()[0] @ by_program, **EXACT)

    def test_a_budget_is_spent_as_a_general_solver_spends_it(self):
        _, _, _, view = problem(seed=18, states=6, actions=4, n=500, missing=True)
        near, Q = Budgeted(view, 0.7), np.random.default_rng(3).normal(size=view.L.r.shape)
        pi = near.answer(Q)
        for s in np.flatnonzero(view.L.seen.any(axis=1)):
            A = view.L.r.shape[1]
            found = scipy.optimize.linprog(  # π = π_b + more − less
                np.r_[-Q[s], Q[s]],
                A_ub=np.r_[np.r_[near.e[s], near.e[s]][None], np.c_[-np.eye(A), np.eye(A)]],
                b_ub=np.r_[0.7, near.base[s]],
                A_eq=np.r_[np.ones(A), -np.ones(A)][None],
                b_eq=[0.0],
                bounds=[(0.0, None if view.L.seen[s, a % A] else 0.0) for a in range(2 * A)],
            )
            assert Q[s] @ pi[s] == pytest.approx(Q[s] @ near.base[s] - found.fun, **EXACT)


class TestZanette:
    """Minimax with Q* alone: argmin_Q of the worst-weighted optimality residual."""

    def test_in_complete_tables_it_is_the_fixed_point_of_fqi(self):
        """The residual Q − r̂ − γP̂ max Q is 0 nowhere but at the optimum of the empirical model, where FQI ends."""
        _, counts, _, _ = problem(seed=16)
        view = LogModel.of(counts, GAMMA)

        def residual_of(Q):
            return Q - backup(view.model, view.model.r, Q.max(axis=1))

        best = plan(view.model, view.model.r)
        Q = backup(view.model, view.model.r, best.V)
        assert np.abs(residual_of(Q)).max() <= 1e-10
        found = scipy.optimize.root(lambda q: residual_of(q.reshape(4, 2)).ravel(), np.zeros(8), tol=1e-12)
        assert found.x.reshape(4, 2) == pytest.approx(Q, **EXACT)
        assert fqi(counts, GAMMA).argmax(axis=1).tolist() == best.actions.tolist()

    def test_over_a_restricted_class_it_is_not(self):
        """Q constant over two states: FQI averages its targets, the residual's minimum is elsewhere."""
        _, counts, _, _ = problem(seed=17, states=2)
        view = LogModel.of(counts, GAMMA)
        mu = view.L.mu_D / view.L.mu_D.sum(axis=0)
        q = np.zeros(2)
        for _ in range(500):  # fitted iteration: the weighted mean of both states' targets
            q = (mu * backup(view.model, view.model.r, np.full(2, q.max()))).sum(axis=0)

        def worst(q):
            delta = np.tile(q, (2, 1)) - backup(view.model, view.model.r, np.full(2, np.max(q)))
            weighted = view.L.mu_D * delta
            return max(weighted[weighted > 0].sum(), -weighted[weighted < 0].sum())

        found = scipy.optimize.minimize(worst, q, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12})
        assert found.fun <= worst(q) + 1e-12
        assert np.abs(found.x - q).max() > 1e-3


class TestMBCL:
    def test_its_gap_bounds_its_error_in_the_empirical_model(self):
        for seed in range(4):
            _, counts, limits, view = problem(seed=seed, n=2000)
            game = mbcl(counts, GAMMA, limits, iterations=100)
            assert game.evaluate(view.model).error(view.model, solve_lp(view.model).value) <= game.gap + 1e-9

    def test_it_stops_when_the_gap_is_small_enough(self):
        _, counts, limits, _ = problem(n=2000)
        game = mbcl(counts, GAMMA, limits, iterations=2000, tolerance=0.05)
        assert game.gap <= 0.05
        assert len(game.policies) < 2000
