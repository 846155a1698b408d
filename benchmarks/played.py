"""Played episodes of agents that are told their limit, on tasks that stand in no other table.

    python benchmarks/played.py table.jsonl [more.jsonl …]

Lines are as `table.py` takes them. Writes benchmarks/results/played.csv, a row for every policy and limit, and prints a
table. AntRun and DroneCircle are data of `pdocrl collect AntRun` and `pdocrl collect DroneCircle` (`--budget 1200k`);
nobody had trained on them while the agents were made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from table import read_lines

from pdocrl.console import print_table
from pdocrl.files import write_csv
from pdocrl.scores.normalise import normalised_reward

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, nargs="+", help="files of played policies, one JSON object a line")
    rows = []
    for line in read_lines(parser.parse_args().lines):
        reward, cost = np.asarray(line["reward"]), np.asarray(line["cost"])
        rows.append({
            "task": line["task"], "agent": line["agent"], "cost_limit": line["limit"], "seed": line["seed"],
            "step": line["steps"], "episodes": len(reward),
            "normalized_reward": round(float(normalised_reward(line["task"], reward).mean()), 6),
            "cost": round(float(cost.mean()), 6), "safe": bool(cost.mean() <= line["limit"]),
            "shortest": min(line["length"]),
        })  # fmt: skip
    rows.sort(key=lambda row: (row["task"], row["agent"], row["cost_limit"], row["seed"]))
    write_csv(RESULTS / "played.csv", rows)
    table = []
    for task, agent, limit in dict.fromkeys((r["task"], r["agent"], r["cost_limit"]) for r in rows):
        own = [r for r in rows if (r["task"], r["agent"], r["cost_limit"]) == (task, agent, limit)]
        means = [float(np.mean([r[key] for r in own])) for key in ("normalized_reward", "cost")]
        safe = sum(r["safe"] for r in own)
        table.append([task, agent, f"{limit:g}", f"{means[0]:.3f}", f"{means[1]:.2f}", f"{safe} of {len(own)}"])
    print_table(["task", "agent", "limit", "reward", "cost", "runs within"], table)


if __name__ == "__main__":
    main()
