"""The statistical rate: how the error of the saddle program falls with the number of rows.

Random CMDPs with S = 20, A = 4, γ = 0.9, one binding constraint; half of the data is the optimal policy's, half a
uniform policy's. err = max(suboptimality, violation) in (1−γ)J units, in the true CMDP. Theory: n^(−1/2).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pdocrl.console import progress
from pdocrl.limits import as_limits
from pdocrl.table import Table, Text
from pdocrl.tabular.cmdp import evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.lagrangian import Lagrangian
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle
from research.experiments.experiment import Experiment, Rows, new_figure, save_figure

SIZES = (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
MULTIPLES = (1.0, 1.5, 3.0)  # of C*


def measure(seeds: int, jobs: int = 1) -> Rows:
    """Per C and n: mean, median and worst error over the seeds, each a CMDP of its own."""
    errors = np.zeros((len(MULTIPLES), len(SIZES), seeds))
    with progress() as bar:
        for seed in bar.track(range(seeds), description="rate: seeds"):
            cmdp = random_cmdp(20, 4, 1, 0.9, seed=seed)
            best = exact.solve(cmdp)
            mu_D = (best.mu + occupancy(cmdp, np.full((20, 4), 1 / 4))) / 2
            C_star = float((best.mu / mu_D).max())
            for j, size in enumerate(SIZES):
                counts = Counts.sample(cmdp, mu_D, size, seed)
                limits = as_limits({"cost": -float(cmdp.tau[0])})
                L = Lagrangian.empirical(counts, cmdp.gamma, limits)
                for i, multiple in enumerate(MULTIPLES):
                    solution = solve_saddle(L, Setup(multiple * C_star))
                    errors[i, j, seed] = evaluate(cmdp, solution.policy).error(cmdp, best.value)
    return [
        {
            "C over C*": multiple,
            "n": size,
            "mean err": float(errors[i, j].mean()),
            "median err": float(np.median(errors[i, j])),
            "worst err": float(errors[i, j].max()),
            "seeds": seeds,
        }
        for i, multiple in enumerate(MULTIPLES)
        for j, size in enumerate(SIZES)
    ]


def slope(rows: Rows, multiple: float) -> float:
    """Of log mean error against log n."""
    own = [row for row in rows if row["C over C*"] == multiple]
    return float(np.polyfit(np.log([row["n"] for row in own]), np.log([row["mean err"] for row in own]), 1)[0])


def table(rows: Rows) -> Table:
    body = []
    for multiple in MULTIPLES:
        own = [row for row in rows if row["C over C*"] == multiple]
        errors = (Text(f"{row['mean err']:.2g}") for row in own)
        body.append((Text(f"{multiple:g} C*"), *errors, Text(f"{slope(rows, multiple):.3f}")))
    columns = (("", "C"), *(("", f"n = {size:,}") for size in SIZES), ("", "slope"))
    title = f"Mean error of the saddle point over {rows[0]['seeds']} random problems; theory: slope −0.5"
    return Table("rate", title, columns, tuple(body))


def draw(rows: Rows, target: Path) -> None:
    figure, axis = new_figure(1, figsize=(6, 3.8))
    for multiple, colour in zip(MULTIPLES, ("#7b3fa0", "#0b5cad", "#2e8b57"), strict=True):
        own = [row for row in rows if row["C over C*"] == multiple]
        label = f"C = {multiple:g} C*, slope {slope(rows, multiple):.2f}"
        axis.plot([r["n"] for r in own], [r["mean err"] for r in own], "o-", color=colour, label=label, markersize=4)
    first = max(row["mean err"] for row in rows)
    guide = [first * (size / SIZES[0]) ** -0.5 for size in SIZES]
    axis.plot(SIZES, guide, color="#808080", linestyle=(0, (4, 3)), label="slope −1/2")
    axis.set(xscale="log", yscale="log", xlabel="transitions in the log", ylabel="error")
    axis.grid(axis="y", color="#dddddd", linewidth=0.7)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, target)


RATE = Experiment("the error falls as the theory's n^(−1/2)", 20, measure, table, draw)
