"""`ope`: what trained policies earn and cost over an episode, and whether they keep their limits, from data alone.

folder, dataset ─▶ ensemble ─▶ rollouts ─▶ estimates, calibrated intervals ─▶ verdict, warnings ─▶ ope.json

With `compare`, fitted Q evaluation stands beside it, a point without an interval.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.evaluate import DataName
from pdocrl.ope import rollouts
from pdocrl.ope.actors import StepMany, begin_many, remembers, slow
from pdocrl.ope.ensemble import EnsembleConfig
from pdocrl.ope.fitted_q import Act
from pdocrl.ope.log import Array
from pdocrl.ope.prepare import Prepared
from pdocrl.ope.result import (
    LEVEL,
    VERDICTS,
    CalibrationNote,
    EstimatedSums,
    GroupPoints,
    OffPolicy,
    OpeRun,
    OpeSettings,
    cost_score,
    reward_score,
    write_ope,
)
from pdocrl.ope.support import never_seen, support_warnings
from pdocrl.ope.verdict import Calibrated
from pdocrl.policies.policy import Policy
from pdocrl.provenance import versions
from pdocrl.training.folder import Trained, load_trained

METHODS = ("ensemble", "fqe")
STARTS = 128  # episodes simulated in each ensemble …
STARTS_SLOW = 32  # … of decision transformers, whose steps take longer, and of policies stepped one by one


def estimate(
    trained: Trained | str | os.PathLike[str],
    data: Prepared | Dataset | str | os.PathLike[str] | None = None,
    *,
    compare: bool = False,
    seed: int = 0,
    config: EnsembleConfig | None = None,
    model_selection: bool = False,
) -> OffPolicy:
    """Estimate the undiscounted reward and costs of an episode for the policy of every run.

    With `compare`, fitted Q evaluation is computed too. `model_selection` takes twice as long to learn the data, in two
    ways, and keeps what predicts held-out episodes best. The data is looked for where the training had it, unless it is
    given; it must be the same data. With a folder, the result is also written there as ope.json.
    """
    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan = found.config
    dataset = training_data(found, data.dataset if isinstance(data, Prepared) else data)
    known = data if isinstance(data, Prepared) else None
    ready = known or Prepared.of(dataset, seed, config, model_selection=model_selection)
    judged = judge(found, ready, seed, compare=compare)
    result = OffPolicy(
        task=plan.task,
        agent=plan.agent,
        method=METHODS[0],
        level=LEVEL,
        horizon=plan.horizon,
        data=DataName(name=Path(plan.data).name, digest=plan.data_digest),
        step=found.step,
        versions=versions(),
        settings=OpeSettings(seed=ready.seed, ways=ready.config.ways),
        calibration=calibration_of(ready),
        runs=[_run(found, i, told) for i, told in enumerate(judged)],
    )
    if found.folder is not None:
        write_ope(found.folder, result)
    return result


@dataclasses.dataclass
class Judged:
    """What is made of one policy."""

    ensemble: Calibrated
    outside: float  # share of its steps outside the data
    groups: int  # held-out groups that intervals are calibrated on
    unseen: list[str]  # costs that the log does not have
    fqe: NDArray[np.float64] | None = None  # [1 + K] by fitted Q evaluation; None: it remembers, or was not asked for


def judge(found: Trained, ready: Prepared, seed: int, level: float = LEVEL, compare: bool = False) -> list[Judged]:
    """Of each run the estimate, and how far the data carries it."""
    place = found.folder or found.config.data
    where = [f"{place}: run {i}" for i in range(len(found.policies))]
    return judge_policies(found.policies, where, ready, found.config.horizon, seed, level, compare)


def judge_policies(
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
        calibrated = Calibrated.of(played, ready.calibration, possible[1:, 1], level)
        unknown = support_warnings(outside, groups=groups, level=level)
        fqe = None
        if compare and not remembers(policies[i]):
            fqe = ready.system.values(_on_rows(policies[i], where[i], seed), horizon)
        judged.append(Judged(calibrated.unknown(possible) if unknown else calibrated, outside, groups, unseen, fqe))
    return judged


def _possible(dataset: Dataset, horizon: int) -> NDArray[np.float64]:
    """[1 + K, 2] what an episode can sum up to, at least and at most, from steps that were logged."""
    steps = np.column_stack([dataset.reward, dataset.cost]).astype(np.float64)
    ends = np.stack([np.minimum(steps.min(axis=0), 0), np.maximum(steps.max(axis=0), 0)], axis=1)  # it may end early
    ends[1:, 0] = 0.0
    return np.asarray(horizon * ends)


def simulated(
    policies: Sequence[Policy], where: Sequence[str], ready: Prepared, horizon: int, seed: int
) -> dict[int, rollouts.Rollouts]:
    """Rollouts of every policy in the ensemble, from starts of the data."""
    rng = np.random.default_rng([seed, 10])
    played: dict[int, rollouts.Rollouts] = {}
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
            told = rollouts.play(ready.ensemble, begin, starts, horizon, seed, lambda: bar.advance(row))
            played |= dict(zip(own, told, strict=True))
    return dict(sorted(played.items()))


def _beginning(policy: Policy, seed: int, where: str) -> Any:
    def begin(count: int) -> StepMany:
        return begin_many(policy, count, seed, where)

    return begin


def calibration_of(ready: Prepared) -> CalibrationNote:
    """For ope.json: what the ensemble was calibrated on and how it did there."""
    found = ready.calibration
    signals = ["reward", *ready.dataset.cost_names]

    def named(values: Array) -> dict[str, float]:
        return dict(zip(signals, values.tolist(), strict=True))

    return CalibrationNote(
        groups=len(found.truth),
        level=LEVEL,
        factor=named(found.factor(LEVEL)),
        coverage_left_out=named(found.coverage(LEVEL)),
        median_error=named(np.median(np.abs(found.error), axis=0)),
        points={
            name: GroupPoints(truth=found.truth[:, k].tolist(), predicted=found.predicted[:, k].tolist())
            for k, name in enumerate(signals)
        },
    )


def _run(found: Trained, i: int, told: Judged) -> OpeRun:
    plan, chosen = found.config, told.ensemble
    run, limit = plan.runs[i], plan.runs[i]["cost_limit"]
    if not (np.isfinite(chosen.value).all() and np.isfinite(chosen.interval).all()):
        raise PdocrlError(f"{found.folder or plan.data}: run {i}: an estimate is not finite.")
    why = support_warnings(told.outside, groups=told.groups)
    # What is said of a policy the data does not know would be said by the features, not by the data.
    within = chosen.within(limit) if limit and not why else None
    if limit and told.unseen:  # what other costs break stands all the same
        why, within = why + told.unseen, None if within else within
    by_method = {"ensemble": EstimatedSums.of(chosen)}
    if told.fqe is not None and np.isfinite(told.fqe).all():
        by_method["fqe"] = EstimatedSums(reward=float(told.fqe[0]), cost=told.fqe[1:].tolist())
    reward_ends, *cost_ends = [(low, high) for low, high in chosen.interval.tolist()]
    reward, reward_interval = reward_score(find_task(plan.task) if plan.task else None, chosen)
    cost, cost_interval = cost_score(chosen, limit)
    return OpeRun(
        agent=plan.agent,
        cost_limit=list(limit),
        seed=run["seed"],
        varied={name: value for name, value in run.items() if name not in {"cost_limit", "seed"}},
        reward=float(chosen.value[0]),
        reward_interval=reward_ends,
        cost=chosen.value[1:].tolist(),
        cost_interval=cost_ends,
        normalized_reward=reward,
        normalized_reward_interval=reward_interval,
        normalized_cost=cost,
        normalized_cost_interval=cost_interval,
        within_limit=within,
        verdict=VERDICTS[within] if limit else "no limit",
        trusted=not why,
        warnings=why,
        outside=told.outside,
        by_method=by_method,
    )


def training_data(found: Trained, given: Dataset | str | os.PathLike[str] | None) -> Dataset:
    """The data of the training: given, or where it was, or under the task's name; always the same bits."""
    plan, place = found.config, found.folder or found.config.data
    if given is not None:
        dataset = given if isinstance(given, Dataset) else load(given, plan.task)
    else:
        try:
            dataset = load(plan.data, plan.task)
        except PdocrlError as error:
            if plan.task is None:
                raise PdocrlError(f"{error} Name the training data with --data.") from error
            dataset = load(plan.task)
    if dataset.digest != plan.data_digest:
        raise PdocrlError(
            f"{place}: trained on data of digest {plan.data_digest[:12]}…, {dataset.name} has {dataset.digest[:12]}…; "
            "give the file it was trained on with --data."
        )
    return dataset


def _on_rows(policy: Policy, where: str, seed: int) -> Act:
    """The policy as a function of rows of observations; proposals are drawn anew at every row."""
    step = begin_many(policy, 0, seed, where)
    nothing = np.zeros(0)

    def act(obs: Array) -> Array:
        return step(obs, nothing, nothing)

    return act
