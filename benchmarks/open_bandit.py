"""Real logged data: two loggers of the Open Bandit Dataset judge each other, with a limit on the exposure of items.

    pip download --no-deps --no-binary :all: obp && tar xzf obp-*.tar.gz
    python benchmarks/open_bandit.py obp-0.4.1/obp/dataset/obd

The sample of 10,000 rows per campaign and logger in obp's source distribution (Saito, Aihara, Matsutani and Narita,
"Open Bandit Dataset and Pipeline", 2021; the data is licensed CC BY 4.0 by ZOZO, Inc., and not copied here). `random`
shows items uniformly; `bts` is Bernoulli Thompson sampling. From the rows of one the value of the other is estimated,
clicks and the share of impressions of the ten items that the other shows most; the other's own rows are the truth, up
to their own interval. Of `bts` the policy is taken as its frequencies per position, from its own rows. Rows go to
benchmarks/results/open_bandit.csv.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdocrl.data.event_log import EventLog
from pdocrl.ope.judge import judge

HERE = Path(__file__).parent
CAMPAIGNS = ("all", "men", "women")
LOGGERS = ("random", "bts")
FAVOURITES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder obd of obp's source distribution")
    data = parser.parse_args().data
    rows = [
        row
        for campaign in CAMPAIGNS
        for logger, judged in (LOGGERS, LOGGERS[::-1])
        for row in measure(data, campaign, logger, judged)
    ]
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    table = pd.DataFrame(rows).assign(commit=head.strip())
    table.to_csv(HERE / "results" / "open_bandit.csv", index=False, float_format="%.4g")
    print(table.to_string())


def read(data: Path, campaign: str, logger: str) -> pd.DataFrame:
    return pd.read_csv(data / logger / campaign / f"{campaign}.csv")[
        ["item_id", "position", "click", "propensity_score"]
    ]


def log_of(frame: pd.DataFrame, favourites: Any, items: Any) -> EventLog:
    exposed = np.isin(frame["item_id"], favourites).astype(float)
    columns = {
        "position": frame["position"].astype(str).radd("p"),
        "action": frame["item_id"],
        "reward": frame["click"],
    }
    known = frame["item_id"].isin(items).to_numpy()
    return EventLog.read(
        pd.DataFrame(columns | {"exposure": exposed, "p": frame["propensity_score"]})[known],
        episode=None,
        costs=["exposure"],
        propensity="p",
    )


def frequencies(frame: pd.DataFrame, log: EventLog) -> Any:
    """[N, A] of the logger of `frame`, per position."""
    place = {item: i for i, item in enumerate(log.actions)}
    found = np.zeros((3, len(log.actions)))
    inside = frame[frame["item_id"].isin(list(place))]
    np.add.at(found, (inside["position"] - 1, inside["item_id"].map(place)), 1)
    position = np.array([int(word[1]) for word in log.columns[0].raw()]) - 1
    return (found / found.sum(1, keepdims=True))[position]


def measure(data: Path, campaign: str, logger: str, judged: str) -> list[dict[str, Any]]:
    rows, truth = read(data, campaign, logger), read(data, campaign, judged)
    favourites = truth["item_id"].value_counts().index[:FAVOURITES].to_numpy()
    log = log_of(rows, favourites, set(rows["item_id"]))
    own = log_of(truth, favourites, set(truth["item_id"]))
    share = float(own.costs["exposure"].mean())
    limits = [f"exposure<={round(0.8 * share, 4)}", f"exposure>={round(0.8 * share, 4)}"]
    target = frequencies(truth, log) if judged == "bts" else np.full((len(log), len(log.actions)), 1 / len(log.actions))
    report = judge({judged: target}, log, limits)
    beside = judge({judged: np.eye(len(own.actions))[own.action]}, own).logged
    [policy] = report.policies
    base = {"campaign": campaign, "rows of": logger, "policy": judged, "n": len(log)}
    base |= {"true clicks": beside.reward, "true exposure": beside.cost[0]}
    base |= {"true low": beside.reward_interval[0], "true high": beside.reward_interval[1]}  # type: ignore[index]
    found = []
    for e in policy.estimates:
        if e.reward is None:
            continue
        low, high = e.reward_interval or (np.nan, np.nan)
        error = {"clicks": e.reward, "low": low, "high": high, "exposure": e.cost[0], "ess": e.ess}
        agrees = low <= beside.reward_interval[1] and high >= beside.reward_interval[0]  # type: ignore[index]
        found.append(base | {"estimator": e.estimator} | error | {"agrees": agrees if low == low else ""})
    told = {"exposure at .8 of it": " / ".join(v.verdict for v in policy.limits)}
    return [row | told for row in found]


if __name__ == "__main__":
    main()
