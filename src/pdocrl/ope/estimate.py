"""`ope`: what trained policies earn and cost over an episode, and whether they keep their limits, from data alone.

folder, dataset ─▶ Log ─┬─▶ models ─▶ episodes played in them ─┬─▶ estimates, intervals ─▶ verdict, doubts ─▶ ope.json
                        └─▶ one linear system ─▶ Q, w          ┘
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.console import progress
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.files import write_json
from pdocrl.ope import bootstrap, model
from pdocrl.ope.features import RandomFeatures
from pdocrl.ope.linear import Act, Followed, System
from pdocrl.ope.log import Array, Log
from pdocrl.ope.result import FILE, LEVEL, VERDICTS, Estimate, OffPolicy, normalised
from pdocrl.ope.support import doubts
from pdocrl.policies.policy import CandidatePolicy, Policy, WorldPolicy
from pdocrl.training.folder import Trained, load_trained
from pdocrl.training.plan import versions

METHODS = ("model", "fqe", "ratio")
RESAMPLES = 20  # redrawn datasets, each with a model of its own
LINEAR_ROWS = 4_000  # of the linear system, whose cost per policy is rows × features × horizon
LINEAR_FEATURES = 200


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """What does not depend on any policy: fitted once, it serves every folder that was trained on the data."""

    dataset: Dataset
    models: model.Models
    system: System
    resamples: int
    seed: int

    @staticmethod
    def of(dataset: Dataset, resamples: int = RESAMPLES, seed: int = 0) -> Prepared:
        if resamples < 2:
            raise PdocrlError(f"resamples is {resamples}, must be at least 2 for an interval.")
        if seed < 0:
            raise PdocrlError(f"seed is {seed}, must be at least 0.")
        log = Log.of(dataset)
        with progress() as bar:
            row = bar.add_task("models of the data", total=resamples)
            rng = np.random.default_rng([seed, 0])
            models = model.Models.fit(log, resamples, rng, advance=lambda: bar.advance(row))
        rng = np.random.default_rng([seed, 1])
        thinned = log.thin(LINEAR_ROWS, rng)
        features = RandomFeatures.draw(thinned.pairs, LINEAR_FEATURES, model.SMOOTH, rng)
        return Prepared(dataset, models, System.of(thinned, features), resamples, seed)


def estimate(
    trained: Trained | str | os.PathLike[str],
    data: Prepared | Dataset | str | os.PathLike[str] | None = None,
    *,
    method: str = "model",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> OffPolicy:
    """Estimate the undiscounted reward and costs of an episode for the policy of every run, by every method.

    `method` chooses whose numbers the verdict is made of. The data is looked for where the training had it, unless it
    is given; it must be the same data. With a folder, the result is also written there as ope.json.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS, f"Known: {', '.join(METHODS)}.")
    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan, place = found.plan, found.folder or found.plan.data
    acts = [_on_rows(policy, f"{place}: run {i}", seed) for i, policy in enumerate(found.policies)]
    dataset = _data(found, data.dataset if isinstance(data, Prepared) else data)
    ready = data if isinstance(data, Prepared) else Prepared.of(dataset, resamples, seed)
    by_model = model.estimates(ready.models, acts, plan.horizon, np.random.default_rng([seed, 2]))
    runs = []
    with progress() as bar:
        row = bar.add_task("policies", total=len(acts))
        for i, (act, (played, outside)) in enumerate(zip(acts, by_model, strict=True)):
            rng = np.random.default_rng([seed, 4])  # the same for all policies
            linear, effective_rows = bootstrap.estimates(Followed.of(ready.system, act), plan.horizon, rng)
            runs.append(_run(found, i, {"model": played, **linear}, method, outside, effective_rows))
            bar.advance(row)
    result = OffPolicy(
        task=plan.task,
        agent=plan.agent,
        method=method,
        level=LEVEL,
        horizon=plan.horizon,
        data={"name": Path(plan.data).name, "digest": plan.data_digest},
        step=found.step,
        versions=versions(),
        settings={"resamples": ready.resamples, "seed": ready.seed},
        runs=runs,
    )
    if found.folder is not None:
        write_json(found.folder / FILE, result.as_dict())
    return result


def _run(
    found: Trained, i: int, by_method: dict[str, Estimate], method: str, outside: float, effective_rows: float
) -> dict[str, Any]:
    plan, chosen = found.plan, by_method[method]
    run, limit = plan.runs[i], plan.runs[i]["cost_limit"]
    if not all(np.isfinite(e.value).all() and np.isfinite(e.resampled).all() for e in by_method.values()):
        raise PdocrlError(f"{found.folder or plan.data}: run {i}: an estimate is not finite.")
    why = doubts(outside, effective_rows)
    # What is said of a policy the data does not know would be said by the features, not by the data.
    within = chosen.within(limit) if limit and not why else None
    return {
        "agent": plan.agent,
        **run,
        **chosen.as_dict(),
        **normalised(find_task(plan.task) if plan.task else None, chosen, limit),
        "within_limit": within,
        "verdict": VERDICTS[within] if limit else "no limit",
        "trusted": not why,
        "doubts": why,
        "outside": outside,
        "effective_sample_size": effective_rows,
        "by_method": {name: own.as_dict() for name, own in by_method.items()},
    }


def _data(found: Trained, given: Dataset | str | os.PathLike[str] | None) -> Dataset:
    """The data of the training: given, or where it was, or under the task's name; always the same bits."""
    plan, place = found.plan, found.folder or found.plan.data
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
    """The policy as a function of rows of observations, to actions in [−1, 1] as the data holds them.

    Refused where an action needs more than the observation.
    """
    scales = policy.scales if isinstance(policy, WorldPolicy) else None
    policy = policy.network if isinstance(policy, WorldPolicy) else policy
    if isinstance(policy, CandidatePolicy):
        proposals = np.random.default_rng([seed, 3])

        def act(obs: Array) -> Array:
            latent = proposals.standard_normal((len(obs), policy.candidates, policy.latent_dim), np.float32)
            return policy.act(obs, latent)

    elif hasattr(policy, "begin"):
        raise PdocrlError(
            f"{where}: a policy of kind `{policy.kind}` acts on the episode so far, not on an observation alone, so it "
            "cannot be estimated from rows. Play it: pdocrl evaluate."
        )
    else:
        act = policy

    def checked(obs: Array) -> Array:
        action = act(obs if scales is None else scales.standardised(obs))
        if not np.isfinite(action).all():
            raise PdocrlError(f"{where}: the policy's action is not finite at an observation of the data.")
        return action

    return checked
