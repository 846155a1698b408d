"""A result, and a frontier, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pdocrl.data.plot import FAINT, INK, MUTED, STYLE
from pdocrl.files import atomic_path

if TYPE_CHECKING:
    from pdocrl.tabular.result.record import Frontier
    from pdocrl.tabular.result.result import Result

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
    if np.isfinite(result.C):
        axes.plot(line, result.C * line, color=MISSED, lw=1.5, label=f"C = {result.C:.3g} times as often")
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
