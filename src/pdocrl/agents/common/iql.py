"""Implicit Q-learning: values of the best the data shows in a state, without asking about any other action.

    V ← the τ-expectile over logged actions of Q:   minimise E_D[ |τ − 1[u < 0]| u² ],   u = Q̄(s, a) − V(s)
    Q ← r + γ V(s′)

Q̄ is the more pessimistic of two target networks: the smaller for rewards, the larger for costs. For a reward τ > ½
leans to the largest value of a logged action, for a cost τ < ½ to the least. CAPS, BCRL and FISOR are made of it.
Kostrikov, Nair, Levine, Offline RL with Implicit Q-Learning (ICLR 2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.nn.mlp import MLP, polyak
from pdocrl.nn.optim import descend

LARGEST_WEIGHT = 100.0  # e^{β·advantage} is cut here, as in every code of the family

Number = float | Array


def expectile_loss(difference: Array, expectile: Number) -> Array:
    """|τ − 1[u < 0]| u², elementwise; its least mean over samples x of u = x − m is at m = the τ-expectile of x."""
    return jnp.where(difference < 0, 1 - expectile, expectile) * difference**2


def advantage_weight(advantage: Array, temperature: Number, largest: Number = LARGEST_WEIGHT) -> Array:
    """min(e^{β A}, largest): how much a logged action counts when a policy copies it."""
    return jnp.exp(jnp.minimum(temperature * advantage, jnp.log(largest)))


class ImplicitValues(eqx.Module):
    """Q (twins), its target and V of n rewards, or of n costs, with the optimisers of both.

    What Q and V are functions of is the agent's: `pairs` [B, P] holds (s, a) and `states` [B, X] holds s, each with
    whatever else they are conditioned on.
    """

    critic: MLP
    target: MLP
    value: MLP
    critic_opt: optax.OptState
    value_opt: optax.OptState
    of_costs: bool = eqx.field(static=True)

    @staticmethod
    def create(
        key: PRNGKeyArray, pairs: int, states: int, outputs: int, hidden: Sequence[int], of_costs: bool
    ) -> ImplicitValues:
        for_critic, for_value = jax.random.split(key)
        critic = MLP.create(for_critic, (pairs, *hidden, outputs), members=2)
        value = MLP.create(for_value, (states, *hidden, outputs))
        adam = optax.scale_by_adam()
        return ImplicitValues(critic, critic, value, adam.init(critic), adam.init(value), of_costs)

    def worse(self, twins: Float[Array, "2 B n"]) -> Float[Array, "B n"]:
        """The more pessimistic estimate: of a cost the larger."""
        return twins.max(0) if self.of_costs else twins.min(0)

    def advantage(self, pairs: Float[Array, "B P"], states: Float[Array, "B X"]) -> Float[Array, "B n"]:
        """u = Q̄ − V."""
        return self.worse(self.target(pairs)) - self.value(states)

    def fit_value(
        self, pairs: Array, states: Array, expectile: Number, rate: Number, clip: Number | None = None
    ) -> tuple[ImplicitValues, Array]:
        """One step of V towards the expectile, and the loss before it: mean over samples, sum over outputs."""
        q = self.worse(self.target(pairs))

        def loss(value: MLP) -> Array:
            return expectile_loss(q - value(states), expectile).mean(0).sum()

        value, opt, objective = descend(loss, self.value, self.value_opt, rate, largest=clip)
        return eqx.tree_at(lambda me: (me.value, me.value_opt), self, (value, opt)), objective

    def fit_critic(
        self, pairs: Array, backup: Float[Array, "B n"], rate: Number, target_rate: Number, clip: Number | None = None
    ) -> tuple[ImplicitValues, Array]:
        """One step of both Q towards the backup, the target after them; the loss before, mean over the twins."""

        def loss(critic: MLP) -> Array:
            return ((backup - critic(pairs)) ** 2).mean((0, 1)).sum()

        critic, opt, objective = descend(loss, self.critic, self.critic_opt, rate, largest=clip)
        target = polyak(self.target, critic, target_rate)
        moved = eqx.tree_at(lambda me: (me.critic, me.target, me.critic_opt), self, (critic, target, opt))
        return moved, objective
