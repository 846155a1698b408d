"""Scores as the field reports them: normalised reward, cost over limit, safe or not, with intervals over trainings.

    EpisodeScore ─▶ RunScore (a policy at a limit) ─▶ Summary (a method on a task: at a limit, or over several)

A policy is safe when its mean normalised cost is at most 1. With several constraints the worst decides: the one whose
mean over all runs is the largest, and over all limits where several are averaged. (The mean of each run's worst, or of
each limit's, would be larger by chance alone. What is left of that falls with the number of trainings.)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import field

from pdocrl.errors import PdocrlError
from pdocrl.evaluation.intervals import (
    Floats,
    Interval,
    Measured,
    Over,
    binomial_interval,
    interquartile_mean,
    interval_words,
    mean_over_limits,
)
from pdocrl.evaluation.normalise import normalised_cost
from pdocrl.evaluation.tails import LimitScore
from pdocrl.limits import Limit
from pdocrl.records import Part

CVAR = Limit("cost", 1.0, "<=", "cvar", level=0.9)  # on normalised cost, where the limit is 1


class EpisodeScore(Part, frozen=True, kw_only=True):
    """One episode."""

    seed: int | None  # of its reset; None: a benchmark's row, which numbers the episodes
    reward: float  # undiscounted
    cost: list[float]  # [K] undiscounted
    length: int
    normalized_reward: float
    normalized_cost: float  # over its limit, of the worst constraint


class PredictedLimit(Part, frozen=True, kw_only=True):
    """What was predicted of a limit on a tail before anything was played."""

    limit: str
    value: float  # the measure
    bound: float  # with its error and margin
    within: bool


class RunScore(Part, frozen=True, kw_only=True):
    """One policy, asked to satisfy one limit, and its episodes."""

    task: str = ""
    agent: str
    variant: str = ""  # the settings that tell runs of one agent apart, in words
    run: int  # of the training's plan: which policy played
    training: int  # runs of one number share a training and differ in what is asked of it
    cost_limit: list[float]  # [K] asked when playing; of a limit on a tail, the amount of cost in it
    trained_limit: list[float]  # [K] the run's own; another number where one policy serves every limit
    seed: int
    settings: dict[str, object]  # those the runs vary, and "limits": those on tails that it was asked for, in words
    reward: float
    cost: list[float]
    normalized_reward: float
    normalized_cost: float
    safe: bool
    failure: str | None
    episodes: list[EpisodeScore]
    limits: list[LimitScore] = field(default_factory=list)  # those `evaluate` was given beside the cost limit
    predicted_cost: list[float] | None = None  # [K] before anything was played; None: the agent makes no statement
    predicted_within: bool | None = None  # whether the limit was predicted to be satisfied
    predicted_tails: list[PredictedLimit] = field(default_factory=list)  # of each limit on a tail that it was asked for

    @property
    def method(self) -> str:
        """Agent and variant in one word, as tables and folders name it."""
        return method_name(self.agent, self.variant)

    @property
    def limit(self) -> str:
        """ "10", or "10, 5" with two constraints."""
        return limit_name(self.cost_limit)

    @property
    def asked(self) -> str:
        """The limits it was asked for, in words where one is on a tail."""
        return ", ".join(limits_asked(self.settings)) or self.limit

    @property
    def costs(self) -> Floats:
        """[E, K] undiscounted."""
        return np.array([one.cost for one in self.episodes], np.float64).reshape(len(self.episodes), -1)

    @property
    def normalised_costs(self) -> Floats:
        """[E, K] costs over their limits."""
        return normalised_cost(self.costs, self.cost_limit) if self.cost_limit else self.costs


class Tail(Part, frozen=True, kw_only=True):
    """How often and how far single episodes exceed their limit, which a mean hides; over all runs of a summary.

    The interval (Clopper–Pearson) is exact for further independent episodes of these policies; it knows nothing of
    other trainings, nor that several runs met the same starts.
    """

    over: int  # episodes that cost more than the limit, in any constraint
    episodes: int
    share_interval: Interval  # 95 %
    cvar: float  # CVaR90 of the normalised cost: mean of the costliest tenth, of the worst constraint

    @property
    def share(self) -> float:
        return self.over / self.episodes

    def words(self) -> tuple[str, str]:
        """ "3 of 60 (5 %)" and "[1, 14] %"."""
        low, high = self.share_interval
        return f"{self.over} of {self.episodes} ({100 * self.share:.0f} %)", f"[{100 * low:.0f}, {100 * high:.0f}] %"


class Summary(Part, frozen=True, kw_only=True):
    """A method on a task: at one limit, or as the mean over several, which are then in `by_limit`."""

    task: str = ""
    method: str = ""
    limit: list[float] | None  # one per constraint; None: the mean over limits
    reward: float  # mean normalised reward
    reward_interval: Interval | None  # 95 %; None: nothing varied that could tell
    reward_iqm: float  # interquartile mean over runs
    reward_std: float  # over limits × seeds, as the field prints it: it mixes the limits' effect with the seeds'
    cost: float  # mean normalised cost, of the worst constraint
    cost_interval: Interval | None
    cost_iqm: float
    cost_std: float
    costs: list[float]  # of each constraint, at one limit
    episode_reward: float | None  # mean undiscounted return, at one limit
    episode_costs: list[float]  # [K] mean undiscounted costs, at one limit
    intervals_over: Over  # "episodes": one training only, so nothing is said of how trainings differ
    safe: bool  # mean normalised cost ≤ 1; of limits on tails: they hold
    safe_limits: int  # at how many limits it is safe, which the mean can hide
    limits: int
    runs: int
    trainings: int
    episodes: int  # per run
    failures: int  # runs whose training stopped early
    by_limit: list[Summary] = field(default_factory=list)
    tail: Tail
    trainings_over: int  # trainings whose mean cost exceeds the limit

    def words(self, what: Literal["reward", "cost"]) -> str:
        """The interval as tables show it: "[0.10, 0.20]", and what it is over where that is not trainings."""
        pair = self.reward_interval if what == "reward" else self.cost_interval
        return interval_words(pair) + (" episodes" if pair and self.intervals_over == "episodes" else "")

    def sentence(self) -> str:
        """Reward and cost with their intervals, and at how many limits it is safe."""
        figures = f"reward {self.reward:.3f} {self.words('reward')}, cost {self.cost:.3f} {self.words('cost')}"
        over = ""
        if self.trainings > 1:
            low, high = binomial_interval(self.trainings_over, self.trainings)
            over = f"; over the limit on average: {self.trainings_over} of {self.trainings} trainings"
            over += f" [{100 * low:.0f}, {100 * high:.0f}] %"
        return f"{figures}, safe at {self.safe_limits} of {self.limits} limits{over}"


def score_run(
    episodes: Sequence[EpisodeScore], cost_limit: Sequence[float], limits: Sequence[LimitScore] = (), **known: Any
) -> RunScore:
    """A run from its episodes: their means, and whether it is safe.

    Args:
        episodes: at least one.
        cost_limit: [K] that it was asked to satisfy.
        limits: scores of limits on tails; those that `settings["limits"]` names decide whether the run is safe.
        known: the other fields of `RunScore`.
    """
    reward, cost = [one.reward for one in episodes], [one.cost for one in episodes]
    if not episodes or any(len(one) != len(cost_limit) for one in cost):
        told = f"{len(episodes)} episodes with {sorted({len(one) for one in cost})} costs each"
        raise PdocrlError(f"{told} cannot be scored at {len(cost_limit)} cost limits.")
    if not (np.isfinite(reward).all() and np.isfinite(cost).all()):
        raise PdocrlError("a reward or cost to be scored is not finite.")
    shares = normalised_cost(cost, cost_limit).mean(axis=0)
    worst, asked = float(shares.max(initial=0.0)), limits_asked(known["settings"])
    decided = [one.satisfied for one in limits if one.limit in asked]
    return RunScore(
        cost_limit=list(cost_limit),
        reward=float(np.mean(reward)),
        cost=np.mean(cost, axis=0).tolist(),
        normalized_reward=float(np.mean([one.normalized_reward for one in episodes])),
        normalized_cost=worst,
        safe=all(decided) if decided else worst <= 1,
        episodes=list(episodes),
        limits=list(limits),
        **known,
    )


def summarise(runs: Sequence[RunScore]) -> list[Summary]:
    """One summary per task and method, over the limits they were played at: tasks, and methods within them, in order.

    Args:
        runs: of any tasks and methods; those of one task and method have equally many episodes.
    """
    return [summary_of(own) for own in by_place(runs).values()]


def by_place(runs: Sequence[RunScore]) -> dict[tuple[str, str], list[RunScore]]:
    """{(task, method): runs}, tasks and then methods in the order they first appear."""
    found: dict[tuple[str, str], list[RunScore]] = {}
    for run in runs:
        found.setdefault((run.task, run.method), []).append(run)
    tasks, methods = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    return dict(sorted(found.items(), key=lambda item: (tasks.index(item[0][0]), methods.index(item[0][1]))))


def summary_of(runs: Sequence[RunScore]) -> Summary:
    """The mean over limits of one method on one task, with each limit in `by_limit`."""
    counts = sorted({len(run.episodes) for run in runs})
    if len(counts) > 1:
        shown = ", ".join(map(str, counts))
        raise PdocrlError(f"{runs[0].method} on {runs[0].task}: runs of {shown} episodes cannot be averaged.")
    limits = at_limits(runs)
    return _summary(limits, [_summary([own]) for own in limits])


def at_limits(runs: Sequence[RunScore]) -> list[list[RunScore]]:
    """The runs of each limit, in the order the limits first appear."""
    found: dict[tuple[float, ...], list[RunScore]] = {}
    for run in runs:
        found.setdefault(tuple(run.cost_limit), []).append(run)
    return list(found.values())


def measure(limits: Sequence[Sequence[RunScore]]) -> tuple[Measured, Measured]:
    """Mean normalised reward and cost over limits, given the runs of each, and what they owe to chance."""
    trainings = [[run.training for run in own] for own in limits]
    return mean_over_limits([_rewards(own) for own in limits], trainings), mean_over_limits(_worst(limits), trainings)


def worst_run_costs(limits: Sequence[Sequence[RunScore]]) -> Floats:
    """[limits × seeds] mean normalised cost of each run, of the constraint that is the worst over all these limits."""
    return np.concatenate([costs.mean(axis=1) for costs in _worst(limits)])


def limits_asked(settings: Mapping[str, object]) -> list[str]:
    """The limits on tails that a run was asked for, in words; none where its limits are on means."""
    found = settings.get("limits")
    return list(map(str, found)) if isinstance(found, list) else []


def variant_of(settings: Mapping[str, object]) -> str:
    """A run's own settings in words, then its limits on tails; "" without any."""
    own = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "limits")
    return "-".join(filter(None, (own, ", ".join(limits_asked(settings)))))


def method_name(agent: str, variant: str) -> str:
    """`bc` and `safe` → `bc-safe`."""
    return f"{agent}-{variant}" if variant else agent


def limit_name(limit: Sequence[float]) -> str:
    """(10.0,) → "10"."""
    return ", ".join(f"{value:g}" for value in limit) or "none"


def _rewards(runs: Sequence[RunScore]) -> Floats:
    """[R, E] normalised."""
    return np.array([[one.normalized_reward for one in run.episodes] for run in runs])


def _worst(limits: Sequence[Sequence[RunScore]]) -> list[Floats]:
    """Per limit [R, E] of the constraint whose mean over these limits is the largest; zeros without constraints."""
    if not limits[0][0].cost_limit:
        return [np.zeros((len(own), len(own[0].episodes))) for own in limits]
    costs = [np.stack([run.normalised_costs for run in own]) for own in limits]
    k = int(np.mean([one.mean(axis=(0, 1)) for one in costs], axis=0).argmax())
    return [np.asarray(one[:, :, k]) for one in costs]


def _summary(limits: Sequence[Sequence[RunScore]], by_limit: Sequence[Summary] = ()) -> Summary:
    """Of the runs of several limits, given the summary of each; or of those of one."""
    reward, cost = measure(limits)
    worst, runs = _worst(limits), [run for own in limits for run in own]
    rewards, costs = np.array([run.normalized_reward for run in runs]), worst_run_costs(limits)
    of_training: dict[Hashable, list[float]] = {}  # training → mean normalised cost of its runs
    for run, one in zip(runs, costs, strict=True):
        of_training.setdefault(run.training, []).append(float(one))
    shares = [run.normalised_costs for run in runs]
    at_one = not by_limit
    holds = _tails_hold(runs) if at_one else None
    safe = cost.value <= 1 if holds is None else holds
    if not at_one:
        safe = by_limit[0].safe if len(limits) == 1 else cost.value <= 1 and all(map(_may_be_safe, limits))
    return Summary(
        task=runs[0].task,
        method=runs[0].method,
        limit=list(runs[0].cost_limit) if at_one else None,
        reward=reward.value,
        reward_interval=reward.interval(),
        reward_iqm=interquartile_mean(rewards),
        reward_std=float(rewards.std()),
        cost=cost.value,
        cost_interval=cost.interval(0.0 if all((share >= 0).all() for share in shares) else -np.inf),
        cost_iqm=interquartile_mean(costs),
        cost_std=float(costs.std()),
        costs=np.concatenate(shares).mean(axis=0).tolist() if at_one else [],
        episode_reward=float(np.mean([one.reward for run in runs for one in run.episodes])) if at_one else None,
        episode_costs=np.concatenate([run.costs for run in runs]).mean(axis=0).tolist() if at_one else [],
        intervals_over=reward.over,
        safe=safe,
        safe_limits=int(safe) if at_one else sum(one.safe for one in by_limit),
        limits=len(limits),
        runs=len(runs),
        trainings=len(of_training),
        episodes=len(runs[0].episodes),
        failures=sum(run.failure is not None for run in runs),
        by_limit=list(by_limit),
        tail=_tail(shares, worst),
        trainings_over=sum(float(np.mean(own)) > 1 for own in of_training.values()),
    )


def _may_be_safe(runs: Sequence[RunScore]) -> bool:
    return _tails_hold(runs) is not False


def _tails_hold(runs: Sequence[RunScore]) -> bool | None:
    """Whether the limits on tails that runs were asked for hold on average over them; None where these are on means."""
    asked = limits_asked(runs[0].settings)
    values = {text: [one.value for run in runs for one in run.limits if one.limit == text] for text in asked}
    held = [np.mean(own) <= Limit.parse(text).value for text, own in values.items() if own]
    return bool(all(held)) if held else None


def _tail(shares: Sequence[Floats], worst: Sequence[Floats]) -> Tail:
    """Over all episodes, [E, K] of each run; the CVaR is the mean over limits of each limit's own, [R, E]."""
    over = sum(int((share > 1 + 1e-9).any(axis=1).sum()) for share in shares)  # but for rounding
    episodes = sum(map(len, shares))
    return Tail(
        over=over,
        episodes=episodes,
        share_interval=binomial_interval(over, episodes),
        cvar=float(np.mean([CVAR.of(costs.ravel()) for costs in worst])),
    )
