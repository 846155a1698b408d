"""Answers to `questions` for people and for programs: tables, plain values, one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from pdocrl.files import atomic_path
from pdocrl.tabular.limits import Limit
from pdocrl.tabular.questions import Alternative, Compared, Need
from pdocrl.tabular.saddle import Result
from pdocrl.tabular.solved_file import ExplainedAction, Frontier, FrontierPoint, OtherClustering, SolvedFile

Rows = list[list[object]]


def with_answers(
    record: SolvedFile,
    line: Sequence[Result],
    name: str,
    alternatives: Sequence[Alternative],
    result: Result,
    needs: Mapping[str, Sequence[Need]],
    state: str | None = None,
    clusterings: Sequence[Result] = (),
) -> SolvedFile:
    """The record of a result with what else was asked; nothing for what was not."""
    columns = [str(limit) for limit in result.limits]
    return structs.replace(
        record,
        more_data={key: list(some) for key, some in needs.items()},
        frontier=Frontier(column=name, points=[_point(one, name) for one in line]) if line else None,
        explain=[
            ExplainedAction(**vars(one) | {"costs": dict(zip(columns, one.costs, strict=True))}) for one in alternatives
        ]
        or None,
        explained=state,
        clusterings=[
            OtherClustering(
                status=one.status, value=one.value, costs=dict(zip(columns, one.costs.tolist(), strict=True))
            )
            for one in clusterings
        ]
        or None,
    )


def clusterings_table(result: Result, others: Sequence[Result]) -> tuple[list[str], Rows]:
    """The result beside what other clusterings would have given."""
    rows: Rows = [["this one", result.value, *result.costs.tolist(), result.status]]
    rows += [
        [f"learned from half {k}", one.value, *one.costs.tolist(), one.status] for k, one in enumerate(others, start=1)
    ]
    return ["cells", "reward", *(limit.name for limit in result.limits), "status"], rows


def frontier_table(line: Sequence[Result], name: str) -> tuple[list[str], Rows]:
    """One row per limit: what it allows to earn, and its price."""
    rows: Rows = []
    for one in line:
        point = _point(one, name)
        span = point.interval
        shown = "" if span is None else f"{span[0]:.4g} … {span[1]:.4g}"
        rows.append([point.limit, point.value, shown, point.cost, point.multiplier, one.status])
    return ["limit", "reward", "interval", name, "multiplier", "status"], rows


def explain_table(alternatives: Sequence[Alternative], result: Result) -> tuple[list[str], Rows]:
    """One row per action."""
    columns = [
        "action",
        "rows",
        "in the log",
        "policy",
        "reward from here",
        *(f"{x.name} from here" for x in result.limits),
    ]
    rows: Rows = [
        [str(one.action), one.rows, f"{100 * one.log:.3g} %", f"{100 * one.policy:.3g} %", one.value, *one.costs]
        for one in alternatives
    ]
    return columns, rows


def compared_table(judged: Compared, limits: Sequence[Limit], level: float) -> tuple[list[str], Rows]:
    """One row per policy, and how far it leads the first."""
    names = ["reward", *(limit.name for limit in limits)]
    columns = ["policy", *names, f"lead in reward ({100 * level:g} %)", "time outside the log"]
    rows: Rows = []
    for p, name in enumerate(judged.names):
        cells = [
            f"{judged.estimate[p, k]:.4g} ({judged.low[p, k]:.4g} … {judged.high[p, k]:.4g})" for k in range(len(names))
        ]
        low, high = judged.difference[p, 0]
        rows.append([name, *cells, f"{low:.4g} … {high:.4g}" if p else "", f"{100 * judged.outside[p]:.2g} %"])
    return columns, rows


def compared_json(judged: Compared, limits: Sequence[Limit]) -> dict[str, Any]:
    """The same as plain values."""
    names = ["value", *(str(limit) for limit in limits)]

    def named(values: Any) -> dict[str, Any]:
        return dict(zip(names, values.tolist(), strict=True))

    return {
        "policies": {
            name: {
                "estimate": named(judged.estimate[p]), "low": named(judged.low[p]), "high": named(judged.high[p]),
                "lead": named(judged.difference[p]), "outside": float(judged.outside[p]),
            }
            for p, name in enumerate(judged.names)
        }
    }  # fmt: skip


def draw_frontier(line: Sequence[Result], name: str, path: Path) -> Path:
    """Reward against the limit, with intervals; points where the limit cannot be kept are hollow."""
    import matplotlib
    from matplotlib.figure import Figure

    from pdocrl.data.plot import INK, MUTED, STYLE

    points = [_point(one, name) for one in line]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        kept = [p for p in points if p.kept]
        axes.plot([p.limit for p in kept], [p.value for p in kept], color="#0b6e6e", lw=1.5)
        for p in points:
            low, high = p.interval or (p.value, p.value)
            colour = "#0b6e6e" if p.kept else "#d1495b"
            axes.plot([p.limit] * 2, [low, high], color=colour, lw=2, alpha=0.5, solid_capstyle="round")
            axes.plot([p.limit], [p.value], "o", color=colour if p.kept else "white", mec=colour, ms=6)
        axes.set(xlabel=f"limit on {name}", ylabel="reward")
        axes.spines[["right", "top"]].set_visible(False)
        axes.tick_params(colors=MUTED)
        axes.set_title("what the limit costs; hollow where it cannot be kept", loc="left", color=INK, fontsize=10)
        with atomic_path(path) as whole:
            figure.savefig(whole, dpi=130, format="png")
    return path


def _point(result: Result, name: str) -> FrontierPoint:
    at = next(i for i, limit in enumerate(result.limits) if limit.name == name)
    return FrontierPoint(
        limit=result.limits[at].value,
        value=result.value,
        interval=None if result.intervals is None else result.intervals.value,
        cost=float(result.costs[at]),
        multiplier=float(result.multipliers[at]),
        status=result.status,
        kept=result.status in {"optimal", "approximate"},
    )
