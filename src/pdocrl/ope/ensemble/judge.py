"""Policies judged by rollouts in the learned dynamics of a dataset of vectors, and by logged behaviours like them.

policy ─▶ rollouts in the ensemble ─▶ estimates, calibrated intervals ─▶ `Judged`

    of_training.estimate        the policies of a training, on its own dataset     ─▶ OffPolicy (ope.json)
    of_dataset.judge_dataset    any policies, on any dataset                       ─▶ OpeReport
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.data.dataset import Dataset
from pdocrl.ope.ensemble.calibrate import Calibrated
from pdocrl.ope.ensemble.fqe import Act, Array
from pdocrl.ope.ensemble.opinions import Similar
from pdocrl.ope.ensemble.opinions import together as both_of
from pdocrl.ope.ensemble.prepare import Prepared
from pdocrl.ope.ensemble.rollouts import Rollouts, StepMany, begin_many, on_rows, play, remembers, slow
from pdocrl.ope.ensemble.support import never_seen, support_warnings
from pdocrl.ope.result import (
    LEVEL,
)
from pdocrl.policies.policy import Policy

STARTS = 128  # episodes simulated in each ensemble …
STARTS_SLOW = 32  # … of decision transformers, whose steps take longer, and of policies stepped one by one


@dataclasses.dataclass
class Judged:
    """What is made of one policy."""

    told: Calibrated  # by both estimates together; everything possible where they cannot carry an interval
    model: Calibrated  # by the dynamics models alone
    why: list[str]  # … and why
    outside: float  # share of its simulated steps outside the data
    unseen: list[str]  # costs that the log does not have
    similar: Similar | None = None  # logged behaviours like it; None: it remembers more than they tell
    carried: bool = False  # whether they speak alone, since the models predict no cost of held-out groups
    fqe: NDArray[np.float64] | None = None  # [1 + K] by fitted Q evaluation; None: it remembers, or was not asked for


def judge_each(
    policies: Sequence[Policy],
    where: Sequence[str],
    ready: Prepared,
    horizon: int,
    seed: int = 0,
    level: float = LEVEL,
    compare: bool = False,
) -> list[Judged]:
    """Of each policy; `where` names it in messages."""
    unseen = [why for why in never_seen(ready.dataset) if why is not None]
    possible = _possible(ready.dataset, horizon)
    groups = len(ready.calibration.truth)
    judged = []
    for i, played in simulated(policies, where, ready, horizon, seed).items():
        distance = ready.recorded.nearest(played.pairs, 1)[0]
        outside = float((distance > ready.recorded.radius).mean())
        by_models = Calibrated.of(played, ready.calibration, possible[1:, 1], level)
        acting, similar = on_rows(policies[i], ready.dataset, where[i], seed), None
        if acting is not None:
            similar = Similar.of(ready.behaviours, ready.behaviours.likeness(acting), possible, level)
        told, carried = both_of(by_models, ready.calibration, similar)
        why = [] if carried else support_warnings(outside, groups=groups, level=level)
        fqe = None
        if compare and not remembers(policies[i]):
            fqe = ready.system.values(_on_rows(policies[i], where[i], seed), horizon)
        told = told.unknown(possible) if why else told
        judged.append(Judged(told, by_models, why, outside, unseen, similar, carried, fqe))
    return judged


def _possible(dataset: Dataset, horizon: int) -> NDArray[np.float64]:
    """[1 + K, 2] what an episode can sum up to, at least and at most, from steps that were logged."""
    steps = np.column_stack([dataset.reward, dataset.cost]).astype(np.float64)
    ends = np.stack([np.minimum(steps.min(axis=0), 0), np.maximum(steps.max(axis=0), 0)], axis=1)  # it may end early
    ends[1:, 0] = 0.0
    return np.asarray(horizon * ends)


def simulated(
    policies: Sequence[Policy], where: Sequence[str], ready: Prepared, horizon: int, seed: int
) -> dict[int, Rollouts]:
    """Rollouts of every policy in the ensemble, from starts of the data."""
    rng = np.random.default_rng([seed, 10])
    played: dict[int, Rollouts] = {}
    with progress() as bar:
        row = bar.add_task("simulated steps", total=0)
        for kind, count in ((False, STARTS), (True, STARTS_SLOW)):
            own = [i for i, policy in enumerate(policies) if slow(policy) == kind]
            if not own:
                continue
            bar.update(row, total=horizon + (bar.tasks[row].total or 0))
            which = rng.integers(ready.dataset.n_episodes, size=(ready.ensemble.folds, count))
            starts = ready.dataset.initial_obs[which]
            begin = [_beginning(policies[i], seed, where[i]) for i in own]
            told = play(ready.ensemble, begin, starts, horizon, seed, lambda: bar.advance(row))
            played |= dict(zip(own, told, strict=True))
    return dict(sorted(played.items()))


def _beginning(policy: Policy, seed: int, where: str) -> Any:
    def begin(count: int) -> StepMany:
        return begin_many(policy, count, seed, where)

    return begin


def _on_rows(policy: Policy, where: str, seed: int) -> Act:
    """The policy as a function of rows of observations; proposals are drawn anew at every row."""
    step = begin_many(policy, 0, seed, where)
    nothing = np.zeros(0)

    def act(obs: Array) -> Array:
        return step(obs, nothing, nothing)

    return act
