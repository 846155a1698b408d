"""The statistical rate with function classes: linear CMDPs, whose every Q^π is linear in known features of (s, a).

P(s′|s, a) = Σ_k φ_k(s, a) ν_k(s′), r and g linear in φ, φ(s, a) on the simplex of d = 6: S = 60, A = 3, γ = 0.9, one
binding constraint; half of the data is the optimal policy's, half a uniform one's. Q is linear in φ and w in φ and the
best policy's own ratio w*, so that both assumptions of the theorem hold (the saddle point of Algorithm 1, by
`approximate.lp`); against the same with one-hot features (tables). err = max(suboptimality, violation)
in (1−γ)J units, in the true CMDP. Theory: n^(−1/2), so ε⁻² rows for an error of ε.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pdocrl.approximate.classes import FunctionClass, PairBasis
from pdocrl.approximate.game import Game
from pdocrl.approximate.lp import saddle_lp
from pdocrl.console import progress
from pdocrl.limits import as_limits
from pdocrl.table import Table, Text
from pdocrl.tabular.cmdp import CMDP, Floats, bind, evaluate, occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Sets, policy_of
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle
from research.experiments.experiment import Experiment, Rows, new_figure, save_figure

SIZES = (300, 1000, 3162, 10_000, 31_623, 100_000)
CLASSES = ("linear", "tables")
S, A, D, GAMMA = 60, 3, 6, 0.9
C = 5.0  # of the coefficients of w, and of w itself for tables


def linear_cmdp(seed: int) -> tuple[CMDP, Floats]:
    """A random one and its features φ [S·A, D]."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(D, 0.3), size=S * A)
    after = rng.dirichlet(np.full(S, 0.3), size=D)
    r, g = (phi @ rng.uniform(size=(D, 2))).T.reshape(2, S, A)
    cmdp = CMDP(phi @ after, r, g[None], np.zeros(1), rng.dirichlet(np.ones(S)), GAMMA)
    return bind(cmdp, 0.5), phi


def linear_game(L: Lagrangian, phi: Floats, w_star: Floats, B: float) -> Game:
    """Q linear in φ, w in φ and w*; λ within BΔ."""
    sets = Sets.tight(L, C, B)
    ratios = PairBasis(np.column_stack([phi, w_star.ravel()]), A)
    critics = FunctionClass.box(PairBasis(phi, A), sets.q_low, sets.q_high)
    return Game(L, FunctionClass.box(ratios, 0.0, C), critics, B)


def errors(seed: int) -> Floats:
    """[2, sizes] of the linear classes, then of tables, on the same logs."""
    cmdp, phi = linear_cmdp(seed)
    best = exact.solve(cmdp)
    mu_D = (best.mu + occupancy(cmdp, np.full((S, A), 1 / A))) / 2
    B = 1 + 2 * float(best.lam.sum())
    found = np.zeros((2, len(SIZES)))
    for j, size in enumerate(SIZES):
        counts = Counts.sample(cmdp, mu_D, size, seed)
        L = Lagrangian.empirical(counts, GAMMA, as_limits({"cost": -float(cmdp.tau[0])}))
        policies = (
            policy_of(L, saddle_lp(linear_game(L, phi, best.mu / mu_D, B)).nu),
            solve_saddle(L, Setup(C, B)).policy,
        )
        found[:, j] = [evaluate(cmdp, policy).error(cmdp, best.value) for policy in policies]
    return found


def measure(seeds: int, jobs: int = 1) -> Rows:
    """Per class and n: mean, median and worst error over the seeds, each a CMDP of its own."""
    with progress() as bar:
        found = np.stack([errors(seed) for seed in bar.track(range(seeds), description="linear: seeds")])
    return [
        {
            "class": name,
            "n": size,
            "mean err": float(found[:, i, j].mean()),
            "median err": float(np.median(found[:, i, j])),
            "worst err": float(found[:, i, j].max()),
            "seeds": seeds,
        }
        for i, name in enumerate(CLASSES)
        for j, size in enumerate(SIZES)
    ]


def slope(rows: Rows, name: str) -> float:
    """Of log mean error against log n."""
    own = [row for row in rows if row["class"] == name]
    return float(np.polyfit(np.log([row["n"] for row in own]), np.log([row["mean err"] for row in own]), 1)[0])


def table(rows: Rows) -> Table:
    body = []
    for name in CLASSES:
        cells = (Text(f"{row['mean err']:.2g}") for row in rows if row["class"] == name)
        body.append((Text(name), *cells, Text(f"{slope(rows, name):.3f}")))
    columns = (("", "classes"), *(("", f"n = {size:,}") for size in SIZES), ("", "slope"))
    title = f"Mean error over {rows[0]['seeds']} random linear CMDPs; theory: slope −0.5"
    return Table("linear", title, columns, tuple(body))


def draw(rows: Rows, target: Path) -> None:
    figure, axis = new_figure(1, figsize=(6, 3.8))
    for name, colour in zip(CLASSES, ("#0b5cad", "#b3541e"), strict=True):
        own = [row for row in rows if row["class"] == name]
        label = f"{name}, slope {slope(rows, name):.2f}"
        axis.plot([r["n"] for r in own], [r["mean err"] for r in own], "o-", color=colour, label=label, markersize=4)
    first = next(row["mean err"] for row in rows if row["class"] == "linear")
    guide = [first * (size / SIZES[0]) ** -0.5 for size in SIZES]
    axis.plot(SIZES, guide, color="#808080", linestyle=(0, (4, 3)), label="slope −1/2")
    axis.set(xscale="log", yscale="log", xlabel="transitions in the log", ylabel="error")
    axis.grid(axis="y", color="#dddddd", linewidth=0.7)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, target)


LINEAR = Experiment("linear classes: the same rate with fewer rows than tables", 20, measure, table, draw)
