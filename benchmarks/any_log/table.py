"""The table of docs/any-log.md from benchmarks/results/any_log.csv.

python benchmarks/any_log/table.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parents[1] / "results" / "any_log.csv"


def main() -> None:
    rows = pd.read_csv(RESULTS)
    print("| problem, log | limits | policy | status | claimed | true | over a limit |")
    print("|---|---|---|---|---|---|---|")
    for (problem, seed), log in rows.groupby(["problem", "seed"], sort=False):
        limits = log.dropna(subset=["limit"]).drop_duplicates("signal")
        named = ", ".join(f"{one.signal} ≤ {one.limit:g}" for one in limits.itertuples())
        for policy, own in log.groupby("policy", sort=False):
            if not policy.startswith("candidate"):
                claimed = " / ".join("–" if pd.isna(x) else f"{x:.3g}" for x in own["claimed"])
                true = " / ".join(f"{x:.3g}" for x in own["true"])
                over = (own["true"] - 1.645 * own["true_error"] > own["limit"]).any()
                status = "" if pd.isna(own["status"].iloc[0]) else own["status"].iloc[0]
                cells = (f"{problem}, {seed}", named, policy, status, claimed, true, "yes" if over else "no")
                print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
