"""Policies judged from a log that is read part by part: logs larger than memory, and continuous actions.

    log ─▶ parts of whole episodes ─▶ log w_e = Σ_t log π(a_t|s_t) − log b(a_t|s_t), totals, w of decisions ─▶ E numbers

Rows are read part by part (`parts`) and forgotten; what stays is a few numbers for each episode. On-policy means,
trajectory and per-decision importance sampling, shares and CVaR need no more; doubly robust estimates take Q from a
sample, and drift is looked for in it (`estimators.streamed`). Means are decided by weighted doubly robust, shares and
CVaR by weighted episodes, under the rules of `verdicts`. Continuous actions are the same with densities in the place of
probabilities, and without Q: weighted trajectory importance sampling decides on means.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import PROPENSITY, Label
from pdocrl.errors import DataError, PdocrlError, by_door
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope import verdicts
from pdocrl.ope.any_policy import Target, imported, name_of, named_policies
from pdocrl.ope.choice import Candidate, choose
from pdocrl.ope.diagnostics import (
    MOST_ACTIONS,
    UNUSED_PROPENSITY,
    check_propensities,
    policy_warnings,
    weight_shares,
)
from pdocrl.ope.estimators import doubly_robust, fqe, importance, propensity
from pdocrl.ope.estimators.distribution import distribution
from pdocrl.ope.estimators.intervals import LEVEL
from pdocrl.ope.estimators.linear import basis
from pdocrl.ope.estimators.problem import MOST_LOG_WEIGHT, Estimate, Floats, Problem, summarise
from pdocrl.ope.estimators.streamed import SampledQ, Steps
from pdocrl.ope.judge import by_decider, drift_of, logged_totals, reported
from pdocrl.ope.parts import PART, Parts, Roles, is_continuous, name_of_log
from pdocrl.ope.result import ActionOverlap, OpeReport, PolicyReport

SEVERAL = "several in one episode"
DENSITY = "densities of continuous actions are right"


def judge_by_weights(
    policies: Any,
    source: Any,
    limits: Limits = (),
    *,
    confidence: float = LEVEL,
    discount: float = 1.0,
    seed: int = 0,
    newer: Any = None,
    rows: int = PART,
    **columns: Any,
) -> OpeReport:
    """Judge policies part by part.

    Args:
        policies: as in `judge.judge`; none that has a row for each row of the log. Where actions are continuous,
            functions: {column: [N]}, with the action's own, → [N] densities of the logged actions.
        source: files, a DataFrame or a dict of arrays.
        limits: on means and tails of episodes.
        confidence: of every interval and verdict.
        discount: must be 1.
        seed: of the split for propensities that have to be estimated.
        newer: rows logged since, discrete actions: warnings say where a sample of them no longer looks like the log's.
            Without, the later half of the log's sample is compared with the earlier one.
        rows: in memory at once, about.
        columns: names of columns, as `EventLog.read` takes them.
    """
    if discount != 1:
        raise PdocrlError(f"discount {discount}: of a log read part by part totals are not discounted; leave it out.")
    if not 0 < confidence < 1:
        raise PdocrlError(f"confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    held = as_limits(limits)
    gathered = gather(policies, source, held, seed, rows, **columns)
    later = None
    if newer is not None:
        if gathered.continuous:
            raise PdocrlError("`newer` is for logs with discrete actions.")
        later = Parts(newer, roles_of(columns), limited=[limit.name for limit in held], seed=seed).sample
    return gathered.report(held, confidence, later)


def gather(
    policies: Any,
    source: Any,
    limits: tuple[Limit, ...],
    seed: int = 0,
    rows: int = PART,
    half: int | None = None,
    **columns: Any,
) -> Gathered:
    """Read a log, or one half of its episodes."""
    for limit in limits:
        if limit.measure == "max":
            raise PdocrlError(
                f"limit {limit}: of a log read part by part totals of episodes are kept; give P({limit.name}>…)<=…."
            )
    roles = roles_of(columns)
    given = policies if isinstance(policies, list | tuple | dict) else [policies]
    if is_continuous(source, roles.action) and roles.propensity is None:
        raise DataError(
            f"{name_of_log(source)}: the actions in `{roles.action}` are continuous. Name the column with the density "
            f"of the logged action ({by_door('propensity=…', '--propensity')}), and give functions of a density; or "
            "make a dataset of vectors, where "
            "any policy is judged by rollouts: pdocrl data convert LOG --out log.hdf5 --columns obs=… action=… "
            "terminal=…."
        )
    parts = Parts(source, roles, given, [limit.name for limit in limits], rows, half, seed)
    found = Gathered(parts, given, seed)
    for fold, log in parts:
        found.add(log, fold)
    return found


def roles_of(columns: dict[str, Any]) -> Roles:
    return Roles(**{name: value for name, value in columns.items() if name != "keep"})


class Gathered:
    """What is kept of the parts: a few numbers for each episode."""

    def __init__(self, parts: Parts, policies: Any, seed: int) -> None:
        self.parts, self.policies, self.seed, self.continuous = parts, policies, seed, parts.continuous
        self.rows = 0
        self.totals: dict[str, list[Floats]] = {}  # signal → parts of [E]
        self.logs: dict[str, list[Floats]] = {}  # policy → parts of [E] log w
        self.by_decision: dict[tuple[str, str], list[Floats]] = {}  # (policy, signal) → parts of [E] Σ_t w_t x_t
        self.first: dict[tuple[str, str], list[Floats]] = {}  # (policy, signal) → parts of [E] V(s_0)
        self.corrected: dict[tuple[str, str], list[Floats]] = {}  # → parts of [E] Σ_t w_t (x_t + V(s_t+1) − Q_t)
        self.steps: dict[str, Steps] = {}
        self.actions: tuple[Label, ...] = ()
        self.taken: list[Any] = []  # [A] logged decisions of each part
        self.chosen: dict[str, list[Floats]] = {}  # policy → [A] sums of probabilities
        self.largest: dict[str, list[Floats]] = {}  # policy → [A]
        self.who: list[Any] = []  # names of deciders, [E]
        self.cut = 0
        self.q: dict[str, SampledQ] = {}
        if not self.continuous:
            for name, target in named_policies(policies, parts.sample).items():
                self.q[name] = SampledQ(target.log, target.probabilities, parts.fold)

    def add(self, log: EventLog, fold: int) -> None:
        targets = {} if self.continuous else named_policies(self.policies, log)
        ratios = _densities(self.policies, log) if self.continuous else self._ratios(targets, log)
        count = len(log.episodes)
        for name, x in log.signals.items():
            self.totals.setdefault(name, []).append(log.totals(x))
        for policy, ratio in ratios.items():
            with np.errstate(divide="ignore"):
                logs = np.log(ratio)
            running = np.cumsum(np.where(np.isinf(logs), 0.0, logs))
            before = np.r_[0.0, running[:-1]][log.step == 0][log.episode]
            never = np.maximum.accumulate(np.where(np.isinf(logs), np.arange(len(log)), -1))
            impossible = never >= (np.arange(len(log)) - log.step)
            weight = np.where(impossible, 0.0, np.exp(np.minimum(running - before, MOST_LOG_WEIGHT)))
            last = np.r_[log.step[1:] == 0, True]
            with np.errstate(divide="ignore"):
                self.logs.setdefault(policy, []).append(np.log(weight[last]))
            for name, x in log.signals.items():
                found = np.asarray(np.bincount(log.episode, weight * x, minlength=count), np.float64)
                self.by_decision.setdefault((policy, name), []).append(found)
            if policy in self.q:
                target = targets[policy]
                values = dict(log.signals)
                corrections = self.q[policy].corrections(target.log, target.probabilities, fold)
                for name, (first, rest) in corrections.items():
                    self.first.setdefault((policy, name), []).append(first)
                    found = np.asarray(np.bincount(log.episode, weight * rest, minlength=count), np.float64)
                    self.corrected.setdefault((policy, name), []).append(found)
                    values[f"{verdicts.WEIGHTED} {name}"] = rest
                self.steps.setdefault(policy, Steps()).add(log.step, weight, values)
        self.rows += len(log)
        self.cut += int(log.cut_short.sum())
        if log.decider is not None:
            self.who.append(_deciders(log))

    def _ratios(self, targets: dict[str, Target], log: EventLog) -> dict[str, Floats]:
        """{policy: [n] π/b}"""
        check_propensities(log)
        chances = log.propensity
        if chances is None:
            every = propensity.estimate(log, basis(log, time=True), self.seed)
            chances = np.take_along_axis(every, log.action[:, None], 1)[:, 0]
        self.actions = log.actions
        self.taken.append(np.bincount(log.action, minlength=len(log.actions)))
        found = {}
        for name, target in targets.items():
            ratio = np.take_along_axis(target.probabilities, log.action[:, None], 1)[:, 0] / chances
            largest = np.zeros(len(log.actions))
            np.maximum.at(largest, log.action, ratio)
            self.chosen.setdefault(name, []).append(target.probabilities.sum(0))
            self.largest.setdefault(name, []).append(largest)
            found[name] = np.asarray(ratio, np.float64)
        return found

    def report(
        self, limits: tuple[Limit, ...], confidence: float, newer: EventLog | None = None, only: str | None = None
    ) -> OpeReport:
        """Of all policies, or of one alone."""
        name, logged = name_of_log(self.parts.source), self.parts.roles.propensity is not None
        totals = self.all_totals
        count = self.episodes
        if count < 2:
            raise DataError(f"{name}: one episode tells nothing of how episodes differ; give two or more.")
        for limit in limits:
            limit.index(list(totals))
        whole = self._episodes(name, totals)
        reports, candidates = [], []
        for policy in self.logs if only is None else [only]:
            one, candidate = self._judged(policy, whole, limits, confidence, logged)
            reports.append(one)
            candidates.append(candidate)
        return OpeReport(
            log=name,
            rows=self.rows,
            episodes=count,
            actions=[] if self.continuous else [str(a) for a in self.actions],
            costs=list(whole.costs),
            propensities="logged" if logged else "estimated",
            discount=1.0,
            confidence=confidence,
            limits=[str(limit) for limit in limits],
            logged=logged_totals("logged decisions", np.ones(count, bool), whole, totals, limits, confidence),
            deciders=by_decider(whole, totals, limits, confidence),
            policies=reports,
            choice=choose(candidates, totals, confidence) if len(reports) > 1 else None,
            warnings=[
                *self._how(),
                *([UNUSED_PROPENSITY] if not logged and PROPENSITY in self.parts.sample.ignored else []),
                *(f"`{cost}` never occurred in the log" for cost, x in whole.costs.items() if not x.any()),
                *([f"{self.cut} of {count} episodes were cut short"] if self.cut else []),
                *([] if self.continuous else drift_of(self.parts.sample, newer)),
            ],
        )

    def _how(self) -> list[str]:
        """What was done in parts."""
        if self.continuous:
            return ["judged by importance weights alone, the actions being continuous"]
        if self.parts.complete:
            return []
        rows, episodes = len(self.parts.sample), len(self.parts.sample.episodes)
        return [
            f"read part by part: Q is fitted, and drift looked for, in a sample of {rows} rows ({episodes} episodes); "
            "estimators that need all rows at once, and how strong a hidden cause would have to be, are left out"
        ]

    @property
    def all_totals(self) -> dict[str, Floats]:
        """{signal: [E]}"""
        return {signal: np.concatenate(parts) for signal, parts in self.totals.items()}

    @property
    def episodes(self) -> int:
        return sum(map(len, self.totals.get("reward", [])))

    def weights(self, policy: str) -> Floats:
        """[E] of whole episodes."""
        return np.asarray(np.exp(np.minimum(np.concatenate(self.logs[policy]), MOST_LOG_WEIGHT)), np.float64)

    def _episodes(self, name: str, totals: dict[str, Floats]) -> EventLog:
        """A log with a row for each episode."""
        count = len(totals["reward"])
        who = np.concatenate(self.who) if self.who else None
        names, codes = (np.zeros(0, object), None) if who is None else np.unique(who, return_inverse=True)
        return EventLog(
            name=name,
            columns=(),
            action=np.zeros(count, np.int64),
            actions=("the episode",),
            reward=totals["reward"],
            costs={signal: x for signal, x in totals.items() if signal != "reward"},
            episode=np.arange(count),
            step=np.zeros(count, np.int64),
            terminal=np.ones(count, bool),
            decider=None if codes is None else codes.astype(np.int64),
            deciders=tuple(map(str, names)),
        )

    def _judged(
        self, name: str, log: EventLog, limits: tuple[Limit, ...], confidence: float, logged: bool
    ) -> tuple[PolicyReport, Candidate]:
        weights = self.weights(name)
        ones = np.ones((len(log), 1))
        with np.errstate(divide="ignore"):  # an episode is one decision with π/b = w
            problem = Problem(log, ones, 1 / weights, not logged, ones, level=confidence, whole_episodes=True)
        order = (verdicts.TRAJECTORY,) if self.continuous else verdicts.DECIDERS
        found = self._estimates(name, problem, weights)
        estimates = {(one.estimator, one.signal): verdicts.widened(one, problem, order[0]) for one in found}
        told = [verdicts.verdict(problem, limit, estimates) for limit in limits]
        means = {signal: verdicts.decider(estimates, signal, order) for signal in log.signals}
        reward = means["reward"]
        used = {one.estimator for one in told} | ({reward.estimator} if reward is not None else set())
        more = [a for (e, _), estimate in estimates.items() if e in used for a in estimate.assumptions]
        assumed = [DENSITY, *problem.assumptions[1:]] if self.continuous else problem.assumptions
        report = PolicyReport(
            name=name,
            verdict=verdicts.together(told),
            limits=told,
            estimates=reported(estimates, log),
            decides=None if reward is None else reward.estimator,
            distribution=[one for cost in log.costs if (one := distribution(problem, cost)) is not None],
            overlap=[] if self.continuous else self._overlap(name),
            weight_shares=weight_shares(weights),
            disagreement={signal: verdicts.disagreement(signal, estimates) for signal in log.signals},
            assumptions=list(dict.fromkeys([*assumed, importance.OVERLAP, *more])),
            warnings=policy_warnings(problem, None),
        )
        return report, Candidate(name, means, told)

    def _estimates(self, policy: str, problem: Problem, weights: Floats) -> list[Estimate]:
        found: list[Estimate] = []
        stepwise = self.steps[policy].influence() if policy in self.steps else {}
        for signal in problem.log.signals:
            found += [importance.trajectory(problem, signal, kind) for kind in importance.KINDS]
            terms = np.concatenate(self.by_decision[policy, signal]) if weights.any() else None
            title = "per-decision importance sampling"
            found.append(summarise(problem, title, signal, terms, weights, importance.OVERLAP))
            if policy not in self.q:
                continue
            own = stepwise[signal]
            found.append(summarise(problem, f"weighted {title}", signal, own, weights, importance.OVERLAP))
            first = np.concatenate(self.first[policy, signal])
            rest = np.concatenate(self.corrected[policy, signal]) if weights.any() else None
            own = stepwise[f"{verdicts.WEIGHTED} {signal}"]
            for title, more in (("doubly robust", rest), (verdicts.WEIGHTED, own)):
                influence = None if more is None else first + more
                found.append(summarise(problem, title, signal, influence, weights, doubly_robust.ASSUMED))
            title = "fitted Q evaluation (linear)"
            found.append(Estimate(title, signal, float(first.mean()), None, assumptions=fqe.assumed("linear")))
        return found

    def _overlap(self, name: str) -> list[ActionOverlap]:
        taken, chosen = np.sum(self.taken, axis=0) / self.rows, np.sum(self.chosen[name], axis=0) / self.rows
        largest = np.max(self.largest[name], axis=0)
        order = [a for a in np.argsort(-chosen, kind="stable") if chosen[a] > 0][:MOST_ACTIONS]
        return [
            ActionOverlap(
                action=str(self.actions[a]),
                policy=float(chosen[a]),
                logged=float(taken[a]),
                largest_ratio=float(largest[a]),
            )
            for a in order
        ]


def _densities(policies: Any, log: EventLog) -> dict[str, Floats]:
    """{policy: [n] density of the logged action under the policy / under who decided}"""
    found = {}
    listed = policies.items() if isinstance(policies, dict) else [(name_of(one), one) for one in policies]
    assert log.propensity is not None
    for name, policy in listed:
        function = imported(policy) if isinstance(policy, str) and ":" in policy else policy
        if not callable(function):
            raise PdocrlError(
                f"{name}: actions are continuous, so a policy is a function (module:name) of the columns, with the "
                "action's, that gives the density [N] of the logged actions."
            )
        try:
            density = np.asarray(function(log.frame() | log.extras), np.float64)
        except Exception as error:  # whatever a stranger's function raises
            raise PdocrlError(f"{name}: the function failed with {type(error).__name__}: {error}.") from error
        if density.shape != (len(log),) or not (np.isfinite(density) & (density >= 0)).all():
            raise PdocrlError(
                f"{name}: expected the density [{len(log)}] of each logged action, finite and at least 0, not an array "
                f"of shape {density.shape}. A deterministic policy has none: judge it by rollouts on a dataset of "
                "vectors (pdocrl data convert)."
            )
        found[str(name)] = density / log.propensity
    return found


def _deciders(log: EventLog) -> Any:
    """[E] names."""
    assert log.decider is not None
    first = log.decider[log.step == 0]
    alone = np.ones(len(first), bool)
    np.logical_and.at(alone, log.episode, log.decider == first[log.episode])
    return np.where(alone, np.array(log.deciders, object)[first], SEVERAL)
