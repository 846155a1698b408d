"""A result for people and for programs: tables, notes, the files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.errors import UnknownNameError
from pdocrl.files import atomic_path, write_json
from pdocrl.records import as_plain, write_record
from pdocrl.tabular import policy
from pdocrl.tabular.cells import Cells
from pdocrl.tabular.counts import Counts, lookalikes
from pdocrl.tabular.rare import OFTEN
from pdocrl.tabular.saddle import Result
from pdocrl.tabular.solved_file import FILE, SolvedFile, limit_names, other_units, policy_lines, solved_file

Rows = list[list[object]]
UNITS = {"step": "per step", "discounted": "(1−γ)J", "episode": "per episode"}
FEW_ROWS = "best for this log, on few rows"  # what "optimal" reads where much rests on few rows
HIDES = 0.05  # share of a signal that cells hide from which a reader is told
FEW = 0.1  # share of steps on few rows from which a reader is told


STATUS = {
    "optimal": "optimal",
    "approximate": "not optimal yet, see the certificate",
    "not_shown": "limits not shown to be kept",
    "infeasible": "infeasible",
    "infeasible_covered": "infeasible among covered policies",
}


def policy_content(result: Result, unseen: str = "careful", cells: Cells | None = None) -> dict[str, Any]:
    """What `policy.load` reads.

    `unseen`: the log's mix of the actions that cost least ("careful"), of all actions ("behaviour"), "uniform",
    "refuse", or an action.
    """
    labels = [str(action) for action in result.actions]
    if unseen in labels:
        rule = {"rule": "action", "chances": [float(label == unseen) for label in labels]}
    elif unseen == "refuse":
        rule = {"rule": "refuse"}
    elif unseen == "uniform":
        rule = {"rule": "uniform", "chances": [1 / len(labels)] * len(labels)}
    elif unseen == "careful":
        rule = {"rule": "careful", "chances": result.careful.tolist()}
    elif unseen == "behaviour":
        often = result.coverage.mu_D.sum(axis=0)
        rule = {"rule": "behaviour", "chances": (often / often.sum()).tolist()}
    else:
        raise UnknownNameError("rule for unseen states", unseen, ["careful", "behaviour", "uniform", "refuse", *labels])
    rows = [as_plain(line) for line in policy_lines(result)]
    content = {"format": 1, "actions": list(result.actions), "unseen": rule, "rows": rows}
    return content if cells is None else content | {"cells": cells.values}


def outcome_table(result: Result, window: float | None = None) -> tuple[list[str], Rows]:
    """What the policy earns and costs, against the limits."""
    spread = result.intervals
    level = f"{100 * spread.level:g} % interval" if spread else "interval"
    rows: Rows = [["reward", result.log_value, result.value, _span(spread.value) if spread else "", "", ""]]
    for i, (limit, cost, lam) in enumerate(zip(result.limits, result.costs, result.multipliers, strict=True)):
        text = f"{limit.sense} {limit.value:.4g}"
        if result.tightened[i] != limit.value:
            text += f" (aimed at {result.tightened[i]:.4g})"
        interval = _span(spread.costs[i]) if spread else ""
        rows.append([limit.name, float(result.log_costs[i]), float(cost), interval, text, f"{lam:.4g}"])
    columns = [UNITS[result.unit], "in the log", "policy", level, "limit", "multiplier"]
    for name, values in other_units(result).items():
        columns.append(name)
        for row, value in zip(rows, values, strict=True):
            row.append(value)
    if window is not None:
        columns.append(f"per {window:g} steps")
        for row, value in zip(rows, [result.value, *result.costs.tolist()], strict=True):
            row.append(value * window)
    return columns, rows


def facts_table(result: Result) -> tuple[list[str], Rows]:
    """How it was found and how far the log supports it."""
    cover = result.coverage
    rows: Rows = [
        [
            "status",
            FEW_ROWS if result.status == "optimal" and result.thin > FEW else STATUS[result.status],
        ],
        ["certificate ξ", f"{result.certificate.gap:.2g} ({result.method})"],
        ["bound C on w", _bound(result.sets.C) + (" (chosen, see below)" if result.choices else "")],
        ["rows a pair needs", f"{result.min_count}"],
        ["bound B on the multipliers", f"{result.sets.B:.4g}"],
        ["pairs in the log", f"{cover.pairs} of {cover.pairs_total}"],
        ["states in the log", f"{cover.states} of {cover.states_total}"],
        ["concentrability of the policy", f"{cover.concentrability:.4g}"],
        ["time outside the log", f"{100 * cover.outside:.2g} %"],
    ]
    if result.shown is not None:
        for name, limit, bound in zip(limit_names(result.limits), result.limits, result.shown.bound, strict=True):
            sign = "<=" if limit.sense == "<=" else ">="
            rows.insert(
                1, [f"{name} at {100 * result.shown.confidence:g} %", f"{sign} {bound:.4g}, halves judging halves"]
            )
    if result.limits:
        rows.insert(1, ["room inside the limits", f"{result.margin:.4g}"])
    if result.intervals is not None and result.intervals.optimism:  # 0 where nothing was learned again
        rows.append(["reward probably overrated by", f"{result.intervals.optimism:.2g}"])
    for index, thin in enumerate(cover.thinnest[:3]):
        label = "least covered states" if index == 0 else ""
        rows.append([label, f"{thin.state}: {100 * thin.time:.2g} % of its time, {100 * thin.data:.2g} % of the log"])
    return ["how far to trust it", ""], rows


def choice_table(result: Result) -> tuple[list[str], Rows]:
    """What other C would have given."""
    names = limit_names(result.limits)
    columns = ["C", "reward", *names, "limits", "concentrability", "expected, less the price of misses", ""]
    rows: Rows = [
        [
            _bound(choice.C),
            choice.value,
            *(float(cost) for cost in choice.costs),
            choice.limits,
            choice.concentrability,
            choice.score,
            "chosen" if choice.C == result.sets.C else "",
        ]
        for choice in result.choices
    ]
    return columns, rows


def notes(result: Result, counts: Counts) -> list[str]:
    """What a reader should not overlook."""
    found = []
    if result.status == "not_shown" and result.shown is not None:
        said = [
            f"{limit} (the bound is {bound:.4g})"
            for limit, bound in zip(result.limits, result.shown.bound, strict=True)
        ]
        found.append(
            f"not shown at {100 * result.shown.confidence:g} %: {' and '.join(said)}. The policy is the one most "
            "likely to keep them; it may not. More rows, a wider limit or a lower confidence help."
        )
    if counts.cells is not None:
        for one in counts.cells.hidden:
            if one.share > HIDES:
                found.append(
                    f"within a cell `{one.column}` still explains {100 * one.share:.0f} % of what `{one.signal}` "
                    "varies; finer cells would tell more, and need more rows."
                )
    if result.coverage.outside > 0.01:
        found.append(f"the policy spends {100 * result.coverage.outside:.2g} % of its time where the log never was.")
    if result.thin > FEW:
        found.append(
            f"{100 * result.thin:.2g} % of the policy's steps are at pairs with fewer than {OFTEN} rows: what they "
            "earn and cost is a guess, and probably too good. More rows there, or --confidence, help."
        )
    for kind, labels in (("state", counts.states), ("action", counts.actions)):
        if alike := lookalikes(labels):
            more = f" (and {len(alike) - 1} more such pairs)" if len(alike) > 1 else ""
            found.append(f"{kind}s {alike[0][0]!r} and {alike[0][1]!r} are taken as two{more}; are they one?")
    if len(dead := counts.dead_ends):
        times = np.bincount(counts.to, weights=counts.count, minlength=counts.n_states + 1)[dead]
        most = int(dead[times.argmax()])
        found.append(
            f"{len(dead)} states are entered and never acted in, such as {counts.states[most]!r} ({times.max():.0f} "
            "times); what follows there is unknown and taken to be the worst. If episodes end there: --dead-ends end."
        )
    if np.array_equal(counts.starts, counts.n.sum(axis=1)):
        found.append("the log does not say where episodes begin; they are taken to begin wherever it has been.")
    return found


def infeasible(result: Result) -> str:
    """That the limits cannot be kept, by whom, and by how much they are missed."""
    who = "any policy of the log's own model" if result.status == "infeasible" else "any policy the log covers"
    limits = " and ".join(str(limit) for limit in result.limits)
    within = f"within C = {_bound(result.sets.C)}, one limit is missed by at least {-result.margin:.4g}"
    return f"{limits} cannot be met by {who}; {within}. What is shown comes as close as it can."


def save(
    result: Result,
    folder: Path,
    window: float | None = None,
    unseen: str = "careful",
    cells: Cells | None = None,
    record: SolvedFile | None = None,
) -> list[Path]:
    """policy.parquet, policy.json, act.py, result.json and solve.png."""
    import pyarrow
    import pyarrow.parquet

    from pdocrl.tabular.picture import draw

    content = policy_content(result, unseen, cells)
    rows = content["rows"]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    files = [folder / name for name in ("policy.parquet", "policy.json", "act.py", FILE, "solve.png")]
    with atomic_path(files[0]) as path:
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    write_json(files[1], content)
    with atomic_path(files[2]) as path:
        path.write_bytes(Path(policy.__file__).read_bytes())
    write_record(files[3], record or solved_file(result, window))
    with atomic_path(files[4]) as path:
        draw(result, path)
    return files


def _bound(C: float) -> str:
    return f"{C:.4g}" if np.isfinite(C) else "none"


def _span(interval: Sequence[float]) -> str:
    return f"{interval[0]:.4g} … {interval[1]:.4g}"
