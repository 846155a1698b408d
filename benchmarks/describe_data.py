"""What the tasks' datasets hold: returns, costs, the safe frontier and crashes, a row per file.

    python benchmarks/describe_data.py FOLDER      # with Safety<Task>-*.hdf5, or files `pdocrl collect` wrote

Writes results/data.csv and the table of docs/data.md. Tasks without a file keep the row they had; those that never had
one are a gap.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from generated import END, replace_block

from pdocrl.data import load
from pdocrl.data.load import search
from pdocrl.data.tasks import BULLET, Task
from pdocrl.files import write_csv

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "data.csv"
PAGE = ROOT / "docs" / "data.md"
BEGIN = "<!-- made by benchmarks/describe_data.py -->"
LIMITS = (10, 20, 40)
HEADS = {
    "task": "task",
    "episodes": "episodes",
    "transitions": "transitions",
    "return": "return min / median / max",
    "cost": "cost min / median / max",
    "within": "episodes with cost ≤ 10 / 20 / 40, %",
    "best": "best return at cost ≤ 10 / 20 / 40",
    "clipped": "actions at a bound, %",
    "crashes": "episodes that end in a terminal, %",
    "digest": "digest",
}


def row(task: Task, path: Path) -> dict[str, object]:
    data = load(str(path), task.name)
    reward, cost = data.reward_return, data.cost_return[:, 0]
    within = [cost <= limit for limit in LIMITS]
    return {
        "task": task.name,
        "file": path.name,
        "episodes": data.n_episodes,
        "transitions": len(data),
        "return": " / ".join(f"{x:.0f}" for x in (reward.min(), np.median(reward), reward.max())),
        "cost": " / ".join(f"{x:g}" for x in (cost.min(), np.median(cost), cost.max())),
        "within": " / ".join(f"{100 * inside.mean():.0f}" for inside in within),
        "best": " / ".join(f"{reward[inside].max():.0f}" if inside.any() else "–" for inside in within),
        "clipped": f"{100 * (np.abs(data.action) >= 1 - 1e-6).mean():.0f}",
        "crashes": f"{100 * data.terminal.sum() / data.n_episodes:.1f}",
        "digest": data.digest[:12],
    }


def table(rows: dict[str, dict[str, object]]) -> str:
    """Markdown; tasks without data are gaps."""
    lines = ["| " + " | ".join(HEADS.values()) + " |", "|" + "---|" * len(HEADS)]
    for task in BULLET:
        own = rows.get(task.name, {"task": task.name})
        lines.append("| " + " | ".join(str(own.get(name, "–")) for name in HEADS) + " |")
    return "\n".join([BEGIN, "", *lines, "", END])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows: dict[str, dict[str, object]] = {}
    if RESULTS.exists():
        with RESULTS.open(encoding="utf-8", newline="") as file:
            rows = {one["task"]: dict(one) for one in csv.DictReader(file)}
    for task in BULLET:
        path = search(task, [folder])
        if path is not None:
            rows[task.name] = row(task, path)
            print(rows[task.name], flush=True)
    write_csv(RESULTS, [rows[task.name] for task in BULLET if task.name in rows])
    if PAGE.exists():
        replace_block(PAGE, table(rows))


if __name__ == "__main__":
    main()
