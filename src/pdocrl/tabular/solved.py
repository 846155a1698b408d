"""A result as Python is given it: the policy acts, and the log can be asked more.

result = pdocrl.solve("log.csv", gamma=0.97, limits={"stockout": 0.02})
result.policy.act(state), result.save("policy/"), result.frontier("stockout"), result.explain(state)
"""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limits
from pdocrl.records import write_record
from pdocrl.tabular import analysis, api
from pdocrl.tabular.counts import Counts, Label
from pdocrl.tabular.result import report, tables
from pdocrl.tabular.result.policy import Row, TabularPolicy
from pdocrl.tabular.result.record import ExplainedAction, Frontier
from pdocrl.tabular.result.result import Result
from pdocrl.tabular.solvers.lagrangian import Lagrangian


class PolicyTable(NDArray[np.float64]):
    """π(a|s) as an array [S, A], in the order of `result.states` and `.actions`, that also acts in named states.

    What is cut from it or computed with it is an array alone.
    """

    _result: SolvedResult | None = None

    @classmethod
    def of(cls, policy: NDArray[np.float64], result: SolvedResult | None = None) -> PolicyTable:
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
        return TabularPolicy(report.policy_content(self._result))

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


class FrontierCurve(Frontier, frozen=True, kw_only=True):
    """Results along the limit on a column, that draw themselves."""

    def draw(self, axes: Any = None) -> Any:
        """Reward against the limit on Matplotlib axes (the current ones by default), which are returned."""
        return report.frontier_axes(self, axes)

    def _repr_html_(self) -> str:
        return tables.frontier(self).notebook()


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SolvedResult(Result):
    """A result whose policy acts, and that can be saved, drawn and asked more."""

    policy: PolicyTable  # [S, A], an array that acts: `result.policy.act(state)`

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", PolicyTable.of(self.policy, self))

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
        folder = Path(folder)
        files = report.save(self, folder, unseen)
        if self.counts is None:
            return files
        write_record(folder / analysis.FILE, analysis.policy_map(self.counts, self))
        return [*files, folder / analysis.FILE]

    def frontier(self, name: str, points: Sequence[float] | None = None, resamples: int = 50) -> FrontierCurve:
        """The problem solved again with the limit on column `name` at each of `points`, all else the same.

        By default eight points from a quarter of the limit to twice it. `.points` of the answer hold limit, value,
        interval, cost, multiplier and status; `.draw(axes)` draws them.
        """
        counts, named = self._counted("a frontier"), {limit.name: limit.value for limit in self.limits}
        if name not in counts.cost_names:
            raise UnknownNameError("cost column", name, counts.cost_names)
        if points is None and not named.get(name):
            raise PdocrlError(f"there is no limit on {name} to begin from: give points=[…].")
        along = [float(x) for x in (np.linspace(0.25, 2, 8) * named[name] if points is None else points)]
        found = analysis.frontier_of(analysis.frontier(counts, self, name, along, resamples), name)
        return FrontierCurve(column=found.column, points=found.points)

    def explain(self, state: Label, step: int = 0) -> tuple[ExplainedAction, ...]:
        """What the log did in a state, what the policy does, and what each action would bring from there on."""
        return analysis.explain(self._counted("an explanation"), self, state, step)

    def _counted(self, what: str) -> Counts:
        if self.counts is None:
            raise PdocrlError(f"{what} takes the log; this result is of a Lagrangian.")
        return self.counts


def solve(
    data: Counts | Lagrangian,
    gamma: float | None = None,
    limits: Limits = (),
    *,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> SolvedResult:
    """`pdocrl.tabular.solve`, whose arguments these are, with a result that acts."""
    found = api.solve(data, gamma, limits, progress=progress, **options)
    if found.counts is not None:
        needs = analysis.more_data(found.counts, found)
        found = found.telling(more_data=needs, notes=report.notes(found, found.counts))
    return SolvedResult(**vars(found))
