"""From runs to what tables say of methods over all tasks: average ranks, probabilities of improvement, profiles.

    runs ─▶ Standing (a method over all tasks), Comparison (two methods over all tasks)

Which of two results is better is decided in the spirit of "safe or not": a safe one beats an unsafe one, of two safe
ones the higher reward wins, of two unsafe ones the lower cost. Every interval is one of
`pdocrl.evaluation.intervals`. The same runs give the same intervals.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from pdocrl.evaluation.intervals import Floats, Interval, Measured, interquartile_mean, share_interval
from pdocrl.evaluation.score import RunScore, Summary, at_limits, by_place, measure, summary_of, worst_run_costs

_UNSAFE = 1e6  # puts every unsafe result below every safe one; |normalised reward| and cost are far smaller
DRAWS = 2000  # of every result, to see how ranks would change with them
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of reward, in a table's profile


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method over all tasks it was run on."""

    method: str
    tasks: int
    rank: float  # mean over tasks; 1 is the best
    rank_interval: Interval | None
    safe_tasks: int
    safe_limits: int  # of all (task, limit)
    limits: int
    over: float  # share of all episodes that cost more than their limit
    reward: float  # means over tasks
    reward_iqm: float  # interquartile mean over all runs
    cost: float
    cost_iqm: float
    profile: tuple[float, ...]  # share of runs that are safe with at least each of LEVELS


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How probable it is that a run of one method is better than a run of the other at the same limit."""

    method: str
    other: str
    probability: float  # mean over the tasks both were run on; ties count one half
    interval: Interval | None  # None: of one training no spread is known
    tasks: int

    @property
    def clear(self) -> bool:
        """Whether the interval lies above one half."""
        return self.interval is not None and self.interval[0] > 0.5


def best_safe(summaries: Sequence[Summary], task: str) -> str | None:
    """The safe method with the highest reward on a task; none where two safe ones are equal."""
    safe = sorted((one.reward, one.method) for one in summaries if one.task == task and one.safe)
    if not safe or (len(safe) > 1 and np.isclose(safe[-1][0], safe[-2][0], rtol=0, atol=1e-9)):
        return None
    return safe[-1][1]


def standings(runs: Sequence[RunScore]) -> list[Standing]:
    """Average ranks, the best first; of equal ranks the safer method, then the one of higher reward.

    A method is ranked among those that were run on the same task.

    A rank's interval holds 95 % of the ranks that draws of all results, each from its own t distribution, would give.
    """
    places = by_place(runs)
    ranks, known = _ranks(places)  # [1 + DRAWS, tasks, methods]
    mean = np.nanmean(ranks, axis=1) if places else ranks[:, 0]
    made = []
    for m, method in enumerate(dict.fromkeys(method for _, method in places)):
        played = {task: own for (task, name), own in places.items() if name == method}
        summaries = [summary_of(own) for own in played.values()]
        rewards = np.array([run.normalized_reward for own in played.values() for run in own])
        costs = np.array([run.normalized_cost for own in played.values() for run in own])
        worst = np.concatenate([worst_run_costs(at_limits(own)) for own in played.values()])
        low, high = np.quantile(mean[1:, m], [0.025, 0.975])
        made.append(
            Standing(
                method=method,
                tasks=len(played),
                rank=float(mean[0, m]),
                rank_interval=(float(low), float(high)) if known.issuperset(played) else None,
                safe_tasks=sum(one.safe for one in summaries),
                safe_limits=sum(one.safe_limits for one in summaries),
                limits=sum(one.limits for one in summaries),
                over=sum(one.tail.over for one in summaries) / sum(one.tail.episodes for one in summaries),
                reward=float(np.mean([one.reward for one in summaries])),
                reward_iqm=interquartile_mean(rewards),
                cost=float(np.mean([one.cost for one in summaries])),
                cost_iqm=interquartile_mean(worst),
                profile=tuple(float(((costs <= 1) & (rewards >= level)).mean()) for level in LEVELS),
            )
        )
    return sorted(made, key=_order)


def _order(one: Standing) -> tuple[float, ...]:
    """By average rank; of equal ranks by the shares of tasks and limits at which it is safe, then by reward."""
    return round(one.rank, 9), -one.safe_tasks / one.tasks, -one.safe_limits / one.limits, -one.reward


def _ranks(places: Mapping[tuple[str, str], list[RunScore]]) -> tuple[Floats, set[str]]:
    """[1 + DRAWS, tasks, methods] ranks as measured, then of every draw; NaN where a method was not run on a task.

    And the tasks of which every result has an error: of others no spread is known.
    """
    tasks, methods = (list(dict.fromkeys(place[i] for place in places)) for i in (0, 1))
    ranks, known = np.full((DRAWS + 1, len(tasks), len(methods)), np.nan), set()
    for t, task in enumerate(tasks):
        there = [m for m, method in enumerate(methods) if (task, method) in places]
        measured = {methods[m]: measure(at_limits(places[task, methods[m]])) for m in there}
        drawn = [_drawn(task, method, *found) for method, found in measured.items()]
        reward, cost = (np.stack([pair[i] for pair in drawn], axis=1) for i in (0, 1))
        ranks[:, t, there] = scipy.stats.rankdata(-merit(reward, cost), axis=1)
        if all(found.error is not None for found, _ in measured.values()):
            known.add(task)
    return ranks, known


def compare(runs: Sequence[RunScore], method: str, other: str) -> Comparison | None:
    """Of two methods, over the tasks and limits both were run on; None without any.

    Pairs of limits that share a training are not pairs anew: they count as those of one limit.
    """
    places = by_place(runs)
    shares: list[float] = []
    sizes: list[list[tuple[int, int]]] = []  # per task, of pairs that have nothing in common: runs against runs
    for task in dict.fromkeys(place[0] for place in places):
        mine, theirs = (
            {own[0].limit: own for own in at_limits(places.get((task, name), []))} for name in (method, other)
        )
        shared = [limit for limit in mine if limit in theirs]
        if not shared:
            continue
        won = [_won(mine[limit], theirs[limit]) for limit in shared]  # [R, R′] each
        shares.append(float(np.mean([w.mean() for w in won])))
        own = [w.shape for w in won]
        again = any(_plays_twice([at[limit] for limit in shared]) for at in (mine, theirs))
        sizes.append([min(own)] if again else own)
    if not shares:
        return None
    parts = [(1 / len(shares) / len(own), *pair) for own in sizes for pair in own]
    share = float(np.mean(shares))
    return Comparison(method, other, share, share_interval(share, parts), len(shares))


def _plays_twice(limits: Sequence[Sequence[RunScore]]) -> bool:
    """Whether some training plays at several of these limits."""
    names = [run.training for own in limits for run in own]
    return len(set(names)) < len(names)


def merit(reward: Floats, cost: Floats) -> Floats:
    """One number per result whose order is the rule above: reward if safe, else far below it, falling with the cost."""
    return np.where(cost <= 1, reward, -_UNSAFE - cost)


def names_of(summaries: Sequence[Summary]) -> tuple[list[str], list[str]]:
    """Methods and tasks in the order they appear."""
    return list(dict.fromkeys(one.method for one in summaries)), list(dict.fromkeys(one.task for one in summaries))


def _drawn(task: str, method: str, reward: Measured, cost: Measured) -> tuple[Floats, Floats]:
    """[1 + DRAWS] reward and cost: as measured, then drawn from a stream of this task and method's own."""
    rng = np.random.default_rng(zlib.crc32(f"{task}/{method}".encode()))
    rewards, costs = (np.append(found.value, found.draws(DRAWS, rng)) for found in (reward, cost))
    return rewards, np.maximum(costs, 0.0)


def _won(mine: Sequence[RunScore], theirs: Sequence[RunScore]) -> Floats:
    """[R, R′] 1 where my run is better, one half where both are equal."""
    a, b = (
        merit(np.array([run.normalized_reward for run in own]), np.array([run.normalized_cost for run in own]))
        for own in (mine, theirs)
    )
    return np.asarray((a[:, None] > b) + 0.5 * (a[:, None] == b))
