"""Proposition 1, measured: how often weighted cloning picks the bad policy, and what a saddle point does instead."""

from __future__ import annotations

from pathlib import Path

from pdocrl.table import Table, Text
from research.counterexamples import weighted_cloning_fails
from research.experiments.experiment import Experiment, Rows, new_figure, save_figure

SIZES = (1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000)


def measure(datasets: int, jobs: int = 1) -> Rows:
    """Per n: the closed form, a simulation, the same with all policies to choose from, and the max-min over the two."""
    example = weighted_cloning_fails()
    rows = []
    for n in SIZES:
        counts = example.sample(n, datasets, seed=n)
        exact, simulated = float(example.failure_probability(n)), float(example.fails(n, counts).mean())
        numbers = {
            "closed form": exact,
            "simulated": simulated,
            "difference": abs(exact - simulated),
            "all policies": float(example.tabular_failure_probability(n)),
            "saddle point": float(example.saddle_fails(n, counts).mean()),
        }
        rows.append({"n": n, **{name: round(number, 6) for name, number in numbers.items()}})
    return rows


def table(rows: Rows) -> Table:
    body = [(Text(f"{row['n']:,}"), *(Text(f"{row[name]:.4f}") for name in list(rows[0])[1:])) for row in rows]
    title = "Probability that weighted cloning on n samples prefers the bad policy (Proposition 1)"
    return Table("cloning", title, tuple(("", name) for name in rows[0]), tuple(body))


def draw(rows: Rows, target: Path) -> None:
    figure, axis = new_figure(1, figsize=(6, 3.8))
    lines = {
        "closed form": ("#c0392b", "weighted cloning, two policies"),
        "all policies": ("#b8860b", "weighted cloning, all policies"),
        "saddle point": ("#0b5cad", "saddle point, the same two policies"),
    }
    for name, (colour, label) in lines.items():
        axis.plot(
            [row["n"] for row in rows], [row[name] for row in rows], "o-", color=colour, label=label, markersize=4
        )
    axis.set(xscale="log", xlabel="samples", ylabel="probability of the bad policy", ylim=(-0.02, 0.8))
    axis.grid(axis="y", color="#dddddd", linewidth=0.7)
    axis.legend(frameon=False, fontsize=9)
    save_figure(figure, target)


CLONING = Experiment(
    "weighted cloning fails with constant probability, whatever the data's size", 200_000, measure, table, draw
)
