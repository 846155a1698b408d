"""`pdocrl.certify`: whether policies satisfy their limits, from whatever there is, as one certificate.

a policy, a log of discrete decisions, limits    ─▶ `log.certify_any`
a training, another log                          ─▶ `training.certify_log`
a training, a simulator or played episodes       ─▶ `played`
a file of played episodes, limits                ─▶ `played.certify_episodes`
a folder of `pdocrl solve`                       ─▶ `training.certify_solved`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError, by_door
from pdocrl.limits import Limits, as_limits
from pdocrl.ope.certify import played, training
from pdocrl.ope.certify.certificate import PolicyCertificate, Shown
from pdocrl.ope.certify.log import Costs, certify_any, certify_in_parts
from pdocrl.ope.entry import is_training, read_log
from pdocrl.ope.parts import in_parts, with_own_propensity
from pdocrl.records import write_record
from pdocrl.training.folder import Trained


def certify(
    policy: Any = None,
    log: Any = None,
    limits: Limits = (),
    *,
    learn: Callable[..., Any] | None = None,
    held_out: Any = None,
    data: Any = None,
    audit: str | os.PathLike[str] | None = None,
    run: int | None = None,
    episodes: int | None = None,
    fixed: bool = False,
    task: str | None = None,
    cost_limit: Sequence[float] = (),
    confidence: float = 0.95,
    largest_cost: Costs = None,
    model_selection: bool = False,
    regressor: str = "linear",
    stream: bool | None = None,
    seed: int = 0,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **columns: Any,
) -> PolicyCertificate:
    """Say whether policies satisfy their limits, how sure that is, and what it rests on.

    Args:
        policy: a training or its folder; a folder of `pdocrl solve`; with `log`, any policy or several candidates, of
            which one is chosen on one part of the log and judged on the other; None for a file of episodes.
        log: a log of discrete decisions, an `EventLog` or what one is read from.
        limits: on means and tails of episodes, with `log` or `audit`.
        learn: with `log`: makes a policy from one part of it (an `EventLog`); the other part judges.
        held_out: of a training: a log that had no part in choosing its policies.
        data: of a training: its data, when it is no longer where it was.
        audit: a file of episodes that were played, a row each.
        run: whose policy of a training played them, where the file does not say.
        episodes: of a training: play at most so many episodes of each policy in the simulator.
        fixed: play all of them; the share over the limit then has its exact bound.
        task: the task to play, when the training did not name one.
        cost_limit: of an audit: limits on the mean of every cost column.
        confidence: of every statement.
        largest_cost: what an episode can cost at most, one number or one per cost; bounds on means rest on it.
        model_selection: of a training and a log: learn the dynamics in two ways, keep what predicts best.
        regressor: of fitted Q evaluation, with `log`.
        stream: of `log`: read it part by part; default: files of more than 3,000,000 rows are.
        seed: of splits, models and the simulator.
        workers: processes that play.
        out: a folder for certificate.json and certificate.png; default: that of the policy, where it has one.
        columns: names of columns of `log`, as `EventLog.read` takes them.
    """
    if not 0 < confidence < 1:
        raise PdocrlError(f"confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    most = _listed(largest_cost)
    if log is not None:
        from pdocrl.data.event_log import EventLog

        if not isinstance(log, EventLog) and in_parts(log, stream):
            if regressor != "linear":
                raise PdocrlError("`regressor` is for logs in memory.")
            certificate = certify_in_parts(
                policy,
                log,
                limits,
                learn=learn,
                confidence=confidence,
                largest_cost=largest_cost,
                seed=seed,
                **with_own_propensity(log, columns),
            )
        else:
            certificate = certify_any(
                policy,
                log if isinstance(log, EventLog) else read_log(log, policy, limits, **columns),
                limits,
                learn=learn,
                confidence=confidence,
                largest_cost=largest_cost,
                regressor=regressor,
                seed=seed,
            )
        return _kept(certificate, [], out)
    if as_limits(limits) and (policy is not None or audit is None):
        way = by_door("log or audit", "--log FILE or --audit FILE")
        raise PdocrlError(f"limits are for {way}; a trained policy has those it was trained for.")
    if policy is None:
        if audit is None:
            raise PdocrlError(
                "nothing to certify: give a folder, a policy with "
                + by_door("a log, or audit=FILE with limits.", "--log FILE, or --audit FILE with limits.")
            )
        found = played.certify_episodes(audit, cost_limit, limits=limits, confidence=confidence, largest_cost=most)
        return _kept(*found, out)
    if len(cost_limit):
        way = by_door("cost_limit is for audit", "--cost-limit is for --audit FILE")
        raise PdocrlError(f"{way} alone; a trained policy has the limit it was trained for.")
    folder = policy.folder if isinstance(policy, Trained) else Path(policy)
    if not is_training(policy) and folder is not None and (folder / "result.json").is_file():
        if audit is not None:
            way = by_door("audit=FILE, cost_limit=[N]", "--audit FILE --cost-limit N")
            raise PdocrlError(f"{policy}: solved from a log; certify its episodes alone: {way}.")
        found = training.certify_solved(folder)
    elif audit is not None:
        found = played.certify_audited(policy, audit, run=run, data=data, confidence=confidence, largest_cost=most)
    elif episodes is not None:
        found = played.certify_simulator(
            policy,
            episodes,
            data=data,
            confidence=confidence,
            largest_cost=most,
            task=task,
            seed=seed,
            workers=workers,
            fixed=fixed,
        )
    else:
        found = training.certify_log(
            policy, held_out, data, confidence=confidence, seed=seed, model_selection=model_selection
        )
    return _kept(*found, out if out is not None else folder)


def _listed(largest_cost: Costs) -> list[float]:
    if largest_cost is None:
        return []
    if isinstance(largest_cost, Mapping):
        return list(largest_cost.values())
    return [float(largest_cost)] if isinstance(largest_cost, int | float) else list(largest_cost)


def _kept(certificate: PolicyCertificate, panels: list[Shown], out: str | os.PathLike[str] | None) -> PolicyCertificate:
    if out is not None:
        if panels:
            training.keep(certificate, panels, Path(out))
        else:
            write_record(Path(out) / "certificate.json", certificate)
    return certificate
