"""The paper's comparison tables, measured: every method on every family, from logs of growing size.

What is measured, and how, is in `research.measure`; here its rows become tables and pictures.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdocrl.table import Table, Text
from research.experiments.experiment import Drawing, Experiment, Rows, new_figure, save_figure
from research.measure import EXAMPLES, SMALL, measure_all
from research.methods import MEASURED, Claim

SETTINGS = ("theory", "best of grid")
IMITATION = "behaviour_cloning"
FLOOR = 1e-5  # errors below are drawn and fitted as this
ALL = "all"
COLOURS = {
    "pdocrl": "#0b5cad",
    "pdocrl_often": "#6baed6",
    "pdca": "#7b3fa0",
    "mbcl": "#c0392b",
    "wsac": "#b8860b",
    "pocc": "#2e8b57",
    "pro_rl": "#17becf",
    "pessimistic": "#e377c2",
    "mo_spibb": "#8c564b",
    "dpdl": "#bcbd22",
    "fqi": "#c0392b",
    "a_crab": "#7b3fa0",
    "atac": "#b8860b",
    "pspi": "#2e8b57",
    "spibb": "#8c564b",
    "plug_in": "#555555",
    IMITATION: "#aaaaaa",
}


def relative(rows: Rows) -> Rows:
    """Errors as a share of what imitating the log loses, averaged over families: rows of the family `all`."""
    imitated = {_place(row): row["error"] for row in rows if row["method"] == IMITATION and row["setting"] == "theory"}
    found: dict[tuple[str, str, str, int], list[dict[str, float]]] = {}
    for row in rows:
        scale = imitated.get(_place(row), 0.0)
        if scale > 1e-3 and row["family"] not in EXAMPLES:
            numbers = {"error": row["error"] / scale, "violation": row["violation"] / scale, "half": _half(row) / scale}
            key = (row["coverage"], row["method"], row["setting"], row["n"])
            found.setdefault(key, []).append({**numbers, "broken": row["broken"], "seconds": row["seconds"]})
    together = []
    for (coverage, method, setting, n), own in found.items():
        means = {key: float(np.mean([one[key] for one in own])) for key in own[0]}
        # Families are independent of each other: half intervals of a mean add up as roots of squares.
        half = float(np.linalg.norm([one["half"] for one in own])) / len(own)
        place = {"family": ALL, "coverage": coverage, "method": method, "setting": setting, "n": n}
        ends = {"low": max(means["error"] - half, 0.0), "high": means["error"] + half}
        together.append({**place, **{key: value for key, value in means.items() if key != "half"}, **ends})
    return together


class Slope(NamedTuple):
    """Of log error against log n, and half its 95 % interval, from those of the errors; NaN where there is none."""

    value: float
    half: float

    def __str__(self) -> str:
        return "–" if np.isnan(self.value) else f"{self.value:.2f} ± {self.half:.2f}".replace("-", "−")


def slope(rows: Rows) -> Slope:
    """By least squares over the sizes whose error is above what is drawn; none with fewer than two."""
    points = [(row["n"], row["error"], _half(row)) for row in rows if row["error"] > FLOOR]
    if len(points) < 2:
        return Slope(float("nan"), float("nan"))
    n, error, half = np.array(points, np.float64).T
    weight = np.log(n) - np.log(n).mean()
    weight /= (weight**2).sum()
    return Slope(float(weight @ np.log(error)), float(np.linalg.norm(weight * half / error)))


def make_table(name: str, title: str, rows: Rows) -> Table:
    """One line per family, coverage and method, sorted by the best error at the largest n."""
    every = relative(rows) + rows
    sizes = sorted({row["n"] for row in rows})
    body = []
    for family, coverage in dict.fromkeys((row["family"], row["coverage"]) for row in every):
        here = [row for row in every if (row["family"], row["coverage"]) == (family, coverage)]
        lines = {m: [row for row in here if row["method"] == m] for m in dict.fromkeys(row["method"] for row in here)}
        for method, own in sorted(lines.items(), key=lambda item: _last(item[1])):
            claim, best = MEASURED[method].claim, _of(own, "best of grid")
            cells = [Text(family), Text(coverage), Text(_label(method, name)), *_claims(claim)]
            for setting in SETTINGS:
                of = {row["n"]: row for row in _of(own, setting)}
                cells += [Text(_error(of[n]) if n in of else "–") for n in sizes]
                cells.append(Text(str(slope([*of.values()]))))
            last = best[-1]
            cells += [Text(f"{last['violation']:.2g}"), Text(f"{100 * last['broken']:.0f} %")]
            cells.append(Text(f"{last['seconds']:.2g}"))
            body.append(tuple(cells))
    shared = [("claimed", head) for head in ("coverage", "efficient", "needs", "slope")]
    for setting in SETTINGS:
        shared += [(setting, f"n = {n:,}") for n in sizes] + [(setting, "slope")]
    last_heads = (("", "violation"), ("", "logs with a limit broken"), ("", "seconds"))
    columns = (("", "family"), ("", "coverage"), ("", "method"), *shared, *last_heads)
    notes = (
        f"Error: the larger of the loss of reward and the violation of a limit, mean of {_logs(rows)} logs ± half "
        f"its 95 % interval. Family {ALL}: errors as a share of what imitating the log loses, averaged over families.",
        "Best of grid: in hindsight, for each n. Violation, broken limits and seconds are its, at the largest n.",
        "A claimed slope −1/k belongs to n = ε^(−k). It is a guarantee for the worst problem and general function "
        "classes; a measured slope is that of these problems, in tables.",
    )
    return Table(name, title, columns, tuple(body), notes)


def error_table(name: str, title: str, rows: Rows) -> Table:
    """One line per method: its error as a share of imitation's, at both coverages, from a short and a long log."""
    shares = relative(rows)
    every = sorted({row["n"] for row in shares})
    sizes = dict.fromkeys((every[min(1, len(every) - 1)], every[-1]))
    first, last = next(iter(sizes)), every[-1]
    at = {(r["method"], r["coverage"], r["n"], r["setting"]): r for r in shares}
    places = [(coverage, n) for coverage in ("full", "partial") for n in sizes]
    limited = any(row["limits"] == "yes" for row in rows)
    body = []

    def share(method: str, coverage: str, n: int, setting: str) -> Text:
        row = at.get((method, coverage, n, setting))
        return Text(f"{row['error']:.2g} ± {_half(row):.1g}" if row else "–")

    def order(method: str) -> float:
        row = at.get((method, "partial", first, "best of grid"))
        return float(row["error"]) if row else np.inf

    for method in sorted(dict.fromkeys(row["method"] for row in shares), key=order):
        cells = [share(method, coverage, n, setting) for coverage, n in places for setting in SETTINGS]
        real = [r for r in rows if r["method"] == method and r["n"] == last]
        for setting in SETTINGS if limited else ():
            broken = [r["broken"] for r in _of(real, setting)]
            cells.append(Text(f"{100 * float(np.mean(broken)):.0f} %" if broken else "–"))
        seconds = [r["seconds"] for r in _of(real, "best of grid")]
        body.append((Text(_label(method, name)), *cells, Text(f"{float(np.median(seconds)):.2g}" if seconds else "–")))
    heads = [(f"{coverage}, n = {n:,}:", head) for coverage, n in places for head in ("theory", "best")]
    broken_heads = [("limits broken:", head) for head in ("theory", "best") if limited]
    columns = (("", "method"), *heads, *broken_heads, ("", "seconds"))
    broken_note = f" Limits broken: share of logs at n = {last:,}, over both coverages." if limited else ""
    notes = (
        "Error as a share of what imitating the log loses there, mean of all families ± half its 95 % interval; logs "
        f"of each case: {_logs(rows)}.{broken_note} Seconds of one core.",
    )
    return Table(name, title, columns, tuple(body), notes)


def slope_table(name: str, title: str, rows: Rows) -> Table:
    """One line per method: what the paper's table claims of it, and the slopes of its error against n."""
    shares = relative(rows)
    sizes = sorted({row["n"] for row in shares})
    body = []
    for method in dict.fromkeys(row["method"] for row in shares):
        cells = [Text(_label(method, name)), *_claims(MEASURED[method].claim)]
        for coverage in ("full", "partial"):
            own = [row for row in shares if (row["method"], row["coverage"]) == (method, coverage)]
            cells += [Text(str(slope(_of(own, setting)))) for setting in SETTINGS]
        body.append(tuple(cells))
    heads = [("claimed", head) for head in ("coverage", "efficient", "needs", "slope")]
    heads += [(f"{coverage}:", head) for coverage in ("full", "partial") for head in ("theory", "best")]
    notes = (
        f"Slopes of log error against log n over n = {sizes[0]:,} … {sizes[-1]:,}, and none with one size; ± half a "
        "95 % interval, carried over from those of the errors.",
    )
    return Table(name, title, (("", "method"), *heads), tuple(body), notes)


def draw_families(rows: Rows, target: Path) -> None:
    """Per family a panel for each coverage: error of the best setting against n."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    coverages = [c for c in ("full", "partial") if any(row["coverage"] == c for row in rows)]
    figure, axes = new_figure(
        len(families), rows=len(coverages), figsize=(2 + 2.9 * len(families), 3 * len(coverages)), squeeze=False
    )
    labels = {}
    for (i, coverage), (j, family) in ((a, b) for a in enumerate(coverages) for b in enumerate(families)):
        axis = axes[i][j]
        here = [r for r in rows if (r["family"], r["coverage"], r["setting"]) == (family, coverage, "best of grid")]
        for method, colour in COLOURS.items():
            own = sorted((row for row in here if row["method"] == method), key=lambda row: int(row["n"]))
            if own:
                ours = method == "pdocrl"
                line = axis.plot(
                    [r["n"] for r in own],
                    np.maximum([r["error"] for r in own], FLOOR),
                    color=colour,
                    linewidth=2.6 if ours else 1.3,
                    marker="o" if ours else None,
                    markersize=4,
                    zorder=3 if ours else 2,
                )[0]
                labels[MEASURED[method].method.label] = line
        axis.set(xscale="log", yscale="log")
        axis.set_title(f"{family}, {coverage}", loc="left", fontsize=10)
        axis.grid(axis="y", color="#dddddd", linewidth=0.7)
    figure.supxlabel("transitions in the log", fontsize=10)
    figure.supylabel("error, best of grid", fontsize=10)
    figure.legend(labels.values(), labels.keys(), loc="outside right center", frameon=False, fontsize=9)
    save_figure(figure, target)


def draw_settings(rows: Rows, target: Path) -> None:
    """Per coverage a line for every method: its error by theory and by the best of its grid, from short logs."""
    shares = relative(rows)
    sizes = sorted({row["n"] for row in shares})
    n = sizes[min(1, len(sizes) - 1)]
    here = [row for row in shares if row["n"] == n]

    def at(method: str, coverage: str, setting: str) -> tuple[float, float] | None:
        own = [r for r in here if (r["method"], r["coverage"], r["setting"]) == (method, coverage, setting)]
        return (max(own[0]["error"], FLOOR), _half(own[0])) if own else None

    figure, axes, methods = _lines(here, f"error as a share of what imitating the log loses, n = {n:,}")
    for axis, coverage in zip(axes, ("full", "partial"), strict=True):
        axis.set(xscale="log")
        axis.axvline(1.0, color="#aaaaaa", linewidth=0.8, linestyle=":")
        for y, method in enumerate(methods):
            ends = [at(method, coverage, setting) for setting in SETTINGS]
            if all(ends):
                axis.plot([end[0] for end in ends if end], [y, y], color="#cccccc", linewidth=2, zorder=1)
        _points(axis, [[at(method, coverage, setting) for method in methods] for setting in SETTINGS])
        axis.set_title(f"{coverage} coverage", loc="left", fontsize=10)
    _finish(figure, axes[0], target)


def draw_slopes(rows: Rows, target: Path) -> None:
    """Per coverage the slope of every method by theory and by the best of its grid; a bar where one is claimed."""
    shares = relative(rows)
    figure, axes, methods = _lines(shares, "slope of log error against log n")

    def at(method: str, coverage: str, setting: str) -> tuple[float, float] | None:
        own = [r for r in shares if (r["method"], r["coverage"], r["setting"]) == (method, coverage, setting)]
        found = slope(sorted(own, key=lambda row: int(row["n"])))
        return None if np.isnan(found.value) else (found.value, found.half)

    for axis, coverage in zip(axes, ("full", "partial"), strict=True):
        axis.axvline(0.0, color="#aaaaaa", linewidth=0.8, linestyle=":")
        _points(axis, [[at(method, coverage, setting) for method in methods] for setting in SETTINGS])
        claimed = [(-1 / MEASURED[m].claim.rate, y) for y, m in enumerate(methods) if MEASURED[m].claim.rate]
        axis.plot(
            *zip(*claimed, strict=True),
            "|",
            color="#c0392b",
            markersize=15,
            markeredgewidth=2.5,
            label="claimed, for the worst problem",
        )
        axis.set_xlim(-1.5, 0.3)  # the interval of a slope that is hardly known is cut
        axis.set_title(f"{coverage} coverage", loc="left", fontsize=10)
    _finish(figure, axes[0], target)


def _lines(rows: Rows, what: str) -> tuple[Any, Any, list[str]]:
    """A figure with a line for every method and a panel for each coverage."""
    free = all(MEASURED[row["method"]].free for row in rows)
    methods = [name for name in MEASURED if any(row["method"] == name for row in rows)]
    figure, axes = new_figure(2, figsize=(11, 1.2 + 0.3 * len(methods)), sharey=True)
    axes[0].set_yticks(range(len(methods)), [_label(m, "free" if free else "") for m in methods])
    axes[0].invert_yaxis()
    figure.supxlabel(what, fontsize=10)
    return figure, axes, methods


def _points(axis: Any, of_settings: list[list[tuple[float, float] | None]]) -> None:
    for places, setting, fill in zip(of_settings, SETTINGS, ("white", "#0b5cad"), strict=True):
        known = [(place, y) for y, place in enumerate(places) if place]
        x, half = np.array([place for place, _ in known]).reshape(-1, 2).T
        axis.errorbar(
            x,
            [y for _, y in known],
            xerr=half,
            fmt="o",
            color="#0b5cad",
            markerfacecolor=fill,
            markersize=6,
            elinewidth=1,
            zorder=3,
            label=setting,
        )
    axis.grid(axis="x", color="#dddddd", linewidth=0.7)


def _finish(figure: Any, axis: Any, target: Path) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    save_figure(figure, target)


def experiment(
    name: str,
    about: str,
    title: str,
    families: Iterable[str],
    limited: bool | None,
    logs: int,
    *needs: str,
) -> Experiment:
    """An experiment over these families: with limits, without, or both as they are."""

    def measure(logs: int, jobs: int = 1) -> Rows:
        return measure_all(families, logs, jobs, limited=limited)

    def table(rows: Rows) -> Table:
        return make_table(name, title, rows)

    more: tuple[Drawing, ...] = ()
    if name.startswith("baselines"):  # several families, whose errors have a mean
        more = (
            Drawing(f"{name}_settings", "error by the theory's parameters and by the best of a grid", draw_settings),
            Drawing(f"{name}_slopes", "slopes of the error against the log's size, and those claimed", draw_slopes),
        )
    return Experiment(about, logs, measure, table, draw_families, ("clarabel", *needs), more)


def _place(row: dict[str, object]) -> tuple[object, ...]:
    return row["family"], row["coverage"], row["limits"], row["n"]


def _of(rows: Rows, setting: str) -> Rows:
    return sorted((row for row in rows if row["setting"] == setting), key=lambda row: int(row["n"]))


def _last(rows: Rows) -> float:
    best = _of(rows, "best of grid")
    return float(best[-1]["error"])


def _claims(claim: Claim) -> list[Text]:
    rate = f"−1/{claim.rate}" if claim.rate else "–"
    return [Text(claim.coverage or "–"), Text(claim.efficient or "–"), Text(claim.needs or "–"), Text(rate)]


def _label(method: str, name: str) -> str:
    return MEASURED[method].method.label.replace("PDOCRL", "PDORL" if "free" in name else "PDOCRL")


def _half(row: dict[str, float]) -> float:
    """Half the interval of an error; its lower end may be cut at 0."""
    return row["high"] - row["error"]


def _error(row: dict[str, float]) -> str:
    return f"{row['error']:.2g} ± {_half(row):.1g}"


def _logs(rows: Rows) -> str:
    """How many logs there are of each case: one number, or from … to."""
    fewest, most = min(row["logs"] for row in rows), max(row["logs"] for row in rows)
    return f"{most}" if fewest == most else f"{fewest} to {most}"


BASELINES_LIMITS = experiment(
    "baselines",
    "the paper's first table, measured: methods that satisfy limits",
    "Offline learning with limits: error of every method",
    SMALL,
    True,
    4,
)
BASELINES_FREE = experiment(
    "baselines_free",
    "the paper's second table, measured: methods without limits",
    "Offline learning without limits: error of every method",
    SMALL,
    False,
    4,
)
EXAMPLES_FIGURE = experiment(
    "examples",
    "a small problem for each weakness the tables claim",
    "The field's counterexamples: error of every method",
    EXAMPLES,
    None,
    10,
)
ICU = experiment(
    "icu",
    "716 states of sepsis, 25 treatments: survival under a limit on vasopressors, from the clinicians' log",
    "ICU sepsis: survival lost, or vasopressor dose above its limit, per patient",
    ("icu_sepsis",),
    True,
    2,
    "icu_sepsis",
)
