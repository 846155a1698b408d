"""Any policies judged from a log of discrete decisions: what they would gain and cost, and which limits they satisfy.

policy, log ─▶ probabilities on rows ─▶ propensities (logged or estimated) ─▶ estimators ─▶ one to decide ─▶ verdicts
                                                                                    └─▶ choice among the policies
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError, PdocrlError
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope import verdicts
from pdocrl.ope.any_policy import named_policies
from pdocrl.ope.choice import Candidate, choose
from pdocrl.ope.diagnostics import check_propensities, log_warnings, overlap, policy_warnings, weight_shares
from pdocrl.ope.drift import drift, halves
from pdocrl.ope.estimators import dynamics, importance, propensity, regressors
from pdocrl.ope.estimators.distribution import distribution
from pdocrl.ope.estimators.double_reinforcement import double
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.forward import forward_ratios
from pdocrl.ope.estimators.fqe import direct, q_values
from pdocrl.ope.estimators.intervals import LEVEL
from pdocrl.ope.estimators.linear import basis
from pdocrl.ope.estimators.marginalised import marginalised, ratios
from pdocrl.ope.estimators.on_policy import of_totals
from pdocrl.ope.estimators.problem import Estimate, Floats, Problem, effective_size, falls_short
from pdocrl.ope.result import DeciderReport, EstimatorReport, OpeReport, PolicyReport

MOST_DECIDERS = 50  # listed
Found = dict[tuple[str, str], Estimate]  # (estimator, signal) → estimate


def judge(
    policies: Any,
    log: EventLog,
    limits: Limits = (),
    *,
    confidence: float = LEVEL,
    discount: float = 1.0,
    regressor: str = "linear",
    newer: EventLog | None = None,
    seed: int = 0,
) -> OpeReport:
    """Estimate reward and costs of policies, and give a verdict on each limit.

    Args:
        policies: one, a list, or {name: policy}; see `any_policy` for what a policy may be.
        log: the decisions (`EventLog.read`). Without propensities they are estimated, and that is said.
        limits: on totals of an episode: {"cost": 4}, or "cost<=4", "P(cost>20)<=0.05", "CVaR90(cost)<=40".
        confidence: of every interval and verdict.
        discount: γ of the totals; tails are undiscounted.
        regressor: of fitted Q: `linear`, `trees` (scikit-learn) or `network`.
        newer: rows logged since; warnings say where they no longer look like the log. Without, the later half of the
            log is compared with the earlier one.
        seed: of the split for cross-fitting.
    """
    if not 0 < confidence < 1:
        raise PdocrlError(f"confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    if not 0 < discount <= 1:
        raise PdocrlError(f"discount {discount}: expected a number in (0, 1].")
    held = as_limits(limits)
    for limit in held:
        limit.index(list(log.signals))
    if int(log.episode[-1]) == 0:
        raise DataError(f"{log.name}: one episode tells nothing of how episodes differ; give two or more.")
    check_propensities(log)
    targets = named_policies(policies, log)
    features = basis(log, time=discount == 1)
    behaviour = propensity.estimate(log, features, seed)
    logged = log.propensity
    chances = np.take_along_axis(behaviour, log.action[:, None], 1)[:, 0] if logged is None else logged
    reports, candidates = [], []
    for name, target in targets.items():
        own = features if target.log is log else basis(target.log, time=discount == 1)
        problem = Problem(target.log, target.probabilities, chances, logged is None, own, discount, seed, confidence)
        report, candidate = _judge_one(name, problem, held, regressor, behaviour)
        reports.append(report)
        candidates.append(candidate)
    totals = {signal: log.totals(x, discount) for signal, x in log.signals.items()}
    return OpeReport(
        log=log.name,
        rows=len(log),
        episodes=len(log.episodes),
        actions=[str(a) for a in log.actions],
        costs=list(log.costs),
        propensities="estimated" if logged is None else "logged",
        discount=discount,
        confidence=confidence,
        limits=[str(limit) for limit in held],
        logged=logged_totals("logged decisions", np.ones(len(log.episodes), bool), log, totals, held, confidence),
        deciders=by_decider(log, totals, held, confidence),
        policies=reports,
        choice=choose(candidates, totals, confidence) if len(reports) > 1 else None,
        warnings=[*log_warnings(log), *drift_of(log, newer)],
    )


def drift_of(log: EventLog, newer: EventLog | None) -> list[str]:
    """Of newer rows, or of the later half of a log against the earlier one."""
    if newer is not None:
        return drift(log, newer)
    return [f"within the log: {line}" for line in drift(*halves(log))]


def every_estimate(problem: Problem, regressor: str = "linear") -> Found:
    """All estimators on all signals, those that decide with the intervals they decide by."""
    found: list[Estimate] = []
    weights = ratios(problem)
    state = dynamics.states(problem.log, problem.discount)
    forward = forward_ratios(problem) if state is None and _long(problem) and regressors.installed() else None
    for signal in problem.log.signals:
        q = q_values(problem, signal, regressor)
        found += [estimator(problem, signal, kind) for estimator in IMPORTANCE for kind in importance.KINDS]
        found += [doubly_robust(problem, signal, q, weighted) for weighted in (False, True)]
        found += [direct(problem, signal, q, regressor), marginalised(problem, signal)]
        found.append(double(problem, signal, q, weights, "linear"))
        if forward is not None:
            found.append(double(problem, signal, q, forward, "forward"))
        if state is not None:
            found.append(dynamics.dynamics(problem, signal, state))
    return {(one.estimator, one.signal): verdicts.widened(one, problem) for one in found}


IMPORTANCE = (importance.trajectory, importance.per_decision)


def _long(problem: Problem) -> bool:
    """Whether too few whole episodes are like the policy's, so that only weights of rows can tell."""
    weights = problem.weights[:, -1]
    if problem.longest == 1 or not weights.any():
        return False
    few = effective_size(weights) < verdicts.FEWEST or weights.max() > verdicts.LARGEST * weights.sum()
    return bool(few or falls_short(weights))


def _judge_one(
    name: str, problem: Problem, limits: tuple[Limit, ...], regressor: str, behaviour: Floats
) -> tuple[PolicyReport, Candidate]:
    log = problem.log
    found = every_estimate(problem, regressor)
    told = [verdicts.verdict(problem, limit, found) for limit in limits]
    means = {signal: verdicts.decider(found, signal) for signal in log.signals}
    reward = means["reward"]
    used = {one.estimator for one in told} | ({reward.estimator} if reward is not None else set())
    more = [a for (e, _), estimate in found.items() if e in used for a in estimate.assumptions]
    report = PolicyReport(
        name=name,
        verdict=verdicts.together(told),
        limits=told,
        estimates=reported(found, log),
        decides=None if reward is None else reward.estimator,
        distribution=[one for cost in log.costs if (one := distribution(problem, cost)) is not None],
        overlap=overlap(problem),
        weight_shares=weight_shares(problem.weights[:, -1]),
        disagreement={signal: verdicts.disagreement(signal, found) for signal in log.signals},
        assumptions=list(dict.fromkeys([*problem.assumptions, *more])),
        warnings=policy_warnings(problem, behaviour),
    )
    return report, Candidate(name, means, told)


def reported(found: Found, log: EventLog) -> list[EstimatorReport]:
    """A line for each estimator."""
    result = []
    for name in dict.fromkeys(estimator for estimator, _ in found):
        own = found[name, "reward"]
        costs = [found[name, cost] for cost in log.costs]
        result.append(
            EstimatorReport(
                estimator=name,
                reward=own.value,
                reward_interval=own.interval,
                cost=[one.value for one in costs],
                cost_interval=[one.interval for one in costs],
                ess=own.effective_sample_size,
                largest_weight=own.largest_weight,
                usable=all(verdicts.usable(one) for one in (own, *costs)),
                assumptions=list(own.assumptions),
            )
        )
    return result


def by_decider(
    log: EventLog, totals: dict[str, Floats], limits: tuple[Limit, ...], confidence: float
) -> list[DeciderReport]:
    """What was logged of each decider that had whole episodes, those with most episodes first."""
    if log.decider is None:
        return []
    first = log.decider[log.step == 0]
    alone = np.ones(len(first), bool)
    np.logical_and.at(alone, log.episode, log.decider == first[log.episode])
    count = np.bincount(first[alone], minlength=len(log.deciders))
    order = [int(d) for d in np.argsort(-count, kind="stable") if count[d] > 0][:MOST_DECIDERS]
    return [logged_totals(log.deciders[d], alone & (first == d), log, totals, limits, confidence) for d in order]


def logged_totals(
    name: str, chosen: Any, log: EventLog, totals: dict[str, Floats], limits: tuple[Limit, ...], confidence: float
) -> DeciderReport:
    means = {signal: of_totals(x[chosen], signal, confidence) for signal, x in totals.items()}
    reward = means["reward"]
    assert reward.value is not None
    return DeciderReport(
        name=name,
        episodes=int(chosen.sum()),
        reward=reward.value,
        reward_interval=reward.interval,
        cost=[float(means[cost].value or 0.0) for cost in log.costs],
        cost_interval=[means[cost].interval for cost in log.costs],
        within=[limit.satisfied(_sample(log, limit, totals)[chosen]) for limit in limits],
    )


def _sample(log: EventLog, limit: Limit, totals: dict[str, Floats]) -> Floats:
    """[E] what the limit is compared with."""
    if limit.measure == "mean":
        return totals[limit.name]
    x = log.signals[limit.name]
    if limit.measure != "max":
        return log.totals(x)
    largest = np.zeros(len(log.episodes))
    np.maximum.at(largest, log.episode, x)
    return largest
