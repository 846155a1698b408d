"""Policies judged on a dataset of vectors, by rollouts in its learned dynamics.

policy ─▶ rollouts in the ensemble ─▶ estimates, calibrated intervals ─▶ verdicts, warnings

    estimate        the policies of a training, on its own dataset     ─▶ OffPolicy (ope.json)
    judge_dataset   any policies, on any dataset                       ─▶ OpeReport

A policy is a function of observations [N, S] in the data's units, which returns actions [N, A] in the environment's
units or labels [N]; `module:name` of one; a training or its folder; or an .npz file of `pdocrl export`. With `compare`,
fitted Q evaluation stands beside it, a point without an interval.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.data import load
from pdocrl.data.bounds import to_unit
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.evaluate import DataName
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope import assumptions
from pdocrl.ope.any_policy import RUN_FILE, imported, name_of
from pdocrl.ope.ensemble.calibrate import Calibrated, Calibration
from pdocrl.ope.ensemble.fqe import Act, Array
from pdocrl.ope.ensemble.models import EnsembleConfig
from pdocrl.ope.ensemble.opinions import Similar
from pdocrl.ope.ensemble.opinions import together as both_of
from pdocrl.ope.ensemble.prepare import Prepared
from pdocrl.ope.ensemble.rollouts import Rollouts, StepMany, begin_many, on_rows, play, remembers, slow
from pdocrl.ope.ensemble.support import never_seen, support_warnings
from pdocrl.ope.estimators.on_policy import of_totals
from pdocrl.ope.result import (
    LEVEL,
    VERDICTS,
    CalibrationNote,
    DeciderReport,
    EstimatedSums,
    EstimatorReport,
    GroupPoints,
    LimitVerdict,
    OffPolicy,
    OpeReport,
    OpeRun,
    OpeSettings,
    PolicyReport,
    Told,
    Verdict,
    cost_score,
    reward_score,
    write_ope,
)
from pdocrl.ope.verdicts import together
from pdocrl.policies import policy as policies_of
from pdocrl.policies.policy import Policy
from pdocrl.provenance import versions
from pdocrl.training.folder import Trained, load_trained

NAME, FQE = "dynamics ensemble", "fitted Q evaluation (random features)"
BEHAVIOURS = "behaviours"
METHODS = ("ensemble", BEHAVIOURS, "fqe")
LIKE_IT = "logged behaviours like it"
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


def judge_training(
    found: Trained, ready: Prepared, seed: int, level: float = LEVEL, compare: bool = False
) -> list[Judged]:
    """Of each run the estimate, and how far the data carries it."""
    place = found.folder or found.config.data
    where = [f"{place}: run {i}" for i in range(len(found.policies))]
    return judge_each(found.policies, where, ready, found.config.horizon, seed, level, compare)


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


def _on_rows(policy: Policy, where: str, seed: int) -> Act:
    """The policy as a function of rows of observations; proposals are drawn anew at every row."""
    step = begin_many(policy, 0, seed, where)
    nothing = np.zeros(0)

    def act(obs: Array) -> Array:
        return step(obs, nothing, nothing)

    return act


@dataclasses.dataclass(frozen=True)
class Acting:
    """A function of observations as a policy on a dataset: actions in [−1, 1], or one-hot."""

    function: Callable[[Any], Any]
    dataset: Dataset
    name: str

    def __call__(self, obs: NDArray[Any]) -> NDArray[Any]:
        found = np.asarray(self.function(obs))
        labels = self.dataset.discrete_actions
        shape = (len(obs),) if labels else (len(obs), self.dataset.action_dim)
        if found.shape != shape:
            raise PdocrlError(f"{self.name}: gave actions of shape {found.shape}, expected {shape}.")
        if labels:
            return np.asarray(found[:, None] == np.asarray(labels), np.float32)
        return np.asarray(to_unit(found.astype(np.float32), self.dataset.action_bounds), np.float32)


def judge_dataset(
    policies: Any,
    data: Dataset | Prepared,
    limits: Limits = (),
    *,
    confidence: float = LEVEL,
    horizon: int | None = None,
    config: EnsembleConfig | None = None,
    model_selection: bool = False,
    seed: int = 0,
) -> OpeReport:
    """Estimate reward and costs of policies, and give a verdict on each limit on a mean.

    Args:
        policies: one, a list, or {name: policy}.
        data: the dataset, or what was prepared of it.
        limits: on undiscounted costs of an episode.
        confidence: of intervals and verdicts.
        horizon: the steps of an episode; default: of the longest in the data.
        config: of the ensemble.
        model_selection: learn the dynamics in two ways and keep what predicts held-out episodes best.
        seed: of models and rollouts.
    """
    ready = data if isinstance(data, Prepared) else Prepared.of(data, seed, config, model_selection=model_selection)
    dataset = ready.dataset
    held = as_limits(limits)
    for limit in held:
        limit.index(dataset.cost_names)
    acting = _named(policies, dataset)
    steps = dataset.longest_episode if horizon is None else horizon
    judged = judge_each(list(acting.values()), list(acting), ready, steps, seed, confidence, compare=True)
    totals = np.stack([np.asarray(x, np.float64) for x in (dataset.reward_return, *dataset.cost_return.T)])
    means = [of_totals(own, "total", confidence) for own in totals]
    return OpeReport(
        log=dataset.name,
        rows=len(dataset),
        episodes=dataset.n_episodes,
        actions=[str(label) for label in dataset.discrete_actions],
        costs=list(dataset.cost_names),
        propensities="not used",
        discount=1.0,
        confidence=confidence,
        limits=[str(limit) for limit in held],
        logged=DeciderReport(
            name="logged decisions",
            episodes=dataset.n_episodes,
            reward=float(totals[0].mean()),
            reward_interval=means[0].interval,
            cost=totals[1:].mean(axis=1).tolist(),
            cost_interval=[one.interval for one in means[1:]],
            within=[
                limit.satisfied(totals[1 + limit.index(dataset.cost_names)]) for limit in held if limit.measure != "max"
            ],
        ),
        deciders=[],
        policies=[_report(name, told, held, dataset, confidence) for name, told in zip(acting, judged, strict=True)],
        choice=None,
        warnings=[],
    )


def _named(policies: Any, dataset: Dataset) -> dict[str, Any]:
    given = policies if isinstance(policies, dict) else None
    listed = (
        list(given.values()) if given is not None else policies if isinstance(policies, list | tuple) else [policies]
    )
    names = list(given) if given is not None else [name_of(one) for one in listed]
    found: dict[str, Any] = {}
    for name, policy in zip(names, listed, strict=True):
        several = _several(policy, name, dataset)
        for i, one in enumerate(several):
            found[f"{name} (run {i})" if len(several) > 1 else str(name)] = one
    return found


def _several(policy: Any, name: str, dataset: Dataset) -> list[Any]:
    if isinstance(policy, str | os.PathLike):
        path = Path(policy)
        if (path / RUN_FILE).is_file():
            return list(load_trained(path).policies)
        if path.suffix == ".npz":
            return [policies_of.load(path)]
        if ":" not in str(policy):
            raise PdocrlError(f"{policy}: neither a folder of pdocrl train, nor an .npz file, nor `module:name`.")
        policy = imported(str(policy))
    if isinstance(policy, Trained):
        return list(policy.policies)
    if hasattr(policy, "network") or hasattr(policy, "begin"):
        return [policy]
    if not callable(policy):
        raise PdocrlError(f"{name}: a policy on {dataset.name} is a function of observations [N, S].")
    return [Acting(policy, dataset, name)]


def _report(name: str, told: Judged, limits: tuple[Limit, ...], dataset: Dataset, confidence: float) -> PolicyReport:
    why = told.why + told.unseen

    def estimate_of(name: str, told: Told, usable: bool, assumed: list[str]) -> EstimatorReport:
        sums = EstimatedSums.of(told)
        return EstimatorReport(
            estimator=name,
            reward=sums.reward,
            reward_interval=sums.reward_interval,
            cost=list(sums.cost),
            cost_interval=list(sums.cost_interval or []),
            ess=None,
            largest_weight=None,
            usable=usable,
            assumptions=assumed,
        )

    by_model = told.model if told.carried else told.told
    estimates = [estimate_of(NAME, by_model, not why and not told.carried, assumptions.DYNAMICS)]
    if told.similar is not None:
        usable = not why and bool(told.similar.usable.all())
        estimates.append(estimate_of(LIKE_IT, told.similar, usable, assumptions.BEHAVIOURS))
    if told.fqe is not None and np.isfinite(told.fqe).all():
        estimates.append(
            EstimatorReport(
                estimator=FQE,
                reward=float(told.fqe[0]),
                reward_interval=None,
                cost=told.fqe[1:].tolist(),
                cost_interval=[None] * (len(told.fqe) - 1),
                ess=None,
                largest_weight=None,
                usable=False,
                assumptions=assumptions.DYNAMICS[1:],
            )
        )
    verdicts = [_verdict(limit, told, limit.index(dataset.cost_names), why) for limit in limits]
    return PolicyReport(
        name=name,
        verdict=together(verdicts),
        limits=verdicts,
        estimates=estimates,
        decides=LIKE_IT if told.carried else NAME,
        distribution=[],
        overlap=[],
        disagreement={},
        assumptions=assumptions.BEHAVIOURS if told.carried else assumptions.DYNAMICS,
        warnings=why,
    )


def _verdict(limit: Limit, told: Judged, k: int, why: list[str]) -> LimitVerdict:
    own = told.told
    low, high, value = float(own.below[k]), float(own.above[k]), float(own.value[1 + k])
    side: Verdict = "not shown"
    if limit.measure != "mean" or limit.sense == ">=":
        words = "the ensemble is calibrated for upper limits on mean costs alone"
    elif why:
        words = why[0]
    else:
        side = "within" if high <= limit.value else "over" if low > limit.value else "not shown"
        source = LIKE_IT if told.carried else f"the {NAME}"
        words = f"{limit.left} in [{low:.4g}, {high:.4g}] by {source}, limit {limit.value:g}"
    return LimitVerdict(
        limit=str(limit),
        verdict=side,
        estimator=LIKE_IT if told.carried else NAME,
        value=value if limit.measure == "mean" else None,
        lower=low if limit.measure == "mean" else None,
        upper=high if limit.measure == "mean" else None,
        p_value=1.0,
        confounding=None,
        why=words,
    )
