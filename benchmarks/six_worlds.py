"""The whole way on six worlds unlike the simulated robots: are limits satisfied, and do the intervals of `ope` hold?

    python benchmarks/six_worlds.py --out runs/six_worlds [--worlds Pendulum …]
    python benchmarks/six_worlds.py --show             # the tables of docs/agents/dial.md and docs/ope.md

Of each world in six_worlds_problems.py: 120 logged episodes; limits at .1, .25, .5 and .75 of the log's 90 % quantile
of episode costs; `dial` with three seeds and `bc` on safe episodes with one, all small; every
policy played 50 times; `pdocrl.ope` from the log alone. The method's settings and the protocol were fixed before
anything was played. What came out on Dam decided one rule of the dial (`unseen`), and Dam was played again with it;
nothing else was decided here. Trainings and fits that are there are not made again.
Writes benchmarks/results/six_worlds.csv, a row a policy and cost.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from six_worlds_problems import DRIVERS, TASKS, Drivers

import pdocrl
from pdocrl.console import log
from pdocrl.data import save
from pdocrl.data.dataset import Dataset
from pdocrl.envs.rollout import rollout
from pdocrl.files import read_csv, write_csv
from pdocrl.ope import Prepared
from pdocrl.training.folder import load_trained

RESULTS = Path(__file__).parent / "results" / "six_worlds.csv"
LOGGED, PLAYED, SHARES, COSTLY = 120, 50, (0.1, 0.25, 0.5, 0.75), 0.9
SMALL = {"hidden": (128, 128)}
AGENTS: dict[str, dict[str, Any]] = {
    "dial": {"seed": [0, 1, 2], "steps": 5_000, "settings": SMALL | {"model_hidden": (128, 128)}},
    "bc": {"seed": [0], "steps": 2_000, "settings": SMALL | {"episodes": "safe"}},
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/six_worlds"))
    parser.add_argument("--worlds", nargs="+", default=list(DRIVERS), choices=list(DRIVERS))
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--show", action="store_true", help="print the tables of what was measured before")
    given = parser.parse_args()
    if given.show:
        return show()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tasks.toml").write_text(TASKS, encoding="utf-8")
    os.environ["PDOCRL_TASKS"] = str(given.out / "tasks.toml")
    for world in given.worlds:
        rows = measure(world, given.out / world, given.workers)
        others = [row for row in read_csv(RESULTS) if row["world"] != world] if RESULTS.exists() else []
        write_csv(RESULTS, others + rows)
        show()


def measure(world: str, folder: Path, workers: int | None) -> list[Row]:
    """Log, train, play, estimate."""
    folder.mkdir(exist_ok=True)
    file = folder / "log.hdf5"
    if not file.exists():
        save(rollout(world, Drivers(world), LOGGED, seed=1, workers=workers, record=True).dataset(), file)
    data = pdocrl.load(file, world)
    limits, rows = limits_of(data), list[Row]()
    for agent, options in AGENTS.items():
        own = folder / agent
        if not (own / "policies.npz").exists():
            kept = [limit for limit in limits if (data.cost_return <= limit).all(axis=1).any()]  # bc needs an episode
            asked = kept if agent == "bc" else limits
            pdocrl.train(file, agent, task=world, cost_limit=asked, out=own, **options)
    ready = Prepared.of(data, cache=folder / "fit.safetensors")
    log(f"{world}: {len(ready.calibration.truth)} groups of episodes")
    for agent in AGENTS:
        scores = pdocrl.evaluate(folder / agent, PLAYED, seed=7, workers=workers)
        told = pdocrl.ope(folder / agent, ready)
        policies = load_trained(folder / agent).policies
        for run, foretold, policy in zip(scores.runs, told.runs, policies, strict=True):
            played = np.array([[episode.reward, *episode.cost] for episode in run.episodes])
            error = played.std(axis=0, ddof=1) / np.sqrt(len(played))
            bound = policy.network.predicted().bound if agent == "dial" else np.full(played.shape[1], np.nan)
            for k, limit in enumerate(run.cost_limit):
                low, high = foretold.cost_interval[k]
                rows.append(
                    {
                        "world": world,
                        "agent": agent,
                        "seed": run.seed,
                        "cost_number": k,
                        "limit": limit,
                        "reward": played[:, 0].mean(),
                        "reward_error": error[0],
                        "cost": played[:, 1 + k].mean(),
                        "cost_error": error[1 + k],
                        "predicted_cost": float(bound[k]),
                        "ope_reward": foretold.reward,
                        "ope_reward_low": foretold.reward_interval[0],
                        "ope_reward_high": foretold.reward_interval[1],
                        "ope_cost": foretold.cost[k],
                        "ope_cost_low": low,
                        "ope_cost_high": high,
                        "trusted": int(foretold.trusted),
                        "verdict": foretold.verdict,
                        "groups": len(ready.calibration.truth),
                    }
                )
    return rows


def limits_of(data: Dataset) -> list[tuple[float, ...]]:
    """Shares of what a costly episode of the log costs, to two digits."""
    costly = np.quantile(data.cost_return, COSTLY, axis=0)
    return [tuple(float(f"{share * cost:.1e}") for cost in costly) for share in SHARES]


def show() -> None:
    """Of each world, which limits the dial satisfies; and how estimates from the log alone compare with playing."""
    policies: list[list[Row]] = []  # a row a cost
    for row in read_csv(RESULTS):
        policies += [[]] if row["cost_number"] == 0 else []
        policies[-1].append(row)
    kept, said = list[list[str]](), list[list[str]]()
    for world in DRIVERS:
        every = [rows for rows in policies if rows[0]["world"] == world]
        if not every:
            continue
        dial = [rows for rows in every if rows[0]["agent"] == "dial"]
        limits = list(dict.fromkeys(rows[0]["limit"] for rows in dial))
        seeds_at = [[rows for rows in dial if rows[0]["limit"] == limit] for limit in limits]
        kept.append(
            [world, *map(_cell, seeds_at), _share(dial, _within), _share([x for x in dial if _predicted(x)], _within)]
        )
        over = [rows for rows in every if not _within(rows)]
        well = [rows for rows in every if all(row["cost"] <= 0.7 * row["limit"] for row in rows)]
        called = [rows for rows in every if rows[0]["verdict"] == "over the limit"]
        said.append(
            [
                world,
                str(every[0][0]["groups"]),
                _share(every, lambda rows: bool(rows[0]["trusted"])),
                _share(every, lambda rows: _holds(rows[0], "reward")),
                _share(every, lambda rows: all(_holds(row, "cost") for row in rows)),
                _share(over, _cleared),
                _share(well, _cleared),
                _share(called, _within),
            ]
        )
    asked = [f"{share:g}" for share in SHARES]
    for heads, body in (
        (["world", *asked, "runs within", "of those predicted within"], kept),
        (
            [
                "world",
                "groups",
                "trusted",
                "interval holds reward",
                "interval holds cost",
                "cleared, of those over",
                "shown, of those below .7 × the limit",
                "wrong, of “over”",
            ],
            said,
        ),
    ):
        print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
        print("\n".join("| " + " | ".join(line) + " |" for line in body) + "\n")


def _cell(seeds: list[list[Row]]) -> str:
    """Mean reward over seeds and the worst mean cost over its limit; † where some seed predicts more than it."""
    cost = np.mean([[row["cost"] / row["limit"] for row in rows] for rows in seeds], axis=0).max()
    told = f"{np.mean([rows[0]['reward'] for rows in seeds]):.3g} / " + (
        f"{cost:.2f}" if cost <= 1 else f"**{cost:.2f}**"
    )
    return told if all(map(_predicted, seeds)) else f"{told} †"


def _share(policies: list[list[Row]], true: Callable[[list[Row]], bool]) -> str:
    return f"{sum(true(rows) for rows in policies)} of {len(policies)}"


def _within(rows: list[Row]) -> bool:
    return all(row["cost"] <= row["limit"] for row in rows)


def _predicted(rows: list[Row]) -> bool:
    return all(row["predicted_cost"] <= row["limit"] for row in rows)


def _cleared(rows: list[Row]) -> bool:
    return bool(rows[0]["verdict"].startswith("within"))


def _holds(row: Row, what: str) -> bool:
    return bool(row[f"ope_{what}_low"] <= row[what] <= row[f"ope_{what}_high"])


if __name__ == "__main__":
    main()
