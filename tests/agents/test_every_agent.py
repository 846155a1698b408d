"""What every agent must do, whatever its method: train side by side, resume, learn, act the same everywhere."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

from pdocrl.agents.b2r import scales
from pdocrl.agents.base import Agent, make_config
from pdocrl.agents.common.candidates import mix_twins
from pdocrl.agents.registry import BUILT_IN, find_agent
from pdocrl.errors import PdocrlError
from pdocrl.nn.transformer import Windows
from pdocrl.policies.cost_conditioned import discounted_budget
from pdocrl.policies.onnx import to_onnx
from pdocrl.testing import check_agent, policy_inputs
from pdocrl.training import checkpoint
from pdocrl.training.final_state import FinalState
from pdocrl.training.train import train
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
def test_the_built_in_agents_pass_the_kit(name: str) -> None:
    settings = SMALL | SETTINGS.get(name, {})
    check_agent(agent_of(name), costs=(1,), discrete=False, data=problem().dataset, **settings)
    agent = find_agent(name)
    assert agent.summary.endswith(".")
    assert agent.paper


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
    feeds = policy_inputs(policy)
    found = in_jax(name, trainer.runs[4].config, state, feeds)
    np.testing.assert_allclose(found, getattr(policy.network, "act", policy.network)(**feeds), atol=1e-5)


def documented() -> tuple[dict[str, set[str]], set[str]]:
    """From docs/agents/index.md: {agent: what can be asked of a training}, and the agents said to have a density."""
    text = (Path(__file__).parents[2] / "docs" / "agents" / "index.md").read_text(encoding="utf-8")
    table = text.split("## What can be asked of a training")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    heads = [head.strip("`") for head in rows[0]]
    found = {
        name: {head for head, cell in zip(heads[1:], row[1:], strict=True) if cell}
        for row in rows[2:]
        for name in re.findall(r"`(\w+)`", row[0])
    }
    told = re.search(r"exists: (.*?);", table, re.DOTALL)
    assert told is not None
    return found, set(re.findall(r"`(\w+)`", told[1]))


def test_the_table_of_what_can_be_asked_names_every_agent() -> None:
    assert set(documented()[0]) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_state_is_read_from_its_checkpoint_without_data(name: str, tmp_path: Path) -> None:
    trainer = nine(name)[0]
    config = SimpleNamespace(find_agent=lambda: trainer.agent, make_runs=lambda _: trainer.runs)
    metadata = {"problem": dataclasses.asdict(trainer.problem)}
    checkpoint.save(tmp_path / "checkpoint.safetensors", trainer.state, metadata)
    read = FinalState.load(tmp_path / "checkpoint.safetensors", cast("Any", config), trainer.normaliser)
    for leaf, other in zip(jax.tree.leaves(read.state), jax.tree.leaves(trainer.state), strict=True):
        np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_can_be_asked_of_a_training_is_what_the_table_says(name: str) -> None:
    trainer = nine(name)[0]
    final, policy = FinalState.of(trainer), trainer.policies()[0]
    table, dense = documented()
    has = set(final.names().split(", ")) - {"nothing beside its policy"}
    assert has == table[name]
    assert bool(getattr(policy.network, "density", "")) == (name in dense)
    data = problem().dataset
    for what in ("q", "v", "q_cost", "v_cost", "ratio"):
        action = None if what.startswith("v") else data.action[:3]
        if what in has:
            assert np.isfinite(final.call(what, 0, data.obs[:3], action)).all()
        else:
            with pytest.raises(PdocrlError, match=f"agent {name} learns no `{what}`; it has"):
                final.call(what, 0, data.obs[:3], action)
    if "multipliers" in has:
        assert final.multipliers(0).shape == (1,)
    assert len(jax.tree.leaves(final.state_of(8))) == len(jax.tree.leaves(trainer.state))


@pytest.mark.parametrize("name", [name for name in BUILT_IN if find_agent(name).fewest_costs > 0])
def test_data_without_costs_is_refused_in_one_line(name: str) -> None:
    dataset = dataclasses.replace(
        problem().dataset, cost=np.zeros((len(problem().dataset), 0), np.float32), cost_names=()
    )
    with pytest.raises(PdocrlError, match=f"{name} needs at least one cost; bandit has 0"):
        train(dataset, name, steps=1)
