"""What `pdocrl collect` brought home, beside the ranges of the DSRL files: a table and one sheet of scatter plots.

    python benchmarks/collected.py FOLDER      # with BallRun.hdf5, CarRun.hdf5 … as `pdocrl collect` wrote them

Writes benchmarks/results/collected.csv and docs/img/collected.png. Panels are in DSRL's order; the dashed frame is the
range of the DSRL file (costs 0 to its largest, its returns), the dots are ours, one per episode.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import h5py
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pdocrl.data import Dataset, load
from pdocrl.data.plot import FAINT, INK, MUTED, SAFE_COLOURS, STYLE, save
from pdocrl.data.tasks import Task, find_task
from pdocrl.files import write_csv

ROOT = Path(__file__).resolve().parents[1]
TASKS = ("BallRun", "CarRun", "DroneRun", "AntRun", "BallCircle", "CarCircle", "DroneCircle", "AntCircle")
LIMITS = (10, 20, 40)


def row(task: Task, path: Path) -> dict[str, object]:
    dataset = load(str(path), task.name)
    reward, cost = dataset.reward_return, dataset.cost_return[:, 0]
    with h5py.File(path) as file:
        story = json.loads(file.attrs["collection"])
    (dsrl_episodes,) = re.findall(r"-(\d+)\.hdf5", task.files[0])
    best = {f"best_at_{limit}": f"{reward[cost <= limit].max(initial=-np.inf):.1f}" for limit in LIMITS}
    return {
        "task": task.name,
        "steps": story["filter"]["collected_steps"],
        "collected": story["filter"]["collected_episodes"],
        "episodes": dataset.n_episodes,
        "episodes_dsrl": int(dsrl_episodes),
        "reward_min": f"{reward.min():.1f}",
        "reward_max": f"{reward.max():.1f}",
        "reward_min_dsrl": f"{task.reward_min:.1f}",
        "reward_max_dsrl": f"{task.reward_max:.1f}",
        "share_of_dsrl_max": f"{reward.max() / task.reward_max:.2f}",
        "cost_min": f"{cost.min():g}",
        "cost_max": f"{cost.max():g}",
        "cost_max_dsrl": f"{task.cost_max:g}",
        "cost_median": f"{np.median(cost):g}",
        **best,
        "digest": dataset.digest[:12],
    }


def draw(panel: matplotlib.axes.Axes, task: Task, dataset: Dataset | None) -> None:
    frame = (0, task.reward_min), task.cost_max, task.reward_max - task.reward_min
    panel.add_patch(Rectangle(*frame, fill=False, edgecolor=MUTED, linestyle=(0, (4, 3)), linewidth=0.9))
    panel.set_title(task.name if dataset else f"{task.name}: not collected", loc="left", color=INK, fontsize=10)
    if dataset is not None:
        cost = dataset.cost_return[:, 0]
        colours = np.array([*SAFE_COLOURS[: len(LIMITS)], FAINT])[np.searchsorted(LIMITS, cost)]
        panel.scatter(cost, dataset.reward_return, s=6, c=colours, linewidths=0, alpha=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(13, 6), layout="constrained", facecolor="white")
        for panel, name in zip(figure.subplots(2, 4).flat, TASKS, strict=True):
            path, task = folder / f"{name}.hdf5", find_task(name)
            dataset = load(str(path), name) if path.exists() else None
            draw(panel, task, dataset)
            rows += [row(task, path)] if dataset else []
        figure.supxlabel("cost of an episode", color=INK, fontsize=10)
        figure.supylabel("return of an episode", color=INK, fontsize=10)
    save(figure, ROOT / "docs/img/collected.png")
    write_csv(ROOT / "benchmarks/results/collected.csv", rows)
    for line in rows:
        print("  ".join(f"{key} {value}" for key, value in line.items()))


if __name__ == "__main__":
    main()
