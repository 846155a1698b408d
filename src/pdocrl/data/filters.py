"""Parts of a dataset, and spoilt versions of it, for studies of what a method needs from its data.

`safe`, `frontier`, `density`, `fraction` and `split` choose whole episodes; `outliers` and `noise` change what they
hold. All are deterministic by seed and return new datasets.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data import episodes
from pdocrl.data.dataset import Dataset, Flags
from pdocrl.errors import PdocrlError


def apply(
    dataset: Dataset,
    *,
    safe_limit: ArrayLike | None = None,
    slack: float | None = None,
    target: int | None = None,
    bins: tuple[int, int] = (60, 50),
    share: float | None = None,
    lying_share: float | None = None,
    outlier_limit: float = 10,
    noise_scale: float | None = None,
    seed: int = 0,
) -> Dataset:
    """Several filters, one after the other, in this order; those that are None are left out.

    Args:
        dataset: what is filtered.
        safe_limit: of `safe`.
        slack: of `frontier`.
        target: of `density`, with `bins`.
        bins: cells of its grid, in cost and in reward.
        share: of `fraction`.
        lying_share: of `outliers`, which show a cost below `outlier_limit`.
        outlier_limit: the cost below which outliers seem to lie.
        noise_scale: of `noise`.
        seed: of every random choice.
    """
    if safe_limit is not None:
        dataset = safe(dataset, safe_limit)
    if slack is not None:
        dataset = frontier(dataset, slack)
    if target is not None:
        dataset = density(dataset, target, bins, seed)
    if share is not None:
        dataset = fraction(dataset, share, seed)
    if lying_share is not None:
        dataset = outliers(dataset, lying_share, outlier_limit, seed)
    return dataset if noise_scale is None else noise(dataset, noise_scale, seed)


def safe(dataset: Dataset, limit: ArrayLike) -> Dataset:
    """The episodes that satisfy every limit: cost ≤ limit. `limit` is one number, or one per cost [K]."""
    limits = np.asarray(limit, np.float64)
    if limits.ndim and limits.shape != (dataset.n_costs,):
        raise PdocrlError(
            f"{dataset.name}: {limits.size} limits for {dataset.n_costs} costs. Give one, or one for each."
        )
    kept = np.flatnonzero((dataset.cost_return <= limits).all(axis=1))
    if len(kept) == 0:
        lowest = ", ".join(f"{c:g}" for c in dataset.cost_return.min(axis=0))
        raise PdocrlError(f"{dataset.name}: no episode satisfies the limit {limits}. The lowest cost is {lowest}.")
    return dataset.episodes(kept)


def best_within(dataset: Dataset) -> NDArray[np.float64]:
    """[E] for each episode e the best return that any episode reaches at no more cost: max { R_i : C_i ≤ C_e }."""
    costs, rewards = dataset.cost_return, dataset.reward_return
    if dataset.n_costs > 1:
        return np.array([rewards[(costs <= cost).all(axis=1)].max() for cost in costs])
    cost = costs.sum(axis=1)  # [E]; zeros without constraints
    order = np.argsort(cost, kind="stable")
    best: NDArray[np.float64] = np.maximum.accumulate(rewards[order])[np.searchsorted(cost[order], cost, "right") - 1]
    return best


def on_frontier(dataset: Dataset) -> Flags:
    """[E] the episodes that none beats in reward at no more cost; the best safe one under any limit is among them."""
    return dataset.reward_return >= best_within(dataset)


def frontier(dataset: Dataset, slack: float = 0.1) -> Dataset:
    """The episodes within `slack` × (range of returns) of the best return at no more cost; slack 0 is the frontier."""
    rewards = dataset.reward_return
    kept = rewards >= best_within(dataset) - _share(slack, "slack") * np.ptp(rewards)
    return dataset.episodes(np.flatnonzero(kept))


def density(dataset: Dataset, target: int, bins: tuple[int, int] = (60, 50), seed: int = 0) -> Dataset:
    """About evenly spread episodes: DSRL's random grid filter in (cost, reward) space, for a target number of them.

    Cells take turns: each keeps a first random episode before any keeps a second, and so on until `target` are kept.
    Frontier episodes go first, so that the best safe episode under any limit survives; there are at least that many.
    Several costs are added up for the grid.
    """
    if target < 1 or min(bins) < 1:
        raise PdocrlError(f"density: target {target} and bins {bins} must be at least 1.")
    if target >= dataset.n_episodes:
        return dataset
    cell = _cell(dataset.cost_return.sum(axis=1), bins[0]) * bins[1] + _cell(dataset.reward_return, bins[1])
    luck = np.random.default_rng(seed).permutation(dataset.n_episodes)
    turn = np.empty(dataset.n_episodes, np.int64)
    by_cell = np.lexsort((luck, cell))
    first_of_cell = np.searchsorted(cell[by_cell], cell[by_cell], side="left")
    turn[by_cell] = np.arange(dataset.n_episodes) - first_of_cell
    best = on_frontier(dataset)
    turn[best] = -1
    kept = np.lexsort((luck, turn))[: max(target, int(best.sum()))]
    return dataset.episodes(np.sort(kept))


def fraction(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """A random share of the episodes, at least one, in their order."""
    count = max(1, round(_share(share, "fraction") * dataset.n_episodes))
    kept = np.random.default_rng(seed).choice(dataset.n_episodes, count, replace=False)
    return dataset.episodes(np.sort(kept))


def split(dataset: Dataset, share: float = 0.5, seed: int = 0) -> tuple[Dataset, Dataset]:
    """A random share of the episodes, and the others: what chooses a policy, and what may then judge it.

    An episode that is there twice counts once: both copies fall on the same side, or one side would know the other.
    """
    first, second = episodes.split(dataset, share, seed)
    return dataset.episodes(first), dataset.episodes(second)


def outliers(dataset: Dataset, share: float, limit: float, seed: int = 0) -> Dataset:
    """Make a share of the episodes lie, as DSRL does: costly, rewarding episodes come to look safe and still better.

    Chosen among those in the upper half of the range of costs and of returns. Their costs become fewer than `limit`
    ones at random steps (the same for every cost), their rewards are multiplied by 1.5.
    """
    count = round(_share(share, "outliers") * dataset.n_episodes)
    total, rewards = dataset.cost_return.sum(axis=1), dataset.reward_return
    candidates = np.flatnonzero((total >= _middle(total)) & (rewards >= _middle(rewards)))
    if count > len(candidates):
        raise PdocrlError(
            f"{dataset.name}: {count} outliers asked for, but only {len(candidates)} episodes are in the upper half "
            "of costs and returns. Ask for a smaller share."
        )
    rng = np.random.default_rng(seed)
    reward, cost = dataset.reward.copy(), dataset.cost.copy()
    for episode in np.sort(rng.choice(candidates, count, replace=False)):
        start, length = dataset.episode_start[episode], dataset.episode_length[episode]
        rows = slice(start, start + length)
        ones = min(int(rng.integers(max(1, int(np.ceil(limit))))), length)
        cost[rows] = 0
        cost[start + rng.choice(length, ones, replace=False)] = 1
        reward[rows] *= 1.5
    return dataclasses.replace(dataset, reward=reward, cost=cost, path="")


def noise(dataset: Dataset, scale: float, seed: int = 0) -> Dataset:
    """Gaussian noise on the observations, `scale` times each dimension's standard deviation, as of a worse sensor.

    A state that is one row's next observation and the following row's observation is read once, so both get the same
    noise (DSRL draws them apart).
    """
    if scale < 0:
        raise PdocrlError(f"noise: scale {scale} must be ≥ 0.")
    rng = np.random.default_rng(seed)
    std = scale * dataset.obs.std(axis=0, dtype=np.float64)
    first, last = (rng.normal(size=dataset.obs.shape) * std for _ in range(2))
    after = np.concatenate([first[1:], last[-1:]])
    ends = dataset.episode_start + dataset.episode_length - 1
    after[ends] = last[ends]
    return dataclasses.replace(
        dataset,
        obs=(dataset.obs + first).astype(np.float32),
        next_obs=(dataset.next_obs + after).astype(np.float32),
        path="",
    )


def _cell(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """[E] which of `bins` equal intervals between the smallest and the largest value each falls into."""
    width = np.ptp(values) / bins
    if width == 0:
        return np.zeros(len(values), np.int64)
    index: NDArray[np.int64] = ((values - values.min()) // width).astype(np.int64)
    return np.minimum(index, bins - 1)


def _middle(values: NDArray[np.float64]) -> float:
    return float(values.min() + values.max()) / 2


def _share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise PdocrlError(f"{name}: {value} must lie between 0 and 1.")
    return value
