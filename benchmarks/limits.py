"""One policy, many limits: what the README's picture shows.

    python benchmarks/limits.py [--out runs/limits] [--draw-only]

Trains `dial` once on the BallRun data that ships (seed 0, small networks, 10,000 steps; minutes on two cores), then
asks the one policy for seven limits, 20 episodes each, and draws what each costs and earns over the logged data. Writes
benchmarks/results/limits.csv, one row a limit, and docs/img/limits.png. `--draw-only` draws the committed rows.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.data.plot import INK, POINT_COLOURS, save, scatter
from pdocrl.demo import embedded
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.files import write_csv
from pdocrl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
ROWS, PICTURE = ROOT / "benchmarks/results/limits.csv", ROOT / "docs/img/limits.png"
LIMITS, SEED, STEPS, EPISODES = (5.0, 12.0, 20.0, 33.0, 45.0, 60.0, 75.0), 0, 10_000, 20
SIZE: dict[str, Any] = {"hidden": (256, 256), "model_hidden": (128, 128)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/limits"))
    parser.add_argument("--draw-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.draw_only:
        write_csv(ROWS, _play(arguments.out))
    with ROWS.open(encoding="utf-8") as file:
        draw([{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)])


def _play(folder: Path) -> list[dict[str, float]]:
    """Train where nothing is trained yet, and play every limit."""
    if not (folder / "policies.npz").exists():
        train(embedded(), "dial", task="BallRun", cost_limit=[20], seed=[SEED], steps=STEPS, settings=SIZE, out=folder)
    scores = evaluate(folder, EPISODES, cost_limit=LIMITS)
    return [
        {
            "limit": run.cost_limit[0],
            "cost": round(run.cost[0], 3),
            "cost_lowest": min(episode.cost[0] for episode in run.episodes),
            "cost_highest": max(episode.cost[0] for episode in run.episodes),
            "return": round(run.reward, 3),
        }
        for run in scores.runs
    ]


def draw(rows: list[dict[str, float]]) -> None:
    """Each limit's policy over the data: mean cost across, with the range of its episodes, and mean return up."""
    data = embedded()
    figure = scatter(
        data, (), title=f"BallRun: {data.n_episodes} logged episodes, and one policy asked for seven limits"
    )
    figure.set_size_inches(7.6, 4.4)
    (panel,) = figure.axes
    cost, reward = (np.array([row[name] for row in rows]) for name in ("cost", "return"))
    reach = np.array([[row["cost"] - row["cost_lowest"], row["cost_highest"] - row["cost"]] for row in rows]).T
    panel.errorbar(
        cost,
        reward,
        xerr=reach,
        fmt="o",
        ms=8,
        color=POINT_COLOURS[0],
        mec="white",
        ecolor=POINT_COLOURS[0],
        elinewidth=1.2,
        capsize=2.5,
        zorder=7,
        label="the policy at each limit: mean, and range of 20 episodes",
    )
    for row in rows:
        panel.annotate(
            f"{row['limit']:g}",
            (row["cost"], row["return"]),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            color=INK,
            fontsize=10,
            zorder=8,
        )
    panel.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9, labelcolor=INK)
    save(figure, PICTURE)


if __name__ == "__main__":
    main()
