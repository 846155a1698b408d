"""Small worlds whose logs hide something, and the same without: tables of rows, as a log has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = dict[str, NDArray[Any]]
LEVELS, ORDERS = 12, 4  # largest stock; orders 0 … 3 units of two


def lost_sales(seed: int, episodes: int = 300, days: int = 40, lead: int = 2) -> Rows:
    """A shop that loses what it cannot serve; what it orders arrives `lead` days later, and is not in the stock.

    With lead = 0 it arrives the next morning and the stock is a Markov state. Columns `order_1` … are on their way.
    """
    rng = np.random.default_rng(seed)
    stock = rng.integers(0, LEVELS, episodes)
    pipeline = rng.integers(0, ORDERS, (episodes, lead))
    parts: list[list[NDArray[Any]]] = []
    for day in range(days):
        order = np.clip(rng.integers(0, ORDERS, episodes) + (stock < 4), 0, ORDERS - 1)
        demand = rng.poisson(2.5, episodes)
        missed = demand > stock
        arrives = 2 * (pipeline[:, 0] if lead else order)
        after = np.clip(np.maximum(stock - demand, 0) + arrives, 0, LEVELS)
        sold = np.minimum(stock, demand)
        before = pipeline
        pipeline = np.concatenate([pipeline[:, 1:], order[:, None]], axis=1) if lead else pipeline
        seen = [before[:, k] for k in range(lead)]
        parts.append(
            [np.arange(episodes), np.full(episodes, day), stock, order, after, 3.0 * sold - 2 * order, missed, *seen]
        )
        stock = after
    names = ["episode", "day", "stock", "action", "next_stock", "reward", "stockout"]
    names += [f"order_{k + 1}" for k in range(lead)]
    table = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}
    return table | {"stockout": table["stockout"] * 1.0}


def hidden_type(seed: int, episodes: int = 200, steps: int = 30, frail: float = 0.3) -> Rows:
    """Three states in a ring; harm is ten times as likely for the frail, whom no column shows. None with frail = 0."""
    rng = np.random.default_rng(seed)
    weak = rng.random(episodes) < frail
    state = rng.integers(0, 3, episodes)
    parts: list[list[NDArray[Any]]] = []
    for t in range(steps):
        action = rng.integers(0, 2, episodes)
        harm = rng.random(episodes) < np.where(weak, 0.4, 0.04) * action
        after = np.where(rng.random(episodes) < 0.7, (state + 1) % 3, state)
        parts.append([np.arange(episodes), np.full(episodes, t), state, action, after, action + 0.1 * state, harm])
        state = after
    names = ["episode", "day", "state", "action", "next_state", "reward", "harm"]
    table = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}
    return table | {"harm": table["harm"] * 1.0}
