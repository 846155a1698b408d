"""Played episodes of agents and tasks that stand in no other table.

    python benchmarks/played.py table.jsonl [more.jsonl …]

Lines are as `table.py` takes them. Adds a row for every policy and limit to benchmarks/results/played.csv, in place of
the one that stood there, and prints a table. AntRun and DroneCircle are data of `pdocrl collect AntRun` and `pdocrl
collect DroneCircle` (`--budget 1200k`); nobody had trained on them while the agents were made.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from table import read_lines

from pdocrl.console import print_table
from pdocrl.evaluation.normalise import normalised_reward
from pdocrl.files import read_csv, write_csv

PLAYED = Path(__file__).parent / "results" / "played.csv"
WHO = ("task", "agent", "cost_limit", "seed")
Rows = dict[tuple[Any, ...], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, nargs="+", help="files of played policies, one JSON object a line")
    rows = former_rows()
    for line in read_lines(parser.parse_args().lines):
        reward, cost = np.asarray(line["reward"]), np.asarray(line["cost"])
        place = (line["task"], line["agent"], line["limit"], line["seed"])
        rows[place] = dict(zip(WHO, place, strict=True)) | {
            "step": line["steps"],
            "episodes": len(reward),
            "normalized_reward": round(float(normalised_reward(line["task"], reward).mean()), 6),
            "cost": round(float(cost.mean()), 6),
            "safe": bool(cost.mean() <= line["limit"]),
            "shortest": min(line["length"]),
        }
    write_csv(PLAYED, [rows[place] for place in sorted(rows)])
    table = []
    for task, agent, limit in dict.fromkeys(place[:3] for place in sorted(rows)):
        own = [row for place, row in rows.items() if place[:3] == (task, agent, limit)]
        means = [float(np.mean([r[key] for r in own])) for key in ("normalized_reward", "cost")]
        safe = sum(r["safe"] for r in own)
        table.append([task, agent, f"{limit:g}", f"{means[0]:.3f}", f"{means[1]:.2f}", f"{safe} of {len(own)}"])
    print_table(["task", "agent", "limit", "reward", "cost", "runs within"], table)


def former_rows() -> Rows:
    """What stands in the file."""
    return {tuple(row[name] for name in WHO): row | {"safe": row["safe"] == "True"} for row in read_csv(PLAYED)}


if __name__ == "__main__":
    main()
