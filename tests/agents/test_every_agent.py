"""What every agent must do, whatever its method: train side by side, resume, learn, act the same everywhere."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import onnxruntime
import pytest

from pdocrl.agents.b2r import scales
from pdocrl.agents.base import Agent, make_config
from pdocrl.agents.common.candidates import mix_twins
from pdocrl.agents.registry import BUILT_IN, find_agent
from pdocrl.errors import PdocrlError
from pdocrl.nn.transformer import Windows
from pdocrl.policies.cost_conditioned import CostConditionedPolicy, discounted_budget
from pdocrl.policies.onnx import to_onnx
from pdocrl.policies.policy import ProposingPolicy, TransformerPolicy, load_all, save
from pdocrl.training.train import resume, train
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, Probe, bandit

SMALL = {"hidden": (32, 32), "batch_size": 64}
VAE = {"vae_hidden": (32, 32)}
SETTINGS: dict[str, dict[str, Any]] = {
    "bcq_lag": VAE,
    "bear_lag": VAE,
    "cpq": VAE,
    "dial": {"model_hidden": (32, 32)},
    "cdt": {"embedding": 32, "heads": 2, "layers": 1, "context": 4, "times": 10},
    "b2r": {"embedding": 32, "heads": 2, "layers": 1, "context": 4},
}


@lru_cache
def agent_of(name: str) -> Agent[Any, Any]:
    """One instance per agent: its programs are compiled once."""
    return find_agent(name)


@lru_cache
def problem() -> Probe:
    return bandit()


def runs(name: str, limits: list[float], seeds: list[int], **more: float) -> list[Run]:
    settings = SMALL | SETTINGS.get(name, {}) | more
    return [
        Run(make_config(agent_of(name), cost_limit=(limit,), horizon=float(HORIZON), **settings), seed)
        for limit in limits
        for seed in seeds
    ]


LIMITS, SEEDS = [1.0, 2.5, 4.0], [0, 1, 2]


@lru_cache
def nine(name: str) -> tuple[Trainer, dict[str, Any]]:
    """Nine runs, 12 steps. Other tests train as many, so that each agent is compiled once."""
    trainer = Trainer(agent_of(name), problem().dataset, runs(name, LIMITS, SEEDS))
    return trainer, trainer.advance(12)


@pytest.mark.parametrize("name", BUILT_IN)
def test_nine_runs_have_finite_losses_and_go_their_own_ways(name: str) -> None:
    trainer, metrics = nine(name)
    assert not trainer.failures
    assert metrics
    for metric, values in metrics.items():
        assert values.shape == (9,), metric
        assert np.isfinite(values).all(), metric
    actions = [policy(problem().dataset.obs[:1]) for policy in trainer.policies()]
    assert len({action.tobytes() for action in actions[:3]}) == 3  # seeds differ
    for action in actions:
        assert action.shape == (1, 1)
        assert action.dtype == np.float32
        assert (np.abs(action) <= 1).all()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_run_has_the_same_bits_whatever_runs_beside_it(name: str) -> None:
    """And wherever it stands. (That it has them alone, too, is tried in tests/training/test_trainer.py.)"""
    together, _ = nine(name)
    among_others = Trainer(agent_of(name), problem().dataset, runs(name, [4.0, 1.0, 2.5], [7, 3, 1]))
    among_others.advance(12)
    assert (together.runs[4].config, together.runs[4].seed) == (among_others.runs[8].config, among_others.runs[8].seed)
    places = together.training[4], among_others.training[8]
    for one, other in zip(jax.tree.leaves(together.state), jax.tree.leaves(among_others.state), strict=True):
        assert np.asarray(one[places[0]]).tobytes() == np.asarray(other[places[1]]).tobytes()


@pytest.mark.parametrize("name", ["bc", "cdt"])
def test_a_limit_that_training_does_not_know_of_costs_no_training(name: str) -> None:
    """Three limits × three seeds are three trainings; each run's policy is that of a training for its limit."""
    together, metrics = nine(name)
    assert together.training.tolist() == [0, 1, 2] * 3
    assert all(len(leaf) == 3 for leaf in jax.tree.leaves(together.state))
    for values in metrics.values():
        assert values.tolist() == values[:3].tolist() * 3
    shared = together.policies()
    for i, limit in ((0, 1.0), (4, 2.5), (8, 4.0)):
        alone = Trainer(agent_of(name), problem().dataset, runs(name, [limit], SEEDS))
        alone.advance(12)
        assert to_onnx(alone.policies()[i % 3]).SerializeToString() == to_onnx(shared[i]).SerializeToString()
    if name == "cdt":  # what is asked for is each run's own
        assert [policy.network.target_cost for policy in shared[::3]] == [(1.0,), (2.5,), (4.0,)]
        assert shared[0].network.target_return < shared[8].network.target_return


def test_imitating_safe_episodes_is_a_training_for_every_limit() -> None:
    settings = SMALL | {"episodes": "safe", "horizon": float(HORIZON)}
    made = [Run(make_config(agent_of("bc"), cost_limit=(limit,), **settings), 0) for limit in (2.0, 4.0)]
    assert Trainer(agent_of("bc"), problem().dataset, made).training.tolist() == [0, 1]


FAST = {"gamma": 0.5, "reward_scale": 1.0, "actor_rate": 1e-3}
PID = FAST | {"pid_i": 0.03, "critic_rate": 3e-3}
# agent → rate κ of the limit, settings, steps. κ = 0.09 where the method keeps to the middle of the data by design.
LEARNERS: dict[str, tuple[float, dict[str, float], int]] = {
    "coptidice": (0.25, FAST | {"alpha": 0.005, "multiplier_rate": 2e-3, "cost_epsilon": 1e-5}, 3000),
    "bcq_lag": (0.09, PID, 3000),
    "bear_lag": (0.09, PID, 2500),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_bandit_is_solved_within_a_tenth(name: str) -> None:
    """r = a, c = a² ≤ κ: the optimum is a = √κ. Programs are those compiled above; only numbers differ."""
    kappa, settings, steps = LEARNERS[name]
    trainer = Trainer(agent_of(name), problem().dataset, runs(name, [kappa * HORIZON], [0], **settings))
    trainer.advance(steps)
    reward, cost = problem().evaluate(trainer.policies()[0])
    assert reward == pytest.approx(np.sqrt(kappa), rel=0.1)
    assert cost[0] <= 1.1 * kappa


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_stopped_training_resumes_to_the_same_bits(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdocrl.training.train.find_agent", agent_of)
    arguments: dict[str, Any] = {
        "horizon": HORIZON,
        "cost_limit": LIMITS,
        "seed": SEEDS,
        "settings": SMALL | SETTINGS.get(name, {}),
    }
    train(problem().dataset, name, steps=5, out=tmp_path, checkpoint_every=5, log_every=5, **arguments)
    plan = tmp_path / "run.json"
    plan.write_text(plan.read_text().replace('"steps": 5', '"steps": 12'))
    trained = resume(tmp_path, problem().dataset)
    assert trained.step == 12
    for undisturbed, resumed in zip(nine(name)[0].policies(), trained.policies, strict=True):
        expected, found = undisturbed.arrays(), resumed.arrays()
        assert expected.keys() == found.keys()
        for key, array in expected.items():
            assert array.tobytes() == found[key].tobytes(), key


def random_inputs(policy: Any) -> dict[str, Any]:
    """Six random inputs of each kind a policy's pure function takes."""
    rng = np.random.default_rng(0)
    network = policy.network
    if isinstance(network, TransformerPolicy):
        sizes = {"returns": (4,), "costs": (4, 1), "obs": (4, 1), "actions": (4, 1)}
        feeds: dict[str, Any] = {name: rng.normal(size=(6, *size)) for name, size in sizes.items()}
        feeds["mask"] = np.arange(4) >= [[3], [2], [1], [0], [0], [0]]  # padding is on the left
        return {"time": rng.integers(0, 20, (6, 4))} | {n: x.astype(np.float32) for n, x in feeds.items()}
    feeds = {"obs": rng.normal(size=(6, 1)).astype(np.float32)}
    if isinstance(network, ProposingPolicy):
        feeds["latent"] = rng.normal(size=(6, network.candidates, network.latent_dim)).astype(np.float32)
    if isinstance(network, CostConditionedPolicy):
        feeds["limit"] = np.asarray([[0], [0.5], [1.5], [2], [4], [9]], np.float32)
        feeds["spent"] = np.asarray([[0], [0], [1], [3], [0.5], [2]], np.float32)
        feeds["time"] = np.arange(6, dtype=np.float32)[:, None]
    return feeds


@pytest.mark.parametrize("name", BUILT_IN)
def test_policy_survives_its_file_and_onnx_computes_the_same(name: str, tmp_path: Any) -> None:
    policy: Any = nine(name)[0].policies()[4]
    save(tmp_path / "policy.npz", [policy])
    restored: Any = load_all(tmp_path / "policy.npz")[0][0]
    session = onnxruntime.InferenceSession(to_onnx(policy).SerializeToString())
    feeds = random_inputs(policy)
    assert {entry.name for entry in session.get_inputs()} == feeds.keys()
    expected = policy.act(**feeds)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, atol=1e-5)
    np.testing.assert_array_equal(restored.act(**feeds), expected)


def in_jax(name: str, config: Any, state: Any, feeds: dict[str, Any]) -> Any:
    """The action by the networks the agent trained."""
    if name == "bc":
        return jax.numpy.tanh(state.actor(feeds["obs"]))
    if name in ("carl", "o3srl"):
        return jax.numpy.tanh(state.players.actor(feeds["obs"]))
    if name == "b2r":
        reward_scale, cost_scale = scales(np.asarray(state.frontier))
        w = Windows(
            feeds["returns"] / reward_scale,
            feeds["costs"] / cost_scale,
            feeds["obs"],
            feeds["actions"],
            feeds["time"],
            feeds["mask"],
        )
        return jax.numpy.clip(state.model(w)[0][:, -1], -1, 1)
    if name == "cdt":
        w = Windows(
            config.reward_scale * feeds["returns"],
            config.cost_shift - feeds["costs"],
            feeds["obs"],
            feeds["actions"],
            feeds["time"],
            feeds["mask"],
        )
        return jax.numpy.clip(state.model(w)[0][:, -1], -1, 1)
    if name == "bcq_lag":
        z = jax.numpy.clip(feeds["latent"], -0.5, 0.5)
        states = jax.numpy.repeat(feeds["obs"][:, None], z.shape[1], 1)
        proposed = state.vae.decode(states, z)
        moved = state.actor(jax.numpy.concatenate([states, proposed], -1))
        action = jax.numpy.clip(proposed + config.perturbation * jax.numpy.tanh(moved), -1, 1)
        chosen = []
        for own, tried in zip(states, action, strict=True):
            value, cost = mix_twins(state.critic(own, tried), state.cost_critic(own, tried), config.pessimism)
            chosen.append(tried[jax.numpy.argmax(value - cost @ state.multiplier.lam)])
        return jax.numpy.stack(chosen)
    if name.startswith("caps"):
        critics = (state.reward.critic, state.cost.critic) if name == "caps_iql" else (state.critic, state.cost_critic)
        modes = jax.numpy.tanh(state.actor.mlp(feeds["obs"])[:, : config.heads])  # one coordinate each
        pairs = [jax.numpy.concatenate([feeds["obs"], modes[:, k : k + 1]], -1) for k in range(config.heads)]
        value = jax.numpy.stack([critics[0](pair)[..., 0].min(0) for pair in pairs], -1)
        cost = jax.numpy.stack([critics[1](pair)[..., 0].max(0) for pair in pairs], -1).clip(0)
        allowed = discounted_budget(feeds["limit"], feeds["spent"], feeds["time"], config.horizon, config.gamma)
        kept = cost < allowed
        best = jax.numpy.where(kept.any(-1), jax.numpy.where(kept, value, -1e9).argmax(-1), cost.argmin(-1))
        return jax.numpy.take_along_axis(modes, best[:, None], 1)
    if name == "fisor":
        noise = feeds["latent"] * (np.arange(config.candidates) > 0)[:, None]
        tried = jax.numpy.moveaxis(state.average.act(feeds["obs"], jax.numpy.moveaxis(noise, 1, 0)), 0, 1)
        states = jax.numpy.repeat(feeds["obs"][:, None], config.candidates, 1)
        pairs = jax.numpy.concatenate([states, tried], -1).reshape(-1, 2)
        best = state.risk.target(pairs).max(0).reshape(len(tried), -1).argmin(1)
        return jax.numpy.take_along_axis(tried, best[:, None, None], 1)[:, 0]
    if name == "bcrl":
        allowed = discounted_budget(feeds["limit"], feeds["spent"], feeds["time"], config.horizon, config.gamma)
        budget = jax.numpy.minimum(allowed / state.unit, 1 / (1 - config.gamma))
        beyond = jax.numpy.maximum(budget - jax.numpy.maximum(state.cost.value(feeds["obs"]), 0), 0)
        free = state.actor.mode(jax.numpy.concatenate([feeds["obs"], beyond], -1))
        return jax.numpy.where(beyond < 0.1, state.safe.mode(feeds["obs"]), free)
    if name == "pdocrl_anchored":
        return state.average.mode(feeds["obs"])
    if name == "dial":
        policy = agent_of(name).policy(config, state)
        at = policy.setting(feeds["limit"])
        targets = policy.relative_return[at, None], policy.target_cost[at], policy.cost_cap[at]
        left = 1 - feeds["time"] / jax.numpy.float32(config.horizon)
        amounts = *targets, feeds["spent"], left, policy.max_episode_cost
        return state.average.mode(policy.inputs(feeds["obs"], *amounts, xp=jax.numpy))
    return state.actor.mode(feeds["obs"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_numpy_and_jax_act_alike(name: str) -> None:
    trainer = nine(name)[0]
    policy: Any = trainer.policies()[4]
    state = jax.tree.map(lambda leaf: leaf[trainer.training[4]], trainer.state)
    feeds = random_inputs(policy)
    found = in_jax(name, trainer.runs[4].config, state, feeds)
    np.testing.assert_allclose(found, getattr(policy.network, "act", policy.network)(**feeds), atol=1e-5)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if find_agent(name).fewest_costs > 0])
def test_data_without_costs_is_refused_in_one_line(name: str) -> None:
    dataset = dataclasses.replace(
        problem().dataset, cost=np.zeros((len(problem().dataset), 0), np.float32), cost_names=()
    )
    with pytest.raises(PdocrlError, match=f"{name} needs at least one cost; bandit has 0"):
        train(dataset, name, steps=1)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_setting_is_explained(name: str) -> None:
    from pdocrl.agents.base import describe_config

    agent = find_agent(name)
    assert agent.summary.endswith(".")
    assert agent.paper
    assert [field["name"] for field in describe_config(agent.Config) if not field["meaning"]] == []
