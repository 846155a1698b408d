import numpy as np
import pytest
import scipy.optimize

from pdocrl.errors import PdocrlError
from pdocrl.limits import as_limits
from pdocrl.tabular.baselines.plain import behaviour_cloning, coptidice, fqi, mbcl, plug_in
from pdocrl.tabular.cmdp import evaluate, extract, occupancy, plan, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.exact import solve_lp
from pdocrl.tabular.solvers.lagrangian import Lagrangian
from research.lucky import FIRST_RARE, LIMIT, lucky2


def with_costs(seed=0, **options):
    """A random CMDP with constraints as costs in [0, 1], and its limits in words."""
    cmdp = random_cmdp(n_states=6, n_actions=3, seed=seed, **options)
    cmdp = cmdp.replace(g=cmdp.g - 1, tau=cmdp.tau - 1)
    names = ["cost"] if cmdp.n_constraints == 1 else [f"cost_{i}" for i in range(cmdp.n_constraints)]
    return cmdp, {name: -tau for name, tau in zip(names, cmdp.tau, strict=True)}


def exhaustive(cmdp):
    """Counts whose frequencies are the model itself, to seven digits."""
    return Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 10**15, seed=0)


@pytest.mark.parametrize("n_constraints", [1, 2])
def test_with_endless_data_every_model_based_method_is_optimal(n_constraints):
    cmdp, limits = with_costs(n_constraints=n_constraints)
    counts, optimum = exhaustive(cmdp), solve_lp(cmdp).value
    assert evaluate(cmdp, plug_in(counts, 0.9, limits)).error(cmdp, optimum) <= 1e-6
    assert mbcl(counts, 0.9, limits, iterations=800).evaluate(cmdp).error(cmdp, optimum) <= 0.03
    assert evaluate(cmdp, coptidice(counts, 0.9, limits, alpha=1e-5).pi).error(cmdp, optimum) <= 1e-3
    assert evaluate(cmdp, fqi(counts, 0.9)).value == pytest.approx(evaluate(cmdp, plan(cmdp, cmdp.r).actions).value)


def test_cloning_is_the_share_of_each_action_and_uniform_where_nothing_was_seen():
    counts = Counts.from_arrays([0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 2], [0, 0, 0, 0], n_states=3, n_actions=2)
    assert behaviour_cloning(counts) == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1], [1 / 2, 1 / 2]]))


def test_nobody_takes_an_action_never_tried():
    """Action 1 is never tried in state 0; everything that was tried is bad."""
    log = {"state": [0, 1, 1], "action": [0, 0, 1], "next_state": [1, 0, 1], "reward": [0.0, 0.0, 0.0]}
    counts = Counts.from_arrays(**log, costs=[0.8, 0.8, 1.0], n_states=2, n_actions=2)
    assert plug_in(counts, 0.9, {"cost": 0.5})[0].tolist() == [1, 0]
    assert fqi(counts, 0.9)[0].tolist() == [1, 0]
    assert coptidice(counts, 0.9, {"cost": 0.5}).pi[0] == pytest.approx([1, 0])
    assert mbcl(counts, 0.9, {"cost": 0.5}, iterations=5).policies[:, 0].tolist() == [[1, 0]] * 5


def test_the_density_ratio_leaves_for_states_never_acted_in_at_the_worst_they_can_be():
    """State 1 is reached but never acted in: worth −1/(1−γ) for ever, so that the other action is better."""
    log = {"state": [0, 0, 2], "action": [0, 1, 0], "next_state": [1, 2, 2], "reward": [1.0, 0.0, -1.0]}
    counts = Counts.from_arrays(**log, d0=[0.5, 0.25, 0.25], n_states=3, n_actions=2)
    found = coptidice(counts, 0.9, alpha=1e-3)
    assert found.V[1] == pytest.approx(-10)
    assert found.V[2] == pytest.approx(-10, abs=0.1)
    assert found.pi[0, 0] == pytest.approx(1)  # both ways end as badly, and this one pays 1


def test_a_mixture_earns_the_mean_of_what_its_policies_earn():
    cmdp, _ = with_costs(n_constraints=2)
    policies = np.random.default_rng(0).dirichlet(np.ones(3), size=(5, 6))
    each = [evaluate(cmdp, pi) for pi in policies]
    earned = Mixture(policies).evaluate(cmdp)
    assert earned.value == pytest.approx(np.mean([e.value for e in each]), rel=1e-12)
    assert earned.constraints == pytest.approx(np.mean([e.constraints for e in each], axis=0), rel=1e-12)


def test_the_count_threshold_is_a_plug_in_without_the_rare_pairs():
    lucky = lucky2()
    counts = lucky.counts(10_000, seed=0)
    rare = (counts.n < 10)[:6]
    pi = plug_in(counts, 0.9, {"cost": LIMIT}, min_count=10)
    assert pi[:6][rare].sum() == 0
    assert plug_in(counts, 0.9, {"cost": LIMIT})[:6][rare].sum() > 5  # without it, rare arms are all it plays
    assert evaluate(lucky.cmdp, pi).error(lucky.cmdp, lucky.optimum.value) < 0.01


def test_believing_the_empirical_model_is_being_fooled_by_luck():
    """At n = 10⁴ the plug-in solution and the game play arms that never broke in the log."""
    lucky = lucky2()
    counts = lucky.counts(10_000, seed=1)
    for earned in (
        evaluate(lucky.cmdp, plug_in(counts, 0.9, {"cost": LIMIT})),
        mbcl(counts, 0.9, {"cost": LIMIT}).evaluate(lucky.cmdp),
    ):
        assert earned.error(lucky.cmdp, lucky.optimum.value) >= 0.25
    free = lucky2(constrained=False)
    pi = fqi(free.counts(10_000, seed=1), 0.9)
    assert pi[:6, FIRST_RARE:].sum() == 6
    assert evaluate(free.cmdp, pi).error(free.cmdp, free.optimum.value) >= 0.25


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_density_ratio_meets_the_conditions_of_its_optimum(alpha, seed):
    """w = [1 + e/α]₊ ≥ 0 obeys the flow, keeps the limits, and prices only those that bind."""
    cmdp, limits = with_costs(seed=seed, n_constraints=2, gamma=0.95)
    counts = Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 3000, seed=seed)
    found = coptidice(counts, 0.95, limits, alpha)
    L = Lagrangian.empirical(counts, 0.95, as_limits(limits))
    mu = found.w * L.mu_D
    residual = L.residual(found.V, np.zeros_like(mu), found.lam) - found.V[:, None]
    assert found.w == pytest.approx(np.maximum(1 + residual / alpha, 0), abs=1e-8)
    assert np.abs(L.inflow(mu) - mu.sum(axis=1)).max() <= 1e-10
    assert L.slack(mu).min() >= -1e-10
    assert found.lam.min() >= 0
    assert np.abs(found.lam * L.slack(mu)).max() <= 1e-9


def test_the_density_ratio_agrees_with_a_general_solver():
    cmdp, limits = with_costs(seed=2)
    counts = Counts.sample(cmdp, np.full(cmdp.r.shape, 1 / cmdp.r.size), 1000, seed=0)
    L = Lagrangian.empirical(counts, 0.9, as_limits(limits))
    found = coptidice(counts, 0.9, limits, alpha=0.1)

    def loss(w):
        return -np.vdot(w.reshape(L.r.shape) * L.mu_D, L.r) + 0.05 * np.vdot(L.mu_D.ravel(), (w - 1) ** 2)

    def flow(w):
        mu = w.reshape(L.r.shape) * L.mu_D
        return L.inflow(mu) - mu.sum(axis=1)

    constraints = [
        {"type": "eq", "fun": flow},
        {"type": "ineq", "fun": lambda w: L.slack(w.reshape(L.r.shape) * L.mu_D)},
    ]
    options = {"ftol": 1e-14, "maxiter": 1000}
    general = scipy.optimize.minimize(
        loss, np.ones(L.r.size), bounds=[(0, None)] * L.r.size, constraints=constraints, method="SLSQP", options=options
    )
    assert loss(found.w.ravel()) == pytest.approx(general.fun, abs=1e-8)
    assert found.w.ravel() == pytest.approx(general.x, abs=1e-4)


def test_limits_that_cannot_be_kept_push_a_multiplier_to_its_cap():
    cmdp, _ = with_costs()
    counts = exhaustive(cmdp)
    assert coptidice(counts, 0.9, {"cost": 0.01}, largest_multiplier=50.0).lam.tolist() == [50.0]
    least = -evaluate(cmdp, plan(cmdp, cmdp.g[0]).actions).constraints[0]
    pi = plug_in(counts, 0.9, {"cost": 0.01})
    assert -evaluate(cmdp, pi).constraints[0] == pytest.approx(least, abs=1e-6)


def test_a_penalty_that_is_not_positive_is_refused():
    cmdp, limits = with_costs()
    with pytest.raises(PdocrlError, match="alpha is 0"):
        coptidice(exhaustive(cmdp), 0.9, limits, alpha=0)


def test_a_large_penalty_is_behaviour_cloning_when_the_log_is_a_policys_own():
    cmdp, _ = with_costs()
    pi = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    counts = Counts.sample(cmdp, occupancy(cmdp, pi), 10**14, seed=0)
    assert coptidice(counts, 0.9, alpha=1e4).pi == pytest.approx(behaviour_cloning(counts), abs=1e-3)
    assert behaviour_cloning(counts) == pytest.approx(extract(occupancy(cmdp, pi)), abs=1e-5)
