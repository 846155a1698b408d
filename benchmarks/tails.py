"""Frontiers of limits on the mean, on the share of expensive episodes and on CVaR, of one problem in one picture.

    python benchmarks/tails.py            results/tails.csv and docs/img/tails.png, about four minutes of one core

A ward treats 12 steps. `mid` costs 1 in three of ten steps, `high` costs 3 in one of ten: the same mean, another tail.
Policies are learned from one log of 4,000 episodes of random actions; `believed` is of the log's own model, `true` of
4,000 episodes of the simulator with the exported policy.
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pdocrl.limits import Limit
from pdocrl.tabular import Counts
from pdocrl.tabular.tails import TailResult, solve_tails

ROOT = Path(__file__).parent
HORIZON, LEVELS, THRESHOLD = 12, 4, 4.0
ACTIONS = ("low", "mid", "high")
REMEMBERED = "P(cost>30)<=0.9999"  # keeps the whole distribution, and nothing breaks it
KINDS = {
    "mean": ("cost<={:g}", np.linspace(0.4, 3.6, 9)),
    "share": ("P(cost>4)<={:g}", np.array([0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])),
    "CVaR": ("CVaR90(cost)<={:g}", np.arange(1.0, 7.0)),
}
FIELDS = ("kind", "limit", "status", "reward", "mean", "share", "cvar", "true reward", "true mean", "true share")
FIELDS = (*FIELDS, "true cvar", "multiplier", "certificate", "states")


def step(s: int, a: int, rng: np.random.Generator) -> tuple[int, float, float]:
    """Severity s falls more often under stronger treatment, which pays and costs."""
    u = rng.random()
    cost = (0.0, 1.0 if u < 0.3 else 0.0, 3.0 if u < 0.1 else 0.0)[a]
    better = rng.random() < (0.2, 0.45, 0.6)[a]
    z = max(s - 1, 0) if better else min(s + int(rng.random() < 0.5), LEVELS - 1)
    return z, 1.0 - s / (LEVELS - 1), cost


def log(episodes: int, seed: int) -> Counts:
    rng, rows = np.random.default_rng(seed), []
    for e in range(episodes):
        s = 2
        for t in range(HORIZON):
            a = int(rng.integers(3))
            z, r, c = step(s, a, rng)
            rows.append((str(s), ACTIONS[a], str(z), r, c, e, t))
            s = z
    state, action, then, reward, cost, episode, time = (np.array(x) for x in zip(*rows, strict=True))
    return Counts.from_arrays(state, action, then, reward, {"cost": cost}, episode=episode, step=time, horizon=HORIZON)


def play(result: TailResult, episodes: int, seed: int) -> tuple[float, np.ndarray]:
    """Mean reward and totals of cost [episodes] in the simulator."""
    policy, rng = result.policy, np.random.default_rng(seed)
    rewards, totals = np.zeros(episodes), np.zeros(episodes)
    for e in range(episodes):
        s = 2
        for t in range(HORIZON):
            s, r, c = step(s, ACTIONS.index(policy.act(str(s), totals[e], t)), rng)
            rewards[e] += r
            totals[e] += c
    return float(rewards.mean()), totals


def measure() -> list[dict[str, object]]:
    counts, rows = log(4000, seed=0), []
    share, cvar = Limit.parse(f"P(cost>{THRESHOLD:g})<=0"), Limit.parse("CVaR90(cost)<=1")
    for kind, (written, limits) in KINDS.items():
        for value in limits:
            result = solve_tails(counts, [written.format(value), REMEMBERED])
            one = result.remembered[0]
            mean = float(np.dot(one.values, one.probabilities)) + one.over * one.over_mean
            reward, totals = play(result, 4000, seed=1)
            told = (result.status, result.value, mean, one.measure(share), one.measure(cvar))
            true = (reward, totals.mean(), share.of(totals), cvar.of(totals))
            row = (kind, float(value), *told, *true, result.multipliers[0], result.certificate, result.states)
            rows.append(dict(zip(FIELDS, row, strict=True)))
            print(" ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row), flush=True)
    return rows


def draw(rows: list[dict[str, str]], target: Path) -> None:
    colours = {"mean": "#0b5cad", "share": "#b3541e", "CVaR": "#2e8b57"}
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    labels = {"mean": "mean cost", "share": f"P(cost > {THRESHOLD:g})", "cvar": "CVaR90 of the cost"}
    for axis, (column, label) in zip(axes, labels.items(), strict=True):
        for kind, colour in colours.items():
            own = sorted((float(r[column]), float(r["reward"])) for r in rows if r["kind"] == kind)
            name = {"mean": "limit on the mean", "share": "limit on the share", "CVaR": "limit on CVaR"}[kind]
            axis.plot(*zip(*own, strict=True), "o-", color=colour, markersize=3.5, linewidth=1.4, label=name)
        axis.set_xlabel(label)
        axis.grid(color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("reward of an episode")
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(target, dpi=130)


def main() -> None:
    file = ROOT / "results" / "tails.csv"
    rows = measure()
    with file.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, FIELDS)
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    with file.open(newline="", encoding="utf-8") as handle:
        draw(list(csv.DictReader(handle)), ROOT.parent / "docs" / "img" / "tails.png")


if __name__ == "__main__":
    main()
