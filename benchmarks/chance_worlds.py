"""dial in worlds of chance: which limits it predicts to satisfy, and what it pays there.

    python benchmarks/chance_worlds.py [--worlds lanes skid …] [--episodes 400] [--seeds 0] [--steps 3000] [--out FILE]

Of every world a log of some hundred episodes of eight decision makers, and limits at .1, .25, .5 and .8 of the mean
cost of the costliest of them. A row is one limit of one training: what was predicted before anything was played, and
the means of 1,000 episodes. Rows are appended to the file as they come, and those that are there are not made again.
The first five worlds were designed on (`worlds_of_chance.DESIGNED_ON`). `--summary FILE` prints what a file comes to.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
from worlds_of_chance import DESIGNED_ON, WORLDS, World, logged, makers, play

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.training.trainer import Run, Trainer

FRACTIONS = (0.1, 0.25, 0.5, 0.8)
SMALL: dict[str, Any] = {"hidden": (64, 64), "model_hidden": (64, 64), "batch_size": 128, "model_batch": 64}
PLAYED = 1000
OVER = 1.05  # of the limit: more than this is a broken statement
FIELDS = [
    "world",
    "designed_on",
    "episodes",
    "seed",
    "steps",
    "limit",
    "some_maker_keeps",
    "predicted_within",
    "predicted_cost",
    "predicted_reward",
    "cost",
    "reward",
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


def played(world: World, policy: Any, limit: float, seed: int) -> tuple[float, float]:
    """Mean return and cost of a policy with a limit."""
    asked = np.full((PLAYED, 1), limit, np.float32)

    def act(obs: Any, spent: Any, time: int) -> Any:
        return policy.act(obs=obs, limit=asked, spent=spent, time=np.full((len(obs), 1), time, np.float32))

    rows = play(world, PLAYED, 10_000 + seed, act)
    reward, cost = ((rows[name] * rows["on"]).sum(1).mean() for name in ("reward", "cost"))
    return float(reward), float(cost)


def predicted(policy: Any, limit: float) -> tuple[float, float, bool]:
    """Return, cost and whether the limit is predicted to be satisfied."""
    said = policy.network.predicted(limit)
    return said.reward, float(said.cost[0]), said.within


def rows_of(name: str, episodes: int, seed: int, steps: int) -> list[dict[str, Any]]:
    """Train once, and play four limits."""
    world, data = WORLDS[name], dataset_of(name, episodes, seed)
    returns, costs = makers(world)
    limits = [float(f"{fraction * costs.max():.3g}") for fraction in FRACTIONS]
    agent = find_agent("dial")
    config = make_config(agent, cost_limit=(limits[0],), horizon=float(world.horizon), **SMALL)
    began = time.perf_counter()
    trainer = Trainer(agent, data, [Run(config, seed)])
    trainer.advance(steps)
    policy: Any = trainer.policies()[0]
    seconds = time.perf_counter() - began
    found = []
    for limit in limits:
        reward, cost = played(world, policy, limit, seed)
        told_reward, told_cost, within = predicted(policy, limit)
        kept = costs <= limit
        best = float(returns[kept].max()) if kept.any() else float("nan")
        numbers = (limit, bool(kept.any()), within, told_cost, told_reward, cost, reward, best, seconds)
        row = (name, name in DESIGNED_ON, episodes, seed, steps, *numbers)
        found.append({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in zip(FIELDS, row, strict=True)})
    return found


def summary(path: Path, fields: tuple[str, ...] = ("designed_on", "world")) -> None:
    """Cells predicted within and how many of them pay more; keepable limits and how many are predicted within."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for field in fields:
        for value in dict.fromkeys(row[field] for row in rows):
            own = [row for row in rows if row[field] == value]
            within = [row for row in own if row["predicted_within"] == "True"]
            over = [row for row in within if float(row["cost"]) > OVER * float(row["limit"])]
            keepable = [row for row in own if row["some_maker_keeps"] == "True"]
            said = [row for row in keepable if row["predicted_within"] == "True"]
            broken = [row for row in own if float(row["cost"]) > OVER * float(row["limit"])]
            gained = [float(row["reward"]) - float(row["best_maker"]) for row in said]
            print(
                f"{field} {value}: {len(own)} cells, {len(within)} predicted within, {len(over)} of them over; "
                f"{len(said)} of {len(keepable)} keepable limits predicted within; {len(broken)} cells over in all; "
                f"reward beyond the best maker's {np.mean(gained) if gained else float('nan'):.2f}"
            )


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


if __name__ == "__main__":
    main()
