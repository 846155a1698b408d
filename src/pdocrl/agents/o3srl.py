"""O3SRL: an offline actor-critic against a bandit that picks the price of cost among a few.

    π by TD3+BC on   r − λ·(c − κ̄),   κ̄ = (1 − γ) · limit
    λ ∈ {0, …, λ_max} by EXP3: every M steps the price played is charged the value v = E_D[Q_1(s, π(s))],
        p_i ∝ exp(−η Σ 1[i played] v / p_i),   v brought into [0, 1] by the range seen so far

The minimax problem max_π min_λ V(r − λ(c − κ̄)), whose second player never asks for an off-policy estimate of the cost.
docs/agents/o3srl.md.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pdocrl.agents.base import Agent, Learned, Metrics, Problem, Transitions, per_constraint, static
from pdocrl.agents.common.numpy_policy import network_policy
from pdocrl.agents.common.td3_bc import ActorCritic, TD3BCConfig
from pdocrl.policies.policy import MLPPolicy


class O3SRLConfig(TD3BCConfig):
    """Those of TD3+BC, and the bandit's."""

    largest_price: float = 5.0  # λ_max; prices lie evenly between 0 and this
    bandit_rate: float = 0.008  # η of EXP3: √(2 ln 5 / (5 · 10,000)), for five prices and 100,000 steps of ten a round
    exploration: float = 0.05  # share of rounds in which any price is played, as in EXP3's first form
    prices: int = static(5)  # arms of each bandit
    round_steps: int = static(10)  # M: gradient steps between two choices of the price
    held: Literal["limit", "rate"] = static("limit")  # κ̄ is (1 − γ) · limit, or limit / horizon


class Bandit(eqx.Module):
    """EXP3 for each of K constraints: all are charged the same value."""

    logits: Float[Array, "K P"]  # −η Σ of estimated losses, largest 0
    arm: Int[Array, " K"]  # played in this round
    lowest: Float[Array, ""]  # the range of values seen
    highest: Float[Array, ""]

    @staticmethod
    def create(n_costs: int, prices: int, key: PRNGKeyArray) -> Bandit:
        arm = jax.random.randint(key, (n_costs,), 0, prices)
        return Bandit(jnp.zeros((n_costs, prices)), arm, jnp.asarray(jnp.inf), jnp.asarray(-jnp.inf))

    def chances(self, exploration: float | Array) -> Float[Array, "K P"]:
        return (1 - exploration) * jax.nn.softmax(self.logits, -1) + exploration / self.logits.shape[-1]

    def play(self, value: Array, rate: float | Array, exploration: float | Array, key: PRNGKeyArray) -> Bandit:
        """Charge the arms played with the round's value, and draw the next."""
        lowest, highest = jnp.minimum(self.lowest, value), jnp.maximum(self.highest, value)
        loss = (value - lowest) / jnp.maximum(highest - lowest, 1e-8)
        chance = self.chances(exploration)
        played = jax.nn.one_hot(self.arm, chance.shape[-1])
        logits = self.logits - rate * loss * played / chance
        logits = logits - logits.max(-1, keepdims=True)
        moved = Bandit(logits, self.arm, lowest, highest)
        arm = jax.random.categorical(key, jnp.log(moved.chances(exploration)), axis=-1)
        return Bandit(logits, arm, lowest, highest)


class O3SRLState(eqx.Module):
    """The actor-critic on priced rewards and the bandit."""

    players: ActorCritic
    bandit: Bandit


class O3SRL(Agent[O3SRLConfig, O3SRLState]):
    """Offline RL against a no-regret player of the multiplier."""

    name = "o3srl"
    summary = "TD3+BC on rewards minus priced costs; a bandit picks the price among five, without estimating the cost."
    paper = "Chemingui et al., Online Optimization for Offline Safe RL (NeurIPS 2025)"
    Config = O3SRLConfig

    def init(self, config: O3SRLConfig, problem: Problem, key: PRNGKeyArray) -> O3SRLState:
        keys = jax.random.split(key)
        return O3SRLState(
            ActorCritic.create(config, problem, keys[0]), Bandit.create(problem.n_costs, config.prices, keys[1])
        )

    def update(
        self, config: O3SRLConfig, state: O3SRLState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[O3SRLState, Metrics]:
        for_noise, for_arm = jax.random.split(key)
        price = config.largest_price * state.bandit.arm / max(config.prices - 1, 1)  # [K]
        allowed = config.cost_rate * (1 if config.held == "rate" else config.horizon * (1 - config.gamma))
        reward = config.reward_scale * batch.reward - (batch.cost - allowed) @ price
        noise = jax.random.normal(for_noise, batch.action.shape)
        players, metrics = state.players.step(config, batch, reward, noise)

        played = state.bandit.play(metrics["q_policy"], config.bandit_rate, config.exploration, for_arm)
        over = players.steps % config.round_steps == 0
        bandit = jax.tree.map(lambda new, old: jnp.where(over, new, old), played, state.bandit)
        mean_price = bandit.chances(config.exploration) @ jnp.linspace(0, 1, config.prices) * config.largest_price
        metrics |= per_constraint("lambda", price) | per_constraint("lambda_mean", mean_price)
        return O3SRLState(players, bandit), metrics

    def policy(self, config: O3SRLConfig, state: O3SRLState) -> MLPPolicy:
        return network_policy(state.players.actor)

    def learned(self, config: O3SRLConfig, state: O3SRLState) -> Learned:
        """Q of the reward less the priced excess of cost, and the bandits' mean price as reward for a unit of cost."""
        prices = jnp.linspace(0, config.largest_price, config.prices)
        return Learned(
            q=lambda obs, action: state.players.critic(obs, action).min(0) / config.reward_scale,
            multipliers=state.bandit.chances(config.exploration) @ prices / config.reward_scale,
        )
