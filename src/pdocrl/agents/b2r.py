"""B2R, boundary to region: a decision transformer that sees safe episodes alone, all with the same budget at the start.

    π(a_t | R_t, B_t, s_t, and the steps before),   B_t = κ − Σ_{u<t} c_u,   fitted to the episodes with B_T ≥ 0

In `cdt` the cost token is what the episode still went on to cost, so only episodes that cost κ show what a budget of κ
allows. Here every episode within the limit does: its costs to go are raised until they begin at κ, which makes them
what is left of the budget. docs/agents/b2r.md.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Columns, DeviceTable, Problem, static
from pdocrl.agents.common.sequences import (
    SequenceAgent,
    SequenceConfig,
    SequenceState,
    around,
    best_return,
    check_width,
    start,
    windows,
)
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.transformer import TOKENS, Windows, rotation
from pdocrl.policies.policy import TransformerPolicy


class B2RConfig(SequenceConfig):
    """The published hyper-parameters; `hidden` is not used."""

    warmup: float = 5000.0  # steps over which the learning rate grows to its own
    cost_weight: float = 0.0  # of the cross-entropy of costs, which is not part of this method
    batch_size: int = static(2048)  # sequences per step
    context: int = static(3)  # steps the transformer sees


class B2R(SequenceAgent[B2RConfig]):
    """Sequence modelling of safe episodes, conditioned on return and on what is left of the budget."""

    name = "b2r"
    summary = "A transformer that imitates the episodes within the limit, conditioned on the budget left."
    paper = "Su et al., Boundary-to-Region Supervision for Offline Safe RL (NeurIPS 2025)"
    discrete_actions = True
    Config = B2RConfig

    def columns(self, config: B2RConfig, dataset: Dataset) -> Columns:
        """One row per step, with the return still to come and the cost so far, both by their scales."""
        check_width(self.name, config)
        if config.embedding // config.heads % 2:
            raise PdocrlError(
                f"b2r: embedding {config.embedding} / heads {config.heads} must be even: pairs are turned."
            )
        to_go = dataset.to_go()
        spent = np.repeat(to_go[dataset.episode_start], dataset.episode_length, 0) - to_go
        scale = scales(np.asarray(self.problem(dataset).frontier))
        return {
            "obs": dataset.obs,
            "action": dataset.action,
            "costly": dataset.cost > 0,
            "returns": to_go[:, 0] / scale[0],
            "spent": spent[:, 1:] / scale[1:],
            "time": dataset.time_step(),
            "scale": scale[None, 1:],
        }

    def rows(self, config: B2RConfig, dataset: Dataset) -> NDArray[np.int64]:
        """The steps of the episodes that satisfied every limit of this run."""
        kept = (dataset.cost_return <= np.asarray(config.cost_limit)).all(1)
        if not kept.any():
            lowest = ", ".join(f"{cost:g}" for cost in dataset.cost_return.min(0))
            raise PdocrlError(
                f"{dataset.name}: no episode satisfies the cost limit {config.cost_limit}; the lowest cost is {lowest}."
            )
        return dataset.rows_of(np.flatnonzero(kept))

    def batch(
        self, config: B2RConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray
    ) -> tuple[Windows, Float[Array, "B L K"]]:
        """Windows that end at the given rows, with what was left of this run's budget; which steps cost."""
        steps = jnp.arange(1 - config.context, 1)
        found = around(table, rows, steps)
        budget = jnp.asarray(config.cost_limit, jnp.float32).reshape(-1) / table.others["scale"][0]
        return windows(found, found["time"][:, -1:] + steps, found["returns"], budget - found["spent"])

    def init(self, config: B2RConfig, problem: Problem, key: PRNGKeyArray) -> SequenceState:
        return start(config, problem, key, times=None)

    def policy(self, config: B2RConfig, state: SequenceState) -> TransformerPolicy:
        """Asks for the best return logged within the limit. Costs enter it as −C, so their scale goes into a weight."""
        frontier = np.asarray(state.frontier)
        scale = scales(frontier)
        weights = {name: np.asarray(array) for name, array in state.model.arrays.items()}
        weights["costs/weight"] = (-weights["costs/weight"] / scale[1:, None]).astype(np.float32)
        weights["rotation"] = rotation(TOKENS * config.context, config.embedding)
        return TransformerPolicy(
            weights,
            layers=config.layers,
            heads=config.heads,
            context=config.context,
            target_return=best_return(frontier, np.asarray(config.cost_limit, np.float32)),
            target_cost=tuple(float(limit) for limit in config.cost_limit),
            reward_scale=float(1 / scale[0]),
            cost_shift=0.0,
            spends_at_most=True,
            discrete=state.model.discrete_actions,
        )


def scales(frontier: NDArray[np.floating]) -> Float[NDArray[np.float32], " 1+K"]:
    """The largest |return| and the largest costs of the best logged episodes; 1 where that is 0."""
    largest = np.abs(np.asarray(frontier, np.float32)).max(0)
    return np.where(largest > 0, largest, np.float32(1))
