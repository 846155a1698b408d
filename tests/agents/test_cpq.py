"""CPQ: what its objective does at and beyond the limit."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pdocrl.agents.base import Problem, Transitions, make_config
from pdocrl.agents.registry import find_agent


def test_beyond_the_limit_nothing_pulls_the_policy_back() -> None:
    """Where no action counts as safe the actor's objective is constantly 0: the reason CPQ overshoots on the bandit."""
    agent, rng = find_agent("cpq"), np.random.default_rng(0)
    settings = {"hidden": (8, 8), "vae_hidden": (8,), "samples": 2, "batch_size": 16, "reward_scale": 1.0}
    config = make_config(agent, cost_limit=(1.0,), horizon=10.0, **settings)
    state = jax.jit(lambda key: agent.init(config, Problem(3, 2, 1), key))(jax.random.key(0))
    dear = eqx.tree_at(lambda s: s.cost_critic.mlp.biases[-1], state, replace_fn=lambda bias: bias + 1e3)
    floats = [jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((16, 3), (16, 2), 16, (16, 1), (16, 3))]
    batch = Transitions(*floats, not_done=jnp.ones(16), initial_obs=floats[0])
    update = jax.jit(lambda state: agent.update(config, state, batch, jax.random.key(1))[0])
    for before, moves in ((state, True), (dear, False)):
        after = update(before)
        changed = [
            not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (before.actor, after.actor)), strict=True)
        ]
        assert any(changed) == moves
