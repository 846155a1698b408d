"""The picture people know from DSRL: one dot per episode, cost across, reward up, limits drawn in.

Dots take the colour of the tightest limit they satisfy; grey ones satisfy none. The dark line is the safe frontier: the
best return any episode reaches at no more cost. Rings mark where it meets the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.errors import DataError, PdocrlError
from pdocrl.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, FAINT = "#1f2933", "#6b7680", "#c3cad1"
SAFE_COLOURS = ("#0b6e6e", "#2fa4a0", "#93cfc4", "#c7e3dc")  # from the tightest limit to the loosest
POINT_COLOURS = ("#d1495b", "#edae49", "#30638e", "#8f5fbf", "#3b8a4e")
POINT_MARKERS = (("*", 220), ("D", 75), ("P", 110), ("X", 110), ("^", 100))  # with the area that makes them look equal
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "svg.hashsalt": "pdocrl",  # the same picture is the same file
    "svg.fonttype": "none",
}


def scatter(
    dataset: Dataset,
    limits: Sequence[float] = (10, 20, 40),
    points: Mapping[str, ArrayLike] | None = None,
    title: str | None = None,
) -> Figure:
    """One panel per cost: episodes, limits, safe frontier and, by label, further points [M, 1 + K] of (reward, costs…).

    The further points are policies or methods to be seen against the data.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if dataset.n_costs == 0:
        raise DataError(f"{dataset.name}: no costs to plot.")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 6.0 * dataset.n_costs, 4.6), layout="constrained", facecolor="white")
        panels = figure.subplots(1, dataset.n_costs, squeeze=False, sharey=True)[0]
        for k, panel in enumerate(panels):
            chosen = {label: np.asarray(values)[:, [0, 1 + k]] for label, values in (points or {}).items()}
            line = _panel(panel, dataset.cost_return[:, k], dataset.reward_return, sorted(limits), chosen)
            panel.set_xlabel(f"{dataset.cost_names[k].replace('_', ' ')} of an episode")
        panels[0].set_ylabel("return of an episode")
        text = title or f"{dataset.name}   {dataset.n_episodes:,} episodes, {len(dataset):,} transitions"
        figure.suptitle(text, x=0.02, ha="left", color=INK, fontsize=11)
        figure.legend([line], ["safe frontier"], loc="upper right", frameon=False, labelcolor=INK, fontsize=9)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the suffix, whole or not at all."""
    import matplotlib

    refuse_unknown_suffix(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with atomic_path(path) as temporary, matplotlib.rc_context(STYLE):
        figure.savefig(temporary, dpi=160, metadata=metadata)


def refuse_unknown_suffix(path: Path) -> None:
    """A picture's suffix can be refused before the work is done."""
    if path.suffix not in {".png", ".svg", ".pdf"}:
        raise PdocrlError(f"{path}: pictures are written as .png, .svg or .pdf.")


def _panel(
    panel: Any,
    cost: NDArray[np.float64],
    reward: NDArray[np.float64],
    limits: Sequence[float],
    points: Mapping[str, NDArray[Any]],
) -> Any:
    """Draw one cost against the reward; returns the frontier's line for the legend."""
    band = np.searchsorted(limits, cost, side="left")  # [E] the tightest limit each episode satisfies
    for index in reversed(range(len(limits) + 1)):
        colour = _safe_colour(index, len(limits)) if index < len(limits) else FAINT
        chosen = band == index
        panel.scatter(cost[chosen], reward[chosen], s=13, color=colour, alpha=0.75, linewidths=0, zorder=2)

    levels, level = np.unique(cost, return_inverse=True)
    best = np.full(len(levels), -np.inf)
    np.maximum.at(best, level, reward)
    best = np.maximum.accumulate(best)
    right = max(cost.max(), max(limits, default=0)) * 1.04 + 0.5
    (line,) = panel.step(np.append(levels, right), np.append(best, best[-1]), where="post", color=INK, lw=1.4, zorder=3)

    top, lines = panel.get_xaxis_transform(), label_lines(limits, 0.07 * right)
    for index, limit in enumerate(limits):
        panel.axvline(limit, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        label, height = f"limit {limit:g}" if index == 0 else f"{limit:g}", 1.01 + 0.04 * lines[index]
        panel.text(limit, height, label, transform=top, ha="center", va="bottom", color=MUTED, fontsize=8.5)
        if levels[0] <= limit:
            height = best[np.searchsorted(levels, limit, side="right") - 1]
            colour = _safe_colour(index, len(limits))
            panel.plot([limit], [height], "o", ms=7, mfc="white", mec=colour, mew=1.8, zorder=5)
            panel.annotate(
                f"{height:,.0f}",
                (limit, height),
                xytext=(-5, 5),
                textcoords="offset points",
                ha="right",
                va="bottom",
                color=INK,
                fontsize=8.5,
                zorder=6,
            )
    for index, (label, values) in enumerate(points.items()):
        marker, area = POINT_MARKERS[index % len(POINT_MARKERS)]
        panel.scatter(
            values[:, 1],
            values[:, 0],
            s=area,
            marker=marker,
            color=POINT_COLOURS[index % len(POINT_COLOURS)],
            label=label,
            edgecolors="white",
            linewidths=0.9,
            zorder=7,
        )
    if points:
        panel.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9, labelcolor=INK)
    panel.set_xlim(-0.02 * right, right)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#eef1f4", linewidth=0.8, zorder=0)
    panel.set_axisbelow(True)
    panel.margins(y=0.08)
    return line


def label_lines(places: Sequence[float], gap: float) -> list[int]:
    """For labels at rising places, the line each stands on so that none is within `gap` of another on its line."""
    ends: list[float] = []
    found = []
    for place in places:
        line = next((i for i, end in enumerate(ends) if place >= end + gap), len(ends))
        ends[line : line + 1] = [place]
        found.append(line)
    return found


def _safe_colour(index: int, count: int) -> str:
    """The tightest limit gets the darkest colour; many limits share the scale."""
    return SAFE_COLOURS[min(index * len(SAFE_COLOURS) // max(count, 3), len(SAFE_COLOURS) - 1)]
