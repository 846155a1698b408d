"""Exact solution of a log's own model under limits on means and on tails of an episode's cost.

    max E Σ γᵗ r   s.t.   E C_i ≤ c_i,   P(C_j > θ_j) ≤ ε_j,   CVaR_α(C_k) ≤ v_k,   every step's cost ≤ m_l

over all policies with memory: on the augmented problem (`augment`) all but the CVaR are linear in the occupancy. CVaR
is min_t t + E[(C − t)₊]/(1 − α) (Rockafellar and Uryasev), so it is within v where some t ≤ v in the support of C has
E[(C − t)₊] ≤ (1 − α)(v − t): one program per t, of which the best is the optimum. A policy's randomness counts: the
tail is that of the mixture.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.tabular.cmdp import CMDP, as_matrix, occupancy, plan
from pdocrl.tabular.counts import Counts, Floats
from pdocrl.tabular.io.rows import split_label
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.few_rows import choose, frequent_only
from pdocrl.tabular.solvers.lagrangian import careful
from pdocrl.tabular.tails.augment import Augmented, augment
from pdocrl.tabular.tails.result import Line, Remembered, TailResult

THRESHOLDS = 200  # programs that a CVaR may take; beyond, evenly chosen thresholds, which can only cost reward
GUESS = "the log keeps no rows of it, and it is taken as 0 or one size there"
NOTHING = 1e-12  # a mass that counts as none


def solve_tails(
    counts: Counts,
    limits: Limits,
    gamma: float | None = None,
    min_count: int | None = None,
    unit: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> TailResult:
    """The best policy of the log's own model that satisfies limits on means and tails of an episode's cost.

    Args:
        counts: of a log counted with a horizon, so that states know their step.
        limits: such as ["P(cost>20)<=0.05", "CVaR90(cost)<=40", "max(cost)<=1", "cost<=10"]; means are of totals.
        gamma: discount of the reward, above 0 and at most 1, the default; costs are totals.
        min_count: pairs with fewer rows are left out; by default as `tabular.solve` chooses.
        unit: of spending, to which costs are rounded up; by default one that is exact, or a hundredth of the limit.
        progress: is told in words what is being done.

    Raises:
        PdocrlError: where the log has no horizon, or remembering what was spent makes too many states.
    """
    chosen, discount = as_limits(limits), 1.0 if gamma is None else gamma
    for limit in chosen:
        limit.index(counts.cost_names)
    if counts.horizon is None:
        tail = next((limit for limit in chosen if limit.tail), None)
        raise PdocrlError(f"limit {tail} is on an episode's total: say how long episodes are, horizon=… (--horizon).")
    scaled, delta = counts.stationary(discount)
    if min_count is None:
        kept, min_count = choose(scaled, delta, [limit for limit in chosen if not limit.tail])
    else:
        kept = frequent_only(scaled, min_count)
    progress("adding what was spent to the states")
    problem = augment(counts.only(kept.n > 0), chosen, discount, unit)
    rows = _Rows(problem, chosen)
    found, scan = _best(rows, progress)
    pi = _completed(rows, found)
    mass = _totals(problem, pi)
    remembered = _remembered(problem, mass)
    logged = _logged(rows, counts)
    feasible = found.status != "infeasible"
    return TailResult(
        status=found.status,
        value=float(np.vdot(mass, rows.reward)),
        limits=list(chosen),
        costs=[rows.measure(i, mass, remembered) for i in range(len(chosen))],
        log_value=logged[0],
        log_costs=logged[1:],
        multipliers=(found.lam * rows.reward_size / rows.sizes).tolist() if feasible else found.lam.tolist(),
        lower=float(np.vdot(mass, rows.reward)),
        upper=scan.bound * rows.reward_size if feasible else float(np.vdot(mass, rows.reward)),
        gamma=discount,
        horizon=counts.horizon,
        remembered=remembered,
        thresholds=scan.thresholds,
        states=len(problem.base),
        pairs=int(problem.tried.sum()),
        min_count=min_count,
        rows=counts.size,
        notes=_notes(problem, scan, mass),
        actions=list(counts.actions),
        lines=_lines(problem, pi, mass),
        unseen=careful(counts.mu, _constraints(counts, chosen)).tolist(),
    )


def _constraints(counts: Counts, limits: Sequence[Limit]) -> Floats:
    """[I, S, A] the limited columns, with the sign of their limit."""
    g = [limit.sign * counts.costs[limit.index(counts.cost_names)] for limit in limits]
    return np.reshape(g, (-1, *counts.shape))


class _Rows:
    """Every limit as a row of expected signals: ⟨mass, signal⟩ ≥ τ."""

    def __init__(self, problem: Augmented, limits: Sequence[Limit]) -> None:
        self.problem, self.limits = problem, limits
        counts, alias = problem.counts, problem.stands_for
        self.left = problem.remaining[:, None] * problem.dead[:, None]  # steps of which nothing is known
        worst = min(float(counts.r.min()), 0.0)
        reward = np.take_along_axis(counts.r[problem.base], alias, axis=1) + worst * self.left
        self.reward = reward * (problem.gamma ** counts.steps[problem.base].astype(np.float64))[:, None]  # [X, A]
        self.reward_size = float(np.abs(self.reward).max()) or 1.0
        self.sizes = np.ones(len(limits))
        self.fixed = [None if limit.measure == "cvar" else self._signal(limit) for limit in limits]
        for i, (limit, signal) in enumerate(zip(limits, self.fixed, strict=True)):
            if limit.measure == "mean":
                assert signal is not None
                self.sizes[i] = float(np.abs(signal).max()) or 1.0
            elif limit.measure == "cvar":
                self.sizes[i] = abs(limit.value) or 1.0

    def thresholds(self, limit: Limit) -> Floats:
        """The t of a CVaR's programs: spendings up to its value; a smaller t asks that no episode cost more than v."""
        column = self.problem.columns[self.problem.index(limit.name)]
        found = np.union1d([0], self.problem.totals(self.problem.index(limit.name))) * column.unit
        found = found[found <= limit.value + 1e-9 * column.unit]
        if len(found) > THRESHOLDS:
            found = found[np.unique(np.linspace(0, len(found) - 1, THRESHOLDS).round().astype(np.int64))]
        return found

    def model(self, thresholds: Sequence[float | None]) -> CMDP:
        """The problem with each CVaR at a threshold, signals in units of their size."""
        signals, tau = [], []
        for i, (limit, t) in enumerate(zip(self.limits, thresholds, strict=True)):
            fixed = self.fixed[i]
            signal = self._above(limit, float(t or 0.0)) if fixed is None else fixed
            room = limit.value - (t or 0.0) if limit.measure == "cvar" else limit.value
            sign = limit.sign
            signals.append(sign * signal / self.sizes[i])
            tau.append(sign * (0.0 if limit.measure == "max" else room) / self.sizes[i])
        return self.problem.model(signals, np.array(tau), self.reward / self.reward_size)

    def measure(self, i: int, mass: Floats, remembered: Sequence[Remembered]) -> float:
        """What a limit's measure is for a policy's occupancy [X, A]; of `max`, the expected number of larger steps."""
        limit, fixed = self.limits[i], self.fixed[i]
        if limit.measure in {"exceedance", "cvar"}:
            return next(one for one in remembered if one.name == limit.name).measure(limit)
        assert fixed is not None
        return float(np.vdot(mass, fixed))

    def _signal(self, limit: Limit) -> Floats:
        """[X, A] of all but a CVaR."""
        problem, counts = self.problem, self.problem.counts
        if limit.measure == "mean":
            costs = counts.costs[limit.index(counts.cost_names)]
            worst = max(float(costs.max()), 0.0) if limit.sense == "<=" else min(float(costs.min()), 0.0)
            return np.asarray(np.take_along_axis(costs[problem.base], problem.stands_for, axis=1) + worst * self.left)
        if limit.measure == "max":
            cost = problem.outcomes.cost[problem.tailed.index(limit.name)]
            larger = (cost > limit.value * (1 + 1e-12)).astype(np.float64)
            return problem.expected(larger[problem.edges.outcome]) + (self.left > 0)
        assert limit.threshold is not None
        k = problem.index(limit.name)
        column = problem.columns[k]
        before, after = problem.spent_after(k)
        room = limit.threshold + 1e-9 * column.unit
        crossed = ((before <= room) & (after > room)).astype(np.float64)
        inside = problem.spent[:, k] * column.unit <= room
        return problem.expected(crossed) + (self.left > 0) * inside[:, None]

    def _above(self, limit: Limit, t: float) -> Floats:
        """[X, A] of E[(C − t)₊]/(1 − α)."""
        problem = self.problem
        assert limit.level is not None
        k = problem.index(limit.name)
        before, after = problem.spent_after(k)
        rises = np.maximum(after - t, 0) - np.maximum(before - t, 0)
        worst = self.left * float(problem.units[k].max(initial=0)) * problem.columns[k].unit
        spent = problem.spent[:, k, None] * problem.columns[k].unit
        unknown = np.maximum(spent + worst - t, 0) - np.maximum(spent - t, 0)
        return (problem.expected(rises) + np.where(self.left > 0, unknown, 0.0)) / (1 - limit.level)


class _Scan:
    """What the programs of all thresholds say."""

    def __init__(self, thresholds: list[float | None], bound: float, thinned: bool) -> None:
        self.thresholds, self.bound, self.thinned = thresholds, bound, thinned


def _best(rows: _Rows, progress: Callable[[str], None]) -> tuple[exact.ExactSolution, _Scan]:
    """The best over all thresholds of the CVaRs; where none is feasible, the one that misses least."""
    grids: list[Sequence[float | None]] = []
    thinned = False
    for limit in rows.limits:
        if limit.measure != "cvar":
            grids.append([None])
            continue
        grid = rows.thresholds(limit)
        thinned |= len(grid) == THRESHOLDS
        grids.append(grid.tolist())
    best: tuple[exact.ExactSolution, list[float | None]] | None = None
    bound = -np.inf
    points = list(itertools.product(*grids))
    for number, thresholds in enumerate(points):
        progress(f"program {number + 1} of {len(points)}")
        cmdp = rows.model(thresholds)
        found = exact.solve(cmdp)
        bound = max(bound, found.bound)
        if best is None or _rank(found, cmdp) > _rank(best[0], rows.model(best[1])):
            best = found, list(thresholds)
    assert best is not None, "a CVaR within v ≥ 0 has the threshold 0"
    return best[0], _Scan(best[1], bound, thinned)


def _rank(found: exact.ExactSolution, cmdp: CMDP) -> tuple[bool, float]:
    """Feasible before not, then by value, or by how little is missed."""
    if found.status == "infeasible":
        return False, -float((cmdp.tau - found.constraints).max(initial=0))
    return True, found.value


def _completed(rows: _Rows, found: exact.ExactSolution) -> Floats:
    """The policy [X, A], planned anew in states it never comes to: with prices above λ, limits come before reward."""
    problem = rows.problem
    mass = problem.merged(found.mu)
    total = mass.sum(axis=1, keepdims=True)
    reached = total > NOTHING
    pi = np.where(reached, mass / np.where(reached, total, 1), 0.0)
    if not reached.all():
        cmdp = rows.model([0.0 if limit.measure == "cvar" else None for limit in rows.limits])
        signals = cmdp.r + np.tensordot(1 + 2 * found.lam, cmdp.g, axes=1)
        actions = plan(cmdp, signals, accuracy=1e-9).actions
        pi = np.where(reached, pi, problem.merged(as_matrix(actions, pi.shape[1])))
    return np.asarray(pi)


def _totals(problem: Augmented, pi: Floats) -> Floats:
    """[X, A] the expected number of visits, at most one per step."""
    cmdp = problem.model([], np.zeros(0), np.zeros(problem.shape))
    return np.asarray(occupancy(cmdp, pi) * problem.weight[:, None])


def _logged(rows: _Rows, counts: Counts) -> list[float]:
    """Reward and each limit's measure of who made the log: of its episodes where kept, else in its model."""
    problem, paths = rows.problem, counts.trajectories
    if paths is None or len(paths) < counts.size:
        behaviour = problem.counts.n / np.maximum(problem.counts.n.sum(axis=1, keepdims=True), 1)
        mass = _totals(problem, np.where(problem.dead[:, None], 1 / problem.shape[1], behaviour[problem.base]))
        own = _remembered(problem, mass)
        return [float(np.vdot(mass, rows.reward)), *(rows.measure(i, mass, own) for i in range(len(rows.limits)))]
    episode = np.unique(paths.episode, return_inverse=True)[1]
    discount = problem.gamma ** counts.steps[paths.pair // counts.n_actions].astype(np.float64)
    found = [float(np.bincount(episode, paths.signals[0] * discount).mean())]
    for limit in rows.limits:
        cost = paths.signals[1 + limit.index(counts.cost_names)]
        if limit.measure == "max":
            found.append(float((cost > limit.value).sum() / (episode.max() + 1)))
        else:
            found.append(limit.of(np.bincount(episode, cost)))
    return found


def _remembered(problem: Augmented, mass: Floats) -> list[Remembered]:
    """How an episode's total is distributed: what is spent where it ends."""
    edges = problem.edges
    flow = mass.ravel()[edges.pair] * edges.chance
    ends = problem.outcomes.to[edges.outcome] == problem.counts.n_states
    dead = mass.sum(axis=1) * problem.dead
    found = []
    for k, column in enumerate(problem.columns):
        before, after = problem.spent_after(k)
        level = np.round(after / column.unit).astype(np.int64)
        totals = problem.totals(k)
        chances = np.bincount(np.searchsorted(totals, level[ends]), weights=flow[ends], minlength=len(totals) + 1)
        chances = np.r_[chances[: len(totals)], chances[len(totals) :].sum()]
        mean = float(flow @ (after - before))
        worst = problem.remaining * float(problem.units[k].max(initial=0)) * column.unit
        mean += float(dead @ worst)
        chances[-1] += float(dead.sum())
        values = totals * column.unit
        over = float(chances[-1])
        rest = mean - float(chances[:-1] @ values)
        found.append(
            Remembered(
                name=column.name,
                unit=column.unit,
                cap=column.cap,
                exact=column.exact,
                error=column.error,
                values=values.tolist(),
                probabilities=chances[:-1].tolist(),
                over=over,
                over_mean=rest / over if over > NOTHING else column.limit,
            )
        )
    return found


def _lines(problem: Augmented, pi: Floats, mass: Floats) -> list[Line]:
    """π > 0, line by line; dead ends left out."""
    labels = [split_label(label) for label in problem.counts.states]
    lines = []
    for x, a in np.argwhere((pi > NOTHING) & ~problem.dead[:, None]):
        state, step = labels[problem.base[x]]
        lines.append(
            Line(
                state=state,
                step=step,
                spent=problem.spent[x].tolist(),
                action=problem.counts.actions[a],
                probability=float(pi[x, a]),
            )
        )
    return lines


def _notes(problem: Augmented, scan: _Scan, mass: Floats) -> list[str]:
    """What a reader should not overlook."""
    found = [
        f"costs of `{column.name}` are rounded up to multiples of {column.unit:g}; an episode's total may be counted "
        f"up to {column.error:.4g} too large, never too small."
        for column in problem.columns
        if not column.exact
    ]
    if problem.outcomes.known != "rows":
        how = "how is taken from a sample of the log's episodes" if problem.outcomes.known == "sample" else GUESS
        found.append(f"a cost varies within a transition; {how}.")
    if scan.thinned:
        found.append(
            f"of the CVaR's thresholds {THRESHOLDS} were tried, so that another may give a little more reward."
        )
    lost = float((mass.sum(axis=1) * problem.dead).sum())
    if lost > 1e-6:
        found.append(f"in {100 * lost:.2g} % of episodes the policy gets where the log was cut; the worst is assumed.")
    return found
