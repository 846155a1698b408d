"""CDT, the constrained decision transformer: imitate sequences given the reward and the costs still to come.

    π(a_t | R_t, C_t, s_t, and the steps before),   R_t = Σ_{u≥t} r_u,   C_t = Σ_{u≥t} c_u
    minimise  −E[log π] − ζ H(π) + 0.02 · cross-entropy of whether each step costs

ζ keeps the entropy at a target; of discrete actions it is 0. When it acts, C_0 is the run's own cost limit and R_0 the
best return of any logged episode within it; both shrink by what has been earned and spent. docs/agents/cdt.md.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Columns, DeviceTable, Problem, static
from pdocrl.agents.cdt_published import augment_as_published
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
from pdocrl.nn.transformer import Windows
from pdocrl.policies.policy import TransformerPolicy


class CDTConfig(SequenceConfig):
    """The benchmark's hyper-parameters; `hidden` is not used."""

    reward_scale: float = 0.1  # rewards to go are multiplied by this
    cost_shift: float = 50.0  # costs to go enter as cost_shift − C_t
    times: int = static(1000)  # steps with an embedding of their own; later ones share the last
    augmentation: float = static(0.2)  # augmented episodes, as a share of the logged ones
    sampling: Literal["uniform", "published"] = static("uniform")  # every step alike, or cheap episodes more often
    sampling_cost: float = static(70.0)  # published: an episode is drawn in proportion to max(this − its cost, 0)
    published: bool = static(False)  # the reference's network, loss, sampling and augmentation: docs/agents/cdt.md
    frontier_degree: int = static(4)  # published: of the polynomial wishes lie above; this and the next two by task
    wish_return: float = static(600.0)  # published: the highest return wished for
    wish_slack: float = static(100.0)  # published: by how much its return may be below that of the one it stands in for
    target_return: float = 0.0  # to ask for when acting; 0: the best logged within the limit

    @property
    def by_lottery(self) -> bool:
        """Whether windows begin at a step of an episode drawn by its cost."""
        return self.published or self.sampling == "published"


class CDT(SequenceAgent[CDTConfig]):
    """Sequence modelling conditioned on return and costs."""

    name = "cdt"
    summary = "A transformer that imitates sequences, conditioned on a target return and a target cost; any limit."
    paper = "Liu et al., Constrained Decision Transformer for Offline Safe RL (ICML 2023)"
    discrete_actions = True
    Config = CDTConfig

    def ignores_limit(self, config: CDTConfig) -> bool:
        return True  # it is told when it acts

    def columns(self, config: CDTConfig, dataset: Dataset) -> Columns:
        """One row per step of every logged episode, then of every augmented one; a window is a row and those before."""
        check_width(self.name, config)
        logged = np.arange(dataset.n_episodes)
        copied, more_return, more_cost = self.augment(config, dataset)
        episodes = np.concatenate([logged, copied])
        rows, lengths = dataset.rows_of(episodes), dataset.episode_length[episodes]
        to_go = dataset.to_go()
        shift = np.zeros((len(episodes), to_go.shape[1]))
        shift[len(logged) :] = np.column_stack([more_return, more_cost])
        wanted = to_go[rows] + np.repeat(shift, lengths, 0)
        columns = {
            "obs": dataset.obs[rows],
            "action": dataset.action[rows],
            "costly": dataset.cost[rows] > 0,
            "returns": wanted[:, 0],
            "costs": wanted[:, 1:],
            "time": np.concatenate([np.arange(length) for length in lengths]),
        }
        if config.by_lottery:
            asked = dataset.cost_return[episodes] + shift[:, 1:]  # of an augmented episode, the wish
            columns["lottery"] = lottery(asked, lengths, config.sampling_cost)
        return columns

    def augment(self, config: CDTConfig, dataset: Dataset) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What is shown beside the log, by our rule or the reference's; drawn once, from a fixed seed."""
        if not config.published:
            return augment(dataset, config.augmentation)
        return augment_as_published(
            dataset,
            config.augmentation,
            config.frontier_degree,
            config.wish_return,
            config.wish_slack,
            np.random.default_rng(0),
        )

    def batch(
        self, config: CDTConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray
    ) -> tuple[Windows, Float[Array, "B L K"]]:
        """Windows, and which of their steps cost.

        They end at the given rows; with the published sampling, they begin at a step of an episode drawn by its cost.
        """
        if config.by_lottery:
            rows, steps = draw_rows(table.others["lottery"], key, len(rows)), jnp.arange(config.context)
        else:
            steps = jnp.arange(1 - config.context, 1)
        found = around(table, rows, steps)
        here = found["time"][:, :1] if config.by_lottery else found["time"][:, -1:]
        to_go = config.reward_scale * found["returns"], config.cost_shift - found["costs"]
        return windows(found, here + steps, *to_go)

    def init(self, config: CDTConfig, problem: Problem, key: PRNGKeyArray) -> SequenceState:
        return start(config, problem, key, config.times, config.published)

    def policy(self, config: CDTConfig, state: SequenceState) -> TransformerPolicy:
        return TransformerPolicy(
            {name: np.asarray(array) for name, array in state.model.arrays.items()},
            layers=config.layers,
            heads=config.heads,
            context=config.context,
            target_return=float(config.target_return)
            or best_return(np.asarray(state.frontier), np.asarray(config.cost_limit, np.float32)),
            target_cost=tuple(float(limit) for limit in config.cost_limit),
            reward_scale=float(config.reward_scale),
            cost_shift=float(config.cost_shift),
            discrete=state.model.discrete_actions,
        )


def augment(dataset: Dataset, share: float) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Episodes [E′] to show again as answers to wishes beyond the data, and how far beyond: return [E′], cost [E′, K].

    A wish is a budget κ, uniform in the range of logged costs, and a return ρ, uniform between the best one logged
    within κ and the best of all. Asked for the impossible, the transformer shall keep the budget: the answer is the
    best episode within κ. Wishes are drawn once, from a fixed seed.
    """
    rng = np.random.default_rng(0)
    costs, returns = dataset.cost_return, dataset.reward_return
    count = round(share * dataset.n_episodes)
    budget = rng.uniform(costs.min(0), costs.max(0), (count, dataset.n_costs))
    within = np.all(costs[None] <= budget[:, None], axis=-1)  # [E′, E]
    possible = within.any(1)  # with several costs, a budget may lie below every episode
    budget, within = budget[possible], within[possible]
    answer = np.where(within, returns, -np.inf).argmax(1)
    wish = rng.uniform(returns[answer], returns.max())
    return answer.astype(np.int64), wish - returns[answer], budget - costs[answer]


def lottery(
    costs: NDArray[np.float64], lengths: NDArray[np.int64], ceiling: float
) -> Float[NDArray[np.float64], "3 E"]:
    """Chances of episodes up to and including each, p_e ∝ max(ceiling − C_e, 0), their first rows and their lengths.

    The published rule; of several costs the largest counts. It has the shape of no column of rows: [3, E].
    """
    chance = np.maximum(ceiling - costs.max(1), 0.0)
    if not chance.any():
        raise PdocrlError(
            f"cdt: every episode costs {ceiling:g} or more, so sampling=published draws none; raise sampling_cost "
            f"above the cheapest episode's {costs.max(1).min():g}."
        )
    return np.stack([np.cumsum(chance) / chance.sum(), np.cumsum(lengths) - lengths, lengths])


def draw_rows(lottery: Float[Array, "3 E"], key: PRNGKeyArray, count: int) -> Int[Array, " B"]:
    """An episode by its chance, then one of its steps, each alike."""
    chance, first, length = lottery
    which, when = jax.random.uniform(key, (2, count))
    episode = jnp.minimum(jnp.searchsorted(chance, which, side="right"), len(chance) - 1)
    step = jnp.minimum(jnp.floor(when * length[episode]), length[episode] - 1)
    rows: Int[Array, " B"] = (first[episode] + step).astype(jnp.int32)
    return rows
