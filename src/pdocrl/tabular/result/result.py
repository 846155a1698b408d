"""A result in memory: the record that is saved, printed and drawn, and the arrays it was made of."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limit
from pdocrl.records import write_record
from pdocrl.tabular.cmdp import occupancy
from pdocrl.tabular.counts import Counts, Ints, Label
from pdocrl.tabular.inference.bootstrap import Intervals, widened
from pdocrl.tabular.inference.confidence import SafetyTest, named
from pdocrl.tabular.inference.markov import markov_test
from pdocrl.tabular.inference.sensitivity import Choice, Coverage, cover
from pdocrl.tabular.result import tables
from pdocrl.tabular.result.policy import Row, TabularPolicy
from pdocrl.tabular.result.record import (
    ExplainedAction,
    Frontier,
    Logged,
    Numbers,
    PolicyLines,
    SolvedRecord,
    assumptions,
)
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.few_rows import BELIEVED
from pdocrl.tabular.solvers.lagrangian import Certificate, Floats, Lagrangian, Point, careful, pessimistic_model
from pdocrl.tabular.solvers.saddle import Solution, outcome


class PolicyTable(NDArray[np.float64]):
    """π(a|s) as an array [S, A], in the order of `result.states` and `.actions`, that also acts in named states.

    What is cut from it or computed with it is an array alone.
    """

    _result: Result | None = None

    @classmethod
    def of(cls, policy: NDArray[np.float64], result: Result | None = None) -> PolicyTable:
        table = np.asarray(policy).view(cls)
        table._result = result
        return table

    def __array_finalize__(self, source: Any) -> None:
        self._result = None

    @cached_property
    def named(self) -> TabularPolicy:
        """The policy by names of states and actions, as `save` writes it."""
        if self._result is None:
            raise PdocrlError("this array was cut from a policy or computed with one; ask the result's own `policy`.")
        from pdocrl.tabular.result.report import policy_content

        return TabularPolicy(policy_content(self._result))

    def act(self, row: Row, step: int = 0, deterministic: bool = False) -> Any:
        """An action for a state, or for columns by name; drawn, or the likeliest. See `TabularPolicy.act`."""
        return self.named.act(row, step, deterministic)

    def sample(self, row: Row, rng: Any = None, step: int = 0) -> Any:
        """An action drawn with a NumPy generator or a seed."""
        return self.named.sample(row, rng, step)

    def log_prob(self, row: Row, action: Any, step: int = 0) -> Any:
        """log π(a|s)."""
        return self.named.log_prob(row, action, step)

    def probabilities(self, row: Row, step: int = 0) -> dict[Any, float]:
        """{action: probability} of the actions it may take."""
        return self.named.probabilities(row, step)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A policy and what is known about it. Values and costs are (1−γ)J, or per episode where states have a step.

        result = pdocrl.solve("log.csv", gamma=0.97, limits={"stockout": 0.02})
        result.policy.act(state), result.save("policy/"), result.frontier("stockout"), result.explain(state)

    All but arrays is in the record, by column name; properties show it in the order of `limits`.
    """

    record: SolvedRecord  # what result.json holds
    policy: PolicyTable  # [S, A], an array that acts: `result.policy.act(state)`
    mu: Floats  # [S, A] μ^π, the policy's share of time at each pair of the log's own model
    mu_D: Floats  # [S, A] μ̂_D, the log's
    n: Ints | None  # [S, A] rows of the log at each pair
    careful: Floats  # [A] what to do in states the log has nothing of: its mix of the actions that cost least
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    point: Point  # where the saddle point was found, from which the certificate comes
    mixture: Mixture | None  # of pdocrl and pdorl
    counts: Counts | None = None  # what was solved; None of a Lagrangian

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", PolicyTable.of(self.policy, self))

    def __repr__(self) -> str:
        S, A = self.policy.shape
        costs = ", ".join(f"{limit} (is {cost:.4g})" for limit, cost in zip(self.limits, self.costs, strict=True))
        return f"Result({self.status}: value {self.value:.4g}; {costs or 'no limits'}; {S} states, {A} actions)"

    @property
    def status(self) -> str:
        """Of `solvers.saddle.Status`."""
        return self.record.status

    @property
    def value(self) -> float:
        """Of the policy in the log's own model, where leaving the data is followed by the worst."""
        return self.record.value

    @property
    def costs(self) -> Floats:
        """[I] likewise, of each limited column."""
        return _array(self.record.costs)

    @property
    def log_value(self) -> float:
        """The value of the policy that made the log."""
        return self.record.log.value

    @property
    def log_costs(self) -> Floats:
        """[I] likewise."""
        return _array(self.record.log.costs)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """As they were given."""
        return self.record.limits_given

    @property
    def tightened(self) -> Floats:
        """[I] the limits that were solved for; other than `limits` only with a confidence."""
        return _array(self.record.tightened)

    @property
    def multipliers(self) -> Floats:
        """[I] λ: what one unit of each limit is worth in reward."""
        return _array(self.record.multipliers)

    @property
    def certificate(self) -> Certificate:
        """Bounds of the saddle value."""
        return Certificate(*self.record.bounds)

    @property
    def C(self) -> float:
        """The bound on w = μ^π/μ_D; infinite where there is none."""
        return np.inf if self.record.C is None else self.record.C

    @property
    def slater_margin(self) -> float:
        """How far inside all limits a covered policy can be; negative if none satisfies them."""
        return np.inf if self.record.slater_margin is None else self.record.slater_margin

    @property
    def coverage(self) -> Coverage:
        """How far the log supports the policy."""
        return self.record.coverage

    @property
    def intervals(self) -> Intervals | None:
        """Of value and costs."""
        return self.record.intervals

    @property
    def choices(self) -> list[Choice]:
        """What other C would have given, if C was chosen."""
        return self.record.choices

    @property
    def method(self) -> str:
        """Of `workflow.METHODS` or `BASELINES`."""
        return self.record.method

    @property
    def gamma(self) -> float:
        """The discount."""
        return self.record.gamma

    @property
    def unit(self) -> Literal["step", "discounted", "episode"]:
        """Of value and costs; see `solve`."""
        return self.record.unit

    @property
    def shown(self) -> SafetyTest | None:
        """With a confidence: what the held-out part says of the policy."""
        return self.record.confidence

    @property
    def min_count(self) -> int:
        """Pairs with fewer rows were left out, but for each state's most frequent."""
        return self.record.min_count

    @property
    def low_count_share(self) -> float:
        """The share of the policy's steps at pairs with fewer than `BELIEVED` rows: there its estimate is a guess."""
        return self.record.low_count_share

    def _repr_html_(self) -> str:
        record = self.record
        return f"<p>{html.escape(repr(self))}</p>{tables.outcome(record).notebook(record.notes or [])}"

    def summary(self) -> str:
        """Reward and costs against the limits, how far to trust them, notes and assumptions, as text."""
        record = self.record
        shown = [table.markdown() for table in (tables.outcome(record), tables.trust(record))]
        notes = [f"note: {note}" for note in record.notes or []]
        return "\n".join([*shown, *notes, f"assumes: {'; '.join(record.assumptions or [])}."])

    def save(self, folder: str | os.PathLike[str], unseen: str = "careful") -> list[Path]:
        """Write the folder that `pdocrl solve --out` writes; `pdocrl.load_policy` and `pdocrl.report` read it.

        Args:
            folder: for policy.json, act.py, policy.parquet, result.json, map.json and solve.png.
            unseen: what the policy does in states the log never had: careful (of what the log does, what costs least),
                behaviour, uniform, refuse, or an action.
        """
        from pdocrl.tabular import analysis
        from pdocrl.tabular.result import report

        folder = Path(folder)
        files = report.save(self, folder, unseen)
        if self.counts is None:
            return files
        write_record(folder / analysis.FILE, analysis.policy_map(self.counts, self))
        return [*files, folder / analysis.FILE]

    def frontier(self, name: str, points: Sequence[float] | None = None, resamples: int = 50) -> Frontier:
        """The problem solved again with the limit on column `name` at each of `points`, all else the same.

        By default eight points from a quarter of the limit to twice it. `.points` of the answer hold limit, value,
        interval, cost, multiplier and status; `.draw(axes)` draws them.
        """
        from pdocrl.tabular import analysis

        counts, own = self._counted("a frontier"), {limit.name: limit.value for limit in self.limits}
        if name not in counts.cost_names:
            raise UnknownNameError("cost column", name, counts.cost_names)
        if points is None and not own.get(name):
            raise PdocrlError(f"there is no limit on {name} to begin from: give points=[…].")
        along = [float(x) for x in (np.linspace(0.25, 2, 8) * own[name] if points is None else points)]
        return analysis.frontier_of(analysis.frontier(counts, self, name, along, resamples), name)

    def explain(self, state: Label, step: int = 0) -> tuple[ExplainedAction, ...]:
        """What the log did in a state, what the policy does, and what each action would bring from there on."""
        from pdocrl.tabular import analysis

        return analysis.explain(self._counted("an explanation"), self, state, step)

    def _counted(self, what: str) -> Counts:
        if self.counts is None:
            raise PdocrlError(f"{what} takes the log; this result is of a Lagrangian.")
        return self.counts

    def telling(self, **fields: Any) -> Result:
        """The same with other fields of the record, and what follows from them."""
        return dataclasses.replace(self, record=_derived(structs.replace(self.record, **fields), self.mu, self.n))

    def of_log(self, counts: Counts, gamma: float | None) -> Result:
        """The result of these counts; where they tell steps apart, in the words of episodes."""
        result = dataclasses.replace(self, counts=counts)
        if counts.horizon is None:
            return result
        lines = PolicyLines(self.policy, self.states, self.actions, with_steps=True)
        return result.telling(gamma=1.0 if gamma is None else gamma, unit="episode", policy=lines)


def make_result(
    counts: Counts | None,
    limits: tuple[Limit, ...],
    solution: Solution,
    method: str,
    spread: Intervals | None,
    choices: tuple[Choice, ...],
    min_count: int,
    whole: Lagrangian,
    shown: SafetyTest | None = None,
) -> Result:
    """All that is said about a solution; `whole` is of the log with all its pairs."""
    L, signs, C = solution.L, np.array([limit.sign for limit in limits]), solution.sets.C
    log = outcome(pessimistic_model(whole), whole.behaviour)
    mu = occupancy(pessimistic_model(L), solution.policy)
    states, actions = (counts.states, counts.actions) if counts else (tuple(range(n)) for n in L.r.shape)
    status: str = solution.status
    if shown is not None and shown.possible:
        status = "shown" if shown.reached else "not_shown"
    markov = None if counts is None else markov_test(counts, L.gamma, solution.policy, limits)
    if markov is not None and markov.failed and not status.startswith("infeasible"):
        status = "not_markov"
        shown = None if shown is None else structs.replace(shown, reached=False)
    if markov is not None and spread is not None:
        spread = widened(spread, markov)
    n = None if counts is None else counts.n
    record = SolvedRecord(
        status=status,
        value=float(solution.estimate[0]),
        costs=named(limits, signs * solution.estimate[1:] + 0.0),  # no −0
        log=Logged(value=float(log[0]), costs=named(limits, signs * log[1:] + 0.0)),
        limits=named(limits, np.array([limit.value for limit in limits])),
        senses=named(limits, np.array([limit.sense for limit in limits])),
        tightened=named(limits, signs * L.tau),
        multipliers=named(limits, solution.multipliers),
        slater_margin=solution.margin if limits else None,
        certificate=solution.certificate.gap,
        bounds=solution.certificate,
        coverage=cover(L, mu, states),
        intervals=spread,
        method=method,
        gamma=L.gamma,
        unit="step" if L.P[L.seen.ravel()].sum() > L.seen.sum() - 1e-6 else "discounted",
        units={},
        C=C if np.isfinite(C) else None,
        B=solution.sets.B,
        min_count=min_count,
        low_count_share=0.0,
        choices=list(choices),
        policy=PolicyLines(solution.policy, states, actions),
        confidence=shown,
        hidden=None if markov is None else list(markov.failed) or None,
        assumptions=assumptions(markov, shown),
    )
    return Result(
        record=_derived(record, mu, n),
        policy=PolicyTable.of(solution.policy),
        mu=mu,
        mu_D=L.mu_D,
        n=n,
        careful=careful(whole.mu_D, whole.g),
        states=states,
        actions=actions,
        point=solution.point,
        mixture=solution.mixture,
    )


def _derived(record: SolvedRecord, mu: Floats, n: Ints | None) -> SolvedRecord:
    """The record with what follows from its other fields: value and costs in other units, steps on few rows."""
    mass, share, shown = max(float(mu.sum()), 1e-300), 0.0, record.confidence
    enough = record.min_count == 1 if shown is None else shown.one_row_is_enough
    if n is not None and not enough:
        share = float(mu[n < BELIEVED].sum() / mass)
    units: dict[str, Numbers] = {}
    if record.unit == "discounted":  # where episodes end: per step taken, and per episode, discounted
        both = {"value": record.value, **record.costs}
        units["per step taken"] = {name: x / mass for name, x in both.items()}
        units["per episode, discounted"] = {name: x / (1 - record.gamma) for name, x in both.items()}
    return structs.replace(record, units=units, low_count_share=share)


def _array(by_name: Numbers) -> Floats:
    return np.array(list(by_name.values()), dtype=np.float64)
