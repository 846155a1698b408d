"""`certify` from episodes that were played: a file of them, of anybody's policy or of a training's, or a simulator.

a file of episodes              ─▶ one statement per cost
a training, a file of episodes  ─▶ each policy's own episodes against its own limits
a training, a simulator         ─▶ episodes until the answer is there

A bound on a mean rests on the most an episode can cost. Where nobody says, a training's data does: its horizon times
the costliest logged step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, by_door
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope.certify.audit import Audited, audit_statement, limit_statement, play_until_shown, read_audit
from pdocrl.ope.certify.certificate import PolicyCertificate, Shown
from pdocrl.ope.ensemble.of_training import training_data
from pdocrl.ope.result import FILE, read_ope
from pdocrl.training.folder import Trained, load_trained

Floats = NDArray[np.float64]


def certify_episodes(
    path: str | os.PathLike[str],
    cost_limit: Sequence[float] = (),
    *,
    limits: Limits = (),
    confidence: float = 0.95,
    largest_cost: Sequence[float] = (),
) -> tuple[PolicyCertificate, list[Shown]]:
    """From a file of audited episodes alone: one statement per limit; `cost_limit` limits the mean of every column."""
    found = read_audit(Path(path))
    names = list(found.costs)
    held = as_limits(limits)
    means = _per_cost(cost_limit, names, f"{path}", "cost_limit") if cost_limit or not held else []
    largest = _per_cost(largest_cost, names, f"{path}", "largest_cost") if largest_cost else [None] * len(names)
    panels = []
    for limit in held:
        k = limit.index(names)
        costs = found.costs[names[k]]
        panels.append(Shown(limit_statement(costs, limit, confidence, largest[k], policy=found.name), played=costs))
    for name, mean, most in zip(names if means else (), means, largest if means else (), strict=True):
        costs = found.costs[name]
        told = audit_statement(costs, mean, confidence, most, policy=found.name, cost=name)
        panels.append(Shown(told, played=costs))
    runs = 0 if found.run is None else len(np.unique(found.run))
    notes = (
        [f"{found.name} has episodes of {runs} policies (`run`), judged here as if they were one."] if runs > 1 else []
    )
    return PolicyCertificate.of([panel.statement for panel in panels], notes), panels


def certify_audited(
    trained: Trained | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    run: int | None = None,
    data: str | os.PathLike[str] | None = None,
    confidence: float = 0.95,
    largest_cost: Sequence[float] = (),
) -> tuple[PolicyCertificate, list[Shown]]:
    """The policies of a training by episodes they played, against the limits they were trained for.

    Which run played an episode is said by a column `run` (0, 1, …, in the plan's order), or by `run` for all of them.
    """
    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan, place = found.config, found.folder or found.config.data
    episodes = read_audit(Path(path))
    columns = [_column(episodes, name, len(plan.cost_names), str(path)) for name in plan.cost_names]
    stated, guessed = _largest(found, largest_cost, data)
    beside = _estimates(found)
    panels = []
    for i, rows in _by_run(found, episodes, run, str(path)).items():
        own = np.array([column[rows] for column in columns]).T  # [n, K]
        if asked := plan.limits_of(i):
            panels += _by_asked(found, i, own, asked, confidence, stated, guessed, "audit")
            continue
        for k, limit in enumerate(plan.runs[i]["cost_limit"]):
            costs = own[:, k]
            told = audit_statement(
                costs,
                limit,
                confidence,
                stated[k],
                guessed[k],
                policy=policy_name(found, i),
                cost=plan.cost_names[k],
                estimate_beside=beside[i][k] if beside else None,
            )
            panels.append(Shown(told, played=costs))
    if not panels:
        raise PdocrlError(f"{place}: trained without a cost limit; nothing to certify.")
    judged = {panel.statement.policy for panel in panels}
    left = len(found.policies) - len(judged)
    notes = [f"{left} of {len(found.policies)} policies have no episodes in {Path(path).name}."] if left else []
    return PolicyCertificate.of([panel.statement for panel in panels], notes), panels


def certify_simulator(
    trained: Trained | str | os.PathLike[str],
    episodes: int,
    *,
    data: str | os.PathLike[str] | None = None,
    confidence: float = 0.95,
    largest_cost: Sequence[float] = (),
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    fixed: bool = False,
) -> tuple[PolicyCertificate, list[Shown]]:
    """Audit every policy in the simulator with at most so many episodes; without `fixed`, as few as it takes."""
    from pdocrl.envs.rollout import Rollouts

    found = trained if isinstance(trained, Trained) else load_trained(trained)
    plan, place = found.config, found.folder or found.config.data
    name = task or plan.task
    spec = find_task(name) if name else None
    if spec is None or spec.env_id is None:
        raise PdocrlError(f"{place}: no simulator known for this data; name the task ({by_door('task=…', '--task')}).")
    costs = plan.cost_names
    stated, guessed = _largest(found, largest_cost, data)
    beside = _estimates(found)
    panels = []
    with progress() as bar, Rollouts(spec.name, workers, tuple(costs)) as pool:
        row = bar.add_task(f"{spec.name}: episodes, at most", total=episodes * len(found.policies))
        for i, policy in enumerate(found.policies):
            limits = plan.runs[i]["cost_limit"]

            def play(first: int, count: int, policy: Any = policy) -> Floats:
                played = pool.run(policy, count, seed, progress=lambda: bar.advance(row), first=first)
                return np.asarray(played.cost, np.float64)

            asked = plan.limits_of(i)  # bounds on tails hold for a number of episodes fixed beforehand
            seen = play_until_shown(play, episodes, limits, confidence, stated, fixed or bool(asked), guessed)
            bar.update(row, completed=episodes * (i + 1))
            if asked:
                panels += _by_asked(found, i, seen, asked, confidence, stated, guessed, "simulator")
                continue
            for k, limit in enumerate(limits):
                told = audit_statement(
                    seen[:, k],
                    limit,
                    confidence,
                    stated[k],
                    guessed[k],
                    policy=policy_name(found, i),
                    cost=costs[k],
                    basis="simulator",
                    stopped=not fixed,
                    estimate_beside=beside[i][k] if beside else None,
                )
                panels.append(Shown(told, played=seen[:, k]))
    if not panels:
        raise PdocrlError(f"{place}: trained without a cost limit; nothing to certify.")
    notes = [] if fixed else ["Playing stopped as soon as the answer was there; all bounds hold for that."]
    return PolicyCertificate.of([panel.statement for panel in panels], notes), panels


def _largest(
    found: Trained, given: Sequence[float], data: str | os.PathLike[str] | None
) -> tuple[list[float | None], list[float | None]]:
    """[K] what an episode can cost at most: as somebody stated, and as the training's data has it where nobody did."""
    plan = found.config
    nothing: list[float | None] = [None] * len(plan.cost_names)
    if given:
        return list(_per_cost(given, plan.cost_names, str(found.folder or plan.data), "largest_cost")), nothing
    try:
        costliest = training_data(found, data).cost.max(axis=0).astype(np.float64)
    except PdocrlError:
        return nothing, nothing
    return nothing, [plan.horizon * step if step > 0 else None for step in costliest.tolist()]


def _by_asked(
    found: Trained,
    i: int,
    costs: Floats,
    asked: Sequence[Limit],
    confidence: float,
    stated: Sequence[float | None],
    guessed: Sequence[float | None],
    basis: Literal["audit", "simulator"],
) -> list[Shown]:
    """One statement per limit of run i, from the costs [n, K] of its episodes."""
    names, policy, panels = found.config.cost_names, policy_name(found, i), []
    for limit in asked:
        k = limit.index(names)
        told = limit_statement(costs[:, k], limit, confidence, stated[k], guessed[k], policy=policy, basis=basis)
        panels.append(Shown(told, played=costs[:, k]))
    return panels


def policy_name(found: Trained, i: int) -> str:
    """Run i in words."""
    run = found.config.runs[i]
    limits = ", ".join(run.get("limits", []) or [f"{value:g}" for value in run["cost_limit"]])
    others = "".join(f", {k} {v}" for k, v in run.items() if k not in {"cost_limit", "limits", "seed"})
    return f"{found.config.agent}, limit {limits}, seed {run['seed']}{others}"


def _column(episodes: Audited, name: str, count: int, path: str) -> Floats:
    """The costs of one constraint: under its name, or the only ones there are."""
    found = [own for own in (name, f"cost_{name}") if own in episodes.costs]
    if not found and count == len(episodes.costs) == 1:
        found = list(episodes.costs)
    if not found:
        columns = ", ".join(f"`{own}`" for own in episodes.costs)
        raise PdocrlError(f"{path}: no column for the cost `{name}` of the training; its columns are {columns}.")
    return episodes.costs[found[0]]


def _by_run(found: Trained, episodes: Audited, run: int | None, path: str) -> dict[int, NDArray[np.int64]]:
    """The rows of each run that has any."""
    count, given = len(found.policies), episodes.run
    if run is not None and not 0 <= run < count:
        raise PdocrlError(f"{by_door('run', '--run')} is {run}; the runs of {found.folder} are 0 … {count - 1}.")
    if given is None:
        if run is None and count > 1:
            raise PdocrlError(
                f"{path}: which of the {count} policies played? Add a column `run` (0 … {count - 1}, in the order of "
                "`pdocrl ope`), or name one for all episodes: " + by_door("run=0.", "--run 0.")
            )
        return {run or 0: np.arange(len(next(iter(episodes.costs.values()))))}
    wrong = np.flatnonzero((given < 0) | (given >= count) | (given != np.round(given)))
    if len(wrong):
        raise PdocrlError(f"{path}: `run` of episode {wrong[0] + 1} is {given[wrong[0]]:g}; runs are 0 … {count - 1}.")
    asked = sorted(set(given.astype(int).tolist())) if run is None else [run]
    rows = {i: np.flatnonzero(given == i) for i in asked}
    if not all(len(own) for own in rows.values()):
        raise PdocrlError(f"{path}: no episode of run {run}.")
    return rows


def _estimates(found: Trained) -> list[list[float]] | None:
    """[runs][K] what `pdocrl ope` said, where it was asked before."""
    if found.folder is None or not (found.folder / FILE).is_file():
        return None
    told = read_ope(found.folder).runs
    return [one.cost for one in told] if len(told) == len(found.policies) else None


def _per_cost(values: Sequence[float], names: Sequence[str], where: str, keyword: str) -> list[float]:
    """One number per cost."""
    option = by_door(keyword, f"--{keyword.replace('_', '-')}")
    if not values:
        raise PdocrlError(f"{where}: what may an episode cost? Give {option}, such as 10.")
    if len(values) != len(names):
        raise PdocrlError(
            f"{where}: {len(values)} numbers in {option} for {len(names)} costs ({', '.join(names)}); give one each."
        )
    wrong = [value for value in values if not np.isfinite(value) or value < 0]
    if wrong:
        raise PdocrlError(f"{option} is {wrong[0]:g}, must be a number of at least 0.")
    return [float(value) for value in values]
