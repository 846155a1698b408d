"""The (cost, reward) plane as DSRL sees it: 60 × 50 cells, of which a collection should fill as many as it can."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pdocrl.collect.episode_log import Entry
from pdocrl.data import filters
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError, by_door

BINS = (60, 50)  # in cost, in reward
CELLS = BINS[0] * BINS[1]


def summary(entries: Sequence[Entry], name: str, cost_names: tuple[str, ...]) -> Dataset:
    """One row per episode: its return and its costs; `obs` [E, 1] numbers the entries.

    Filters and plots look at returns alone, so they need not have the transitions in memory.
    """
    number = np.arange(len(entries))[:, None]
    return make_dataset(
        obs=number,
        action=np.zeros_like(number),
        reward=[entry.reward for entry in entries],
        cost=np.array([entry.cost for entry in entries]),
        next_obs=number,
        terminal=np.zeros(len(entries)),
        timeout=np.ones(len(entries)),
        name=name,
        cost_names=cost_names,
    )


def within(entries: Sequence[Entry], cost_max: Sequence[float], reward_min: float = -math.inf) -> list[Entry]:
    """The episodes whose costs are all at most the largest wanted, and whose return is at least the smallest."""
    return [
        entry
        for entry in entries
        if entry.reward >= reward_min and all(c <= top for c, top in zip(entry.cost, cost_max, strict=True))
    ]


def coverage(entries: Sequence[Entry], cost_max: Sequence[float], reward_min: float = -math.inf) -> int:
    """Cells with at least one of the wanted episodes; rewards are divided between the smallest and the largest."""
    kept = within(entries, cost_max, reward_min)
    if not kept:
        return 0
    cost, reward = np.array([sum(entry.cost) for entry in kept]), np.array([entry.reward for entry in kept])
    top = max(reward.max(), reward.min() + 1e-6)
    counts, _, _ = np.histogram2d(cost, reward, BINS, ((0, sum(cost_max)), (reward.min(), top)))
    return int((counts > 0).sum())


def choose(
    entries: Sequence[Entry], cost_max: Sequence[float], reward_min: float, target: int, seed: int
) -> list[Entry]:
    """About `target` evenly spread episodes among the wanted ones, with the best safe ones among them."""
    kept = within(entries, cost_max, reward_min)
    if not kept:
        raise PdocrlError(
            f"no episode has a cost of at most {', '.join(f'{top:g}' for top in cost_max)} and a return of at least "
            f"{reward_min:g}. Give a larger budget, raise "
            f"{by_door('cost_max or lower reward_min', '--cost-max or lower --reward-min')}."
        )
    names = tuple(f"cost_{k}" for k in range(len(cost_max)))
    spread = filters.density(summary(kept, "collection", names), target, BINS, seed)
    return [kept[int(number)] for number in spread.obs[:, 0]]
