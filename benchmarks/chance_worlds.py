"""dial in worlds of chance: which limits it predicts to satisfy, and what it pays there.

    python benchmarks/chance_worlds.py [--worlds lanes skid …] [--episodes 400] [--seeds 0] [--steps 3000] [--out FILE]

Of every world a log of some hundred episodes of eight decision makers, and numbers b at .1, .25, .5 and .8 of the mean
cost of the costliest of them. One training is asked for twelve limits: `cost<=b`, `P(cost>b)<=0.1` and
`CVaR90(cost)<=b`. A row is one of them: what was predicted before anything was played, and what 1,000 episodes came to.
Rows are appended to the file as they come, and those that are there are not made again. The first five worlds were
designed on (`worlds_of_chance.DESIGNED_ON`). `--summary FILE` prints what a file comes to.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from worlds_of_chance import DESIGNED_ON, WORLDS, World, logged, makers, play

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.limits import Limit
from pdocrl.training.trainer import Run, Trainer

FRACTIONS = (0.1, 0.25, 0.5, 0.8)
SMALL: dict[str, Any] = {"hidden": (64, 64), "model_hidden": (64, 64), "batch_size": 128, "model_batch": 64}
PLAYED = 1000
OVER = 1.05  # of the limit: more than this is a broken statement
MEASURES = {"mean": "cost<={b:g}", "share": "P(cost>{b:g})<=0.1", "CVaR90": "CVaR90(cost)<={b:g}"}
FIELDS = [
    "world",
    "designed_on",
    "episodes",
    "seed",
    "steps",
    "measure",
    "b",
    "limit",
    "some_maker_keeps",
    "predicted_within",
    "predicted",
    "bound",
    "predicted_reward",
    "played",
    "cost",
    "reward",
    "less_than_at_smaller",
    "best_maker",
    "seconds",
]


def dataset_of(name: str, episodes: int, seed: int) -> Dataset:
    """The log of a world."""
    world = WORLDS[name]
    rows = logged(world, episodes, seed)
    on = rows["on"].ravel()
    last = np.arange(world.horizon) == world.horizon - 1
    flat = {key: value.reshape(-1, *value.shape[2:])[on] for key, value in rows.items()}
    timeout = np.tile(last, episodes)[on] & ~flat["terminal"]
    action = flat["action"].astype(int) if world.choices else flat["action"].reshape(-1, 1)
    return make_dataset(
        flat["obs"],
        action,
        flat["reward"],
        flat["cost"].reshape(-1, 1),
        flat["next_obs"],
        flat["terminal"],
        timeout,
        name=name,
        cost_names=("cost",),
        discrete_actions=world.choices or (),
    )


def played(world: World, policy: Any, seed: int) -> tuple[Any, Any]:
    """Returns and costs of episodes, [n] each."""
    asked = np.full((PLAYED, 1), policy.network.limit[0], np.float32)

    def act(obs: Any, spent: Any, time: int) -> Any:
        return policy.act(obs=obs, limit=asked, spent=spent, time=np.full((len(obs), 1), time, np.float32))

    rows = play(world, PLAYED, 10_000 + seed, act)
    reward, cost = ((rows[name] * rows["on"]).sum(1) for name in ("reward", "cost"))
    return reward, cost


def predicted(policy: Any) -> tuple[float, float, float, bool]:
    """The measure that is limited, its bound, the return, and whether the limit is predicted to be satisfied."""
    said = policy.network.predicted()
    value, bound = said.tails[0][1:3] if said.tails else (float(said.cost[0]), float(said.bound[0]))
    return value, bound, said.reward, said.within


def rows_of(name: str, episodes: int, seed: int, steps: int) -> list[dict[str, Any]]:
    """Train once, and play twelve limits."""
    world, data = WORLDS[name], dataset_of(name, episodes, seed)
    returns, costs = makers(world)
    numbers = [float(f"{fraction * costs.mean(1).max():.3g}") for fraction in FRACTIONS]
    agent = find_agent("dial")
    config = make_config(agent, cost_limit=(numbers[0],), horizon=float(world.horizon), **SMALL)
    began = time.perf_counter()
    trainer = Trainer(agent, data, [Run(config, seed)])
    trainer.advance(steps)
    policy: Any = trainer.policies()[0]
    seconds = time.perf_counter() - began
    found = []
    for measure, text in MEASURES.items():
        earlier: list[float] = []
        for b in numbers:
            limit = Limit.parse(text.format(b=b))
            asked = policy.with_limit(str(limit))
            reward, cost = played(world, asked, seed)
            kept = np.asarray([limit.satisfied(own) for own in costs])
            best = float(returns.mean(1)[kept].max()) if kept.any() else float("nan")
            value, bound, told, within = predicted(asked)
            earned = float(reward.mean())
            less = max([x - earned for x in earlier], default=0.0)
            earlier.append(earned)
            told_and_paid = (within, value, bound, told, limit.of(cost), float(cost.mean()), earned, max(less, 0.0))
            row = (name, name in DESIGNED_ON, episodes, seed, steps, measure, b, str(limit), bool(kept.any()))
            row = (*row, *told_and_paid, best, seconds)
            found.append({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in zip(FIELDS, row, strict=True)})
    return found


def summary(path: Path, fields: tuple[str, ...] = ("designed_on", "world")) -> None:
    """Cells predicted within and how many of them pay more; keepable limits and how many are predicted within."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for measure in MEASURES:
        for field in fields:
            for value in dict.fromkeys(row[field] for row in rows):
                own = [row for row in rows if row[field] == value and row["measure"] == measure]
                within = [row for row in own if row["predicted_within"] == "True"]
                ratios = [float(row["played"]) / Limit.parse(row["limit"]).value for row in within]
                keepable = [row for row in own if row["some_maker_keeps"] == "True"]
                said = [row for row in keepable if row["predicted_within"] == "True"]
                share = np.mean([float(row["reward"]) / float(row["best_maker"]) for row in said]) if said else np.nan
                means = {(r["world"], r["seed"], r["b"]): float(r["reward"]) for r in rows if r["measure"] == "mean"}
                given = [1 - float(r["reward"]) / means[r["world"], r["seed"], r["b"]] for r in within]
                worst, spread = monotone(own)
                print(
                    f"{measure}, {field} {value}: {len(own)} cells, {len(within)} predicted within, "
                    f"{sum(x > OVER for x in ratios)} of them broken, largest played / limit "
                    f"{max(ratios, default=np.nan):.2f}, median {np.median(ratios) if ratios else np.nan:.2f}; "
                    f"{len(said)} of {len(keepable)} keepable limits predicted within; reward over the best keeper's "
                    f"{share:.2f}; given up against the mean limit {np.mean(given) if given else np.nan:.2f}; "
                    f"a larger limit earns less by at most {worst:.2f} (seeds' spread there {spread:.2f})"
                )


def monotone(rows: list[dict[str, str]]) -> tuple[float, float]:
    """The largest fall of the mean return over seeds as b grows, in some world, and the seeds' standard deviation."""
    worst = (0.0, 0.0)
    for world in dict.fromkeys(row["world"] for row in rows):
        by_b: dict[float, list[float]] = {}
        for row in rows:
            if row["world"] == world:
                by_b.setdefault(float(row["b"]), []).append(float(row["reward"]))
        best, deviation = -np.inf, 0.0
        for _, own in sorted(by_b.items()):
            if best - np.mean(own) > worst[0]:
                worst = (float(best - np.mean(own)), max(deviation, float(np.std(own))))
            if np.mean(own) > best:
                best, deviation = float(np.mean(own)), float(np.std(own))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--episodes", nargs="+", type=int, default=[400])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("chance_worlds.csv"))
    parser.add_argument("--summary", type=Path, default=None)
    given = parser.parse_args()
    if given.summary is not None:
        summary(given.summary)
        return
    done = set()
    if given.out.exists():
        with given.out.open() as file:
            done = {(r["world"], int(r["episodes"]), int(r["seed"]), int(r["steps"])) for r in csv.DictReader(file)}
    else:
        given.out.write_text(",".join(FIELDS) + "\n")
    for seed in given.seeds:
        for episodes in given.episodes:
            for name in given.worlds:
                if (name, episodes, seed, given.steps) in done:
                    continue
                rows = rows_of(name, episodes, seed, given.steps)
                with given.out.open("a", newline="") as file:
                    csv.DictWriter(file, FIELDS).writerows(rows)
                for row in rows:
                    print(" ".join(f"{key}={row[key]}" for key in FIELDS if key not in {"designed_on", "steps"}))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
