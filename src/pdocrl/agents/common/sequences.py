"""What agents that imitate sequences share: a transformer, the loss it is fitted by, and what it may be asked for.

    π(a_t | R_t, C_t, s_t, and the steps before),   R_t = Σ_{u≥t} r_u,   C_t a number for what may still be spent
    minimise  −E[log π] − ζ H(π) + w · cross-entropy of whether each step costs

ζ keeps the entropy at a target; of discrete actions it is 0, which leaves the likelihood. The target return is the
best of any logged episode within the limit.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, AgentConfig, DeviceTable, Metrics, Problem, static
from pdocrl.data.dataset import Dataset
from pdocrl.data.filters import on_frontier
from pdocrl.errors import PdocrlError
from pdocrl.nn.optim import clip_norm, sum_over
from pdocrl.nn.transformer import CausalTransformer, Windows

PARTS = 16  # of a mini-batch; each has random numbers of its own, so that it may be gone through by itself


class SequenceConfig(AgentConfig):
    """The benchmark's hyper-parameters; `hidden` is not used."""

    learning_rate: float = 1e-4  # of the transformer
    warmup: float = 500.0  # steps over which the learning rate grows to that
    weight_decay: float = 1e-4  # per unit of learning rate
    clip: float = 0.25  # largest norm of the gradient
    dropout: float = 0.1  # of embeddings and of each block's two outputs; published: of attention weights too
    cost_weight: float = 0.02  # of the cross-entropy of costs
    temperature_init: float = 0.1  # ζ₀
    temperature_rate: float = 1e-4  # learning rate of log ζ
    context: int = static(10)  # steps the transformer sees
    embedding: int = static(128)  # width
    layers: int = static(3)  # blocks
    heads: int = static(8)  # of attention


class SequenceState(eqx.Module):
    """The transformer, the entropy's price, and what may be asked for when acting."""

    model: CausalTransformer
    log_temperature: Float[Array, ""]
    frontier: Float[Array, "F 1+K"]  # (return, costs) of the best logged episodes; stays as it is
    steps: Array
    model_opt: optax.OptState
    temperature_opt: optax.OptState


C = TypeVar("C", bound=SequenceConfig)


class SequenceAgent(Agent[C, SequenceState]):
    """An agent that imitates windows of episodes; what is in them, and what is asked for, is its own."""

    mixed_precision = True  # by likelihoods, which have no units: docs/training.md

    def problem(self, dataset: Dataset) -> Problem:
        """With (return, costs) of the episodes that none beats."""
        best = np.flatnonzero(on_frontier(dataset))
        pairs = np.column_stack([dataset.reward_return[best], dataset.cost_return[best]])
        return dataclasses.replace(super().problem(dataset), frontier=tuple(map(tuple, pairs.tolist())))

    def update(self, config: C, state: SequenceState, batch: Any, key: PRNGKeyArray) -> tuple[SequenceState, Metrics]:
        return imitate(config, state, batch, key)


def check_width(name: str, config: SequenceConfig) -> None:
    """Heads share the width evenly."""
    if config.embedding % config.heads:
        raise PdocrlError(f"{name}: embedding {config.embedding} must be a multiple of heads {config.heads}.")


def around(table: DeviceTable, rows: Int[Array, " B"], steps: Int[Array, " L"]) -> dict[str, Array]:
    """The columns at the given rows and so many `steps` from them, [B, L, …]."""
    return table.take(jnp.clip(rows[:, None] + steps, 0, len(table) - 1))


def windows(
    found: dict[str, Array], time: Float[Array, "B L"], returns: Float[Array, "B L"], costs: Float[Array, "B L K"]
) -> tuple[Windows, Float[Array, "B L K"]]:
    """Windows of what was found `around` rows, and which of their steps cost.

    `time` is as it would be if the episode had begun by then, and not ended; rows of another time are masked.
    """
    seen = Windows(
        returns=returns,
        costs=costs,
        obs=found["obs"],
        action=found["action"],
        time=jnp.maximum(time, 0).astype(jnp.int32),
        mask=(found["time"] == time).astype(jnp.float32),
    )
    return seen, found["costly"]


def start(
    config: SequenceConfig, problem: Problem, key: PRNGKeyArray, times: int | None, published: bool = False
) -> SequenceState:
    """A fresh transformer that tells `times` steps apart, or, for None, only how far they lie apart."""
    model = CausalTransformer.create(
        key,
        problem.obs_dim,
        problem.action_dim,
        problem.n_costs,
        config.embedding,
        config.layers,
        config.heads,
        times,
        published,
        problem.discrete_actions,
    )
    log_temperature, adam = jnp.log(jnp.asarray(config.temperature_init, jnp.float32)), optax.scale_by_adam()
    return SequenceState(
        model=model,
        log_temperature=log_temperature,
        frontier=jnp.asarray(problem.frontier, jnp.float32),
        steps=jnp.zeros((), jnp.int32),
        model_opt=adam.init(model),
        temperature_opt=adam.init(log_temperature),
    )


def imitate(
    config: SequenceConfig, state: SequenceState, batch: tuple[Windows, Float[Array, "B L K"]], key: PRNGKeyArray
) -> tuple[SequenceState, Metrics]:
    """One step of AdamW on windows, and on which of their steps cost."""
    windows, costly = batch
    share = windows.mask[..., None] / windows.mask.sum()
    # in the published code padding counts, as 0
    counted = windows.mask.sum() / windows.mask.size if state.model.published else 1.0
    discrete_actions = state.model.discrete_actions
    temperature = jnp.where(discrete_actions, 0.0, jnp.exp(state.log_temperature))
    parts = math.gcd(len(share), PARTS)

    def loss(model: CausalTransformer, some: Any) -> tuple[Array, tuple[Array, Array, Array]]:
        """A sum over windows, so that of all is that of their parts."""
        windows, costly, share, keys = some
        mean, log_std, cost_logits = model(windows, config.dropout, keys)
        if discrete_actions:
            log_likelihood = (share * windows.action * mean).sum()
            entropy = -(share * jnp.exp(mean) * mean).sum()
        else:
            z = (windows.action - mean) * jnp.exp(-log_std)
            log_likelihood = (share * (-0.5 * (z**2 + jnp.log(2 * jnp.pi)) - log_std)).sum() / z.shape[-1]
            entropy = (share * (0.5 * (1 + jnp.log(2 * jnp.pi)) + log_std)).sum() / z.shape[-1]
        surprise = (share * optax.sigmoid_binary_cross_entropy(cost_logits, costly)).sum() / costly.shape[-1]
        total = -(log_likelihood + temperature * entropy) + config.cost_weight * counted * surprise
        return total, (log_likelihood, entropy, surprise)

    every = (windows, costly, share, jax.random.split(key, parts))
    descend = partial(jax.value_and_grad(loss, has_aux=True), state.model)
    if jax.default_backend() == "cpu":  # whose caches hold the activations of one part, not those of all
        pieces = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), every)
        (objective, sums), gradient = sum_over(descend, pieces)
    else:
        (objective, sums), gradient = descend(every)
    log_likelihood, entropy, surprise = sums
    norm = optax.global_norm(gradient)
    direction, model_opt = optax.scale_by_adam().update(clip_norm(gradient, config.clip), state.model_opt)
    rate = config.learning_rate * jnp.minimum(1.0, (state.steps + 1) / config.warmup)
    model = jax.tree.map(lambda p, d: p - rate * (d + config.weight_decay * p), state.model, direction)
    # ζ falls while the entropy (per coordinate, as in the reference) is above minus the number of coordinates
    temperature_gradient = temperature * (entropy + windows.action.shape[-1])
    move, temperature_opt = optax.scale_by_adam().update(temperature_gradient, state.temperature_opt)
    log_temperature = state.log_temperature - config.temperature_rate * move
    metrics = {
        "actor_loss": objective,
        "log_likelihood": log_likelihood,
        "entropy": entropy,
        "cost_cross_entropy": surprise,
        "temperature": temperature,
        "gradient_norm": norm,
    }
    state = SequenceState(
        model=model,
        log_temperature=log_temperature,
        frontier=state.frontier,
        steps=state.steps + 1,
        model_opt=model_opt,
        temperature_opt=temperature_opt,
    )
    return state, metrics


def best_return(frontier: NDArray[np.float32], limit: NDArray[np.float32]) -> float:
    """The highest return of a logged episode within the limits; if there is none, that of the one closest to them."""
    excess = np.maximum(frontier[:, 1:] - limit, 0).sum(1)  # [F]
    return float(frontier[excess <= excess.min(), 0].max())
