"""Any policies, judged on any dataset of vectors.

A policy is a function of observations [N, S] in the data's units, which returns actions [N, A] in the environment's
units or labels [N]; `module:name` of one; a training or its folder; or an .npz file of `pdocrl export`. Fitted Q
evaluation stands beside the ensemble, a point without an interval.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.bounds import to_unit
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope import assumptions
from pdocrl.ope.any_policy import RUN_FILE, imported, name_of
from pdocrl.ope.ensemble.judge import Judged, judge_each
from pdocrl.ope.ensemble.models import EnsembleConfig
from pdocrl.ope.ensemble.prepare import Prepared
from pdocrl.ope.estimators.on_policy import of_totals
from pdocrl.ope.result import (
    LEVEL,
    DeciderReport,
    EstimatedSums,
    EstimatorReport,
    LimitVerdict,
    OpeReport,
    PolicyReport,
    Told,
    Verdict,
)
from pdocrl.ope.verdicts import together
from pdocrl.policies import policy as policies_of
from pdocrl.training.folder import Trained, load_trained

NAME, FQE = "dynamics ensemble", "fitted Q evaluation (random features)"
LIKE_IT = "logged behaviours like it"


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
