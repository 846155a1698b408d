"""Tables of docs/any-log.md and the notes from benchmarks/results/any_log.csv.

python benchmarks/any_log/table.py                      reward and limits per problem, wins, claims
python benchmarks/any_log/table.py --episodes 1000
python benchmarks/any_log/table.py --rows               one line per policy of each log
python benchmarks/any_log/table.py --merge FILE …       rows measured in several processes, into the one file
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from any_log.measure import FIELDS, role
from scipy import stats

RESULTS = Path(__file__).parents[1] / "results" / "any_log.csv"
COVERAGE = RESULTS.with_name("any_log_coverage.csv")
POLICIES = {
    "pdocrl.solve": "`solve`",
    "pdocrl.solve --confidence 0.95": "`--confidence 0.95`",
    "clone of safe episodes": "clone of safe episodes",
    "k-means cells": "k-means cells",
    "forests, fitted Q": "forests, fitted Q",
    "d3rlpy CQL, Lagrangian": "CQL",
    "d3rlpy BCQ, Lagrangian": "BCQ",
    "dial": "`dial`",
}
SURE = 1.645  # standard errors that a cost must be over its limit by to be called over
FAR = 90.0  # per cent of the best decider's reward, below which a policy is far below it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE")
    given = parser.parse_args()
    if given.merge:
        merge(given.merge)
        return
    rows = pd.read_csv(RESULTS)
    rows = rows[rows["episodes"] == given.episodes]
    if given.rows:
        by_log(rows)
    else:
        policies = per_policy(rows)
        summary(policies)
        rates(policies)
        claims(rows)
        if COVERAGE.exists():
            coverage(pd.read_csv(COVERAGE))


def merge(files: list[Path]) -> None:
    """Later rows replace earlier ones of the same log and policy."""
    new = [pd.read_csv(file) for file in files]
    for fields, out, key in (
        (FIELDS, RESULTS, ["problem", "episodes", "seed", "policy", "signal"]),
        (None, COVERAGE, ["family", "episodes", "seed"]),
    ):
        own = [one for one in new if key[0] in one]
        if own:
            rows = pd.concat([pd.read_csv(out), *own] if out.exists() else own)
            if fields:
                rows["role"] = rows["problem"].map(role)
                rows = rows[list(fields)]
            rows = rows.drop_duplicates(key, keep="last")
            rows.sort_values(key[:3], kind="stable").to_csv(out, index=False, lineterminator="\n")


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


def per_policy(rows: Any) -> Any:
    """A row per log and policy: true reward with that of the best decider at 100, whether it is over, whether shown."""
    found = []
    for (problem, seed), log in rows.groupby(["problem", "seed"], sort=False):
        best = best_decider(log)
        for name in POLICIES:
            own = log[log["policy"] == name]
            if len(own):
                share = 100 + 100 * (reward(own) - best) / abs(best)
                found.append((problem, seed, name, share, over(own), str(own["status"].iloc[0]).split(":")[0]))
    return pd.DataFrame(found, columns=["problem", "seed", "policy", "reward", "over", "status"])


def summary(policies: Any) -> None:
    """A line per problem: mean reward, and logs with a limit broken where not all logs kept them."""
    used = [name for name in POLICIES if (policies["policy"] == name).any()]
    print("|problem|logs|shown|" + "|".join(POLICIES[name] for name in used) + "|")
    print("|---|---|---|" + "---|" * len(used))
    for problem, logs in policies.groupby("problem", sort=False):
        shown = int((logs["status"] == "shown").sum())
        count = logs["seed"].nunique()
        told = []
        for name in used:
            own = logs[logs["policy"] == name]
            part = f" of {len(own)}" if len(own) < count else ""
            broken = f", {own['over'].sum()}{part} over" if own["over"].any() else ""
            told.append(f"{own['reward'].mean():.0f}{broken}" if len(own) else "–")
        print(f"|{problem}|{count}|{shown}|" + "|".join(told) + "|")


def rates(policies: Any) -> None:
    """Of each policy: limits broken with an exact interval of 95 %, wins, logs far below the best decider.

    A win: on a problem, the largest mean reward among policies measured on all its logs and over a limit in at most a
    tenth of them; on a log, the largest among those within.
    """
    tried = policies.groupby(["problem", "policy"]).agg(
        reward=("reward", "mean"), over=("over", "mean"), logs=("seed", "size")
    )
    everywhere = tried["logs"] == tried["logs"].groupby("problem").transform("max")
    eligible = tried[everywhere & (tried["over"] <= 0.1)]["reward"]
    winners = eligible.groupby("problem").idxmax().map(lambda place: place[1])
    within = policies[~policies["over"]]
    by_log = within.loc[within.groupby(["problem", "seed"])["reward"].idxmax(), "policy"]
    print("\n|policy|logs|over a limit|95 %|problems won|logs won|logs below 90|least|")
    print("|---|---|---|---|---|---|---|---|")
    groups = [(label, policies[policies["policy"] == name], name) for name, label in POLICIES.items()]
    tested = policies[(policies["status"] == "shown") & (policies["policy"] == "pdocrl.solve --confidence 0.95")]
    for label, own, name in [*groups, ("of these shown", tested, "")]:
        if len(own):
            low, high = exact(int(own["over"].sum()), len(own))
            far, least = (own["reward"] < FAR).sum(), own["reward"].min()
            won = f"{(winners == name).sum()}|{(by_log == name).sum()}"
            print(
                f"|{label}|{len(own)}|{own['over'].sum()}|{100 * low:.0f}–{100 * high:.0f} %|{won}|{far}|{least:.0f}|"
            )


def exact(bad: int, count: int) -> tuple[float, float]:
    """Clopper–Pearson, two-sided 95 %."""
    low = float(stats.beta.ppf(0.025, bad, count - bad + 1)) if bad else 0.0
    return low, float(stats.beta.ppf(0.975, bad + 1, count - bad)) if bad < count else 1.0


def claims(rows: Any) -> None:
    """What was claimed against the truth: over logs, median of claimed ÷ true reward and costs; |z| < 2 where there is
    an error."""
    print("\n|policy|claimed reward, over true|claimed costs, over true|within two errors|")
    print("|---|---|---|---|")
    for name, label in POLICIES.items():
        own = rows[(rows["policy"] == name) & rows["claimed"].notna()]
        if len(own):
            ratio = own["claimed"] / own["true"]
            earned = own["signal"] == "reward"
            z = (own["claimed"] - own["true"]).abs() / (own["error"] ** 2 + own["true_error"] ** 2) ** 0.5
            near = f"{100 * (z.dropna() < 2).mean():.0f} %" if z.notna().any() else "–"
            print(f"|{label}|{ratio[earned].median():.2f}|{ratio[~earned].median():.2f}|{near}|")


def coverage(rows: Any) -> None:
    """Logs in which a candidate that is over the limit was shown."""
    print("\n|family|logs|something shown|a policy over the limit shown|chosen one over|")
    print("|---|---|---|---|---|")
    for family, own in [*rows.groupby("family", sort=False), ("all", rows)]:
        wrong = own["false"].notna()
        low, high = exact(int(wrong.sum()), len(own))
        chosen = sum(a in str(b).split("; ") for a, b in zip(own["chosen"], own["false"], strict=True))
        interval = f" ({100 * low:.1f}–{100 * high:.1f} %)" if family == "all" else ""
        print(f"|{family}|{len(own)}|{(own['shown'] > 0).sum()}|{wrong.sum()}{interval}|{chosen}|")


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
