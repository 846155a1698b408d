"""The pictures of a training, each a matplotlib figure: show them in a notebook, save them, or let the page hold them.

    record = read_record("runs/ballrun")
    learning(record)

A colour, a marker and a dash mean the same limit in every picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.plot import INK, MUTED, POINT_COLOURS, STYLE, scatter
from pdocrl.errors import PdocrlError
from pdocrl.report.record import Group, Record
from pdocrl.scores.evaluate import listed
from pdocrl.training.train import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]  # steps [T], values [T]

WIDTH, PANEL_HEIGHT = 5.0, 2.0  # inches: text stays readable on a phone, where a picture is as wide as the screen
GRID = "#eef1f4"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1)))


def plane(record: Record, title: str | None = None, width: float = WIDTH) -> Figure:
    """The data's episodes in the cost–reward plane, the limits, and where the learned policies came to lie."""
    if record.dataset is None:
        raise PdocrlError(f"{record.folder}: the data it was trained on was not found.")
    # With several costs each panel has limits of its own, which are drawn here.
    limits = sorted({group.limit[0] for group in record.groups}) if record.dataset.n_costs == 1 else []
    figure = scatter(record.dataset, limits, title=title or f"{record.dataset.n_episodes:,} logged episodes")
    figure.set_size_inches(width * record.dataset.n_costs, 2 + 0.44 * width)
    for k, panel in enumerate(figure.axes):
        if not limits:
            for limit in {group.limit[k] for group in record.groups}:
                panel.axvline(limit, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
                _tell(panel, f"limit {limit:g}", MUTED, x=limit)
        if record.scores is not None:
            _draw_policies(panel, record, record.scores["runs"], k)
    return figure


def _draw_policies(panel: Any, record: Record, runs: list[dict[str, Any]], k: int) -> None:
    """Discs that shrink from limit to limit: policies that coincide show as rings, and none hides another."""
    areas = np.linspace(260, 50, max(len(record.groups), 2))
    for i, group in enumerate(record.groups):
        panel.scatter(
            [listed(runs[j]["cost"])[k] for j in group.runs], [runs[j]["reward"] for j in group.runs],
            s=areas[i], color=_colour(i), edgecolors="white", linewidths=1.2, zorder=7 + i, clip_on=False,
            label=f"{record.plan.agent}, {group.label}",
        )  # fmt: skip
    legend = panel.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9, labelcolor=INK)
    for handle in legend.legend_handles:
        handle.set_sizes([70])
    left, right = panel.get_xlim()
    panel.set_xlim(left - 0.02 * (right - left), right)


def learning(record: Record) -> Figure:
    """Return and costs of the policies against the training step; each limit is drawn in its policies' colour."""
    _need(record.evaluations, record, "evaluations: train with --evaluate-every")
    names = [name.replace("_", " ") for name in record.plan.cost_names]
    figure, panels = _panels(1 + len(names))
    _draw(panels[0], record, "return", _by_run(record.evaluations, lambda line: line["reward"]))
    for k, name in enumerate(names):
        panel = panels[1 + k]
        _draw(panel, record, name, _by_run(record.evaluations, lambda line, k=k: line["cost"][k]))
        for i, group in enumerate(record.groups):
            panel.axhline(group.limit[k], color=_colour(i), lw=0.9, ls=(0, (4, 3)), zorder=1)
            _tell(panel, f"limit {group.limit[k]:g}", _colour(i), y=group.limit[k])
        panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]), top=panel.get_ylim()[1] * 1.12)
    return figure


def multipliers(record: Record) -> Figure:
    """λ over training: the price of cost, one panel per constraint."""
    names = [name for name in record.metric_names() if name == "lambda" or name.startswith("lambda_")]
    _need(names, record, "multipliers: this agent has none")
    figure, panels = _panels(len(names))
    for panel, name in zip(panels, names, strict=True):
        _draw(panel, record, name.replace("lambda", "λ").replace("_", " "), _metric(record, name))
    return figure


def density_ratio(record: Record) -> Figure:
    """w over training: its mean over the batch, and the share of the batch where it is stuck at its upper bound."""
    names = {"w": "mean of w", "w_at_clip": "share of w at its bound"}
    there = [name for name in names if name in record.metric_names()]
    _need(there, record, "density ratio: this agent has none")
    figure, panels = _panels(len(there))
    for panel, name in zip(panels, there, strict=True):
        _draw(panel, record, names[name], _metric(record, name))
        panel.set_ylim(bottom=0)
    bound = largest_ratio(record.plan)
    if bound is not None and there[0] == "w":
        panels[0].axhline(bound, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
        _tell(panels[0], f"bound {bound:g}", MUTED, y=bound)
        panels[0].set_ylim(0, bound * 1.25)
    if "w_at_clip" in there:
        panels[-1].set_ylim(0, 1.05)
    return figure


def episode_costs(record: Record) -> Figure:
    """Every evaluated episode's cost, one row per limit: dots are episodes, a diamond their mean, a bar the limit."""
    _need(record.scores, record, "scores: run `pdocrl evaluate` first")
    assert record.scores is not None
    names, groups = record.plan.cost_names, record.groups
    _need(names, record, "costs: the data has none")
    figure, panels = _panels(len(names), height=0.7 + 0.55 * len(groups), share=False)
    jitter = np.random.default_rng(0)
    for k, panel in enumerate(panels):
        for row, group in enumerate(groups):
            episodes = [e for i in group.runs for e in record.scores["runs"][i]["episodes"]]
            cost = np.array([listed(e["cost"])[k] for e in episodes])
            height = row + jitter.uniform(-0.22, 0.22, len(cost))
            panel.scatter(cost, height, s=20, color=_colour(row), alpha=0.55, linewidths=0, zorder=3)
            panel.plot([cost.mean()], [row], "D", ms=7, mfc=_colour(row), mec="white", mew=1.2, zorder=4)
            panel.plot([group.limit[k]] * 2, [row - 0.36, row + 0.36], color=INK, lw=2, zorder=2)
            panel.annotate(
                f"{group.limit[k]:g}", (group.limit[k], row), xytext=(4, 0), textcoords="offset points",
                va="center", color=INK, fontsize=9,
            )  # fmt: skip
        panel.set_yticks(range(len(groups)), [group.label for group in groups], color=INK)
        panel.set_ylim(len(groups) - 0.45, -0.55)
        panel.set_xlim(left=min(0.0, panel.get_xlim()[0]), right=panel.get_xlim()[1] * 1.05)
        panel.set_xlabel(f"{names[k].replace('_', ' ')} of an episode")
        panel.grid(axis="x", color=GRID, lw=0.8)
        panel.tick_params(axis="y", length=0)
    return figure


def other_metrics(record: Record) -> Figure:
    """Whatever else the agent reported, one small panel each."""
    shown = ("lambda", "w", "w_at_clip")
    names = [n for n in record.metric_names() if n not in shown and not n.startswith("lambda_")]
    _need(names, record, "metrics")
    figure, panels = _panels(len(names), height=1.5)
    for panel, name in zip(panels, names, strict=True):
        _draw(panel, record, name.replace("_", " "), _metric(record, name))
    return figure


def largest_ratio(plan: Plan) -> float | None:
    """The upper bound of w in the agent's settings; None for an agent without one, or not installed here."""
    from pdocrl.agents.agent import find_agent

    try:
        config = plan.make_runs(find_agent(plan.agent))[0].config
    except PdocrlError:
        return None
    bound = getattr(config, "w_max", None)
    return None if bound is None else float(bound)


def _panels(count: int, height: float = PANEL_HEIGHT, share: bool = True) -> tuple[Figure, list[Any]]:
    """Panels one above the other, the steps shared."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.5 + height * count), layout="constrained", facecolor="white")
        panels = list(figure.subplots(count, 1, squeeze=False, sharex=share)[:, 0])
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_axisbelow(True)
        if share:
            panels[-1].set_xlabel("training step")
    return figure, panels


def _draw(panel: Any, record: Record, title: str, curves: dict[int, Curve]) -> None:
    """One line per group: the mean of its seeds, and the range they span."""
    for i, group in enumerate(record.groups):
        found = _mean_and_range(group, curves)
        if found is None:
            continue
        steps, mean, low, high = found
        if len(group.runs) > 1:
            panel.fill_between(steps, low, high, color=_colour(i), alpha=0.16, lw=0)
        dash = DASHES[i % len(DASHES)]
        panel.plot(
            steps, mean, color=_colour(i), lw=1.8, ls=dash, label=group.label, zorder=3,
            marker="o", ms=4, markevery=[-1],  # a curve of one point is seen, too
        )  # fmt: skip
    panel.set_title(title, loc="left", color=INK, fontsize=10)
    panel.grid(axis="y", color=GRID, lw=0.8)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.locator_params(axis="x", nbins=5)
    panel.locator_params(axis="y", nbins=5)
    panel.margins(x=0.02)
    if panel.get_subplotspec().is_first_row():
        panel.legend(
            loc="lower right", bbox_to_anchor=(1, 1), ncols=min(len(record.groups), 4), frameon=False,
            labelcolor=INK, fontsize=8.5, handlelength=2.2, columnspacing=1.2, borderaxespad=0.2,
        )  # fmt: skip


def _tell(panel: Any, text: str, colour: str, x: float | None = None, y: float | None = None) -> None:
    """Write beside a line across the panel what it is: above a level one's end, or at the top of an upright one."""
    at = (1 if x is None else x, 1 if y is None else y)
    scales = ("axes fraction" if x is None else "data", "axes fraction" if y is None else "data")
    panel.annotate(
        text, at, xycoords=scales, xytext=(-2, 2), textcoords="offset points", ha="right" if x is None else "center",
        va="bottom", color=colour, fontsize=8.5, annotation_clip=False,
    )  # fmt: skip


def _mean_and_range(
    group: Group, curves: dict[int, Curve]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """Steps that every seed still living has, and mean, lowest and highest over the seeds, [T] each."""
    own = [curves[i] for i in group.runs if i in curves]
    if not own:
        return None
    steps = np.unique(np.concatenate([s for s, _ in own]))
    values = np.full((len(own), len(steps)), np.nan)
    for row, (at, value) in enumerate(own):
        values[row, np.searchsorted(steps, at)] = value
    return steps, np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)


def _by_run(lines: Sequence[dict[str, Any]], value: Callable[..., float]) -> dict[int, Curve]:
    """Lines of several runs, taken apart."""
    found: dict[int, list[tuple[float, float]]] = {}
    for line in lines:
        found.setdefault(line["run"], []).append((line["step"], value(line)))
    return {run: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for run, pairs in found.items()}


def _metric(record: Record, name: str) -> dict[int, Curve]:
    return _by_run([line for line in record.trained.metrics if name in line["metrics"]], lambda x: x["metrics"][name])


def _need(found: object, record: Record, what: str) -> None:
    if not found:
        raise PdocrlError(f"{record.folder}: no {what}.")


def _colour(index: int) -> str:
    return POINT_COLOURS[index % len(POINT_COLOURS)]
