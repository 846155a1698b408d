"""Fitted Q iteration with boosted trees under limits: a Lagrangian whose multipliers are searched by evaluation.

    Q_j ← argmin_f Σ_i ( f(x_i, a_i) − g_j,i − γ Q_j(x'_i, π(x'_i)) )²,        j = 0 (reward), 1 … K (costs)
    π(x) = argmax_{a: b(a|x) ≥ β max b(·|x)}  Q_0(x, a) − Σ_k λ_k Q_k(x, a)
    λ:  the policy's costs J_k(π), evaluated to the fixed point by another function class, are at most m τ_k

Ernst, Geurts and Wehenkel, 2005; Le, Voloshin and Yue, 2019 (limits); Fujimoto and others, 2019 (the mask by the
behaviour policy b). Trees are refitted in every iteration. Q starts as the behaviour's own, regressed on what each row
was followed by, so that i iterations look i steps ahead. Q_k itself lags behind λ by as many iterations as an episode
has steps, hence the second evaluation. The margin m < 1 leaves room for error; several margins are passed through,
from careful to bold, and each leaves a policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from pdocrl.approximate import multipliers
from pdocrl.approximate.boosting import ValueTrees
from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Flags, Floats, Ints

LARGEST = 30.0  # multipliers, in standard deviations of the reward per one of the cost
TRIALS = 7  # evaluations per search for multipliers
EVERY = 4  # iterations between searches


@dataclasses.dataclass(frozen=True, eq=False)
class QPolicy:
    """Greedy for Q_0 − Σ λ_k Q_k among the actions allowed."""

    name: str
    values: tuple[ValueTrees, ...]  # 1 + K
    multipliers: Floats  # [K]
    believed: Floats  # [1 + K] totals, as evaluated in the search for λ
    steps: int  # iterations


def behaviour_values(rows: Rows, seed: int = 0) -> tuple[ValueTrees, ...]:
    """Q of the behaviour policy: what was recorded to follow; episodes that were cut short are left out."""
    whole = rows.complete[rows.log.episode]
    whole = whole if whole.sum() >= 50 else np.ones(len(rows), bool)
    x, action = rows.x[whole], rows.log.action[whole]
    return tuple(ValueTrees.fit(x, action, y, rows.actions, seed) for y in rows.to_go[:, whole])


def learn(
    rows: Rows,
    allowed: Flags,
    start: tuple[ValueTrees, ...],
    evaluate: Callable[[Ints], Floats],
    margins: Sequence[float] = (0.75, 0.9, 1.0),
    first: int = 16,
    more: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[QPolicy]:
    """A policy per margin.

    Args:
        rows: to learn from.
        allowed: [N, A] actions the mask leaves.
        start: the behaviour's Q.
        evaluate: actions [N] of a deterministic policy → [1 + K] its expected totals.
        margins: shares of the limits aimed at, in this order; without limits only one policy is learned.
        first: iterations of the first margin; `more` of the others.
        seed: of the trees.
        progress: is told in words what is being done.
    """
    step = _Iteration(rows, allowed, seed)
    values, tables = start, step.tables(start)
    found: list[QPolicy] = []
    prices = np.zeros(len(rows.limits))
    for k, margin in enumerate(margins if len(rows.limits) else [1.0]):
        rounds = min(first if k == 0 else more, rows.horizon)
        for i in range(rounds):
            if i % EVERY == 0 and (k == 0 or i == 0):
                prices, _ = search(step, tables, prices, margin, evaluate)
            values = step.backup(tables, prices)
            tables = step.tables(values)
            progress(f"fitted Q, aiming at {100 * margin:.0f} % of the limits: iteration {i + 1} of {rounds}")
        prices, value = search(step, tables, prices, margin, evaluate)
        found.append(QPolicy(f"fitted Q at {100 * margin:.0f} %", values, prices, value, rounds))
    return found


def search(
    step: _Iteration, tables: Floats, start: Floats, margin: float, evaluate: Callable[[Ints], Floats]
) -> tuple[Floats, Floats]:
    """λ [K] of the most reward whose policy is evaluated within m τ, else of least excess; and its totals [1 + K]."""
    unit = step.scale[0] / step.scale[1:]
    aim = aimed(step.rows, margin)

    def trial(now: Floats) -> tuple[float, Floats, tuple[Floats, Floats]]:
        value = evaluate(greedy(tables, now * unit))
        return float(value[0]), (value[1:] - aim) / step.scale[1:], (now * unit, value)

    return multipliers.search(trial, start / unit, 0.5, TRIALS, LARGEST)


def aimed(rows: Rows, margin: float) -> Floats:
    """[K] m τ, for τ of either sign: a share of the way from the least total there can be."""
    low = np.minimum(rows.totals[1:].min(1), 0.0)
    return np.asarray(low + margin * (rows.limits - low), np.float64)


class _Iteration:
    """One regression for all signals; pairs (row, action) the mask allows are asked for, the others never."""

    def __init__(self, rows: Rows, allowed: Flags, seed: int) -> None:
        self.rows, self.seed = rows, seed
        self.row, self.action = np.nonzero(allowed)
        self.asked = rows.x[self.row]
        self.known = np.flatnonzero(rows.following > -2)
        after = rows.following[self.known]
        self.goes_on, self.after = after >= 0, after[after >= 0]
        self.scale = np.maximum(rows.totals.std(1), 1e-9 + 1e-3 * np.abs(rows.totals).mean(1))

    def tables(self, values: Sequence[ValueTrees]) -> Floats:
        """[1 + K, N, A] Q of allowed pairs, NaN elsewhere."""
        low, high = self.rows.possible
        found = np.full((len(values), len(self.rows), self.rows.actions), np.nan)
        for j, q in enumerate(values):
            found[j, self.row, self.action] = np.clip(q(self.asked, self.action), low[j][self.row], high[j][self.row])
        return found

    def backup(self, tables: Floats, multipliers: Floats) -> tuple[ValueTrees, ...]:
        rows, chosen = self.rows, greedy(tables, multipliers)
        v = np.take_along_axis(tables, chosen[None, :, None], 2)[:, :, 0]
        x, action = rows.x[self.known], rows.log.action[self.known]
        found = []
        for j, signal in enumerate(rows.signals):
            y = signal[self.known].copy()
            y[self.goes_on] += rows.discount * v[j][self.after]
            found.append(ValueTrees.fit(x, action, y, rows.actions, self.seed))
        return tuple(found)


def greedy(tables: Floats, multipliers: Floats) -> Ints:
    """[N] argmax of Q_0 − Σ λ_k Q_k, of pairs that are not NaN."""
    total = tables[0] - np.tensordot(multipliers, tables[1:], 1)
    return np.asarray(np.nanargmax(np.where(np.isnan(total), -np.inf, total), axis=1), np.int64)


def mask(chances: Floats, share: float) -> Flags:
    """[N, A] actions at least `share` times as probable under the behaviour as the most probable one."""
    return np.asarray(chances >= share * chances.max(1, keepdims=True))
