"""Where coverage matters: the error of every method on logs of the lucky2 problem.

err = max(suboptimality, violation) in (1−γ)J units. PDOCRL is run at multiples of C* = 2, the plug-in LP also with
three thresholds on the count of a pair, COptiDICE at six penalties; of those the one best on average for each n is also
shown, a choice nobody could make from the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import progress
from pdocrl.table import Table, Text
from pdocrl.tabular.api import solve
from pdocrl.tabular.baselines.plain import behaviour_cloning, coptidice, fqi, mbcl, plug_in
from pdocrl.tabular.cmdp import Evaluation, evaluate
from pdocrl.tabular.counts import Counts
from research.experiments.experiment import Experiment, Rows, new_figure, save_figure
from research.lucky import LIMIT, Lucky, lucky2

SIZES = (1000, 3000, 10_000, 30_000, 100_000)
ALPHAS = (1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
GAMMA = 0.9
DASHED = ("MBCL", "plug-in n≥30")
FLOOR = 3e-4  # errors below are drawn here

Method = Callable[[Counts], Evaluation]


def methods(lucky: Lucky) -> dict[str, Method]:
    """Everything to run on one log, by name."""
    limits = {"cost": LIMIT} if lucky.cmdp.n_constraints else {}

    def saddle(multiple: float) -> Method:
        C = multiple * lucky.concentrability
        return lambda log: evaluate(lucky.cmdp, solve(log, GAMMA, limits, C=C, resamples=0).policy)

    def threshold(least: int) -> Method:
        return lambda log: evaluate(lucky.cmdp, plug_in(log, GAMMA, limits, least))

    def dice(alpha: float) -> Method:
        return lambda log: evaluate(lucky.cmdp, coptidice(log, GAMMA, limits, alpha).pi)

    if not limits:
        return {f"PDORL C={m:g}C*": saddle(m) for m in (1, 1.5, 3)} | {
            "FQI": lambda log: evaluate(lucky.cmdp, fqi(log, GAMMA)),
            "BC, no limit": lambda log: evaluate(lucky.cmdp, behaviour_cloning(log)),
        }
    return (
        {f"PDOCRL C={m:g}C*": saddle(m) for m in (1, 1.5, 3)}
        | {"plug-in": threshold(1)}
        | {f"plug-in n≥{least}": threshold(least) for least in (3, 10, 30)}
        | {"MBCL": lambda log: mbcl(log, GAMMA, limits).evaluate(lucky.cmdp)}
        | {f"COptiDICE α={alpha:g}": dice(alpha) for alpha in ALPHAS}
        | {"BC": lambda log: evaluate(lucky.cmdp, behaviour_cloning(log))}
    )


def measure(seeds: int, jobs: int = 1) -> Rows:
    """Per method and n: mean, least and worst error over the seeds' logs."""
    errors: dict[str, NDArray[np.float64]] = {}
    with progress() as bar:
        task = bar.add_task("lucky: logs", total=2 * len(SIZES) * seeds)
        for lucky in (lucky2(), lucky2(constrained=False)):
            optimum = lucky.optimum.value
            runs = methods(lucky)
            errors |= {name: np.zeros((len(SIZES), seeds)) for name in runs}
            for i, size in enumerate(SIZES):
                for seed in range(seeds):
                    log = lucky.counts(size, seed)
                    for name, run in runs.items():
                        errors[name][i, seed] = run(log).error(lucky.cmdp, optimum)
                    bar.advance(task)
    dice = np.stack([e for name, e in errors.items() if name.startswith("COptiDICE")])
    chosen = dice.mean(axis=2).argmin(axis=0)
    errors["COptiDICE, best α"] = dice[chosen, np.arange(len(SIZES))]
    return [
        {
            "method": name,
            "n": size,
            "seeds": seeds,
            **{key: round(float(x), 6) for key, x in (("mean", e.mean()), ("least", e.min()), ("worst", e.max()))},
        }
        for name, rows in errors.items()
        for size, e in zip(SIZES, rows, strict=True)
    ]


def table(rows: Rows) -> Table:
    body = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        body.append((Text(method), *(Text(f"{row['mean']:.4f} (worst {row['worst']:.4f})") for row in own)))
    columns = (("", "method"), *(("", f"n = {size:,}") for size in SIZES))
    title = f"lucky2: error, mean and worst over {rows[0]['seeds']} logs"
    return Table("lucky", title, columns, tuple(body))


def draw(rows: Rows, target: Path) -> None:
    """Left: with the limit. Right: without. Lines are means, bands the range over seeds."""

    def of(method: str, key: str) -> NDArray[np.float64]:
        return np.maximum([row[key] for row in rows if row["method"] == method], FLOOR)

    blue, green, amber, grey, violet, red = "#0b5cad", "#2e8b57", "#b8860b", "#808080", "#7b3fa0", "#c0392b"
    panels = {
        "With a cost limit": {
            "plug-in": (red, "plug-in LP"),
            "MBCL": (violet, "MBCL"),
            "BC": (grey, "behaviour cloning"),
            "COptiDICE, best α": (green, "COptiDICE, best α (hindsight)"),
            "plug-in n≥10": (amber, "plug-in LP, n(s,a) ≥ 10"),
            "plug-in n≥30": ("#d9a441", "plug-in LP, n(s,a) ≥ 30"),
            "PDOCRL C=1.5C*": (blue, "PDOCRL, C = 1.5 C*"),
        },
        "Without a limit": {
            "FQI": (red, "fitted Q-iteration"),
            "BC, no limit": (grey, "behaviour cloning"),
            "PDORL C=1.5C*": (blue, "PDORL, C = 1.5 C*"),
        },
    }
    figure, axes = new_figure(2, figsize=(10, 4.9), sharey=True)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, (colour, label) in lines.items():
            ours = colour == blue
            if "≥" not in name:  # between none and all there is nothing to shade
                axis.fill_between(SIZES, of(name, "least"), of(name, "worst"), color=colour, alpha=0.14, linewidth=0)
            axis.plot(
                SIZES,
                of(name, "mean"),
                color=colour,
                label=label,
                linestyle=(0, (4, 3)) if name in DASHED else "-",
                linewidth=2.6 if ours else 1.6,
                marker="o" if ours else None,
                markersize=5,
                zorder=3 if ours else 2,
            )
        axis.set(xscale="log", yscale="log", xlabel="transitions in the log", ylim=(FLOOR / 1.15, 1))
        axis.set_title(title, loc="left", fontweight="bold", fontsize=11)
        axis.grid(axis="y", color="#dddddd", linewidth=0.7)
        axis.legend(
            frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(-0.02, -0.15), ncols=2, columnspacing=1.2
        )
    axes[0].set_ylabel("error: loss of reward or missed limit")
    ticks = [FLOOR, 0.001, 0.01, 0.1, 1]
    axes[0].set_yticks(ticks, [f"≤ {FLOOR:g}", *(f"{tick:g}" for tick in ticks[1:])])
    save_figure(figure, target)


LUCKY = Experiment("partial coverage: who is taken in by rarely tried, lucky arms", 10, measure, table, draw)
