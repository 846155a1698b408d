"""Policies judged by importance weights of whole episodes alone: logs larger than memory, and continuous actions.

    log ─▶ parts of whole episodes ─▶ log w_e = Σ_t log π(a_t|s_t) − log b(a_t|s_t), totals, w of decisions ─▶ E numbers

Rows are read part by part (`parts`) and forgotten; what stays is a few numbers for each episode. On-policy means,
trajectory and per-decision importance sampling, shares and CVaR need no more. A mean is decided by weighted trajectory
importance sampling, shares and CVaR by weighted episodes, under the rules of `verdicts`. Continuous actions are the
same with densities in the place of probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import PROPENSITY, Label
from pdocrl.errors import DataError, PdocrlError, by_door
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope import verdicts
from pdocrl.ope.any_policy import imported, name_of, named_policies
from pdocrl.ope.choice import Candidate, choose
from pdocrl.ope.diagnostics import (
    MOST_ACTIONS,
    UNUSED_PROPENSITY,
    check_propensities,
    policy_warnings,
    weight_shares,
)
from pdocrl.ope.estimators import importance, propensity
from pdocrl.ope.estimators.distribution import distribution
from pdocrl.ope.estimators.intervals import LEVEL
from pdocrl.ope.estimators.linear import basis
from pdocrl.ope.estimators.problem import MOST_LOG_WEIGHT, Estimate, Floats, Problem, summarise
from pdocrl.ope.judge import by_decider, logged_totals, reported
from pdocrl.ope.parts import PART, Roles, is_continuous, name_of_log, parts_of
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
    rows: int = PART,
    **columns: Any,
) -> OpeReport:
    """Judge policies by importance weights, part by part.

    Args:
        policies: as in `judge.judge`; none that has a row for each row of the log. Where actions are continuous,
            functions: {column: [N]}, with the action's own, → [N] densities of the logged actions.
        source: files, a DataFrame or a dict of arrays.
        limits: on means and tails of episodes.
        confidence: of every interval and verdict.
        discount: must be 1.
        seed: of the split for propensities that have to be estimated.
        rows: in memory at once, about.
        columns: names of columns, as `EventLog.read` takes them.
    """
    if discount != 1:
        raise PdocrlError(f"discount {discount}: by weights alone totals are not discounted; leave it out.")
    if not 0 < confidence < 1:
        raise PdocrlError(f"confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    held = as_limits(limits)
    for limit in held:
        if limit.measure == "max":
            raise PdocrlError(
                f"limit {limit}: by weights alone totals of episodes are kept; give P({limit.name}>…)<=…."
            )
    roles = Roles(**{name: value for name, value in columns.items() if name != "keep"})
    given = policies if isinstance(policies, list | tuple | dict) else [policies]
    continuous = is_continuous(source, roles.action)
    if continuous and roles.propensity is None:
        raise DataError(
            f"{name_of_log(source)}: the actions in `{roles.action}` are continuous. Name the column with the density "
            f"of the logged action ({by_door('propensity=…', '--propensity')}), and give functions of a density; or "
            "make a dataset of vectors, where "
            "any policy is judged by rollouts: pdocrl data convert LOG --out log.hdf5 --columns obs=… action=… "
            "terminal=…."
        )
    gathered = Gathered()
    for log in parts_of(source, roles, given, [limit.name for limit in held], rows, continuous):
        gathered.add(log, given, continuous, seed)
    return gathered.report(name_of_log(source), held, confidence, continuous, roles.propensity is not None)


class Gathered:
    """What is kept of the parts: a few numbers for each episode."""

    def __init__(self) -> None:
        self.rows, self.longest = 0, 0
        self.totals: dict[str, list[Floats]] = {}  # signal → parts of [E]
        self.logs: dict[str, list[Floats]] = {}  # policy → parts of [E] log w
        self.by_decision: dict[tuple[str, str], list[Floats]] = {}  # (policy, signal) → parts of [E] Σ_t w_t x_t
        self.actions: tuple[Label, ...] = ()
        self.taken: list[Any] = []  # [A] logged decisions of each part
        self.chosen: dict[str, list[Floats]] = {}  # policy → [A] sums of probabilities
        self.largest: dict[str, list[Floats]] = {}  # policy → [A]
        self.who: list[Any] = []  # names of deciders, [E]
        self.cut = 0
        self.ignored: set[str] = set()

    def add(self, log: EventLog, policies: Any, continuous: bool, seed: int) -> None:
        ratios = _densities(policies, log) if continuous else self._probabilities(policies, log, seed)
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
                found = np.bincount(log.episode, weight * x, minlength=count)
                self.by_decision.setdefault((policy, name), []).append(np.asarray(found, np.float64))
        self.rows += len(log)
        self.cut += int(log.cut_short.sum())
        self.ignored |= {*log.ignored}
        if log.decider is not None:
            self.who.append(_deciders(log))

    def _probabilities(self, policies: Any, log: EventLog, seed: int) -> dict[str, Floats]:
        """{policy: [n] π/b}"""
        check_propensities(log)
        chances = log.propensity
        if chances is None:
            every = propensity.estimate(log, basis(log, time=True), seed)
            chances = np.take_along_axis(every, log.action[:, None], 1)[:, 0]
        self.actions = log.actions
        self.taken.append(np.bincount(log.action, minlength=len(log.actions)))
        found = {}
        for name, target in named_policies(policies, log).items():
            ratio = np.take_along_axis(target.probabilities, log.action[:, None], 1)[:, 0] / chances
            largest = np.zeros(len(log.actions))
            np.maximum.at(largest, log.action, ratio)
            self.chosen.setdefault(name, []).append(target.probabilities.sum(0))
            self.largest.setdefault(name, []).append(largest)
            found[name] = np.asarray(ratio, np.float64)
        return found

    def report(
        self, name: str, limits: tuple[Limit, ...], confidence: float, continuous: bool, logged: bool
    ) -> OpeReport:
        totals = {signal: np.concatenate(parts) for signal, parts in self.totals.items()}
        count = len(totals["reward"])
        if count < 2:
            raise DataError(f"{name}: one episode tells nothing of how episodes differ; give two or more.")
        for limit in limits:
            limit.index(list(totals))
        whole = self._episodes(name, totals)
        reports, candidates = [], []
        for policy in self.logs:
            one, candidate = self._judged(policy, whole, limits, confidence, continuous, logged)
            reports.append(one)
            candidates.append(candidate)
        return OpeReport(
            log=name,
            rows=self.rows,
            episodes=count,
            actions=[] if continuous else [str(a) for a in self.actions],
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
                "judged by importance weights alone, the log being read part by part or its actions being continuous",
                *([UNUSED_PROPENSITY] if not logged and PROPENSITY in self.ignored else []),
                *(f"`{cost}` never occurred in the log" for cost, x in whole.costs.items() if not x.any()),
                *([f"{self.cut} of {count} episodes were cut short"] if self.cut else []),
            ],
        )

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
        self, name: str, log: EventLog, limits: tuple[Limit, ...], confidence: float, continuous: bool, logged: bool
    ) -> tuple[PolicyReport, Candidate]:
        weights = np.exp(np.minimum(np.concatenate(self.logs[name]), MOST_LOG_WEIGHT))
        ones = np.ones((len(log), 1))
        with np.errstate(divide="ignore"):  # an episode is one decision with π/b = w
            problem = Problem(log, ones, 1 / weights, not logged, ones, level=confidence, whole_episodes=True)
        found: list[Estimate] = []
        for signal in log.signals:
            found += [importance.trajectory(problem, signal, kind) for kind in importance.KINDS]
            terms = np.concatenate(self.by_decision[name, signal]) if weights.any() else None
            title = "per-decision importance sampling"
            found.append(summarise(problem, title, signal, terms, weights, importance.OVERLAP))
        estimates = {(one.estimator, one.signal): verdicts.widened(one, problem) for one in found}
        told = [verdicts.verdict(problem, limit, estimates) for limit in limits]
        means = {signal: verdicts.decider(estimates, signal, (verdicts.TRAJECTORY,)) for signal in log.signals}
        reward = means["reward"]
        assumed = [DENSITY, *problem.assumptions[1:]] if continuous else problem.assumptions
        report = PolicyReport(
            name=name,
            verdict=verdicts.together(told),
            limits=told,
            estimates=reported(estimates, log),
            decides=None if reward is None else reward.estimator,
            distribution=[one for cost in log.costs if (one := distribution(problem, cost)) is not None],
            overlap=[] if continuous else self._overlap(name),
            weight_shares=weight_shares(weights),
            disagreement={signal: verdicts.disagreement(signal, estimates) for signal in log.signals},
            assumptions=[*assumed, importance.OVERLAP],
            warnings=policy_warnings(problem, None),
        )
        return report, Candidate(name, means, told)

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
