"""What the agents that play the paper's Lagrangian share: its settings, the multipliers' rules and figures."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from pdocrl.agents.base import AgentConfig, Metrics, Transitions, per_constraint, static
from pdocrl.nn.mlp import MLP, density_ratio
from pdocrl.nn.multipliers import LogMultiplier, SoftplusMultiplier
from pdocrl.nn.optim import adam_step

LARGEST_BOUND = 10.0  # of λ by the published rule, however small φ is
SMALLEST_MEAN = 1e-3  # of a batch's w, where it is normalised


class SaddleConfig(AgentConfig):
    """The paper's table of hyper-parameters."""

    learning_rate: float = 3e-4  # of w, π and Q
    multiplier_rate: float = 1e-4  # of λ's parameter
    multiplier_init: float = 1.0  # λ₀
    slater_margin: float = 1.0  # φ: how far some policy stays inside the limits; B = 1 + 1/φ bounds λ
    target_rate: float = 0.005  # κ of the target networks
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    w_max: float = 10.0  # w is clipped to [0, w_max]
    initial_states: Literal["batch", "starts"] = static("batch")  # d₀: the mini-batch's states, or true episode starts
    critic: Literal["squared", "clipped", "linear"] = static("squared")  # Bellman error; backups clipped; or L̂ in Q
    ratio: Literal["clipped", "normalised"] = static("clipped")  # w in [0, w_max], or such a w with mean 1 in the batch
    multiplier_signal: Literal["weighted", "dataset"] = static("weighted")  # E_D[w·c], or the plain mean cost
    multiplier: Literal["softplus", "published"] = static("softplus")  # projected ascent on L̂, or the published rule
    average: bool = static(False)  # return the average of π's iterates' parameters instead of the last


def ratio_of(config: SaddleConfig, weight: MLP, pair: Float[Array, "B X"]) -> Float[Array, " B"]:
    """w(s, a) of a batch of pairs, [B].

    The density ratio of every policy has mean 1 under the data, so that the class {w : E_D[w] = 1} loses none. In the
    clipped class w can only stay below its bound while the residual is 0: `normalised` takes that direction out.
    """
    w = density_ratio(weight, pair, config.w_max)
    return w / jnp.maximum(w.mean(), SMALLEST_MEAN) if config.ratio == "normalised" else w


def dual_bound(config: SaddleConfig) -> Array:
    """B = 1 + 1/φ."""
    return 1 + 1 / jnp.asarray(config.slater_margin)


def make_multiplier(config: SaddleConfig, n_costs: int) -> SoftplusMultiplier | LogMultiplier:
    """λ₀ for each of K costs, in the form the rule that moves it asks for."""
    if config.multiplier == "published":
        return LogMultiplier.create(config.multiplier_init, n_costs)
    return SoftplusMultiplier.create(config.multiplier_init, n_costs, dual_bound(config))


def move_multiplier(
    config: SaddleConfig,
    multiplier: SoftplusMultiplier | LogMultiplier,
    opt: optax.OptState,
    cost: Float[Array, "B K"],
    w: Float[Array, " B"],
) -> tuple[SoftplusMultiplier | LogMultiplier, optax.OptState]:
    """λ one step up the violation E_D[w c] − κ. The published rule looks at the data's mean cost, whatever w is."""
    bound = dual_bound(config)
    if isinstance(multiplier, LogMultiplier):
        bound = jnp.minimum(bound, LARGEST_BOUND)
        return multiplier.step(cost.mean(0) - config.cost_rate, config.multiplier_rate, bound), opt
    spent = w @ cost / len(w) if config.multiplier_signal == "weighted" else cost.mean(0)
    slope = multiplier.slope(spent - config.cost_rate, bound)
    moved, opt = adam_step(slope, opt, multiplier, config.multiplier_rate)
    return moved.within(bound), opt


def saddle_metrics(
    config: SaddleConfig, batch: Transitions, w: Float[Array, " B"], residual: Float[Array, " B"], lam: Array
) -> Metrics:
    """How the game stands: the Bellman residual, w, its share at the bound, each λ and the cost by w."""
    figures = {"residual": residual.mean(), "w": w.mean(), "w_at_clip": (w >= config.w_max).mean()}
    return figures | per_constraint("lambda", lam) | per_constraint("weighted_cost", w @ batch.cost / len(w))
