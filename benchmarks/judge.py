"""Coverage of the intervals and errors of the verdicts of `pdocrl.ope` on simulated logs with known values.

    python benchmarks/judge.py [--logs 60]

Four worlds, none of which the rule of `pdocrl.ope.judge` was tuned on. True values from 40,000 episodes of the target.
Rows go to benchmarks/results/judge.csv, the table to benchmarks/notes/judge.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pdocrl
from pdocrl.data.event_log import EventLog

HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class World:
    """Two actions; a state [n, D]; `move` gives (next state, reward, cost, stop)."""

    name: str
    start: Callable[[Any, int], Any]
    move: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    behaviour: Callable[[Any], Any]  # probability of action 1
    target: Callable[[Any], Any]
    steps: int

    def play(self, rng: Any, episodes: int, policy: Callable[[Any], Any]) -> pd.DataFrame:
        x, alive, parts = self.start(rng, episodes), np.arange(episodes), []
        for t in range(self.steps):
            chance = policy(x)
            a = (rng.random(len(x)) < chance).astype(int)
            after, reward, cost, stop = self.move(rng, x, a)
            row = {f"x{j}": x[:, j] for j in range(x.shape[1])}
            row |= {"episode": alive, "t": t, "action": a, "reward": reward, "cost": cost}
            parts.append(pd.DataFrame(row | {"p": np.where(a == 1, chance, 1 - chance)}))
            x, alive = after[~stop], alive[~stop]
            if not len(alive):
                break
        return pd.concat(parts, ignore_index=True)


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def bandit(rng: Any, x: Any, a: Any) -> tuple[Any, Any, Any, Any]:
    cost = rng.random(len(x)) < sigmoid(x[:, 0] * x[:, 1] + a - 1)
    return x, np.sin(2 * x[:, 0]) * a + rng.normal(size=len(x)), cost.astype(float), np.ones(len(x), bool)


def queue(rng: Any, x: Any, a: Any) -> tuple[Any, Any, Any, Any]:
    """x: length of a queue; action 1 serves faster at a price; cost when it is long."""
    after = np.clip(x + rng.binomial(2, 0.5, x.shape) - 1 - a[:, None] * (rng.random(x.shape) < 0.6), 0, 8)
    return after, -x[:, 0] - a, (x[:, 0] >= 5).astype(float), rng.random(len(x)) < 0.1


def drift(rng: Any, x: Any, a: Any) -> tuple[Any, Any, Any, Any]:
    after = 0.9 * x + 0.3 * (2 * a[:, None] - 1) + 0.3 * rng.normal(size=x.shape)
    return after, -(x**2).sum(1), (x[:, 0] > 1).astype(float), np.zeros(len(x), bool)


def make_worlds() -> list[World]:
    normal = lambda d: lambda rng, n: rng.normal(size=(n, d))  # noqa: E731
    half = lambda x: np.full(len(x), 0.5)  # noqa: E731
    push = lambda x: sigmoid(-2 * x[:, 0])  # noqa: E731
    serve = lambda x: np.where(x[:, 0] >= 3, 0.9, 0.2)  # noqa: E731
    empty = lambda rng, n: rng.integers(0, 4, (n, 1)).astype(float)  # noqa: E731
    return [
        World("bandit", normal(2), bandit, lambda x: sigmoid(x[:, 0]), lambda x: sigmoid(-x[:, 1]), 1),
        World("queue", empty, queue, half, serve, 60),
        World("drift, 5 steps", normal(2), drift, half, push, 5),
        World("drift, 30 steps", normal(2), drift, half, push, 30),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=60)
    logs = parser.parse_args().logs
    rows = [row for world in make_worlds() for n in (200, 1000) for row in measure(world, n, logs)]
    table = pd.DataFrame(rows)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    stamped = table.assign(commit=head.strip(), python=sys.version.split()[0], numpy=np.__version__, logs=logs)
    stamped.to_csv(HERE / "results" / "judge.csv", index=False, float_format="%.4g")
    (HERE / "notes" / "judge.md").write_text(note(table, logs), encoding="utf-8")


def measure(world: World, n: int, logs: int) -> list[dict[str, Any]]:
    truth = float(world.play(np.random.default_rng(10**6), 40_000, world.target)["cost"].sum() / 40_000)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for propensities in ("logged", "estimated"):
        verdicts = []
        for seed in range(logs):
            frame = world.play(np.random.default_rng(seed), n, world.behaviour)
            if propensities == "estimated":
                frame = frame.drop(columns="p")
            log = EventLog.read(frame, step="t", propensity="p" if propensities == "logged" else None)
            chance = world.target(np.stack([c.values for c in log.columns], axis=1))
            limits = {"cost": 0.9 * truth}
            result = pdocrl.ope(np.stack([1 - chance, chance], axis=1), log, limits)
            looser = pdocrl.ope(np.stack([1 - chance, chance], axis=1), log, {"cost": 1.1 * truth})
            verdicts.append((result.limits[0].verdict, looser.limits[0].verdict))
            for e in result.estimates:
                if e.signal == "cost":
                    low, high = e.interval or (np.nan, np.nan)
                    entry = {"error": (np.nan if e.value is None else e.value) - truth, "width": high - low}
                    entry |= {"covered": float(low <= truth <= high), "ess": e.effective_sample_size or np.nan}
                    found.setdefault((propensities, e.estimator), []).append(entry)
        false_clear = sum(a == "shown" for a, _ in verdicts)
        false_alarm = sum(b == "violated" for _, b in verdicts)
        decided = sum(v != "not shown" for pair in verdicts for v in pair)
        key = (propensities, "verdicts")
        found[key] = [{"false clearance": false_clear / logs, "false alarm": false_alarm / logs}]
        found[key][0]["decided"] = decided / (2 * logs)
    rows = []
    for (kind, estimator), entries in found.items():
        base = {"world": world.name, "episodes": n, "propensities": kind, "estimator": estimator, "truth": truth}
        if estimator == "verdicts":
            rows.append(base | entries[0])
            continue
        frame = pd.DataFrame(entries)
        interval = frame["width"].notna().any()
        base |= {"bias": frame["error"].mean(), "rmse": float(np.sqrt((frame["error"] ** 2).mean()))}
        covered = frame["covered"].mean() if interval else np.nan
        rows.append(base | {"coverage": covered, "width": frame["width"].mean(), "ess": frame["ess"].mean()})
    return rows


def note(table: pd.DataFrame, logs: int) -> str:
    """Markdown."""

    def lines(part: pd.DataFrame, columns: list[str]) -> str:
        head = "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n"
        cell = lambda v: ("" if v != v else f"{v:.3g}") if isinstance(v, float) else str(v)  # noqa: E731
        return (
            head + "\n".join("| " + " | ".join(cell(r[c]) for c in columns) + " |" for _, r in part.iterrows()) + "\n"
        )

    keys = ["world", "episodes", "propensities"]
    verdicts = table[table["estimator"] == "verdicts"]
    rest = table[table["estimator"] != "verdicts"]
    return (
        "# Judging policies from logs: coverage and errors\n\n"
        f"Made by `python benchmarks/judge.py --logs {logs}`. Expected cost of an episode of the target policy, "
        f"{logs} logs per row, nominal coverage .95. The rule that chooses the estimator was fixed before these worlds "
        "were run.\n\n## Verdicts\n\nFalse clearance: `shown` at a limit of 90 % of the truth. False alarm: `violated` "
        "at 110 %. Decided: share of both that is not `not shown`.\n\n"
        + lines(verdicts, [*keys, "false clearance", "false alarm", "decided"])
        + "\n## Estimators\n\n"
        + lines(rest, [*keys, "estimator", "truth", "bias", "rmse", "coverage", "width", "ess"])
    )


if __name__ == "__main__":
    main()
