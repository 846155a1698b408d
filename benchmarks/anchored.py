"""pdocrl_anchored at every limit: safe everywhere? how much reward? does it know its own cost? what does each part do?

    python benchmarks/anchored.py --data FOLDER --out runs/anchored
    python benchmarks/anchored.py --data FOLDER --out runs/anchored --ablate

Limits 5, 10, 20, 40, seeds 0, 5, 10, 15, 20, 100,000 steps, last checkpoint, 20 episodes a run, every episode counted,
one setting for all tasks. Training needs no simulator and playing no accelerator: copy the folder between machines and
call it again; what is done is not done twice. `--ablate` leaves out one part at a time, and Q and λ together, which
leaves cloning of the same episodes and nothing else (one seed; `--seeds 5` for the mean's interval). Writes
benchmarks/results/anchored.csv, anchored_calibration.csv or anchored_ablation.csv, and docs/img/anchored.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.console import print_table
from pdocrl.data.tasks import Task, find_task
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.files import write_csv
from pdocrl.training.folder import read_lines
from pdocrl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
LIMITS, SEEDS, STEPS, EPISODES = (5.0, 10.0, 20.0, 40.0), (0, 5, 10, 15, 20), 100_000, 20
WITHOUT: dict[str, dict[str, Any]] = {
    "whole": {},
    "w without the best episodes' weight": {"episodes": 1e6},
    "w without λ": {"tilt": 0.0},
    "π without Q": {"improvement": 0.0},
    "π without averaging": {"average_rate": 1.0},
    "λ by the critics, not by rollouts": {"rollouts": 0.0},
    "Q and λ: the cloning alone": {"improvement": 0.0, "tilt": 0.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/anchored"))
    parser.add_argument("--ablate", action="store_true", help="leave out one part at a time")
    parser.add_argument("--seeds", type=int, help="how many of the five seeds; 5, and 1 with --ablate, unless told")
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    rows, calibration = [], []
    for file in sorted(arguments.data.glob("Safety*-v0-*.hdf5")):
        task = find_task(file.name.split("-v0")[0].removeprefix("Safety"))
        for part, settings in (WITHOUT if arguments.ablate else {"whole": {}}).items():
            name = "anchored" if part == "whole" else "_".join(settings)
            folder = arguments.out / f"{name}{'-ablation' if arguments.ablate else ''}-{task.name}"
            if not (folder / "policies.npz").exists():
                seeds = SEEDS[: arguments.seeds or (1 if arguments.ablate else len(SEEDS))]
                train(
                    file,
                    "pdocrl_anchored",
                    task=task,
                    cost_limit=LIMITS,
                    seed=seeds,
                    steps=STEPS,
                    settings=settings,
                    out=folder,
                    evaluate_every=0 if arguments.train_only else 25_000,
                )
            if arguments.train_only:
                continue
            if not (folder / "scores.json").exists():
                evaluate(folder, EPISODES)
            rows += [{"task": task.name, "part left out": part, **run} for run in read_runs(folder)]
            calibration += read_calibration(folder, task)
    if rows:
        results = Path(__file__).parent / "results"
        write_csv(results / ("anchored_ablation.csv" if arguments.ablate else "anchored.csv"), rows)
        show(rows)
    if rows and not arguments.ablate:
        write_csv(results / "anchored_calibration.csv", calibration)
        compare(calibration)
        draw(rows, calibration, ROOT / "docs/img/anchored.png")


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Every run's score and what it believed of its own cost at the end."""
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    last = {line["run"]: line["metrics"] for line in read_lines(folder / "metrics.jsonl")}
    kept = ("cost_limit", "seed", "reward", "cost", "normalized_reward", "normalized_cost", "safe")
    beliefs = ("model_cost", "telescoped_cost", "lambda", "w_share")
    return [
        {k: run[k][0] if isinstance(run[k], list) else run[k] for k in kept}
        | {"episodes": len(run["episodes"]), "step": scores["step"]}
        | {"data": scores["data"]["name"]}
        | {k: last[i].get(k, "") for k in beliefs}
        for i, run in enumerate(scores["runs"])
    ]


def read_calibration(folder: Path, task: Task) -> list[dict[str, Any]]:
    """Cost by rollouts in the model, as telescoped, and as played, wherever both are known."""
    believed = {(line["run"], line["step"]): line["metrics"] for line in read_lines(folder / "metrics.jsonl")}
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    played = [
        (e["run"], e["step"], e["cost_limit"][0], e["seed"], e["cost"][0])
        for e in read_lines(folder / "evaluations.jsonl")
    ]
    played += [(i, scores["step"], r["cost_limit"][0], r["seed"], r["cost"][0]) for i, r in enumerate(scores["runs"])]
    return [
        {
            "task": task.name,
            "cost_limit": limit,
            "seed": seed,
            "step": step,
            "played": cost,
            "model": believed[run, step]["model_cost"],
            "telescoped": believed[run, step]["telescoped_cost"],
        }
        for run, step, limit, seed, cost in played
        if (run, step) in believed
    ]


def show(rows: list[dict[str, Any]]) -> None:
    """Reward and cost at each limit, mean ± standard deviation over seeds."""
    table = []
    for task, part in dict.fromkeys((r["task"], r["part left out"]) for r in rows):
        cells, rewards = [], []
        for limit in LIMITS:
            own = [r for r in rows if (r["task"], r["part left out"], r["cost_limit"]) == (task, part, limit)]
            reward = np.array([r["normalized_reward"] for r in own])
            cost = np.mean([r["normalized_cost"] for r in own])
            rewards.append(reward.mean())
            cells.append(f"{reward.mean():.3f} ± {reward.std():.3f} / {cost:.2f}{'' if cost <= 1 else ' !'}")
        table.append([task, part, *cells, f"{np.mean(rewards[1:]):.3f}"])
    head = ["task", "part left out", *(f"limit {limit:g}: reward / cost" for limit in LIMITS), "mean of 10, 20, 40"]
    print_table(head, table, title="pdocrl_anchored; cost over limit, `!` where above 1")


def compare(calibration: list[dict[str, Any]]) -> None:
    """How far beliefs are from what was played, in units of the limit."""
    table = []
    for task in dict.fromkeys(r["task"] for r in calibration):
        own = [r for r in calibration if r["task"] == task]
        played = np.array([r["played"] / r["cost_limit"] for r in own])
        line = [task, str(len(own))]
        for belief in ("model", "telescoped"):
            error = np.array([r[belief] / r["cost_limit"] for r in own]) - played
            line += [f"{np.median(np.abs(error)):.2f}", f"{error.mean():+.2f}"]
        table.append(line)
    head = ["task", "policies", "rollouts: median error", "bias", "critics: median error", "bias"]
    print_table(head, table, title="estimated cost against played cost, in units of the limit")


def draw(rows: list[dict[str, Any]], calibration: list[dict[str, Any]], path: Path) -> None:
    """Above: reward and cost at each limit. Below: predicted against played cost."""
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(r["task"] for r in rows))
    figure, axes = plt.subplots(3, len(tasks), figsize=(3 * len(tasks), 8), squeeze=False, layout="constrained")
    highest = max(1.5, *(1.05 * r["normalized_cost"] for r in rows))
    for column, task in enumerate(tasks):
        own = [r for r in rows if r["task"] == task]
        where = [LIMITS.index(r["cost_limit"]) + 0.06 * (SEEDS.index(r["seed"]) - 2) for r in own]
        top, middle, bottom = axes[:, column]
        top.plot(where, [r["normalized_reward"] for r in own], "o", alpha=0.7)
        top.set(title=task, ylabel="normalised reward" if column == 0 else "")
        middle.plot(where, [r["normalized_cost"] for r in own], "o", alpha=0.7, color="C1")
        middle.axhline(1, color="black", linewidth=1)
        middle.set(ylim=(-0.05, highest), xlabel="cost limit", ylabel="cost / limit" if column == 0 else "")
        for axis in (top, middle):
            axis.set_xticks(range(len(LIMITS)), [f"{limit:g}" for limit in LIMITS])
        for limit, marker in zip(LIMITS, "osD^", strict=True):
            points = [r for r in calibration if (r["task"], r["cost_limit"]) == (task, limit)]
            shade = [r["step"] / 1000 for r in points]
            dots = bottom.scatter(
                [r["played"] for r in points],
                [r["model"] for r in points],
                c=shade,
                marker=marker,
                s=26,
                cmap="viridis",
                vmin=0,
                vmax=STEPS / 1000,
                label=f"limit {limit:g}",
            )
        largest = max([1.0, *(max(r["played"], r["model"]) for r in calibration if r["task"] == task)])
        bottom.plot([0, largest], [0, largest], color="black", linewidth=1)
        bottom.set(xlabel="cost played", ylabel="cost predicted" if column == 0 else "")
    axes[2, 0].legend(fontsize=7)
    figure.colorbar(dots, ax=axes[2, -1], label="thousand steps")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
