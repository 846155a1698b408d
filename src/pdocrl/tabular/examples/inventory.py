"""The example log `inventory`: two hundred corner shops, each ordering one good that keeps, every evening for a year.

    state     whether the day is calm or a rush, and the stock on the shelf, such as "rush 07"
    action    units ordered, delivered over night; what exceeds the shelf of 20 is not sent
    reward    the day's profit: sales at 1.0, purchase at 0.5, shelf space 0.02 a unit, a delivery 0.4 (in tens)
    stockout  1 on a day when a customer was turned away
    delivery  1 on a day when the van came

Days are calm or a rush (demand is Poisson with mean 3 or 7) and stay so for some days. Every shop refills to its own
level when the shelf falls to its own threshold, with exceptions. No shop is good at it, but together they tried most
things. The model is known here, so that what is learned from the log can be held against the truth.

    python -m pdocrl.tabular.examples.inventory inventory.parquet
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from pdocrl.files import atomic_path
from pdocrl.tabular.cmdp import CMDP

SHELF = 20
ORDERS = (0, 4, 8, 12, 16)
MEAN_DEMAND = (3.0, 7.0)  # calm, rush
STAY = (0.85, 0.7)  # the chance that tomorrow is as today
COSTS = ("stockout", "delivery")
STATES = tuple(f"{day} {stock:02d}" for day in ("calm", "rush") for stock in range(SHELF + 1))


def model(gamma: float, stockout: float, delivery: float) -> CMDP:
    """The truth: the shops' CMDP with limits on (1−γ)J of the two costs. States and actions are in the order above."""
    size = SHELF + 1
    P = np.zeros((2, size, len(ORDERS), 2, size))
    r, out, van = np.zeros((3, 2, size, len(ORDERS)))
    for rush in range(2):
        change = np.array([STAY[rush], 1 - STAY[rush]]) if rush == 0 else np.array([1 - STAY[rush], STAY[rush]])
        chance = _poisson(MEAN_DEMAND[rush])
        for stock in range(size):
            for a, order in enumerate(ORDERS):
                shelf, profit = _serve(stock, order, np.arange(len(chance)))
                r[rush, stock, a] = chance @ profit
                out[rush, stock, a] = chance @ _turned_away(stock, order, np.arange(len(chance)))
                van[rush, stock, a] = order > 0
                for left, p in zip(shelf, chance, strict=True):
                    P[rush, stock, a, :, left] += p * change
    d0 = np.zeros(2 * size)
    d0[SHELF // 2] = 1  # every shop begins calm and half full
    shape = (2 * size, len(ORDERS))
    costs = np.stack([out, van]).reshape(2, *shape)
    flat = P.reshape(2 * size * len(ORDERS), 2 * size)
    return CMDP.from_costs(flat, r.reshape(shape), costs, [stockout, delivery], d0, gamma)


def simulate(shops: int = 200, days: int = 365, seed: int = 0) -> dict[str, list[object]]:
    """The log, column by column: `days` rows for each shop, in time order."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {
        name: [] for name in ("episode", "step", "state", "action", "next_state", "reward", *COSTS)
    }
    for shop in range(shops):
        threshold, level, whim = rng.integers(2, 9), rng.integers(10, 19), rng.uniform(0.1, 0.3)
        rush, stock = 0, SHELF // 2
        for day in range(days):
            wanted = max(level - stock, 0) if stock <= threshold else 0
            a = int(np.abs(np.array(ORDERS) - wanted).argmin())
            if rng.random() < whim:
                a = int(rng.integers(len(ORDERS)))
            demand = min(int(rng.poisson(MEAN_DEMAND[rush])), len(_poisson(MEAN_DEMAND[rush])) - 1)
            left, profit = _serve(stock, ORDERS[a], np.array([demand]))
            then = rush if rng.random() < STAY[rush] else 1 - rush
            row = {
                "episode": shop,
                "step": day,
                "state": STATES[rush * (SHELF + 1) + stock],
                "action": ORDERS[a],
                "next_state": STATES[then * (SHELF + 1) + int(left[0])],
                "reward": round(float(profit[0]), 6),
                "stockout": int(_turned_away(stock, ORDERS[a], np.array([demand]))[0]),
                "delivery": int(ORDERS[a] > 0),
            }
            for name, value in row.items():
                columns[name].append(value)
            rush, stock = then, int(left[0])
    return columns


def _serve(stock: int, order: int, demand: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What is left on the shelf, and the profit in tens, for each demand."""
    shelf = min(stock + order, SHELF)
    sold = np.minimum(shelf, demand)
    profit = 1.0 * sold - 0.5 * (shelf - stock) - 0.02 * (shelf - sold) - 0.4 * (order > 0)
    return shelf - sold, profit / 10


def _turned_away(stock: int, order: int, demand: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(demand > min(stock + order, SHELF), np.float64)


def _poisson(mean: float) -> NDArray[np.float64]:
    """P(demand = k), with the tail beyond twice the shelf put on its last value."""
    k = np.arange(1, 2 * SHELF + 1)
    chance: NDArray[np.float64] = np.exp(-mean) * np.concatenate([[1.0], np.cumprod(mean / k)])
    chance[-1] += 1 - chance.sum()
    return chance


if __name__ == "__main__":
    import pyarrow
    import pyarrow.parquet

    with atomic_path(sys.argv[1]) as path:
        pyarrow.parquet.write_table(pyarrow.table(simulate()), path, compression="zstd")
