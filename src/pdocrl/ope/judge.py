"""Any policy judged from a log of discrete decisions: what it would gain and cost, and which limits it satisfies.

policy, log ─▶ probabilities on rows ─▶ propensities (logged or estimated) ─▶ estimators ─▶ one to decide ─▶ verdicts

Which estimator decides is a rule on diagnostics: weighted doubly robust where its effective sample size is at least 50
episodes and no episode has more than a tenth of the weight; else double reinforcement learning where that of its rows'
weights is at least 50; else none. "shown": its interval lies within the limit; "violated": over it; otherwise, or where
another estimator with as good diagnostics has an interval apart from it, "not shown".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.errors import UnknownNameError
from pdocrl.ope.any_policy import name_of, probabilities
from pdocrl.ope.estimators import propensity
from pdocrl.ope.estimators.basis import basis
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.fqe import direct, q_values
from pdocrl.ope.estimators.importance import per_decision, trajectory
from pdocrl.ope.estimators.marginalised import double, marginalised, ratios
from pdocrl.ope.estimators.problem import LEVEL, Estimate, Floats, Problem
from pdocrl.records import Part, Record, read_record, write_record

FEWEST = 50.0  # effective episodes of an estimator that may decide
LARGEST = 0.1  # share of one episode in all weights
DECIDERS = ("weighted doubly robust", "double reinforcement learning")  # in order of preference


class LimitVerdict(Part, frozen=True, kw_only=True):
    """Whether one cost satisfies its limit."""

    cost: str
    limit: float
    verdict: Literal["shown", "not shown", "violated"]
    estimator: str | None  # the one that decided
    why: str


class PolicyEstimates(Record, frozen=True, kw_only=True):
    """What a log tells of a policy."""

    policy: str
    log: str
    rows: int
    episodes: int
    discount: float
    level: float
    logged: dict[str, float]  # mean total per episode of the log itself
    estimates: list[Estimate]
    limits: list[LimitVerdict]
    disagreement: dict[str, float]  # signal → largest distance of two usable estimates, in their joint half-widths

    def of(self, estimator: str, signal: str) -> Estimate:
        return next(e for e in self.estimates if (e.estimator, e.signal) == (estimator, signal))

    def save(self, path: str | os.PathLike[str]) -> None:
        write_record(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PolicyEstimates:
        return read_record(path, cls, "Make it again with pdocrl.ope(policy, log).save(path).")


def judge(
    policy: Any,
    log: EventLog,
    limits: Mapping[str, float] | None = None,
    *,
    discount: float = 1.0,
    regressor: str = "linear",
    seed: int = 0,
) -> PolicyEstimates:
    """Estimate the reward and every cost of a policy, and give a verdict on each limit.

    Args:
        policy: a function, `module:name`, a classifier, a kept column, an .onnx file or an array (see `any_policy`).
        log: the decisions (`EventLog.read`). Without propensities they are estimated, and that is said.
        limits: {cost: largest expected total of an episode}.
        discount: γ of the totals.
        regressor: of fitted Q, `linear` or `trees` (scikit-learn).
        seed: of the split for cross-fitting.
    """
    for cost in limits or {}:
        if cost not in log.costs:
            raise UnknownNameError("cost", cost, log.costs, f"{log.name} has {', '.join(log.costs) or 'none'}.")
    features = basis(log, time=discount == 1)
    known = log.propensity
    chances = logged_chances(log, features, seed) if known is None else known
    problem = Problem(log, probabilities(policy, log), chances, known is None, features, discount, seed)
    estimates = every_estimate(problem, regressor)
    return PolicyEstimates(
        policy=name_of(policy),
        log=log.name,
        rows=len(log),
        episodes=problem.episodes,
        discount=discount,
        level=LEVEL,
        logged={name: float(log.totals(x, discount).mean()) for name, x in log.signals.items()},
        estimates=estimates,
        limits=[_verdict(cost, limit, estimates) for cost, limit in (limits or {}).items()],
        disagreement={name: _disagreement(name, estimates) for name in log.signals},
    )


def logged_chances(log: EventLog, features: Floats, seed: int) -> Floats:
    """[N] estimated propensities of the logged actions."""
    found = propensity.estimate(log, features, seed)
    return np.asarray(found[np.arange(len(log)), log.action], np.float64)


def every_estimate(problem: Problem, regressor: str = "linear") -> list[Estimate]:
    """All estimators on all signals."""
    found: list[Estimate] = []
    weights = ratios(problem)
    for signal in problem.log.signals:
        q = q_values(problem, signal, regressor)
        found += [trajectory(problem, signal), per_decision(problem, signal)]
        found += [doubly_robust(problem, signal, q, weighted) for weighted in (False, True)]
        found += [direct(problem, signal, q, regressor), marginalised(problem, signal)]
        found.append(double(problem, signal, q, weights))
    return found


def usable(estimate: Estimate) -> bool:
    """Whether its diagnostics let it decide, or contradict what does."""
    size, largest = estimate.effective_sample_size or 0.0, estimate.largest_weight or 0.0
    return estimate.interval is not None and size >= FEWEST and largest <= LARGEST


def _verdict(cost: str, limit: float, estimates: list[Estimate]) -> LimitVerdict:
    ready = {e.estimator: e for e in estimates if e.signal == cost and usable(e)}
    chosen = next((ready[name] for name in DECIDERS if name in ready), None)
    if chosen is None or chosen.interval is None:
        why = f"no estimator has {FEWEST:g} effective episodes: the log has too few decisions like the policy's"
        return LimitVerdict(cost=cost, limit=limit, verdict="not shown", estimator=None, why=why)
    low, high = chosen.interval
    words = f"{cost} in [{low:.4g}, {high:.4g}] by {chosen.estimator}, limit {limit:g}"
    apart = [e.estimator for e in ready.values() if e.interval and (e.interval[0] > high or e.interval[1] < low)]
    verdict: Literal["shown", "not shown", "violated"] = "not shown"
    if apart:
        words += f"; but {apart[0]} contradicts it"
    elif high <= limit:
        verdict = "shown"
    elif low > limit:
        verdict = "violated"
    return LimitVerdict(cost=cost, limit=limit, verdict=verdict, estimator=chosen.estimator, why=words)


def _disagreement(signal: str, estimates: list[Estimate]) -> float:
    ready = [e for e in estimates if e.signal == signal and usable(e)]
    halves = {e.estimator: (e.interval[1] - e.interval[0]) / 2 for e in ready if e.interval}
    distances = [
        abs((a.value or 0.0) - (b.value or 0.0)) / max(halves[a.estimator] + halves[b.estimator], 1e-300)
        for i, a in enumerate(ready)
        for b in ready[:i]
    ]
    return max(distances, default=0.0)
