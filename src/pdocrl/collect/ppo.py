"""PPO-Lagrangian: one policy-gradient expert that maximises reward while each cost stays near its limit.

    maximise  E[ min(ρ Â, clip(ρ, 1 ± ε) Â) ],   ρ = π(a|s) / π_old(a|s)
    Â = (Â_r − Σ_k λ_k Â_ck) / (1 + Σ_k λ_k)

with one generalised advantage estimate per signal, each standardised, so that λ weighs shapes and not units. λ follows
the violation of the batch by a PID rule. A whole update, all epochs and minibatches, is one compiled function.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.collect.actor import Actor, CategoricalActor, GaussianActor
from pdocrl.nn.mlp import MLP
from pdocrl.nn.multipliers import PIDMultiplier

_Carry = tuple[Array, Array, Array, "Expert", optax.OptState]  # epoch, key, (KL, value loss), networks, Adam


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """What the expert's training is made of. Hashable: every number is compiled in."""

    batch_steps: int = 4000  # transitions per update
    minibatch: int = 500
    epochs: int = 10  # at most; see largest_kl
    clip: float = 0.2  # ε
    largest_kl: float = 0.03  # stop the epochs when the policy has moved this far
    learning_rate: float = 1e-3  # at the beginning …
    final_learning_rate: float = 3e-4  # … and at the end, straight between
    gamma: float = 0.99
    trace: float = 0.95  # λ of the generalised advantage estimate
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = -0.5  # of the action noise at the beginning
    log_std_floor: float = -1.6  # noise never falls below: it spreads the data
    kp: float = 1.0  # PID gains for violations in units of a quarter of the largest cost
    ki: float = 0.1
    kd: float = 0.0
    largest_violation: float = 2.0  # in the same units
    largest_multiplier: float = 3.0


class Moments(eqx.Module):
    """Running mean and variance per component."""

    count: Float[Array, ""]
    mean: Float[Array, " D"]
    variance: Float[Array, " D"]

    @staticmethod
    def create(size: int) -> Moments:
        return Moments(jnp.zeros(()), jnp.zeros(size), jnp.ones(size))

    def include(self, rows: Float[Array, "N D"]) -> Moments:
        """The moments with N more rows (Chan et al.'s merge)."""
        total = self.count + len(rows)
        shift = rows.mean(0) - self.mean
        within = self.variance * self.count + rows.var(0) * len(rows)
        variance = (within + shift**2 * self.count * len(rows) / total) / total
        return Moments(total, self.mean + shift * len(rows) / total, variance)

    @property
    def std(self) -> Float[Array, " D"]:
        return jnp.sqrt(self.variance + 1e-8)


class Expert(eqx.Module):
    """The networks: a Gaussian or categorical policy, and one value function per signal (reward, K costs)."""

    actor: MLP
    log_std: Float[Array, " A"]  # of discrete actions, none
    critics: MLP  # members 1 + K

    @staticmethod
    def create(
        key: PRNGKeyArray,
        obs_dim: int,
        action_dim: int,
        n_costs: int,
        config: PPOConfig,
        discrete_actions: bool = False,
    ) -> Expert:
        actor_key, critic_key = jax.random.split(key)
        actor = MLP.create(actor_key, (obs_dim, *config.hidden, action_dim))
        # A small last layer: the first policy is the same everywhere, and explores by its noise.
        last = jax.tree.map(lambda leaf: 0.01 * leaf, (actor.weights[-1], actor.biases[-1]))
        actor = MLP((*actor.weights[:-1], last[0]), (*actor.biases[:-1], last[1]))
        critics = MLP.create(critic_key, (obs_dim, *config.hidden, 1), members=1 + n_costs)
        return Expert(actor, jnp.full(0 if discrete_actions else action_dim, config.log_std, jnp.float32), critics)

    @property
    def discrete(self) -> bool:
        """Whether the policy is one over discrete actions."""
        return not len(self.log_std)

    def mean(self, obs: Float[Array, "N S"]) -> Float[Array, "N A"]:
        """Of discrete actions, their scores."""
        return _tanh_network(self.actor, obs)

    def values(self, obs: Float[Array, "N S"]) -> Float[Array, "N 1+K"]:
        return _tanh_network(self.critics, obs)[..., 0].T

    def log_prob(self, obs: Float[Array, "N S"], raw: Float[Array, "N A"]) -> Float[Array, " N"]:
        """log π(raw | s) up to the constant, which cancels in ρ; of discrete actions, raw is one-hot."""
        if self.discrete:
            return (raw * jax.nn.log_softmax(self.mean(obs))).sum(-1)
        z = (raw - self.mean(obs)) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std).sum(-1)


class ExpertState(eqx.Module):
    """All that an expert's training carries from one batch to the next."""

    expert: Expert
    adam: optax.OptState
    obs: Moments  # [S] of the observations the policy has seen
    signals: Moments  # [1 + K] of the discounted sums so far; their std is the unit of the value functions
    multiplier: PIDMultiplier
    key: PRNGKeyArray


class Batch(NamedTuple):
    """N transitions, whole episodes one after another; only the last may be cut."""

    obs: Array  # [N, S]
    next_obs: Array  # [N, S]
    noise: Array  # [N, A] what the policy added to its mean, in units of σ; the discrete action taken, one-hot
    signals: Array  # [N, 1 + K] reward, costs
    terminal: Array  # [N] no value beyond
    end: Array  # [N] the next row is another episode


class Metrics(NamedTuple):
    """What one update did."""

    epochs: Array
    kl: Array  # of the last epoch
    value_loss: Array
    multiplier: Array  # [K]


def init(
    key: PRNGKeyArray, obs_dim: int, action_dim: int, n_costs: int, config: PPOConfig, discrete_actions: bool = False
) -> ExpertState:
    """An untrained expert."""
    create_key, key = jax.random.split(key)
    expert = Expert.create(create_key, obs_dim, action_dim, n_costs, config, discrete_actions)
    return ExpertState(
        expert=expert,
        adam=optax.scale_by_adam().init(expert),
        obs=Moments.create(obs_dim),
        signals=Moments.create(1 + n_costs),
        multiplier=PIDMultiplier.create(n_costs),
        key=key,
    )


def actor_of(state: ExpertState, discrete_actions: tuple[int, ...] = ()) -> Actor:
    """The policy as it plays. Normalising (s − m)/d before a layer is the layer W/d, b − (m/d)·W."""
    mlp = jax.tree.map(np.asarray, state.expert.actor)
    shift, scale = np.asarray(state.obs.mean), np.asarray(state.obs.std)
    first = mlp.weights[0] / scale[:, None]
    weights, biases = (first, *mlp.weights[1:]), (mlp.biases[0] - shift @ first, *mlp.biases[1:])
    if discrete_actions:
        return CategoricalActor(weights, biases, discrete_actions)
    return GaussianActor(weights, biases, np.exp(np.asarray(state.expert.log_std)))


@eqx.filter_jit
def update(
    config: PPOConfig,
    state: ExpertState,
    batch: Batch,
    violation: Float[Array, " K"],
    learning_rate: Float[Array, ""],
) -> tuple[ExpertState, Metrics]:
    """Move λ by the violation (J_c − limit, in the PID's units), then the networks by the batch."""
    multiplier = _priced(state.multiplier, violation, config)
    old = state.expert
    obs, next_obs = ((rows - state.obs.mean) / state.obs.std for rows in (batch.obs, batch.next_obs))
    sums = _discounted_sums(batch, config.gamma)
    signals = state.signals.include(sums)
    values = old.values(obs)
    estimates = _advantages(batch, batch.signals / signals.std, values, old.values(next_obs), config)
    lam = multiplier.lam
    standardised = (estimates - estimates.mean(0)) / (estimates.std(0) + 1e-6)
    advantage = (standardised[:, 0] - standardised[:, 1:] @ lam) / (1 + lam.sum())
    raw = batch.noise if old.discrete else old.mean(obs) + jnp.exp(old.log_std) * batch.noise
    log_prob = old.log_prob(obs, raw)
    data = (obs, raw, log_prob, advantage, estimates + values)

    def loss(expert: Expert, rows: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        obs, raw, log_prob, advantage, target = rows
        log_ratio = expert.log_prob(obs, raw) - log_prob
        ratio = jnp.exp(log_ratio)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage)
        # Beyond the bounds every action is carried out as the same one, and an expert that strays there stops learning.
        beyond = jnp.zeros(()) if expert.discrete else jnp.maximum(jnp.abs(expert.mean(obs)) - 1, 0)
        value_loss = 0.5 * ((expert.values(obs) - target) ** 2).mean(0).sum()
        # The networks share no weight and Adam forgets scales, so the two terms need no coefficient.
        return value_loss - gain.mean() + (beyond**2).mean(), ((ratio - 1 - log_ratio).mean(), value_loss)

    def minibatch(carry: tuple[Expert, optax.OptState], rows: Array) -> tuple[tuple[Expert, optax.OptState], Array]:
        expert, adam = carry
        grads, told = eqx.filter_grad(loss, has_aux=True)(expert, tuple(column[rows] for column in data))
        steps, adam = optax.scale_by_adam().update(grads, adam)
        expert = jax.tree.map(lambda leaf, step: leaf - learning_rate * step, expert, steps)
        floored = jnp.maximum(expert.log_std, config.log_std_floor)
        return (eqx.tree_at(lambda e: e.log_std, expert, floored), adam), jnp.stack(told)

    def epoch(carry: _Carry) -> _Carry:
        number, key, _, expert, adam = carry
        key, shuffle_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, len(obs))
        minibatches = max(1, len(obs) // config.minibatch)
        order = order[: len(obs) // minibatches * minibatches].reshape(minibatches, -1)
        (expert, adam), told = jax.lax.scan(minibatch, (expert, adam), order)
        return number + 1, key, told.mean(0), expert, adam

    def goes_on(carry: _Carry) -> Array:
        return (carry[0] < config.epochs) & (carry[2][0] < config.largest_kl)

    start = (jnp.zeros((), jnp.int32), state.key, jnp.zeros(2), old, state.adam)
    epochs, key, told, expert, adam = jax.lax.while_loop(goes_on, epoch, start)
    trained = ExpertState(
        expert=expert,
        adam=adam,
        obs=state.obs.include(batch.obs),
        signals=signals,
        multiplier=multiplier,
        key=key,
    )
    return trained, Metrics(epochs, told[0], told[1], lam)


def _priced(multiplier: PIDMultiplier, violation: Float[Array, " K"], config: PPOConfig) -> PIDMultiplier:
    """One PID step. The integral stops where it alone would give the largest λ, so that it can come back in time."""
    violation = jnp.clip(violation, -config.largest_violation, config.largest_violation)
    stepped = multiplier.step(violation, config.kp, config.ki, config.kd)
    return PIDMultiplier(
        jnp.minimum(stepped.integral, config.largest_multiplier / config.ki),
        stepped.previous,
        jnp.minimum(stepped.lam, config.largest_multiplier),
    )


def _discounted_sums(batch: Batch, gamma: float) -> Float[Array, "N 1+K"]:
    """Σ_{i ≤ t} γ^{t−i} signal_i within the episode: what a value function's numbers are of the size of."""

    def add(total: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        signal, end = row
        total = gamma * total + signal
        return total * ~end, total

    return jax.lax.scan(add, jnp.zeros(batch.signals.shape[1]), (batch.signals, batch.end))[1]


def _advantages(batch: Batch, signals: Array, values: Array, next_values: Array, config: PPOConfig) -> Array:
    """Generalised advantage estimates [N, 1 + K]: δ_t + γλ Â_{t+1}, δ = signal + γ V(s′) (1 − terminal) − V(s).

    A time limit ends the sum but not the value beyond it.
    """
    delta = signals + config.gamma * next_values * ~batch.terminal[:, None] - values

    def add(ahead: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, end = row
        ahead = delta + config.gamma * config.trace * ahead * ~end
        return ahead, ahead

    return jax.lax.scan(add, jnp.zeros(signals.shape[1]), (delta, batch.end), reverse=True)[1]


def _tanh_network(mlp: MLP, x: Array) -> Array:
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        x = jnp.tanh(x @ weight + bias)
    return x @ mlp.weights[-1] + mlp.biases[-1]
