"""Policies that can be tested: a decider's, or a clone's, probabilities tilted by the penalised advantage.

    π_β(a | x) ∝ μ(a | x) exp( β (A_0 − Σ_k λ_k A_k)(x, a) ),   A = Q − V of μ

exp(β A) is the policy of most penalised reward at a given divergence from μ (REPS: Peters, Mülling and Altün, 2010;
AWR: Peng and others, 2019). β is the largest for which importance weights on the learning part leave a share of its
episodes effective, (Σw)²/Σw² ≥ share·E: so the held-out part will have enough of them, whatever the outcomes.
λ is searched so that weighted doubly robust estimates of the costs keep a distance of z standard errors of the
held-out part. A is cross-fitted: the linear Q of μ, and boosted trees for x + γV(s') − V(s), its one-step advantage.

`near` is bolder, and looks further ahead: A is the Q of fitted Q iteration, μ the clone of everybody, β the largest at
which Σ_t KL(π ‖ μ) of an episode stays below what density ratios can be trusted with. Unlike a greedy policy it keeps
the log's chance, and with it what chance brings about in the log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import special

from pdocrl.approximate import multipliers
from pdocrl.approximate.boosted_q import aimed
from pdocrl.approximate.boosting import ValueTrees
from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Flags, Floats
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.fqe import q_values
from pdocrl.ope.estimators.problem import Problem, effective_size

TRIALS = 10  # of multipliers
HALVINGS = 12  # of β
LARGEST_TILT = 8.0  # of one standard deviation of the advantage
LEAVES = 8
SMALL = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Tilt:
    """exp(β (A_0 − Σ λ_k A_k))"""

    values: tuple[ValueTrees, ...]  # A, 1 + K
    multipliers: Floats  # [K]
    beta: float
    estimate: Floats  # [1 + K] totals on the learning part
    error: Floats  # [1 + K] standard errors there
    effective: float  # share of the learning part's episodes


class Tilting:
    """One base policy μ on the learning part."""

    def __init__(self, rows: Rows, base: Floats, propensity: Floats, features: Floats, seed: int) -> None:
        self.rows, self.base = rows, base
        self.names = ["reward", *rows.names]
        self.problem = Problem(rows.log, base, propensity, True, features, rows.discount, seed)
        q = [q_values(self.problem, name) for name in self.names]
        self.q = dict(zip(self.names, q, strict=True))
        signed = np.stack([sense * table for sense, table in zip(rows.sense, q, strict=True)])
        self.values, self.tables = self._advantages(signed, seed)
        self.log_base = np.log(np.maximum(base, SMALL))
        self.weights = episode_weights(rows, base, propensity)

    def _advantages(self, q: Floats, seed: int) -> tuple[tuple[ValueTrees, ...], Floats]:
        rows = self.rows
        v = (self.base * q).sum(2)
        known = np.flatnonzero(rows.following > -2)
        after = rows.following[known]
        goes_on = after >= 0
        models, tables = [], np.zeros_like(q)
        for j, signal in enumerate(rows.signals):
            y = signal[known] - v[j][known]
            y[goes_on] += rows.discount * v[j][after[goes_on]]

            def fitted(part: Flags, y: Floats = y) -> ValueTrees:
                x, action = rows.x[known[part]], rows.log.action[known[part]]
                return ValueTrees.fit(x, action, y[part], rows.actions, seed, LEAVES)

            for fold in (0, 1):
                here = np.flatnonzero(self.problem.folds == fold)
                trees = fitted(self.problem.folds[known] != fold)
                for a in range(rows.actions):
                    tables[j, here, a] = trees(rows.x[here], np.full(len(here), a))
            models.append(fitted(np.ones(len(known), bool)))
        return tuple(models), tables - (self.base * tables).sum(2, keepdims=True)

    def find(self, share: float, distance: float, held_out: int) -> Tilt | None:
        """The tilt of most reward within the limits; None where μ itself leaves too few effective episodes.

        Args:
            share: of the learning part's episodes that must stay effective.
            distance: z, standard errors of the held-out part that each cost must keep from its limit.
            held_out: episodes of the held-out part.
        """
        rows = self.rows
        if self._effective(self.base) < share:
            return None
        deviation = np.maximum(np.sqrt((self.base * self.tables**2).sum(2).mean(1)), 1e-12)
        unit = deviation[0] / deviation[1:]
        wider = np.sqrt(len(rows.starts) / held_out)

        def trial(now: Floats) -> tuple[float, Floats, Tilt]:
            found = self._strongest(now * unit, share, float(deviation[0]))
            over = found.estimate[1:] + distance * wider * found.error[1:] - rows.limits
            return float(found.estimate[0]), over / np.maximum(found.error[1:], 1e-12), found

        return multipliers.search(trial, np.zeros(len(unit)), 1.0, TRIALS, 100.0)

    def _strongest(self, prices: Floats, share: float, deviation: float) -> Tilt:
        objective = self.tables[0] - np.tensordot(prices, self.tables[1:], 1)
        scale = max(float(np.sqrt((self.base * objective**2).sum(1).mean())), 1e-12)
        beta = largest(lambda b: self._effective(tilt(self.log_base, objective, b / scale)) >= share) / scale
        target = tilt(self.log_base, objective, beta)
        value, error = self.evaluate(target)
        return Tilt(self.values, prices, beta, value, error, self._effective(target))

    def evaluate(self, target: Floats) -> tuple[Floats, Floats]:
        """Weighted doubly robust totals [1 + K] and standard errors, with the Q of μ."""
        problem = dataclasses.replace(self.problem, target=target)
        each = [doubly_robust(problem, name, self.q[name]).influence for name in self.names]
        n = len(self.rows.starts)
        value = np.array([np.nan if one is None else one.mean() for one in each])
        error = np.array([np.inf if one is None else one.std(ddof=1) / np.sqrt(n) for one in each])
        return self.rows.sense * value, error

    def _effective(self, target: Floats) -> float:
        """The smaller of what the weights are and what they are expected to be, E_μ[w²] ≈ E[Π_t Σ_a π²/μ]."""
        moment = np.log((target**2 / np.maximum(self.base, SMALL)).sum(1))
        spread = np.bincount(self.rows.log.episode, moment)
        own = effective_share(self.rows, self.base, self.problem.propensity)
        expected = own / np.average(np.exp(np.minimum(spread, 50.0)), weights=self.weights)
        return float(min(expected, effective_share(self.rows, target, self.problem.propensity)))


def near(
    rows: Rows, base: Floats, q: Floats, nats: float, margin: float, evaluate: Callable[[Floats], Floats]
) -> tuple[Floats, float, Floats]:
    """λ [K], β and believed totals [1 + K] of μ exp(β(Q_0 − Σ λ_k Q_k)), within m τ and Σ_t KL(π ‖ μ) ≤ `nats`.

    Args:
        rows: of which the KL divergence is the mean of episodes.
        base: μ [N, A].
        q: [1 + K, N, A] in one sense.
        nats: that an episode may differ from μ.
        margin: m, share of the limits.
        evaluate: probabilities [N, A] → [1 + K] totals of a policy.
    """
    log_base = np.log(np.maximum(base, SMALL))
    deviation = np.maximum(np.sqrt((base * (q - (base * q).sum(2, keepdims=True)) ** 2).sum(2).mean(1)), 1e-12)
    unit, scale = deviation[0] / deviation[1:], np.maximum(rows.totals[1:].std(1), 1e-9)
    aim = aimed(rows, margin)

    def trial(now: Floats) -> tuple[float, Floats, tuple[Floats, float, Floats]]:
        objective = q[0] - np.tensordot(now * unit, q[1:], 1)

        def close(beta: float) -> bool:
            target = tilt(log_base, objective, beta / deviation[0])
            each = (target * (np.log(np.maximum(target, SMALL)) - log_base)).sum()
            return bool(each / len(rows.starts) <= nats)

        beta = largest(close) / float(deviation[0])
        value = evaluate(tilt(log_base, objective, beta))
        return float(value[0]), (value[1:] - aim) / scale, (now * unit, beta, value)

    return multipliers.search(trial, np.zeros(len(unit)), 1.0, TRIALS, 100.0)


def tilt(log_base: Floats, objective: Floats, beta: float) -> Floats:
    """[N, A] π_β"""
    return np.asarray(special.softmax(log_base + beta * objective, axis=1), np.float64)


def largest(allowed: Callable[[float], bool]) -> float:
    """β up to `LARGEST_TILT`, by halving."""
    low, high = 0.0, LARGEST_TILT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def episode_weights(rows: Rows, target: Floats, propensity: Floats) -> Floats:
    """[E] Π π/b, up to a factor."""
    logged = np.take_along_axis(target, rows.log.action[:, None], 1)[:, 0]
    logs = np.bincount(rows.log.episode, np.log(np.maximum(logged, SMALL) / propensity))
    return np.asarray(np.exp(logs - logs.max()), np.float64)


def effective_share(rows: Rows, target: Floats, propensity: Floats) -> float:
    """Of the episodes: (Σw)²/Σw² over their number."""
    return effective_size(episode_weights(rows, target, propensity)) / len(rows.starts)
