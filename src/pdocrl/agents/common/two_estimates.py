"""Settings of a conditional policy, predicted by two estimates that are checked against the log and each other.

    cost_i = max(C_model, C_critic − τ)_i,   τ_i = min(median |C_critic − C_model|, overstated_i)   of each constraint
    bound_j = max(cost_j + error_j, target_j)
    reward_j = the models', or the critic's where it misses the returns of logged episodes by half as much at most

A limit is predicted to be satisfied where the bound is within it: the models say so, and the critic does not object by
more than the two differ at most settings, nor by more than it overstates the logged groups of which it says as much
(overstated_i, over three of them, since luck decided which group an episode is in). Where it overstates nothing, a
difference is the models' error. A setting without a cap copies whole episodes: it costs no less than its target and
returns no more than the best logged episodes of its predicted cost.

Both are compared with groups of logged episodes of like cost, under settings that ask for what these had. A model that
misses them by much, return or cost, where the critic misses neither has failed (in many dimensions rollouts fall over
within an episode), and is left out; then what the critic misses them by is added. It is not done the other way round:
episodes are grouped by what they came to, luck included, and an estimate that sees the chance in them is not to be
outvoted by one that does not.

After a training of too few steps nothing is predicted to be satisfied, and the costliest logged episode is added to
every bound: where the models' cost of logged steps that they have not learned from is off by a quarter, where the
critic's backups have not reached the first step of an episode, and where it accounts for less than three quarters of
the mean cost of the groups, as logged or as the models have it, whichever is less. Over all groups luck cancels; but π
acts by its mode and may be more careful than the log.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from pdocrl.agents.common.conditioning import NO_CAP, Targets, best_return

GROUPS = 12  # of logged episodes that estimates are compared with
FAILED = 0.25  # of the groups' mean cost or of the returns' range: a model that misses either by more, and by
WORSE = 2.0  # times as much as the critic misses the worse of the two, has failed
MISSED = 0.9  # quantile, over the groups, of what the critic alone misses, which is then added


class Estimate(NamedTuple):
    """Mean return and costs of episodes under N settings."""

    reward: Float[NDArray[np.float32], " N"]
    cost: Float[NDArray[np.float32], "N K"]
    error: Float[NDArray[np.float32], "N K"]  # what the mean of a few episodes may exceed it by

    def at(self, rows: slice) -> Estimate:
        return Estimate(*(table[rows] for table in self))


class Probes(NamedTuple):
    """Settings that ask for what groups of logged episodes had, and what these came to."""

    targets: Targets
    outcomes: Float[NDArray[np.float32], "G 1+K"]


class Selected(NamedTuple):
    """The settings that may be chosen, and what is predicted of them."""

    kept: Int[NDArray[np.int64], " M"]
    reward: Float[NDArray[np.float32], " M"]
    cost: Float[NDArray[np.float32], "M K"]
    bound: Float[NDArray[np.float32], "M K"]
    failed: bool  # whether the models are left out
    unlearned: Bool[NDArray[np.bool_], " K"]  # whether an estimate does not account for the logged cost yet


def probes(outcomes: Float[NDArray[np.float32], "E 1+K"], relative: Float[NDArray[np.float32], " E"]) -> Probes:
    """Settings for groups of episodes of like cost, the mean over the constraints in units of the largest."""
    parts, largest = groups_of(outcomes), np.where(outcomes[:, 1:].max(0) > 0, outcomes[:, 1:].max(0), 1)
    means = np.stack([outcomes[part].mean(0) for part in parts]).astype(np.float32)
    wished = np.asarray([relative[part].mean() for part in parts], np.float32)
    cap = np.broadcast_to(NO_CAP * largest, means[:, 1:].shape).astype(np.float32)
    return Probes(Targets(wished, means[:, 1:], cap), means)


def groups_of(outcomes: Float[NDArray[np.float32], "E 1+K"]) -> list[Int[NDArray[np.int64], " _"]]:
    """The episodes of each group."""
    costs = outcomes[:, 1:]
    largest = np.where(costs.max(0) > 0, costs.max(0), 1)
    order = np.argsort((costs / largest).mean(1), kind="stable")
    return [part for part in np.array_split(order, GROUPS) if len(part)]


def misses(estimate: Estimate, outcomes: Float[NDArray[np.float32], "G 1+K"]) -> tuple[float, float]:
    """Median over the groups: of returns in units of their range, and of the worst cost in units of its mean."""
    returns, costs = outcomes[:, 0], outcomes[:, 1:]
    unit = np.maximum(np.ptp(returns), 1e-9 + 1e-3 * np.abs(returns).max())
    mean = np.where(costs.mean(0) > 0, costs.mean(0), 1.0)
    return (
        float(np.median(np.abs(estimate.reward - returns)) / unit),
        float(np.median((np.abs(estimate.cost - costs) / mean).max(1))),
    )


def overstated(
    said: Float[NDArray[np.float32], "N K"],
    of_groups: Float[NDArray[np.float32], "G K"],
    real: Float[NDArray[np.float32], "G K"],
) -> Float[NDArray[np.float32], "N K"]:
    """By how much three neighbouring groups are overstated of which as much is said; linear between them."""
    found = np.empty_like(said)
    for k, (x, y) in enumerate(zip(of_groups.T, real.T, strict=True)):
        order = np.argsort(x, kind="stable")
        over = (x - y)[order]
        mean = np.convolve(np.r_[over[0], over, over[-1]], np.full(3, 1 / 3), "valid")
        found[:, k] = np.interp(said[:, k], x[order], np.maximum(mean, 0))
    return found


def select(
    targets: Targets,
    uncapped: Bool[NDArray[np.bool_], " N"],
    model: Estimate,
    critic: Estimate,
    outcomes: Float[NDArray[np.float32], "E 1+K"],
    probed: Probes,
    early: Bool[NDArray[np.bool_], " K"] | bool = False,
) -> Selected:
    """The settings that may be chosen and what is predicted of each; estimates are of the settings, then the probes.

    `early`: whether, of each cost, the estimates are of too short a training whatever they say.
    """
    own, groups = slice(0, len(uncapped)), slice(len(uncapped), None)
    of_model, of_critic = (misses(x.at(groups), probed.outcomes) for x in (model, critic))
    failed = max(of_model) > max(FAILED, WORSE * max(of_critic))
    spread, real = model.error[own], probed.outcomes[:, 1:]
    unlearned = np.zeros(real.shape[1], bool) | early
    if failed:
        beyond = np.maximum(real - critic.at(groups).cost, 0)
        cost, bound = critic.cost[own], critic.cost[own] + spread + np.quantile(beyond, MISSED, axis=0)
    else:
        least = np.minimum(real.mean(0), model.at(groups).cost.mean(0))
        unlearned |= critic.at(groups).cost.mean(0) < (1 - FAILED) * least
        doubt = np.median(np.abs(critic.cost[own] - model.cost[own]), axis=0)
        doubt = np.minimum(doubt, overstated(critic.cost[own], critic.at(groups).cost, real))
        cost = np.maximum(model.cost[own], critic.cost[own] - doubt)
        bound = cost + spread
    better = critic if failed or WORSE * of_critic[0] < of_model[0] else model
    reward = better.reward[own]
    reward = np.where(uncapped, np.minimum(reward, best_return(cost, outcomes)), reward)
    bound = np.where(uncapped[:, None], np.maximum(bound, targets.target_cost), bound)
    bound = bound + unlearned * outcomes[:, 1:].max(0)
    kept = monotone(bound, reward, logged_evidence(targets, uncapped, outcomes))
    reward, cost, bound = (table[kept].astype(np.float32) for table in (reward, cost, bound))
    return Selected(kept, reward, cost, bound, failed, unlearned)


def logged_evidence(
    targets: Targets, uncapped: Bool[NDArray[np.bool_], " N"], outcomes: Float[NDArray[np.float32], "E 1+K"]
) -> Float[NDArray[np.float32], " N"]:
    """Return of logged episodes of a setting's target and relative return; NaN with a cap, which no episode had."""
    low = np.quantile(outcomes[:, 0], 0.05)
    best = best_return(targets.target_cost, outcomes)
    return np.where(uncapped, low + targets.relative_return * (best - low), np.nan).astype(np.float32)


def monotone(
    bound: Float[NDArray[np.float32], "N K"],
    reward: Float[NDArray[np.float32], " N"],
    evidence: Float[NDArray[np.float32], " N"],
) -> Int[NDArray[np.int64], " M"]:
    """The settings without those that a larger limit would choose and that are worse by the log's own evidence.

    A setting is chosen at some limit if it is the best of those within its own bound. Where such a one has more
    evidence than a setting of larger predicted return, which only a larger limit allows, that one is left out.
    """
    within = (bound[:, None] >= bound[None]).all(-1)  # [N, N] whether the second is allowed where the first is
    kept = np.ones(len(bound), bool)
    while True:
        allowed = within & kept
        chosen = kept & (reward >= np.where(allowed, reward, -np.inf).max(1))
        worse = kept & (chosen[:, None] & (evidence < evidence[:, None]) & (reward > reward[:, None])).any(0)
        if not worse.any():
            return np.flatnonzero(kept)
        kept &= ~worse
