"""Conditioning targets of a policy that copies logged episodes: what an episode is labelled with, what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset

PEERS = 3  # the best return at a cost is the mean of so many episodes, so that one lucky episode does not set it
SIMILAR = 0.2  # share of the episodes, those of the most similar first states, that an episode is compared with
SAME = 0.1  # first states no further apart than this, in standard deviations a column, are the same
COMPARED = 2000  # of larger datasets so many episodes are compared with
LEVELS = (64, 16, 16, 8)  # target costs with each of the first relative returns; with all others as the last
CAPPED = (0.4, 1.0)  # of the costliest episode's cost: targets of settings with a cost cap
NO_CAP = 1e6  # times the costliest episode's cost: more than is ever spent


class Targets(NamedTuple):
    """N settings of a conditional policy."""

    relative_return: Float[NDArray[np.float32], " N"]
    target_cost: Float[NDArray[np.float32], "N K"]
    cost_cap: Float[NDArray[np.float32], "N K"]  # once so much is spent, the target is none

    def rows(self, chosen: NDArray[Any]) -> Targets:
        """Some of them, by number or by mask."""
        return Targets(self.relative_return[chosen], self.target_cost[chosen], self.cost_cap[chosen])

    def followed_by(self, other: Targets) -> Targets:
        return Targets(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def max_episode_cost(dataset: Dataset) -> Float[NDArray[np.float64], " K"]:
    """The largest cost of an episode, of each constraint; never 0, since amounts are told as shares of it."""
    most = dataset.cost_return.max(0)
    largest: NDArray[np.float64] = np.where(most > 0, most, 1.0)
    return largest


def subsample(episodes: int) -> NDArray[np.int64]:
    """Of many episodes some, the same ones each time."""
    return np.random.default_rng(0).permutation(episodes)[:COMPARED]


def relative_returns(
    returns: Float[NDArray[np.float64], " E"],
    costs: Float[NDArray[np.float64], "E K"],
    starts: Float[NDArray[np.float32], "E S"],
) -> Float[NDArray[np.float64], " E"]:
    """(R − R_low) / (R_best − R_low): R_best the mean of the best few that cost no more, R_low the worst 5 %.

    Compared are episodes of similar first states, so that a difficult start does not count against an episode. About 1
    for the best at their cost, less for others, whatever the units.
    """
    others = subsample(len(returns))
    others = others[np.argsort(-returns[others], kind="stable")]
    earned, paid, began = returns[others], costs[others], starts[others]
    similar = max(1, round(SIMILAR * len(others)))
    best = np.empty(len(returns))
    for i, (cost, start) in enumerate(zip(costs, starts, strict=True)):
        apart = np.sqrt(((began - start) ** 2).mean(1))
        near = apart <= max(SAME, np.partition(apart, similar - 1)[similar - 1])
        peers = earned[near & (paid <= cost * (1 + 1e-9)).all(1)][:PEERS]
        best[i] = peers.mean() if len(peers) else returns[i]
    low = np.quantile(returns, 0.05)
    scale = np.maximum(best - low, 1e-9 + 1e-3 * np.ptp(returns))
    return np.clip((returns - low) / scale, -0.5, 1.2)


def best_return(
    cost: Float[NDArray[np.float32], "N K"], outcomes: Float[NDArray[np.float32], "E 1+K"]
) -> Float[NDArray[np.float32], " N"]:
    """Mean return of the best few logged episodes that cost no more than `cost`; where none did, that cost least."""
    returns, costs, best = outcomes[:, 0], outcomes[:, 1:], np.empty(len(cost), np.float32)
    for i, amount in enumerate(cost):
        beyond = np.maximum(costs - amount, 0).max(1)
        best[i] = returns[np.lexsort((-returns, beyond))[:PEERS]].mean()
    return best


def settings(
    largest: NDArray[np.float32], relative: Sequence[float], cost_caps: bool
) -> tuple[Targets, NDArray[np.bool_]]:
    """The settings to predict, and which of them are without a cap.

    Target costs lie closer together where they are small. The settings with a cap have a large target until it is
    spent, which joins the costly beginning of one episode to the cheap rest of another.
    """
    k = len(largest)
    kinds = []
    for wished, levels in zip(relative, (*LEVELS, *[LEVELS[-1]] * len(relative)), strict=False):
        targets = grid(max(2, round(levels ** (1 / k))), k)
        kinds.append((np.full(len(targets), wished, np.float32), targets, np.full_like(targets, NO_CAP)))
    if cost_caps:
        caps = grid(max(2, round(16 ** (1 / k))) + 1, k)[1:]
        kinds += [(np.ones(len(caps), np.float32), np.full_like(caps, share), caps) for share in CAPPED]
    wish, target, cap = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
    found = Targets(wish, (target * largest).astype(np.float32), (cap * largest).astype(np.float32))
    return found, np.all(cap >= NO_CAP, axis=1)


def grid(levels: int, dimensions: int) -> NDArray[np.float32]:
    """All points of a grid over [0, 1]^K whose levels grow as squares, [levels^K, K]."""
    axis = np.linspace(0, 1, levels, dtype=np.float32) ** 2
    return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)
