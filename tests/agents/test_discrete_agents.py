"""Agents on choices: probabilities are counts, the dial's limits are kept where the answer is known, forms agree."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

from pdocrl import evaluate, train
from pdocrl.agents.base import make_config
from pdocrl.agents.registry import agents_for_discrete_actions, find_agent
from pdocrl.data import Dataset, make_dataset
from pdocrl.nn.distributions import Categorical
from pdocrl.policies.onnx import to_onnx
from pdocrl.training.folder import Trained
from pdocrl.training.trainer import Run, Trainer

STEPS = 8  # of an episode
LEFT, RIGHT = 5, 6  # names of the choices: careful and free, bold and dear
SMALL = {"batch_size": 64, "embedding": 8, "heads": 2, "layers": 1, "context": 2, "times": 10}


def episodes(bold: np.ndarray) -> Dataset:
    """What [E, STEPS] choices came to: bold ones earn 1 and cost 1. Observed is a coin that tells nothing."""
    count, n = len(bold), bold.size
    coin = np.random.default_rng(1).choice([-1.0, 1.0], (n + 1, 1))
    end = np.tile(np.arange(STEPS) == STEPS - 1, count)
    paid = bold.reshape(-1).astype(float)
    return make_dataset(
        coin[:-1],
        np.where(bold.reshape(-1), RIGHT, LEFT),
        paid,
        paid,
        coin[1:],
        0 * end,
        end,
        discrete_actions=(LEFT, RIGHT),
    )


def mixed(count: int = 90) -> Dataset:
    """Episodes from all careful to all bold."""
    rng = np.random.default_rng(0)
    return episodes(rng.random((count, STEPS)) < np.linspace(0, 1, count)[:, None])


class Bold(gymnasium.Env):  # type: ignore[misc]
    """The world of these episodes."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=LEFT)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid = float(action == RIGHT)
        return self._seen(), paid, False, False, {"cost": paid}

    def _seen(self) -> Any:
        return self.np_random.choice([-1.0, 1.0], 1).astype(np.float32)


def small(name: str) -> dict[str, Any]:
    hidden = {"hidden": (16,), "model_hidden": (8,)}
    fields = vars(make_config(find_agent(name)))
    return {key: value for key, value in (SMALL | hidden).items() if key in fields}


def test_cloned_probabilities_are_the_counts() -> None:
    """The likelihood of discrete actions in a state is largest at their shares there."""
    n = 400
    state = np.repeat([-1.0, 1.0], n // 2)[:, None]
    choice = np.concatenate([np.arange(n // 2) % 4 == 0, np.arange(n // 2) % 10 != 0]).astype(int)  # 1/4 and 9/10
    data = make_dataset(state, choice, np.zeros(n), np.zeros(n), state, np.ones(n), np.zeros(n), discrete_actions=2)
    agent = find_agent("bc")
    config = make_config(agent, cost_limit=(1.0,), hidden=(16,), actor_rate=3e-3, batch_size=400)
    trainer = Trainer(agent, data, [Run(config, 0)])
    trainer.advance(600)
    policy = trainer.policies()[0]
    weights = tuple(jnp.asarray(w[0]) for w in trainer.state.actor.mlp.weights)
    biases = tuple(jnp.asarray(b[0]) for b in trainer.state.actor.mlp.biases)
    clone = Categorical(type(trainer.state.actor.mlp)(weights, biases))
    seen = policy.normaliser.normalise_obs(np.array([[-1.0], [1.0]]))
    bold = jnp.exp(clone.log_prob(jnp.asarray(seen), jnp.asarray([[0.0, 1.0]])))
    np.testing.assert_allclose(bold, [0.25, 0.9], atol=0.06)  # batches are drawn at random
    assert policy(np.array([[-1.0], [1.0]])).tolist() == [0, 1]  # the likelier one acts
    np.testing.assert_array_equal(policy.network(seen), clone.mode(jnp.asarray(seen)))


@pytest.fixture(scope="module")
def dial() -> Trained:
    rates = {"actor_rate": 3e-3, "model_rate": 3e-3, "average_rate": 0.05, "dropout": 0.0}
    settings = small("dial") | rates
    return train(mixed(), "dial", steps=400, cost_limit=[0.0, 4.0, 10.0], horizon=STEPS, settings=settings)


def test_the_dial_spends_nothing_at_limit_zero_and_everything_at_the_horizon(dial: Trained) -> None:
    none, some, all_of_it = evaluate(dial, 4, env=Bold, workers=0).runs
    assert none.cost == [0.0]
    assert 0 < some.cost[0] <= 4
    assert all_of_it.cost == [float(STEPS)]


@pytest.mark.parametrize("name", agents_for_discrete_actions())
def test_every_agent_for_choices_plays_them_by_name_and_onnx_says_the_same(name: str, dial: Trained) -> None:
    trained = dial
    if name != "dial":
        trained = train(mixed(30), name, steps=3, cost_limit=6.0, horizon=STEPS, settings=small(name))
    policy = trained.policies[0]
    for run in evaluate(trained, 2, env=Bold, workers=0).runs:  # which refuses what is not its choice
        assert 0 <= run.cost[0] == run.reward <= STEPS
    session = onnxruntime.InferenceSession(to_onnx(policy).SerializeToString())
    rng, feeds = np.random.default_rng(0), {}
    for entry in session.get_inputs():
        shape = [50, *entry.shape[1:]]
        if entry.name == "actions":
            feeds["actions"] = rng.integers(LEFT, RIGHT + 1, shape)
        elif entry.name in {"mask", "time"}:
            feeds[entry.name] = np.ones(shape, np.int64 if "int64" in entry.type else np.float32)
        else:
            feeds[entry.name] = rng.uniform(0, 5, shape).astype(np.float32)
    (said,) = session.run(None, feeds)
    assert said.dtype == np.int64
    np.testing.assert_array_equal(said, policy.act(**feeds))
    assert session.get_modelmeta().custom_metadata_map == {"discrete_actions": "[5, 6]"}
    assert set(said.tolist()) <= {LEFT, RIGHT}
