"""The policies of a training, judged on its own dataset: ope.json.

With `compare`, fitted Q evaluation stands beside the ensemble, a point without an interval.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.evaluate import DataName
from pdocrl.ope.ensemble.calibrate import Calibration
from pdocrl.ope.ensemble.fqe import Array
from pdocrl.ope.ensemble.judge import Judged, judge_each
from pdocrl.ope.ensemble.models import EnsembleConfig
from pdocrl.ope.ensemble.prepare import Prepared
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
from pdocrl.provenance import versions
from pdocrl.training.folder import Trained, load_trained

BEHAVIOURS = "behaviours"
METHODS = ("ensemble", BEHAVIOURS, "fqe")


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
    judged = judge_training(found, ready, seed, compare=compare)
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
        calibration=calibration_note(ready.calibration, dataset),
        behaviours=calibration_note(ready.behaviours.calibration, dataset),
        runs=[_run(found, i, told) for i, told in enumerate(judged)],
    )
    if found.folder is not None:
        write_ope(found.folder, result)
    return result


def judge_training(
    found: Trained, ready: Prepared, seed: int, level: float = LEVEL, compare: bool = False
) -> list[Judged]:
    """Of each run the estimate, and how far the data carries it."""
    place = found.folder or found.config.data
    where = [f"{place}: run {i}" for i in range(len(found.policies))]
    return judge_each(found.policies, where, ready, found.config.horizon, seed, level, compare)


def calibration_note(found: Calibration, dataset: Dataset) -> CalibrationNote:
    """For ope.json: what an estimate was calibrated on and how it did there."""
    signals = ["reward", *dataset.cost_names]

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
        skill=named(found.skill),
    )


def _run(found: Trained, i: int, told: Judged) -> OpeRun:
    plan, chosen = found.config, told.told
    run, limit = plan.runs[i], plan.runs[i]["cost_limit"]
    if not (np.isfinite(chosen.value).all() and np.isfinite(chosen.interval).all()):
        raise PdocrlError(f"{found.folder or plan.data}: run {i}: an estimate is not finite.")
    why = list(told.why)
    # What is said of a policy the data does not know would be said by the features, not by the data.
    within = chosen.within(limit) if limit and not why else None
    if asked := plan.limits_of(i):  # the intervals are of means
        words = ", ".join(map(str, asked))
        why, within = [*why, f"asked for {words}: a tail is not judged here; audit it (certify)"], None
    if limit and told.unseen:  # what other costs break stands all the same
        why, within = why + told.unseen, None if within else within
    by_method = {"ensemble": EstimatedSums.of(told.model if told.carried else chosen)}
    if told.similar is not None:
        by_method[BEHAVIOURS] = EstimatedSums.of(told.similar)
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
        decides=BEHAVIOURS if told.carried else METHODS[0],
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
                raise PdocrlError(f"{error} Name the training data with {by_door('data=…', '--data')}.") from error
            dataset = load(plan.task)
    if dataset.digest != plan.data_digest:
        raise PdocrlError(
            f"{place}: trained on data of digest {plan.data_digest[:12]}…, {dataset.name} has {dataset.digest[:12]}…; "
            f"give the file it was trained on with {by_door('data=…', '--data')}."
        )
    return dataset
