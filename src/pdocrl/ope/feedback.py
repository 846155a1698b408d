"""How each group of episodes reacts to states: a small network a group, cloned from its own rows.

Played again in a model that errs, recorded actions alone would let every error grow: a ball rolls away from a player
who does not look. With  a_t + π_g(s) − π_g(s_t),  a_t and s_t recorded, the group looks: its clone's error cancels
where the model is right, and where it is not, the clone says how the group would have answered.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from pdocrl.data.dataset import Dataset
from pdocrl.nn.mlp import MLP
from pdocrl.nn.optim import adam_step
from pdocrl.ope.groups import Groups
from pdocrl.ope.scales import Scales

HIDDEN = (64, 64)
BATCH = 128
RATE = 1e-3
BLOCK = 25  # steps per compiled call

State = tuple[MLP, optax.OptState]


def feedback(data: Dataset, groups: Groups, scales: Scales, steps: int, seed: int) -> MLP:
    """Clones of G groups, batched over groups: standardised states [G, B, S] → actions before tanh [G, B, A]."""
    count = int(groups.max()) + 1
    rows = np.repeat(groups, data.episode_length)
    own = [np.flatnonzero(rows == g) for g in range(count)]
    z = (data.obs - np.asarray(scales.obs_mean)) / np.asarray(scales.obs_scale)
    clones = MLP.create(jax.random.key(seed), (data.obs_dim, *HIDDEN, data.action_dim), count)
    state: State = clones, optax.scale_by_adam().init(clones)
    rng = np.random.default_rng([seed, 12])
    for start in range(0, steps, BLOCK):
        size = min(BLOCK, steps - start)
        at = np.stack([found[rng.integers(len(found), size=(size, BATCH))] for found in own], axis=1)
        state = _block(state, jnp.asarray(z[at]), jnp.asarray(data.action[at]))
    return state[0]


@jax.jit
def _block(state: State, obs: Array, action: Array) -> State:
    def step(carry: State, now: tuple[Array, Array]) -> tuple[State, None]:
        (clones, opt), (x, a) = carry, now
        gradient = jax.grad(lambda c: jnp.square(jnp.tanh(c(x)) - a).mean((1, 2)).sum())(clones)
        return adam_step(gradient, opt, clones, RATE), None

    return jax.lax.scan(step, state, (obs, action))[0]
