"""BCRL: budgets that cover an action, budgets left of a limit, and the policy of least cost where none is left."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from test_agent_oracles import GAMMA, KEY, PROBLEM, B, K, check, double, mlp, one_step, pair, random_batch
from test_caps import HORIZON, SMALL, drive, expectile, layer, street

from pdocrl.agents.base import make_config
from pdocrl.agents.bcrl import BCRLProblem
from pdocrl.agents.registry import find_agent
from pdocrl.policies.cost_conditioned import BudgetPolicy, discounted_budget
from pdocrl.training.trainer import Run, Trainer


def gaussian_loss(net: Any, inputs: np.ndarray, action: np.ndarray, weight: np.ndarray, kept: np.ndarray) -> float:
    """−mean w log N(a; tanh m, σ²), some of the last hidden units left out."""
    x = inputs
    for i, (w, b) in enumerate(zip(net.weights[:-1], net.biases[:-1], strict=True)):
        x = np.maximum(x @ w + b, 0) * (kept if i == len(net.weights) - 2 else 1)
    mean, raw = np.split(x @ net.weights[-1] + net.biases[-1], 2, -1)
    density = norm(np.tanh(mean), np.exp(-3 + 3.5 / (1 + np.exp(-raw))))
    return -float((weight * density.logpdf(action).sum(-1)).mean())


def test_one_step_is_the_formulas() -> None:
    """In the authors' order: V_c, Q_c, V, Q, then both policies, each with the players before it already moved."""
    unit = np.array([0.5, 4.0])  # the largest cost of a step, of each kind
    # so far apart that values have both signs
    batch = eqx.tree_at(lambda b: (b.obs, b.next_obs), random_batch(), replace_fn=lambda x: 5 * x)
    problem = BCRLProblem(**vars(PROBLEM), cost_units=tuple(unit))
    new, old, metrics = one_step("bcrl", batch, problem, reward_scale=0.3, beta=2.0, expectile=0.6, clip=1e6)
    b, o, n = double(batch), double(old), double(new)
    for_budgets, for_dropout = jax.random.split(KEY)
    drawn = np.asarray(jax.random.uniform(for_budgets, (3, B, K)), np.float64) / (1 - GAMMA)
    kept = (np.asarray(jax.random.uniform(for_dropout, (2, B, 8))) >= 0.1) / 0.9
    pairs, not_done = pair(b.obs, b.action), GAMMA * b.not_done[:, None]

    def value_loss(q: np.ndarray, states: np.ndarray, tau: float) -> Any:
        return lambda value: float(expectile(q - mlp(value, states), tau).mean(0).sum())

    def critic_loss(inputs: np.ndarray, backup: np.ndarray) -> Any:
        return lambda critic: float(((mlp(critic, inputs) - backup) ** 2).mean((0, 1)).sum())

    ahead, q_c, v_c = mlp(n.cost.value, b.next_obs), mlp(n.cost.target, pairs).max(0), mlp(n.cost.value, b.obs)
    for learned in (ahead, q_c, v_c):
        assert 0 < (learned < 0).mean() < 1  # counts as 0, for costs are at least 0
    ahead, q_c, v_c = np.maximum(ahead, 0), np.maximum(q_c, 0), np.maximum(v_c, 0)
    cost_backup = b.cost / unit + not_done * ahead
    whole = [u + np.maximum(q_c, v_c) for u in (drawn[0], drawn[2])]
    q_0 = mlp(o.reward.target, pair(pairs, whole[0] - q_c)).min(0)
    backup = 0.3 * b.reward[:, None] + not_done * mlp(n.reward.value, pair(b.next_obs, drawn[1]))
    given = pair(b.obs, np.clip(whole[1] - v_c, 0, 1 / (1 - GAMMA)))
    gain = mlp(n.reward.critic, pair(pairs, whole[1] - q_c)).min(0) - mlp(n.reward.value, given)
    earns, saves = np.exp(2 * gain[:, 0]), np.exp(2 * (v_c - q_c).sum(-1))
    assert max(earns.max(), saves.max()) < 100
    check(
        new,
        old,
        metrics,
        {
            "cost.value": (
                "cost.value_opt",
                "cost_value_loss",
                value_loss(mlp(o.cost.target, pairs).max(0), b.obs, 0.2),
            ),
            "cost.critic": ("cost.critic_opt", "cost_loss", critic_loss(pairs, cost_backup)),
            "reward.value": ("reward.value_opt", "value_loss", value_loss(q_0, pair(b.obs, whole[0] - v_c), 0.6)),
            "reward.critic": ("reward.critic_opt", "critic_loss", critic_loss(pair(pairs, GAMMA * drawn[1]), backup)),
            "actor": ("actor_opt", "actor_loss", lambda p: gaussian_loss(p.mlp, given, b.action, earns, kept[0])),
            "safe": ("safe_opt", "safe_loss", lambda p: gaussian_loss(p.mlp, b.obs, b.action, saves, kept[1])),
        },
    )


def test_on_a_coin_the_least_cost_is_known_and_fast_is_taken_where_the_budget_covers_it() -> None:
    """V_c = .2/(1 − γ) = .4 and Q_c(fast) = 1 + γ V_c = 1.2: smaller budgets are never seen with a fast step."""
    agent = find_agent("bcrl")
    rates = {"critic_rate": 3e-3, "value_rate": 3e-3, "actor_rate": 3e-3, "target_rate": 0.05}
    config = make_config(agent, cost_limit=(5.0,), beta=6.0, dropout=0.0, **SMALL, **rates)
    trainer = Trainer(agent, street(), [Run(config, 0)])
    trainer.advance(1000)
    state = jax.tree.map(lambda leaf: np.asarray(leaf)[0], trainer.state)
    nothing = np.zeros((1, 1))
    np.testing.assert_allclose(mlp(state.cost.value, nothing), 0.4, atol=0.06)
    policy = trainer.policies()[0]
    last = nothing + HORIZON - 1  # where what is left of the limit is the budget
    fast = {left: float(policy.network.act(nothing, nothing + left, nothing, last)[0, 0]) for left in (0, 0.45, 0.9, 2)}
    assert [action > 0 for action in fast.values()] == [False, False, False, True], fast
    for limit in (0.0, 5.0, 12.0, 40.0):
        assert sum(drive(policy, limit)) <= limit
    assert sum(drive(policy, 40.0)) == HORIZON


def test_a_budget_is_what_is_left_spread_evenly_over_the_steps_left_and_discounted() -> None:
    limit, spent, time, horizon, gamma = 12.0, 5.0, 3.0, 10.0, 0.9
    even = (limit - spent) / (horizon - time)
    found = discounted_budget(*(np.full((1, 1), x) for x in (limit, spent, time)), horizon, gamma)
    assert found[0, 0] == pytest.approx(sum(gamma**t * even for t in range(7)), rel=1e-6)
    assert discounted_budget(np.ones((1, 1)), np.full((1, 1), 3.0), np.zeros((1, 1)), horizon, gamma) == 0


@pytest.fixture
def policy() -> BudgetPolicy:
    """V_c = (1, 2) units of 10; the actor answers δ₁/4, the policy of least cost −1."""
    networks = {
        "actor": layer([[0.0], [0.25], [0.0]], [0.0]),
        "safe": layer([[0.0]], [-1.0]),
        "cost_value": layer([[0.0, 0.0]], [1.0, 2.0]),
    }
    return BudgetPolicy(networks, horizon=10.0, gamma=0.9, unit=(10.0, 10.0), limit=(5.0, 5.0))


@pytest.mark.parametrize(
    ("limit", "spent", "expected"),
    [((30, 90), 0, 0.5), ((30, 90), 10, 0.25), ((9000, 90), 0, 2.25), ((30, 20.5), 0, -1), ((5, 90), 0, -1)],
)
def test_the_budget_beyond_the_least_cost_is_what_the_policy_is_told(
    policy: BudgetPolicy, limit: tuple[float, float], spent: float, expected: float
) -> None:
    """On the last step nothing is discounted. Budgets end at 1/(1 − γ) units: 10 − 1 here."""
    one: NDArray[Any] = np.ones((1, 1))
    found = policy.act(one, np.asarray([limit]), np.asarray([[spent, 0.0]]), 9 * one)
    assert np.arctanh(found[0, 0]) == pytest.approx(expected, abs=1e-3)


def test_a_least_cost_below_zero_is_no_budget(policy: BudgetPolicy) -> None:
    """Once the limit is spent the policy of least cost acts, however cheap the value says that is."""
    cheap = dataclasses.replace(policy, networks=policy.networks | {"cost_value": layer([[0.0, 0.0]], [-20.0, -20.0])})
    step = cheap.begin(0, limit=(5.0, 5.0))
    assert step(np.zeros(1)) > 0
    assert np.arctanh(step(np.zeros(1), last_cost=[5.0, 0.0])) == pytest.approx(-1)


def test_each_cost_is_counted_in_its_own_unit_and_one_that_never_occurred_forbids_nothing() -> None:
    """Beside a cost of 1 a step stands the same in thousandths, and one that is always 0."""
    one = street()
    same = dataclasses.replace(one, cost=one.cost * [1, 1e-3, 0], cost_names=("whole", "thousandths", "never"))
    agent = find_agent("bcrl")
    problem = agent.problem(same)
    state = agent.init(make_config(agent, **SMALL), problem, KEY)
    np.testing.assert_allclose(state.unit, [1, 1e-3, 1])
    networks = {
        "actor": layer([[0.0]] * 4, [1.0]),
        "safe": layer([[0.0]], [-1.0]),
        "cost_value": layer([[0.0] * 3], [0.0] * 3),
    }
    policy = BudgetPolicy(networks, 10.0, 0.9, tuple(np.asarray(state.unit).tolist()), (2.0, 2e-3, 1.0))
    step = policy.begin(0)
    assert step(np.zeros(1)) > 0, "two steps of the largest cost are no small budget, whatever their unit"
    assert policy.with_limit((2.0, 0.0, 1.0)).begin(0)(np.zeros(1)) < 0
    old = dataclasses.replace(policy, unit=1e-3)  # as files of before had it: one for all
    assert old.begin(0)(np.zeros(1)) > 0
