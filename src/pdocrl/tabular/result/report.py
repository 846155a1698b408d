"""A result for people and for programs: notes, the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.data.plot import FAINT, INK, MUTED, STYLE
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
from pdocrl.tabular.result.record import FILE, Frontier
from pdocrl.tabular.result.result import Result
from pdocrl.tabular.result.tables import FEW
from pdocrl.tabular.solvers.few_rows import BELIEVED

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
    for one in () if result.markov is None else result.markov.failed:
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
        help_ = "" if result.shown is not None else ", or --confidence,"
        found.append(
            f"{100 * result.low_count_share:.2g} % of the policy's steps are at pairs with fewer than {BELIEVED} rows: "
            f"what they earn and cost is a guess, and probably too good. More rows there{help_} help."
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
            "times); what follows there is unknown and taken to be the worst. If episodes end there: --absorbing end."
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
    within = f"within C = {_bound(result.sets.C)}, one limit is missed by at least {-result.slater_margin:.4g}"
    return f"{limits} cannot be met by {who}; {within}. What is shown comes as close as it can."


def save(result: Result, folder: Path, unseen: str = "careful") -> list[Path]:
    """policy.parquet, policy.json, act.py, result.json and solve.png."""
    import pyarrow
    import pyarrow.parquet

    from pdocrl.tabular.result.report import draw

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


WITHIN, MISSED, DATA = "#0b6e6e", "#d1495b", "#30638e"


def draw(result: Result, path: Path) -> None:
    """Left: one row per signal. Right: each pair's share of the policy's time against its share of the log."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

    rows = 1 + len(result.limits)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, max(3.6, 1.15 * rows + 0.9)), layout="constrained", facecolor="white")
        grid = GridSpec(rows, 2, figure, width_ratios=(1.15, 1))
        _signal(figure.add_subplot(grid[0, 0]), result, None)
        for i in range(len(result.limits)):
            _signal(figure.add_subplot(grid[1 + i, 0]), result, i)
        _coverage(figure.add_subplot(grid[:, 1]), result)
        figure.savefig(path, dpi=130)


def _signal(axes: Any, result: Result, i: int | None) -> None:
    """One signal on its own scale: log, estimate, interval, and the side of the limit it must not be on."""
    value = result.value if i is None else float(result.costs[i])
    low, high = _interval(result, i, value)
    before = result.log_value if i is None else float(result.log_costs[i])
    marks, colour = [value, low, high, before], WITHIN
    if i is not None:
        limit = result.limits[i]
        marks.append(limit.value)
        missed = limit.sign * (value - limit.value) < -1e-6
        colour = MISSED if missed else WITHIN
    marks = [mark for mark in marks if np.isfinite(mark)]
    margin = 0.12 * (max(marks) - min(marks)) or 0.1 * abs(value) or 0.1
    left, right = min(marks) - margin, max(marks) + margin
    if i is not None:
        axes.axvline(limit.value, color=MISSED, lw=1.5)
        wrong = (limit.value, right) if limit.sense == "<=" else (left, limit.value)
        axes.axvspan(*wrong, color=MISSED, alpha=0.08, lw=0)
    axes.plot([before], [0], "o", color="white", ms=8, mec=MUTED, mew=1.5)
    axes.annotate("the log", (before, 0), xytext=(0, 9), textcoords="offset points", color=MUTED, ha="center")
    axes.plot([low, min(high, right)], [0, 0], color=colour, lw=3, solid_capstyle="round")
    axes.plot([value], [0], "o", color=colour, ms=9, mec="white", mew=1.5)
    axes.set(xlim=(left, right), ylim=(-1, 1), yticks=[])
    axes.spines[["left", "right", "top"]].set_visible(False)
    name = "reward" if i is None else str(result.limits[i].name)
    shown = f"{value:.4g}" if i is None else f"{value:.4g}  (limit {limit.sense} {limit.value:g})"
    axes.set_title(f"{name}  {shown}", loc="left", color=INK, fontsize=10)


def _interval(result: Result, i: int | None, value: float) -> tuple[float, float]:
    """Of the reward or of the i-th limited column; the estimate alone where there is none."""
    if result.intervals is None:
        return value, value
    if i is None:
        return result.intervals.value
    low, high = list(result.intervals.costs.values())[i]
    return low, np.inf if high is None else high


def _coverage(axes: Any, result: Result) -> None:
    """No dot is above the line at C, and those on it are where the policy would like to go further from the log."""
    cover = result.coverage
    shown = (result.mu_D > 0) & (result.mu > 1e-6)
    time, data = result.mu[shown], result.mu_D[shown]
    left, right = data.min() / 2, data.max() * 2
    bottom, top = time.min() / 2, time.max() * 2
    line = np.array([left, right])
    axes.plot(line, line, color=FAINT, lw=1.5, label="as often as the log")
    if np.isfinite(result.sets.C):
        axes.plot(line, result.sets.C * line, color=MISSED, lw=1.5, label=f"C = {result.sets.C:.3g} times as often")
    axes.scatter(data, time, s=20, color=DATA, alpha=0.7, lw=0)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    axes.set(xlabel="share of the log", ylabel="share of the policy's time")
    axes.spines[["right", "top"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right", labelcolor=MUTED)
    title = f"each state and action: {cover.pairs} of {cover.pairs_total} are in the log"
    axes.set_title(title, loc="left", color=INK, fontsize=10)


def draw_frontier(line: Frontier, path: Path) -> Path:
    """Reward against the limit, as a picture."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained", facecolor="white")
        frontier_axes(line, figure.add_subplot())
        with atomic_path(path) as whole:
            figure.savefig(whole, dpi=130, format="png")
    return path


def frontier_axes(line: Frontier, axes: Any = None) -> Any:
    """Reward against the limit, with intervals; points where the limit cannot be satisfied are hollow."""
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.gca()
    within = [p for p in line.points if p.satisfied]
    axes.plot([p.limit for p in within], [p.value for p in within], color=WITHIN, lw=1.5)
    for p in line.points:
        low, high = p.interval or (p.value, p.value)
        colour = WITHIN if p.satisfied else MISSED
        axes.plot([p.limit] * 2, [low, high], color=colour, lw=2, alpha=0.5, solid_capstyle="round")
        axes.plot([p.limit], [p.value], "o", color=colour if p.satisfied else "white", mec=colour, ms=6)
    axes.set(xlabel=f"limit on {line.column}", ylabel="reward")
    axes.spines[["right", "top"]].set_visible(False)
    axes.tick_params(colors=MUTED)
    axes.set_title("what the limit costs; hollow where it cannot be satisfied", loc="left", color=INK, fontsize=10)
    return axes
