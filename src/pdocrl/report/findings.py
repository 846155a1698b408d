"""What the numbers of a training say, in sentences: each is derived from the record, none is written beforehand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pdocrl.report.figures import largest_ratio
from pdocrl.report.record import Group, Record


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the headline table: a limit's policies over all their episodes."""

    group: Group
    score: dict[str, Any]  # of `pdocrl.scores.score.Score`: normalised reward and cost with 95 % intervals, safe
    reward: float  # mean return of an episode
    cost: tuple[float, ...]  # mean costs of an episode
    over: int  # episodes that cost more than the limit
    episodes: int
    best_logged: float | None  # highest return of a logged episode within the limit; None: there is none, or no data


def table(record: Record) -> list[Row]:
    """The headline table; empty before `evaluate`."""
    if record.scores is None:
        return []
    summary = record.scores["summary"]
    scored = [score for variant in summary.get("variants", [summary]) for score in variant["by_limit"]]
    rows: list[Row] = []
    for group in _in_order_of_scores(record):
        episodes = [e for i in group.runs for e in record.scores["runs"][i]["episodes"]]
        cost = np.array([np.atleast_1d(e["cost"]) for e in episodes]).reshape(len(episodes), -1)
        over = (cost > np.asarray(group.limit)).any(axis=1)
        rows.append(
            Row(
                group=group,
                score=scored[len(rows)],
                reward=float(np.mean([e["reward"] for e in episodes])),
                cost=tuple(cost.mean(axis=0).tolist()),
                over=int(over.sum()),
                episodes=len(episodes),
                best_logged=_best_logged(record, group.limit),
            )
        )
    order = {group.label: i for i, group in enumerate(record.groups)}
    return sorted(rows, key=lambda row: order[row.group.label])


def _in_order_of_scores(record: Record) -> list[Group]:
    """Groups as scores.json lists them: variant by variant, limit by limit."""
    variants: dict[tuple[str, ...], list[Group]] = {}
    for group in record.groups:
        run = record.plan.runs[group.runs[0]]
        settings = tuple(str(value) for name, value in run.items() if name not in {"cost_limit", "seed"})
        variants.setdefault(settings, []).append(group)
    return [group for groups in variants.values() for group in groups]


def _best_logged(record: Record, limit: tuple[float, ...]) -> float | None:
    if record.dataset is None:
        return None
    within = (record.dataset.cost_return <= np.asarray(limit)).all(axis=1)
    return float(record.dataset.reward_return[within].max()) if within.any() else None


def lead(record: Record, rows: list[Row]) -> str:
    """The result in one or two sentences."""
    if not rows:
        return f"Trained for {record.trained.step:,} steps, not yet played in the simulator."
    kept = sum(row.score["safe"] for row in rows)
    episodes = sum(row.episodes for row in rows)
    if not record.plan.cost_names:
        whose = "Played"
    elif len(rows) == 1:
        whose = "The policy keeps its cost limit" if kept else "The policy does not keep its cost limit"
    else:
        whose = f"{'All' if kept == len(rows) else f'{kept} of'} {len(rows)} policies keep their cost limit"
    rewards = [row.score["reward"] for row in rows]
    low, high = min(rewards), max(rewards)
    earned = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    return (
        f"{whose} over {episodes} episodes in the real simulator. "
        f"Normalised reward {earned}, learned from {_episodes_of(record)} alone."
    )


def _episodes_of(record: Record) -> str:
    return "logged data" if record.dataset is None else f"{record.dataset.n_episodes:,} logged episodes"


def findings(record: Record, rows: list[Row]) -> list[str]:
    """What a careful reader would point out."""
    found = [_unsafe(row) for row in rows if not row.score["safe"]]
    found += _timid(rows)
    found += _saturated(record)
    for run, why in record.trained.failures.items():
        found.append(f"Run {run} stopped at {why}; its policy is the last whole one.")
    if record.scores is not None and record.scores["step"] != record.trained.step:
        found.append(
            f"The scores are of step {record.scores['step']:,}, the training has reached {record.trained.step:,}: "
            "evaluate again."
        )
    if rows and rows[0].score["runs"] == 1:
        found.append("One training seed: the intervals say how episodes vary, not how trainings do.")
    return found


def _unsafe(row: Row) -> str:
    return f"At {row.group.label} the mean cost is {row.score['cost']:.2f} times the limit: not safe."


def _timid(rows: list[Row]) -> list[str]:
    """Safe, far below the limit, and earning clearly less than some logged episode that kept it."""
    timid = [
        f"{row.reward:,.0f} where a logged episode within the limit earned {row.best_logged:,.0f} ({row.group.label})"
        for row in rows
        if row.score["safe"]
        and row.score["cost"] < 0.5
        and row.best_logged is not None
        and row.reward < row.best_logged - 0.1 * abs(row.best_logged)
    ]
    return (
        [f"Safe but timid: less than half the allowed cost is used, and it earns {'; '.join(timid)}."] if timid else []
    )


def _saturated(record: Record) -> list[str]:
    """A density ratio at its bound everywhere tells no transition from another."""
    bound = largest_ratio(record.plan)
    last = {line["run"]: line["metrics"] for line in record.trained.metrics}
    ratios = [metrics["w"] for metrics in last.values() if "w" in metrics]
    if bound is None or not ratios or np.mean(ratios) < 0.9 * bound:
        return []
    return [
        f"The density ratio w has saturated: its mean is {np.mean(ratios):.2f}, its bound {bound:g}. It weighs all "
        "transitions alike, so the w-weighted cost is that many times the data's mean cost, whatever the policy does, "
        "and λ does not answer to the policy's own cost."
    ]
