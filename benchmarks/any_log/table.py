"""The table of docs/any-log.md from benchmarks/results/any_log.csv; `--rows` prints one line per policy of each log.

python benchmarks/any_log/table.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

RESULTS = Path(__file__).parents[1] / "results" / "any_log.csv"
POLICIES = {
    "pdocrl.solve": "`solve`",
    "pdocrl.solve --confidence 0.95": "`--confidence 0.95`",
    "clone of safe episodes": "clone of safe episodes",
    "k-means cells": "k-means cells",
    "forests, fitted Q": "forests, fitted Q",
}
SURE = 1.645  # standard errors that a cost must be over its limit by to be called over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true")
    rows = pd.read_csv(RESULTS)
    if parser.parse_args().rows:
        by_log(rows)
    else:
        summary(rows)


def over(own: Any) -> bool:
    """Whether the policy of these rows is over a limit, in truth."""
    return bool((own["true"] - SURE * own["true_error"] > own["limit"]).any())


def reward(own: Any) -> float:
    return float(own.loc[own["signal"] == "reward", "true"].iloc[0])


def best_decider(log: Any) -> float:
    """The largest true reward among deciders whose true costs are within every limit."""
    each = [own for policy, own in log.groupby("policy") if policy.startswith("decider ")]
    within = [reward(own) for own in each if not (own["true"] > own["limit"]).any()]
    return max(within, default=float("nan"))


def summary(rows: Any) -> None:
    """A line per problem: mean true reward, with that of the best decider within 100, and logs with a limit broken."""
    print("|problem|logs|shown|" + "|".join(POLICIES.values()) + "|")
    print("|---|---|---|" + "---|" * len(POLICIES))
    for problem, logs in rows.groupby("problem", sort=False):
        cells: dict[str, list[tuple[float, bool]]] = {name: [] for name in POLICIES}
        shown = count = 0
        for _, log in logs.groupby("seed"):
            count += 1
            best = best_decider(log)
            for name, found in cells.items():
                own = log[log["policy"] == name]
                if len(own):
                    found.append((100 + 100 * (reward(own) - best) / abs(best), over(own)))
                    shown += name.endswith("0.95") and str(own["status"].iloc[0]).startswith("shown")
        told = []
        for found in cells.values():
            broken = sum(bad for _, bad in found)
            mean = sum(value for value, _ in found) / max(len(found), 1)
            over_some = "over" if len(found) == broken else f"{broken} over"
            told.append(f"{mean:.0f}" + (f", {over_some}" if broken else "") if found else "–")
        print(f"|{problem}|{count}|{shown}|" + "|".join(told) + "|")


def by_log(rows: Any) -> None:
    print("| problem, log | limits | policy | status | claimed | true | over a limit |")
    print("|---|---|---|---|---|---|---|")
    for (problem, seed), log in rows.groupby(["problem", "seed"], sort=False):
        limits = log.dropna(subset=["limit"]).drop_duplicates("signal")
        named = ", ".join(f"{one.signal} ≤ {one.limit:g}" for one in limits.itertuples())
        for policy, own in log.groupby("policy", sort=False):
            if not policy.startswith("candidate"):
                claimed = " / ".join("–" if pd.isna(x) else f"{x:.3g}" for x in own["claimed"])
                true = " / ".join(f"{x:.3g}" for x in own["true"])
                status = "" if pd.isna(own["status"].iloc[0]) else own["status"].iloc[0]
                cells = (f"{problem}, {seed}", named, policy, status, claimed, true, "yes" if over(own) else "no")
                print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
