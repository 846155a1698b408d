"""Doubly robust estimates of a log that is read part by part: Q from a sample, one pass over the rest.

    sample of both folds ─▶ θ_0, θ_1          Q of an episode is that fitted on the sample of the other fold
    parts ─▶ w_et, y_et, b_e ─▶ temporary file ─▶ ψ_e = b_e + Σ_t [ m_t + (w_et/w̄_t)(y_et − m_t) ]

with y_et = x_et + V(s_e,t+1) − Q(s_et, a_et) and b_e = V(s_e0) of weighted doubly robust estimates, y_et = x_et and
b_e = 0 of weighted per-decision importance sampling (`problem.self_normalised`). w̄_t and m_t are known when all parts
were read, so w and y wait in a file, 8 bytes each. Where the sample is the whole log, the results are those of
`doubly_robust` and `fqe`, linear Q.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.doubly_robust import residuals
from pdocrl.ope.estimators.linear import Basis, fitted_without
from pdocrl.ope.estimators.problem import Floats, Ints, Problem


class SampledQ:
    """The linear Q of one policy, fitted on a sample: for the episodes of each fold on those of the other."""

    def __init__(self, log: EventLog, target: Floats, fold: Ints) -> None:
        """`target` [N, A] is the policy on the rows of the sample, `fold` [E] 0 or 1."""
        self.basis, features = Basis.fit(log, time=True)
        problem = Problem(log, target, np.ones(len(log)), False, features, fold=fold)
        self.longest = problem.longest
        self.ends = {name: (min(float(x.min()), 0.0), max(float(x.max()), 0.0)) for name, x in log.signals.items()}
        self.theta = {(name, k): fitted_without(problem, k).q(name) for name in log.signals for k in (0, 1)}

    def corrections(self, log: EventLog, target: Floats, fold: int) -> dict[str, tuple[Floats, Floats]]:
        """{signal: ([E] V of the first states, [N] x + V(s') − Q(s, a))} of a part, all in one fold."""
        problem = Problem(log, target, np.ones(len(log)), False, self.basis(log, strict=False))
        left = np.maximum(self.longest - log.step, 1)[:, None]
        found = {}
        for name in log.signals:
            low, high = self.ends[name]
            q = np.clip(problem.features @ self.theta[name, fold].T, low * left, high * left)
            v = (target[problem.starts] * q[problem.starts]).sum(1)
            found[name] = v, residuals(problem, name, q)
        return found


class Steps:
    """Self-normalised estimates of values y [N] of rows, with weights w [N]; what is kept in memory is [T] and [E]."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  closed, and gone, with this object
        self.parts = 0
        self.weight, self.ended = np.zeros(0), np.zeros(0)  # [T] Σ_e w_et of episodes that go on; of those that end
        self.sums: dict[str, Floats] = {}  # name → [T] Σ_e w_et y_et

    def add(self, step: Ints, weight: Floats, values: Mapping[str, Floats]) -> None:
        """Of whole episodes; {name: y}."""
        last = np.r_[step[1:] == 0, True]
        self.weight = _added(self.weight, np.bincount(step, weight))
        self.ended = _added(self.ended, np.bincount(step[last], weight[last]))
        for name, y in values.items():
            self.sums[name] = _added(self.sums.get(name, np.zeros(0)), np.bincount(step, weight * y))
        for one in (step, weight, *values.values()):
            np.save(self.file, one)
        self.parts += 1

    def influence(self) -> dict[str, Floats | None]:
        """{name: [E] Σ_t m_t + (w_et/w̄_t)(y_et − m_t)}, None where no episode has weight at some step.

        After its end an episode keeps its last weight and has y = 0.
        """
        total = self.weight + np.r_[0.0, np.cumsum(self.ended)[:-1]]
        if (total <= 0).any():
            return dict.fromkeys(self.sums)
        found: dict[str, list[Floats]] = {name: [] for name in self.sums}
        means = {name: y / total for name, y in self.sums.items()}
        self.file.seek(0)
        episodes = 0
        for _ in range(self.parts):
            step, weight = np.load(self.file), np.load(self.file)
            last = np.r_[step[1:] == 0, True]
            episode = np.cumsum(step == 0) - 1
            for name, mean in means.items():
                y = np.load(self.file)
                later = np.r_[np.cumsum((mean / total)[::-1])[::-1], 0.0]  # [T + 1] Σ_{u ≥ t} m_u/Σw_u
                own = np.bincount(episode, weight * (y - mean[step]) / total[step])
                found[name].append(own - weight[last] * later[step[last] + 1])
            episodes += int(last.sum())
        return {name: means[name].sum() + episodes * np.concatenate(parts) for name, parts in found.items()}


def _added(a: Floats, b: Any) -> Floats:
    """The sum of two vectors, the shorter one continued by zeros."""
    found = np.zeros(max(len(a), len(b)))
    found[: len(a)] += a
    found[: len(b)] += b
    return found
