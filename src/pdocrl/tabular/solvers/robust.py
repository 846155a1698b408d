"""The policy whose costs the log can bound best, or the best trade of reward against those bounds.

    min_μ  price · Σ_i f_i(μ) − ⟨μ, r⟩,   f_i(μ) = ⟨μ, c_i⟩ + h + √(z² Σ μ²v/n + h²),   h = z² D Σ(μ²/n) / 2Σμ

over the occupancies μ of the log's own model. f is the upper end of `bounds.score` for a policy with occupancy μ, with
v and D, the variance and the size of surprises, as they are under the log's own policy. Σμ²/n is least where the log
has most rows, so a plan for f avoids both what has cost much and what has hardly been tried; a plan for ⟨μ, c⟩ alone
goes to the luckiest corner of the log. f is convex and its slope a cost per pair, so each round of Frank and Wolfe's
method is one plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular.cmdp import as_matrix, extract, occupancy, plan
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Units, pessimistic_model
from pdocrl.tabular.solvers.off_support import complete_policy

ROUNDS = 30
STEPS = np.append(0.7 ** np.arange(24), 0.0)  # of a round towards its plan, of which the best is taken
ACCURACY = 1e-7


def plan_for_bounds(counts: Counts, L: Lagrangian, limits: Sequence[Limit], z: float, price: float = np.inf) -> Floats:
    """[S, A] for counts and their L; at an infinite price reward does not count."""
    units = Units.of(L)
    scaled = units.scale(L)
    model = pessimistic_model(scaled)
    worth = 0.0 if np.isinf(price) else 1 / price
    bounds = [_Bound(counts, L, limit, z, float(unit)) for limit, unit in zip(limits, units.constraints, strict=True)]
    gains = model.g.sum(axis=0) + worth * model.r
    mu, V = occupancy(model, scaled.behaviour), None
    for _ in range(ROUNDS):
        slope = sum((bound.slope(mu) for bound in bounds), np.zeros_like(mu))
        best = plan(model, gains - slope, start=V, accuracy=ACCURACY)
        V = best.V
        towards = occupancy(model, as_matrix(best.actions, model.n_actions))
        change = towards - mu
        losses = sum((bound.along(mu, change) for bound in bounds), -STEPS * float(np.vdot(change, gains)))
        best_step = int(np.argmin(losses))
        if not STEPS[best_step]:
            break
        mu = mu + STEPS[best_step] * change
    return complete_policy(scaled, mu.sum(axis=1), extract(mu), 1.0 if np.isinf(price) else price)


class _Bound:
    """h + √(z² Σ μ²v/n + h²) of one limit, in units of its largest signal."""

    def __init__(self, counts: Counts, L: Lagrangian, limit: Limit, z: float, unit: float) -> None:
        row, high = 1 + limit.index(counts.cost_names), limit.sign < 0
        estimate = PolicyEstimate(counts, L.gamma, L.behaviour)
        off, variance = estimate.surprise(high)
        tried = np.maximum(counts.n, 1)
        self.z2 = z**2
        self.variance = np.where(L.seen, variance[row].reshape(L.r.shape) / unit**2 / tried, 0.0)  # v/n
        self.size = np.where(L.seen, estimate.hidden(off, high)[row] / unit / tried, 0.0)  # D/n

    def along(self, mu: Floats, change: Floats) -> Floats:
        """The bound after each of `STEPS` from μ by a change of it."""
        half, variance = (_squares(weight, mu, change) for weight in (self.size, self.variance))
        half *= self.z2 / 2 / (mu.sum() + STEPS * change.sum())
        return np.asarray(half + np.sqrt(self.z2 * variance + half**2))

    def slope(self, mu: Floats) -> Floats:
        """∂/∂μ, with Σμ held."""
        total = float(mu.sum())
        half = self.z2 * float(np.vdot(mu**2, self.size)) / 2 / total
        root = float(np.sqrt(self.z2 * np.vdot(mu**2, self.variance) + half**2))
        by_half = self.z2 * mu * self.size / total
        return np.asarray(by_half + (self.z2 * mu * self.variance + half * by_half) / max(root, 1e-300))


def _squares(weight: Floats, mu: Floats, change: Floats) -> Floats:
    """Σ weight (μ + step · change)² for each of `STEPS`."""
    at, mixed, beyond = (float(np.vdot(weight, x)) for x in (mu**2, 2 * mu * change, change**2))
    return np.asarray(np.maximum(at + STEPS * mixed + STEPS**2 * beyond, 0))
