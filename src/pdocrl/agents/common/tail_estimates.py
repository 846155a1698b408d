"""The distribution of an episode's cost under each setting of a conditional policy, from two estimates.

    C_i = max(C_model, C_critic − τ)   quantile by quantile,
    τ_j = min(median_i |P_critic(C > b_j) − P_model(C > b_j)|_i, overstated_j)

The larger of both counts, as for means (`two_estimates`): the costs of rollouts, and what fitted Q evaluation says of
P(C > b_j) less its median deviation from them, or less what it overstates of logged groups where that is smaller.
Every limit on a tail is read from the one sample that results. Where the models have failed, the critic's word counts,
with what it misses the logged groups by. A setting without a cap copies whole episodes and costs no less than its
target; where the sample's mean is below it, the sample is shifted. Where an estimate does not account for the logged
cost, the costliest logged episode is added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import beta

from pdocrl.agents.common.conditional_fqe import SHARES
from pdocrl.agents.common.conditioning import Targets
from pdocrl.agents.common.two_estimates import MISSED, Probes, Selected, groups_of, overstated

QUARTER = 4  # "the costliest quarter" of the first states


class Drawn(NamedTuple):
    """What rollouts of N settings cost, n of each."""

    cost: Float[NDArray[np.float32], "N n K"]
    start: Int[NDArray[np.int64], " n"]  # the first state of each
    largest_step: Float[NDArray[np.float32], "N K"]  # of all rollouts
    alone: Float[NDArray[np.float32], "N n K"]  # sorted costs in the costliest member alone; 0 where none played alone


class Exceedance(NamedTuple):
    """What the critics say of N settings at each of P first states."""

    share: Float[NDArray[np.float32], "N P K J"]  # P(C > b_j)
    cost: Float[NDArray[np.float32], "N P K"]  # mean


class Tails(NamedTuple):
    """What is kept of M settings."""

    episode_costs: Float[NDArray[np.float32], "M n K"]  # sorted
    worst_start_costs: Float[NDArray[np.float32], "M n K"]  # the same from the costliest first states
    start_excess: Float[NDArray[np.float32], "M K"]  # by how much their mean is above that of all
    max_step_cost: Float[NDArray[np.float32], "M K"]

    def rows(self, kept: Int[NDArray[np.int64], " M"]) -> Tails:
        return Tails(*(table[kept].astype(np.float32) for table in self))


def tails(
    targets: Targets,
    uncapped: Bool[NDArray[np.bool_], " N"],
    drawn: Drawn,
    critic: Exceedance,
    largest: Float[NDArray[np.float32], " K"],
    chosen: Selected,
    outcomes: Float[NDArray[np.float32], "E 1+K"],
    probed: Probes,
) -> Tails:
    """Of N settings; `drawn` and `critic` are of the settings, then of the probes."""
    own, n = slice(0, len(uncapped)), drawn.cost.shape[1]
    thresholds = np.asarray(SHARES, np.float32) * largest[:, None]  # [K, J]
    said, model = critic.share[own].mean(1), np.sort(drawn.cost[own], axis=1)
    real = np.stack([(outcomes[part, 1:, None] > thresholds).mean(0) for part in groups_of(outcomes)])  # [G, K, J]
    of_groups = critic.share[len(uncapped) :].mean(1)
    if chosen.failed:
        said = said + np.quantile(np.maximum(real - of_groups, 0), MISSED, axis=0)
        model = np.zeros_like(model)
    else:
        doubt = np.median(np.abs(said - exceedance(model, thresholds)), axis=0)
        flat = (x.reshape(len(x), -1) for x in (said, of_groups, real))
        said = said - np.minimum(doubt, overstated(*flat).reshape(said.shape))
        model = np.maximum(model, drawn.alone[own])
    costs = np.maximum(model, quantiles(said, thresholds, largest, n))
    asked = np.where(uncapped[:, None], targets.target_cost, 0)
    costs = costs + np.maximum(asked - costs.mean(1), 0)[:, None] + chosen.unlearned * outcomes[:, 1:].max(0)
    # Which first states are costly is the critic's word, by how much that of whoever says more.
    difficulty = (critic.cost[own] / largest).sum(-1).mean(0)  # [P]
    hard = difficulty[drawn.start] >= np.quantile(difficulty, 1 - 1 / QUARTER)
    among = drawn.cost[own][:, hard]
    more_cost = critic.cost[own].max(1) - critic.cost[own].mean(1)
    more = critic.share[own].max(1) - critic.share[own].mean(1)
    if not chosen.failed:
        more_cost = np.maximum(more_cost, among.mean(1) - drawn.cost[own].mean(1))
        more = np.maximum(more, exceedance(among, thresholds) - exceedance(drawn.cost[own], thresholds))
    worst = quantiles(exceedance(costs, thresholds) + more, thresholds, largest, n)
    step = np.where(chosen.failed | chosen.unlearned, np.inf, drawn.largest_step[own])
    return Tails(costs, np.maximum(costs, worst), np.maximum(more_cost, 0), step)


def exceedance(
    costs: Float[NDArray[np.float32], "N n K"], thresholds: Float[NDArray[np.float32], "K J"]
) -> Float[NDArray[np.float32], "N K J"]:
    """The share of a sample above each threshold."""
    return np.stack([(costs > b + 1e-6 * thresholds[:, -1]).mean(1) for b in thresholds.T], -1).astype(np.float32)


def quantiles(
    share: Float[NDArray[np.float32], "N K J"],
    thresholds: Float[NDArray[np.float32], "K J"],
    largest: Float[NDArray[np.float32], " K"],
    n: int,
) -> Float[NDArray[np.float32], "N n K"]:
    """n sorted costs of which shares lie above the thresholds as given, and none above the largest; linear between."""
    falling = np.maximum.accumulate(np.clip(share, 0, 1)[..., ::-1], axis=-1)  # of the largest threshold first
    levels, found = (np.arange(n) + 0.5) / n, np.empty((len(share), n, len(largest)), np.float32)
    for k, most in enumerate(largest):
        at = np.r_[most, thresholds[k, ::-1]]
        for i, row in enumerate(falling[:, k]):
            found[i, ::-1, k] = np.interp(levels, np.r_[0.0, row], at)
    return found


def share_bounds(n: int, starts: int, confidence: float) -> Float[NDArray[np.float32], " n+1"]:
    """Clopper–Pearson's upper bound of a probability that was exceeded in 0 … n of n rollouts.

    Rollouts that share a first state do not count as more of them: `starts` is how many there are.
    """
    count = min(n, starts)
    over = np.arange(n) * count / n
    bounds: NDArray[np.float32] = np.r_[beta.ppf(confidence, over + 1, count - over), 1.0].astype(np.float32)
    return bounds


def error_factor(n: int, starts: int, confidence: float) -> float:
    """What the standard deviation of a sample is multiplied with to bound the mean: t / √n."""
    count = min(n, starts)
    return float(stdtrit(max(count - 1, 1), confidence) / np.sqrt(count))
