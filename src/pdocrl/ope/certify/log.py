"""Certificates for any policy from a log of discrete decisions, with sample splitting where the log also chooses.

one policy                 ─▶ the whole log judges; it must have had no part in making the policy
several, or a learner      ─▶ one half of the log learns and chooses, the other half judges what was chosen

A log in memory is judged by `judge`, one that is read part by part as `by_weights` does it; a learner is then given a
sample of its half.

Where propensities are logged, bounds on means (with a stated largest cost) and shares hold at any number of episodes
(`bounds`). Otherwise they are those of `judge`, whose coverage was simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.audit import Verdict as Shown
from pdocrl.evaluation.audit import checked, mean_lower
from pdocrl.evaluation.tails import LimitScore
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope.any_policy import named_policies
from pdocrl.ope.by_weights import gather, roles_of
from pdocrl.ope.certify.certificate import PolicyCertificate, Statement, Verdict, percent
from pdocrl.ope.diagnostics import log_warnings
from pdocrl.ope.estimators.problem import Floats
from pdocrl.ope.judge import drift_of, judge
from pdocrl.ope.parts import PART, Parts
from pdocrl.ope.result import LimitVerdict, OpeReport
from pdocrl.ope.sensitivity import LARGEST

EXACT = "the propensities are right; bounds hold at any number of independent episodes, also for a log that grows"
Costs = float | Sequence[float] | Mapping[str, float] | None
MADE_ELSEWHERE = "the policy is taken as made without these rows; if they chose it, give the candidates or `learn`"
SIMULATED = "bounds are asymptotic; their coverage was simulated, see the documentation of `ope`"


def certify_any(
    policies: Any,
    log: EventLog,
    limits: Limits,
    *,
    learn: Callable[[EventLog], Any] | None = None,
    confidence: float = 0.95,
    largest_cost: Costs = None,
    regressor: str = "linear",
    seed: int = 0,
) -> PolicyCertificate:
    """Statements on every limit for a policy that the judging rows had no part in choosing.

    Args:
        policies: one policy, or several to choose among; None with `learn`.
        log: the decisions.
        limits: on means and tails of episodes.
        learn: makes a policy, or several, from one part of the log.
        confidence: of every statement.
        largest_cost: what an episode can cost at most, one number, one per cost or by name; bounds on means rest on it.
        regressor: of fitted Q evaluation, see `judge.judge`.
        seed: of the split.
    """
    held = _checked(limits)
    notes = [*log_warnings(log), *drift_of(log, None)]
    judging = log
    targets = {} if learn is not None else named_policies(policies, log)
    if len(targets) != 1:
        learning, judging = log.split(seed)
        if learn is None:
            _refuse_arrays(policies)
        candidates = policies if learn is None else learn(learning)
        half = named_policies(candidates, learning)
        name = _chosen(judge(half, learning, held, confidence=confidence, regressor=regressor, seed=seed))
        target = named_policies(candidates, judging)[name]
        notes.append(_how(name, learn is not None, len(learning.episodes), len(judging.episodes)))
    else:
        [(name, target)] = targets.items()
        notes.append(MADE_ELSEWHERE)
    report = judge({name: target}, judging, held, confidence=confidence, regressor=regressor, seed=seed)
    weights = None
    totals = {signal: judging.totals(x) for signal, x in judging.signals.items()}
    if judging.propensity is not None:
        ratio = np.take_along_axis(target.probabilities, judging.action[:, None], 1)[:, 0] / judging.propensity
        with np.errstate(divide="ignore"):
            weights = np.exp(np.minimum(np.bincount(judging.episode, np.log(np.maximum(ratio, 1e-300))), 230.0))
    return _certificate(report, held, totals, weights, largest_cost, notes)


def certify_in_parts(
    policies: Any,
    source: Any,
    limits: Limits,
    *,
    learn: Callable[[EventLog], Any] | None = None,
    confidence: float = 0.95,
    largest_cost: Costs = None,
    seed: int = 0,
    rows: int = PART,
    **columns: Any,
) -> PolicyCertificate:
    """The same of a log that is read part by part, about `rows` rows in memory at once; `columns` name its columns."""
    held = _checked(limits)
    given = policies if isinstance(policies, list | tuple | dict) else [policies]
    learning = Parts(source, roles_of(columns), given, [limit.name for limit in held], rows, 0, seed)
    candidates = policies if learn is None else learn(learning.sample)
    name, notes = None, [MADE_ELSEWHERE]
    if learn is None and len(named_policies(policies, learning.sample)) == 1:
        gathered = gather(policies, source, held, seed, rows, **columns)
    else:
        first, gathered = (gather(candidates, source, held, seed, rows, half, **columns) for half in (0, 1))
        name = _chosen(first.report(held, confidence))
        notes = [_how(name, learn is not None, first.episodes, gathered.episodes)]
    report = gathered.report(held, confidence, only=name)
    weights = gathered.weights(report.policies[0].name) if report.propensities == "logged" else None
    return _certificate(report, held, gathered.all_totals, weights, largest_cost, [*report.warnings, *notes])


def _checked(limits: Limits) -> tuple[Limit, ...]:
    held = as_limits(limits)
    if not held:
        raise PdocrlError('nothing to certify: give limits, such as limits=["cost<=4"].')
    return held


def _how(name: str, learned: bool, chosen_on: int, judged_on: int) -> str:
    return (
        f"`{name}` was {'learned and ' if learned else ''}chosen on {chosen_on} episodes and is judged on {judged_on} "
        "others"
    )


def _certificate(
    report: OpeReport,
    limits: tuple[Limit, ...],
    totals: Mapping[str, Floats],
    weights: Floats | None,
    largest_cost: Costs,
    notes: list[str],
) -> PolicyCertificate:
    """Of the one policy of a report, from weights [E] and totals {signal: [E]} of the episodes that judge it."""
    most = _by_name(largest_cost, report.costs)
    statements = [
        _statement(report, totals[limit.name], limit, told, weights, most.get(limit.name))
        for limit, told in zip(limits, report.policies[0].limits, strict=True)
    ]
    return PolicyCertificate.of(statements, list(dict.fromkeys([*notes, *report.policies[0].warnings])))


def _refuse_arrays(policies: Any) -> None:
    """Arrays [N, …] belong to the rows of the whole log and cannot be split; functions, files and columns can."""
    for one in policies.values() if isinstance(policies, dict) else policies:
        if isinstance(one, np.ndarray):
            raise PdocrlError("certify: an array belongs to the whole log; keep it as a column of it (keep=[…]).")


def _chosen(report: OpeReport) -> str:
    """The best of those within the limits; else the one nearest to being shown."""
    if report.choice is not None and report.choice.best is not None:
        return report.choice.best
    return min(report.policies, key=lambda one: max(v.p_value for v in one.limits)).name


def _by_name(largest_cost: Costs, names: list[str]) -> Mapping[str, float]:
    """One number for all costs, one per cost of the log, or {cost: number}."""
    if largest_cost is None or isinstance(largest_cost, Mapping):
        return largest_cost or {}
    most = [float(largest_cost)] if isinstance(largest_cost, int | float) else [float(x) for x in largest_cost]
    if len(most) not in (1, len(names)):
        raise PdocrlError(f"largest cost: {len(most)} numbers for {len(names)} costs ({', '.join(names)}).")
    return dict(zip(names, most if len(most) == len(names) else most * len(names), strict=True))


def _statement(
    report: OpeReport, totals: Floats, limit: Limit, told: LimitVerdict, weights: Floats | None, most: float | None
) -> Statement:
    policy, confidence = report.policies[0], report.confidence
    assumptions, lower, upper, shown = list(policy.assumptions), told.lower, told.upper, told.verdict
    bounded = limit.measure == "exceedance" or (limit.measure == "mean" and most is not None)
    if weights is not None and bounded:
        lower, upper = bounds(weights, totals, limit, confidence, most)
        shown = _side(limit, lower, upper)
        assumptions = [*assumptions, EXACT]
        if limit.measure == "mean":
            assumptions.append(f"no episode can cost more than {most:g}")
    else:
        assumptions.append(SIMULATED)
    verdict: Verdict = "cannot be shown" if shown == "not shown" else shown
    reach = f"between {_number(lower)} and {_number(upper)}"
    words = {
        "within": f"Satisfies {limit}: we are {percent(confidence)} sure that {limit.left} is {reach}",
        "over": f"Violates {limit}: we are {percent(confidence)} sure that {limit.left} is {reach}",
        "cannot be shown": f"Cannot be shown to satisfy {limit}: {told.why if lower is upper is None else reach}",
    }[verdict]
    if told.confounding is not None and verdict != "cannot be shown" and told.confounding < LARGEST:
        words += f"; a hidden cause that changes the odds of decisions by {told.confounding:.3g} would overturn it"
    return Statement(
        policy=policy.name,
        cost=limit.name,
        cost_limit=limit.value if limit.threshold is None else limit.threshold,
        verdict=verdict,
        confidence=confidence,
        basis="log",
        sentence=words + ".",
        assumption="; ".join(dict.fromkeys(assumptions)) + ".",
        mean_cost=told.value if limit.measure == "mean" else None,
        mean_cost_lower=lower if limit.measure == "mean" else None,
        mean_cost_upper=upper if limit.measure == "mean" else None,
        episodes=report.episodes,
        largest_cost=most,
        limit=LimitScore(
            limit=str(limit),
            value=told.value if told.value is not None else float("nan"),
            satisfied=told.value <= limit.value if limit.sense == "<=" else told.value >= limit.value,
            lower=lower,
            upper=upper,
            verdict=shown,
            confidence=confidence,
            episodes=report.episodes,
        )
        if told.value is not None
        else None,
    )


def _side(limit: Limit, lower: float | None, upper: float | None) -> Shown:
    low, high = -np.inf if lower is None else lower, np.inf if upper is None else upper
    if limit.sense == "<=":
        return "within" if high <= limit.value else "over" if low > limit.value else "not shown"
    return "within" if low >= limit.value else "over" if high < limit.value else "not shown"


def _number(x: float | None) -> str:
    return "unknown" if x is None else f"{x:.4g}"


def bounds(
    weights: ArrayLike, costs: ArrayLike, limit: Limit, confidence: float = 0.95, cost_max: float | None = None
) -> tuple[float | None, float | None]:
    """One-sided lower and upper bounds of what is limited, each at the confidence; None where nothing is known.

    With importance weights w = Π π/b of whole episodes, E_b[w f(episode)] = E_π[f]. Costs C in [0, M] have

        E_π[C] = M − E_b[w (M − C)] ≤ M − L,   L a lower confidence sequence of the mean of w (M − C) ≥ 0
        E_π[C] = E_b[w C] ≥ L',                L' one of the mean of w C ≥ 0

    and lower sequences by betting need no upper bound on the weights (`evaluation.audit.mean_lower`). So a growing log
    may be looked at after every episode. The share P(C > t) is the same with C replaced by 1{C > t} and M = 1.
    Karampatziakis, Mineiro and Ramdas, "Off-policy confidence sequences", 2021; Thomas, Theocharous and Ghavamzadeh,
    "High-confidence off-policy evaluation", 2015.

    Args:
        weights: [n] of logged episodes.
        costs: [n] their undiscounted totals.
        limit: on a mean, or on an exceedance.
        confidence: of each bound.
        cost_max: the largest total an episode can have; the upper bound of a mean rests on it.
    """
    c, most = checked(costs, cost_max), cost_max
    if limit.threshold is not None:
        c, most = (c > limit.threshold).astype(np.float64), 1.0
    elif limit.measure != "mean":
        raise PdocrlError(f"limit {limit}: bounds at any number of episodes are of means and shares.")
    w = np.asarray(weights, np.float64)
    lower = mean_lower(w * c, confidence)
    upper = None if most is None else max(most - mean_lower(w * (most - c), confidence), 0.0)
    return min(lower, most if most is not None else np.inf), upper
