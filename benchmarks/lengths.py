"""Which of w, λ and Q leaves its range first while `pdocrl` trains, from the metrics of its trainings.

    pdocrl bench lengths --data FOLDER --tasks BallRun CarRun --out runs/lengths
    python benchmarks/lengths.py runs/lengths

A part of the suite does (`--agents`, `--tasks`), and any benchmark folder with trainings of `pdocrl`. In the
algorithm's units, w has left where more than half of a batch is at its bound, λ where it is within 1 % of B = 1 + 1/φ,
Q where its mean lies outside what any policy could have, |Q| ≤ (r_max + λ c_max) / (1 − γ); each to the end of the
training. Writes results/lengths.csv, one row per run, with the step at which each left and the versions, commit,
machine and data digest of the training, and prints how often each was first.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.agents.registry import find_agent
from pdocrl.data import load
from pdocrl.files import write_csv
from pdocrl.provenance import in_words
from pdocrl.training.config import TrainingConfig

RESULTS = Path(__file__).resolve().parent / "results" / "lengths.csv"
AT_CLIP, NEAR = 0.5, 0.99


def first(step: list[int], out: list[bool]) -> int | None:
    """The step from which on it stays outside, to the end of the training."""
    inside = [i for i, one in enumerate(out) if not one]
    begin = inside[-1] + 1 if inside else 0
    return step[begin] if begin < len(step) else None


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """One row per run of a training."""
    plan = TrainingConfig.read(folder)
    runs = plan.make_runs(find_agent(plan.agent))
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    data = load(plan.data, plan.task)
    reward, cost = float(np.abs(data.reward).max()), data.cost.max(axis=0)
    found = []
    for number, run in enumerate(runs):
        logged = [line for line in lines if line["run"] == number]
        config, step, own = run.config, [line["step"] for line in logged], [line["metrics"] for line in logged]
        names = [name for name in own[0] if name == "lambda" or name.startswith("lambda_")]
        lam = np.array([[line[name] for name in names] for line in own])
        bound = 1 + 1 / config.slater_margin
        largest = (reward * config.reward_scale + lam @ cost) / (1 - config.gamma)
        left = {
            "w": first(step, [line["w_at_clip"] > AT_CLIP for line in own]),
            "lambda": first(step, [bool(one.max() >= NEAR * bound) for one in lam]),
            "q": first(step, [abs(line["q"]) > most for line, most in zip(own, largest, strict=True)]),
        }
        known = {name: when for name, when in left.items() if when is not None}
        found.append(
            {
                "folder": folder.name,
                "task": plan.task,
                "cost_limit": run.config.cost_limit[0],
                "seed": run.seed,
                "steps": step[-1],
                **{f"{name}_left_at": "" if when is None else when for name, when in left.items()},
                "first": min(known, key=known.__getitem__) if known else "none",
                "w": own[-1]["w"],
                "w_at_clip": own[-1]["w_at_clip"],
                "lambda_last": lam[-1].max(),
                "q": own[-1]["q"],
                "q_largest": largest[-1],
                "versions": in_words(plan.versions),
                "commit": plan.commit,
                "machine": plan.machine,
                "data_digest": plan.data_digest,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that `pdocrl bench --out` wrote")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    groups = sorted(path.parent for path in given.folder.glob("groups/pdocrl*/metrics.jsonl"))
    rows = [row for group in groups if TrainingConfig.read(group).agent == "pdocrl" for row in rows_of(group)]
    write_csv(given.out, rows)
    for name in dict.fromkeys(row["folder"] for row in rows):
        own = Counter(row["first"] for row in rows if row["folder"] == name)
        print(f"{name}: first to leave {', '.join(f'{what} {count}' for what, count in own.most_common())}")


if __name__ == "__main__":
    main()
