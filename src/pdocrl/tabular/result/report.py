"""A result for people and for programs: notes, the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pdocrl.errors import UnknownNameError
from pdocrl.files import atomic_path, write_json
from pdocrl.records import as_plain, write_record
from pdocrl.tabular.baselines import BASELINES
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bounds import unknown_size
from pdocrl.tabular.inference.confidence import SafetyTest
from pdocrl.tabular.inference.markov import copied_episodes
from pdocrl.tabular.io.rows import lookalikes
from pdocrl.tabular.result import policy
from pdocrl.tabular.result.drawing import draw
from pdocrl.tabular.result.record import FILE
from pdocrl.tabular.result.tables import FEW
from pdocrl.tabular.solvers.few_rows import BELIEVED

if TYPE_CHECKING:
    from pdocrl.tabular.result.result import Result

COPIES = 0.1  # share of episodes that are copies from which a reader is told
HIDES = 0.05  # share of a signal that cells hide from which a reader is told


def policy_content(result: Result, unseen: str = "careful") -> dict[str, Any]:
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
        often = result.mu_D.sum(axis=0)
        rule = {"rule": "behaviour", "chances": (often / often.sum()).tolist()}
    else:
        raise UnknownNameError("rule for unseen states", unseen, ["careful", "behaviour", "uniform", "refuse", *labels])
    rows = [as_plain(line) for line in result.record.policy]
    content = {"format": 1, "actions": list(result.actions), "unseen": rule, "rows": rows}
    if result.counts is None:
        return content
    if (columns := result.counts.columns) is not None:
        content |= {"columns": {role: columns[role] for role in ("state", "action") if role in columns}}
    return content if result.counts.cells is None else content | {"cells": result.counts.cells.values}


def notes(result: Result, counts: Counts) -> list[str]:
    """What a reader should not overlook."""
    found = []
    if result.status == "not_shown" and result.shown is not None:
        found.append(_not_shown(result, result.shown, counts))
    elif never := unknown_size(counts, result.limits):
        names = " and ".join(f"`{name}`" for name in never)
        found.append(f"{names} is 0 in every row: how much one would cost the log cannot know.")
    for one in result.record.hidden or []:
        found.append(
            f"the states are not Markov: {one.by} explains {100 * one.share:.2g} % of the surprises in `{one.signal}`. "
            "No limit is shown and nothing is called optimal; intervals are moved out by what may be hidden. "
            "Make it part of the state."
        )
    if counts.groups is not None and (copies := copied_episodes(counts)) > COPIES:
        found.append(
            f"{100 * copies:.0f} % of the episodes are copies of others in every state, action and signal; they are "
            "counted as independent, and intervals are too narrow if they are not."
        )
    if counts.cells is not None:
        for column, asked, there in counts.cells.collapsed():
            bins = "one bin" if there == 1 else f"{there} bins"
            found.append(f"`{column}` has {bins} in place of {asked}: too many of its values are the same.")
        for inside in counts.cells.hidden:
            if inside.share > HIDES:
                found.append(
                    f"within a cell `{inside.column}` still explains {100 * inside.share:.0f} % of what "
                    f"`{inside.signal}` varies; finer cells would tell more, and need more rows."
                )
    if result.coverage.outside > 0.01:
        found.append(f"the policy spends {100 * result.coverage.outside:.2g} % of its time where the log never was.")
    if result.low_count_share > FEW:
        help_ = "" if result.shown is not None else ", or a confidence (--confidence),"
        found.append(
            f"{100 * result.low_count_share:.2g} % of the policy's steps are at pairs with fewer than {BELIEVED} rows: "
            f"their reward and cost are a guess, and probably too good. More rows there{help_} help."
        )
    for kind, labels in (("state", counts.states), ("action", counts.actions)):
        if alike := lookalikes(labels):
            more = f" (and {len(alike) - 1} more such pairs)" if len(alike) > 1 else ""
            found.append(f"{kind}s {alike[0][0]!r} and {alike[0][1]!r} are taken as two{more}; are they one?")
    for limit, cost in zip(result.limits, result.costs, strict=True):
        if result.method in BASELINES and limit.sign * (cost - limit.value) < -1e-7:
            found.append(f"{result.method}'s policy misses {limit}: in the log's own model it is {cost:.4g}.")
    if len(dead := counts.dead_ends):
        times = np.bincount(counts.to, weights=counts.count, minlength=counts.n_states + 1)[dead]
        most = int(dead[times.argmax()])
        found.append(
            f"{len(dead)} states are entered and never acted in, such as {counts.states[most]!r} ({times.max():.0f} "
            "times); what follows there is unknown and taken to be the worst. If episodes end there: "
            "--absorbing end, in Python counts.ending_in(counts.dead_ends)."
        )
    if counts.trajectories is None and np.array_equal(counts.starts, counts.n.sum(axis=1)):
        found.append("the log does not say where episodes begin; they are taken to begin wherever it has been.")
    return found


def _not_shown(result: Result, shown: SafetyTest, counts: Counts) -> str:
    level = f"not shown at {100 * shown.asked:g} %"
    if shown.learned == "behaviour":
        never = " and ".join(f"`{name}`" for name in unknown_size(counts, result.limits))
        return (
            f"{level}: {never} is 0 in every row, and how much one would cost the log cannot know. The policy is the "
            "log's own, of which it knows most."
        )
    bounds = zip(result.limits, shown.bounds.values(), strict=True)
    said = [f"{limit}" + ("" if bound is None else f" (the bound is {bound:.4g})") for limit, bound in bounds]
    return (
        f"{level}: {' and '.join(said)}. The policy is the most careful one the log allows, planned for costs inflated "
        "by what few rows can hide; it may not satisfy the limits. More rows, wider limits or a lower confidence help."
    )


def infeasible(result: Result) -> str:
    """That the limits cannot be satisfied, by whom, and by how much they are missed."""
    who = "any policy of the log's own model" if result.status == "infeasible" else "any policy the log covers"
    limits = " and ".join(str(limit) for limit in result.limits)
    within = f"within C = {_bound(result.C)}, one limit is missed by at least {-result.slater_margin:.4g}"
    return f"{limits} cannot be met by {who}; {within}. What is shown comes as close as it can."


def save(result: Result, folder: Path, unseen: str = "careful") -> list[Path]:
    """policy.parquet, policy.json, act.py, result.json and solve.png."""
    import pyarrow
    import pyarrow.parquet

    content = policy_content(result, unseen)
    rows = content["rows"]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    files = [folder / name for name in ("policy.parquet", "policy.json", "act.py", FILE, "solve.png")]
    with atomic_path(files[0]) as path:
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    write_json(files[1], content)
    with atomic_path(files[2]) as path:
        path.write_bytes(Path(policy.__file__).read_bytes())
    write_record(files[3], result.record)
    with atomic_path(files[4]) as path:
        draw(result, path)
    return files


def _bound(C: float) -> str:
    return f"{C:.4g}" if np.isfinite(C) else "none"
