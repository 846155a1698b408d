"""The table one would cite: a line per method, a column per task, and what made each line."""

from __future__ import annotations

from collections.abc import Sequence

from pdocrl.bench.results import Row
from pdocrl.evaluation.intervals import number
from pdocrl.evaluation.score import Cell
from pdocrl.report.statistics import names_of
from pdocrl.table import DASH, Table, Text


def overview_table(rows: Sequence[Row], cells: Sequence[Cell], notes: Sequence[str] = ()) -> Table:
    """Reward / cost of every method on every task, the mean over limits; the safest methods first.

    What was not run is a gap. Methods with gaps stand behind those without.
    """
    methods, tasks = names_of(cells)
    by_place = {(cell.task, cell.method): cell for cell in cells}
    own = {method: [by_place[task, method] for task in tasks if (task, method) in by_place] for method in methods}

    def merit(method: str) -> tuple[float, ...]:
        limits = sum(cell.score.limits for cell in own[method])
        kept = sum(cell.score.safe_limits for cell in own[method])
        reward = sum(cell.score.reward for cell in own[method]) / len(own[method])
        return (len(own[method]), kept / limits, reward)

    body = []
    for method in sorted(methods, key=merit, reverse=True):
        made_by = [row for row in rows if row.method == method]
        body.append(
            (
                Text(method),
                *(_cell(by_place.get((task, method))) for task in tasks),
                Text(
                    f"{sum(cell.score.safe_limits for cell in own[method])} of "
                    f"{sum(cell.score.limits for cell in own[method])}"
                ),
                Text(_listed({f"{row.step:,}" for row in made_by})),
                Text(_listed({str(cell.score.runs // cell.score.limits) for cell in own[method]})),
                Text(_listed({row.pdocrl for row in made_by})),
            )
        )
    names = ("method", *tasks, "limits satisfied", "steps", "seeds", "version")
    note = (
        "Normalised reward / cost over limit, mean over limits and seeds; bold: the cost is within. Satisfied: at "
        "how many pairs of task and limit the mean cost over seeds is within. Seeds: how many. A gap was not run."
    )
    belongs = tuple((("method", line[0].text),) for line in body)
    columns = tuple(("", name) for name in names)
    return Table("overview", "Every method on every task", columns, tuple(body), (note, *notes), row_belongs=belongs)


def kept_sentence(cells: Sequence[Cell]) -> str:
    """At how many pairs of task and limit each method keeps the limit, of those run on every task."""
    methods, tasks = names_of(cells)
    kept: dict[int, list[str]] = {}
    total = 0
    for method in methods:
        own = [cell for cell in cells if cell.method == method]
        if len(own) == len(tasks):
            total = sum(cell.score.limits for cell in own)
            kept.setdefault(sum(cell.score.safe_limits for cell in own), []).append(f"`{method}`")
    parts = [f"{', '.join(names)} {count}" for count, names in sorted(kept.items(), reverse=True)]
    return f"Of {total} pairs of task and limit, the mean cost is within the limit for: {'; '.join(parts)}."


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text(DASH)
    return Text(f"{number(cell.score.reward)} / {number(cell.score.cost)}", "safe" if cell.score.safe else "unsafe")


def _listed(values: set[str]) -> str:
    return ", ".join(sorted(values, key=lambda text: (len(text), text)))
