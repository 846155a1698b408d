"""`ope`: what trained policies earn and cost over an episode, and whether they keep their limits, from data alone.

folder, dataset ─▶ ensemble ─▶ episodes imagined in it ─▶ estimates, calibrated intervals ─▶ verdict, doubts ─▶ ope.json

With `compare`, three other estimates stand beside it: the older model, fitted Q and the density ratio.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.evaluation.evaluate import DataName
from pdocrl.ope import bootstrap, imagine, model
from pdocrl.ope.actors import StepMany, begin_many, remembers, slow
from pdocrl.ope.ensemble import EnsembleConfig
from pdocrl.ope.linear import Act, Followed
from pdocrl.ope.log import Array
from pdocrl.ope.prepare import RESAMPLES, Prepared
from pdocrl.ope.result import (
    LEVEL,
    VERDICTS,
    CalibrationNote,
    Estimate,
    EstimatedSums,
    GroupPoints,
    OffPolicy,
    OpeRun,
    OpeSettings,
    cost_score,
    reward_score,
    write_ope,
)
from pdocrl.ope.support import doubts, never_seen
from pdocrl.ope.verdict import Calibrated
from pdocrl.policies.policy import Policy
from pdocrl.provenance import versions
from pdocrl.training.folder import Trained, load_trained

METHODS = ("ensemble", "model", "fqe", "ratio")
STARTS = 128  # episodes imagined in each committee …
STARTS_SLOW = 32  # … of decision transformers, whose steps take longer, and of policies stepped one by one


def estimate(
    trained: Trained | str | os.PathLike[str],
    data: Prepared | Dataset | str | os.PathLike[str] | None = None,
    *,
    method: str = "ensemble",
    compare: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    config: EnsembleConfig | None = None,
    thorough: bool = False,
) -> OffPolicy:
    """Estimate the undiscounted reward and costs of an episode for the policy of every run.

    `method` chooses whose numbers the verdict is made of; with `compare` all methods are computed. `thorough` takes
    twice as long to learn the data, in two ways, and keeps what predicts held-out episodes best. The data is looked for
    where the training had it, unless it is given; it must be the same data. With a folder, the result is also written
    there as ope.json.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS, f"Known: {', '.join(METHODS)}.")
    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan, place = found.config, found.folder or found.config.data
    for i, policy in enumerate(found.policies):
        if method != "ensemble" and remembers(policy):
            raise PdocrlError(
                f"{place}: run {i}: a policy of kind `{policy.kind}` acts on the episode so far, not on an observation "
                f"alone, so `{method}` cannot judge it from rows. Use --method ensemble, or play it: pdocrl evaluate."
            )
    dataset = training_data(found, data.dataset if isinstance(data, Prepared) else data)
    ready = data if isinstance(data, Prepared) else Prepared.of(dataset, resamples, seed, config, thorough=thorough)
    judged = judge(found, ready, METHODS if compare else (method,), seed)
    result = OffPolicy(
        task=plan.task,
        agent=plan.agent,
        method=method,
        level=LEVEL,
        horizon=plan.horizon,
        data=DataName(name=Path(plan.data).name, digest=plan.data_digest),
        step=found.step,
        versions=versions(),
        settings=OpeSettings(resamples=ready.resamples, seed=ready.seed, ways=ready.config.ways),
        calibration=calibration_of(ready) if compare or method == "ensemble" else None,
        runs=[_run(found, i, told, method) for i, told in enumerate(judged)],
    )
    if found.folder is not None:
        write_ope(found.folder, result)
    return result


@dataclasses.dataclass
class Judged:
    """What is made of one policy."""

    by_method: dict[str, Estimate | Calibrated] = dataclasses.field(default_factory=dict)
    outside: float = 0.0  # share of its steps outside the data
    rows: float | None = None  # the effective sample size, where rows are weighed
    groups: int | None = None  # held-out groups that intervals are calibrated on
    unseen: list[str] = dataclasses.field(default_factory=list)  # costs that the log does not have


def judge(found: Trained, ready: Prepared, methods: tuple[str, ...], seed: int, level: float = LEVEL) -> list[Judged]:
    """Of each run the estimate by every method that can judge it, and how far the data carries it."""
    plan, place = found.config, found.folder or found.config.data
    where = [f"{place}: run {i}" for i in range(len(found.policies))]
    unseen = [why for why in never_seen(ready.dataset) if why is not None]
    told = [Judged(unseen=unseen) for _ in found.policies]
    if "ensemble" in methods:
        possible = _possible(ready.dataset, plan.horizon)
        for i, played in imagined(found, ready, seed).items():
            distance = ready.recorded.nearest(played.pairs, 1)[0]
            told[i].outside = float((distance > ready.recorded.radius).mean())
            told[i].groups = len(ready.calibration.truth)
            calibrated = Calibrated.of(played, ready.calibration, possible[1:, 1], level)
            unknown = doubts(told[i].outside, groups=told[i].groups, level=level)
            told[i].by_method["ensemble"] = calibrated.unknown(possible) if unknown else calibrated
    acting = [i for i, policy in enumerate(found.policies) if not remembers(policy)]
    acts = [_on_rows(found.policies[i], where[i], seed) for i in acting]
    if "model" in methods and acting:
        played_by_model = model.estimates(ready.models, acts, plan.horizon, np.random.default_rng([seed, 2]))
        for i, (own, share) in zip(acting, played_by_model, strict=True):
            told[i].by_method["model"] = own
            told[i].outside = told[i].outside if "ensemble" in methods else share
    if "fqe" in methods or "ratio" in methods:
        for i, act in zip(acting, acts, strict=True):
            rng = np.random.default_rng([seed, 4])  # the same for all policies
            linear, told[i].rows = bootstrap.estimates(Followed.of(ready.system, act), plan.horizon, rng)
            told[i].by_method |= {name: own for name, own in linear.items() if name in methods}
    return told


def _possible(dataset: Dataset, horizon: int) -> NDArray[np.float64]:
    """[1 + K, 2] what an episode can sum up to, at least and at most, from steps that were logged."""
    steps = np.column_stack([dataset.reward, dataset.cost]).astype(np.float64)
    ends = np.stack([np.minimum(steps.min(axis=0), 0), np.maximum(steps.max(axis=0), 0)], axis=1)  # it may end early
    ends[1:, 0] = 0.0
    return np.asarray(horizon * ends)


def imagined(found: Trained, ready: Prepared, seed: int) -> dict[int, imagine.Imagined]:
    """Episodes of every run in the ensemble, from starts of the data."""
    plan, place = found.config, found.folder or found.config.data
    rng = np.random.default_rng([seed, 10])
    played: dict[int, imagine.Imagined] = {}
    with progress() as bar:
        row = bar.add_task("imagined steps", total=0)
        for kind, count in ((False, STARTS), (True, STARTS_SLOW)):
            own = [i for i, policy in enumerate(found.policies) if slow(policy) == kind]
            if not own:
                continue
            bar.update(row, total=plan.horizon + (bar.tasks[row].total or 0))
            which = rng.integers(ready.dataset.n_episodes, size=(ready.ensemble.folds, count))
            starts = ready.dataset.initial_obs[which]
            begin = [_beginning(found.policies[i], seed, f"{place}: run {i}") for i in own]
            told = imagine.play(ready.ensemble, begin, starts, plan.horizon, seed, lambda: bar.advance(row))
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


def _run(found: Trained, i: int, told: Judged, method: str) -> OpeRun:
    plan, chosen = found.config, told.by_method[method]
    run, limit = plan.runs[i], plan.runs[i]["cost_limit"]
    if not all(np.isfinite(e.value).all() and np.isfinite(e.interval).all() for e in told.by_method.values()):
        raise PdocrlError(f"{found.folder or plan.data}: run {i}: an estimate is not finite.")
    if method == "ensemble":
        why = doubts(told.outside, groups=told.groups)
    else:
        why = doubts(told.outside, np.inf if told.rows is None else told.rows)
    # What is said of a policy the data does not know would be said by the features, not by the data.
    within = chosen.within(limit) if limit and not why else None
    if limit and told.unseen:  # what other costs break stands all the same
        why, within = why + told.unseen, None if within else within
    by_method = {name: EstimatedSums.of(own) for name, own in told.by_method.items()}
    sums = by_method[method]
    reward, reward_interval = reward_score(find_task(plan.task) if plan.task else None, chosen)
    cost, cost_interval = cost_score(chosen, limit)
    return OpeRun(
        agent=plan.agent,
        cost_limit=list(limit),
        seed=run["seed"],
        varied={name: value for name, value in run.items() if name not in {"cost_limit", "seed"}},
        reward=sums.reward,
        reward_interval=sums.reward_interval,
        cost=sums.cost,
        cost_interval=sums.cost_interval,
        normalized_reward=reward,
        normalized_reward_interval=reward_interval,
        normalized_cost=cost,
        normalized_cost_interval=cost_interval,
        within_limit=within,
        verdict=VERDICTS[within] if limit else "no limit",
        trusted=not why,
        doubts=why,
        outside=told.outside,
        effective_sample_size=told.rows,
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
