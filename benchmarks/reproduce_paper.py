"""The paper's column of its results table, on re-collected data: train, play, and print beside the published numbers.

    python benchmarks/reproduce_paper.py --data FOLDER --agent pdocrl --out runs/paper

Training needs no simulator and playing needs no GPU: copy `runs/paper` between machines and call it again; what is done
is not done twice. Protocol `dsrl`: limits 10, 20, 40, seeds 0, 5, 10, 100,000 steps, 20 episodes, last checkpoint.
Committed are reproduce_pdocrl.csv and, with the multiplier of the published code, reproduce_pdocrl_dataset.csv.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pdocrl.console import print_table
from pdocrl.data.tasks import find_task
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.files import write_csv
from pdocrl.report.published import PUBLISHED
from pdocrl.training.folder import load_trained
from pdocrl.training.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--agent", default="pdocrl", choices=["pdocrl", "pdocrl_extraction"])
    parser.add_argument("--out", type=Path, default=Path("runs/paper"))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--multiplier-signal", default="weighted", choices=["weighted", "dataset"])  # text, or code
    parser.add_argument("--published", action="store_true", help="the published code's update to the letter")
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    protocol, signal = find_protocol("dsrl"), arguments.multiplier_signal
    settings = {"published": True} if arguments.published else {"multiplier_signal": signal}
    variant = "published" if arguments.published else signal
    name = arguments.agent if variant == "weighted" else f"{arguments.agent}_{variant}"

    table, rows = [], []
    for file in sorted(arguments.data.glob("Safety*-v0-*.hdf5")):
        task = find_task(file.name.split("-v0")[0].removeprefix("Safety"))
        folder = arguments.out / f"{name}-{task.name}"
        if not (folder / "policies.npz").exists():
            train(
                file,
                arguments.agent,
                task=task,
                cost_limit=protocol.limits,
                seed=protocol.seeds,
                steps=arguments.steps,
                settings=settings,
                out=folder,
            )
        if arguments.train_only:
            continue
        if not (folder / "scores.json").exists():
            evaluate(folder, protocol.episodes)
        scores = json.loads((folder / "scores.json").read_text())
        last = {line["run"]: line["metrics"] for line in load_trained(folder).metrics}
        for i, run in enumerate(scores["runs"]):
            episodes = {"episodes": len(run["episodes"]), "data": scores["data"]["name"], "step": scores["step"]}
            kept = {k: run[k] for k in ("agent", "seed", "normalized_reward", "normalized_cost", "safe")}
            kept["cost_limit"] = run["cost_limit"][0]
            diagnosis = {k: last.get(i, {}).get(k, "") for k in ("w", "w_at_clip", "lambda", "q", "v", "residual")}
            rows.append({"task": task.name, **kept, **episodes, **diagnosis})
        summary, paper = scores["summary"][0]["score"], PUBLISHED[arguments.agent][task.name]
        mean = {k: sum(r[k] or 0 for r in rows if r["task"] == task.name) / 9 for k in ("w", "lambda")}
        low, high = summary["reward_interval"]
        table.append(
            [
                task.name,
                f"{summary['reward']:.2f} [{low:.2f}, {high:.2f}]",
                f"{summary['cost']:.2f}",
                f"{summary['safe_limits']}/3",
                f"{paper.reward:.2f}",
                f"{paper.cost:.2f}",
                f"{mean['w']:.2f}",
                f"{mean['lambda']:.2f}",
            ]
        )
    if table:
        columns = ["task", "reward [95 %]", "cost", "safe limits", "paper: reward", "cost", "w at the end", "λ"]
        print_table(columns, table, title=f"{name}, re-collected data, protocol dsrl, 3 seeds, 20 episodes")
        target = Path(__file__).parent / "results" / f"reproduce_{name}.csv"
        write_csv(target, rows)
        print(f"every run: {target}")


if __name__ == "__main__":
    main()
