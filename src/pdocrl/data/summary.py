"""What a dataset holds, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset


def summarise(dataset: Dataset) -> dict[str, Any]:
    """Counts, dimensions, return and cost quantiles per episode, digest. `cost_return` is a list unless K = 1."""
    costs = [_quantiles(dataset.cost_return[:, k]) for k in range(dataset.n_costs)]
    return {
        "episodes": dataset.n_episodes,
        "transitions": len(dataset),
        "obs_dim": dataset.obs_dim,
        "action_dim": dataset.action_dim,
        **(
            {"discrete_actions": list(dataset.discrete_actions)}
            if dataset.discrete_actions
            else {"action_low": list(dataset.action_low), "action_high": list(dataset.action_high)}
        ),
        "n_costs": dataset.n_costs,
        "reward_return": _quantiles(dataset.reward_return),
        "cost_return": costs[0] if len(costs) == 1 else costs,
        "terminals": int(dataset.terminal.sum()),
        "timeouts": int(dataset.timeout.sum()),
        "digest": dataset.digest,
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}
