"""ope in worlds of chance: what is said of decision makers that the log does not have, and what they come to.

    python benchmarks/ope_chance.py [--worlds lanes skid …] [--episodes 300] [--seed 0] [--out FILE]

The worlds and logs are those of `chance_worlds.py`. Judged are eight decision makers of boldness between those that
were logged, at limits of .1, .25, .5 and .8 of the mean cost of the costliest; their true means are of 4,000 episodes.
The first five worlds were designed on. Networks are small and learn for 1,500 steps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from chance_worlds import FRACTIONS, dataset_of
from worlds_of_chance import DESIGNED_ON, MAKERS, WORLDS, World, makers, play

from pdocrl.files import write_csv
from pdocrl.ope import EnsembleConfig, Prepared
from pdocrl.ope.ensemble.judge import judge_each

SMALL = EnsembleConfig(hidden=(64, 64), outcome_hidden=(64, 64), steps=1500, batch_size=128)
PLAYED = 4000


def maker(world: World, bold: float, seed: int) -> Any:
    """A decision maker as a policy on observations."""
    rng = np.random.default_rng([seed, 5])

    def act(obs: Any) -> Any:
        chosen = world.decide(rng, np.asarray(obs, np.float64), np.full(len(obs), bold))
        return np.eye(world.choices, dtype=np.float32)[chosen.astype(int)] if world.choices else chosen[:, None]

    return act


def truth(world: World, bold: float, seed: int) -> tuple[float, float]:
    rng, every = np.random.default_rng([seed, 3]), np.full(PLAYED, bold)
    rows = play(world, PLAYED, 5000 + seed, lambda obs, spent, time: world.decide(rng, obs, every))
    reward, cost = ((rows[name] * rows["on"]).sum(1).mean() for name in ("reward", "cost"))
    return float(reward), float(cost)


def rows_of(name: str, episodes: int, seed: int) -> list[dict[str, Any]]:
    """A row for every decision maker and limit."""
    world, data = WORLDS[name], dataset_of(name, episodes, seed)
    limits = [float(f"{fraction * makers(world)[1].max():.3g}") for fraction in FRACTIONS]
    bolds = (np.arange(MAKERS) + 0.5) / MAKERS
    began = time.perf_counter()
    ready = Prepared.of(data, seed, SMALL, cache=False)
    judged = judge_each([maker(world, b, i) for i, b in enumerate(bolds)], [name] * MAKERS, ready, world.horizon)
    seconds = time.perf_counter() - began
    found = []
    for i, (bold, one) in enumerate(zip(bolds, judged, strict=True)):
        reward, cost = truth(world, float(bold), i)
        told = one.told
        for limit in limits:
            said = None if one.why or one.unseen else told.within([limit])
            row: dict[str, Any] = {"world": name, "designed_on": name in DESIGNED_ON, "seed": seed, "bold": bold}
            row |= {
                "limit": limit,
                "reward": reward,
                "cost": cost,
                "said": {True: "within", False: "over", None: ""}[said],
            }
            for k, signal in enumerate(("reward", "cost")):
                row |= {f"told_{signal}": told.value[k], f"low_{signal}": told.interval[k, 0]}
                row |= {f"high_{signal}": told.interval[k, 1]}
            skill = (ready.calibration.skill[1], ready.behaviours.calibration.skill[1])
            row |= {"model_skill": skill[0], "behaviours_skill": skill[1], "carried": one.carried, "seconds": seconds}
            found.append({key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in row.items()})
    return found


def summary(rows: list[dict[str, Any]]) -> str:
    """Of one world or several: false statements, share shown, coverage."""
    ratio = np.array([r["cost"] / r["limit"] for r in rows])
    said = np.array([r["said"] for r in rows])

    def held(signal: str) -> float:
        return float(np.mean([r[f"low_{signal}"] <= r[signal] <= r[f"high_{signal}"] for r in rows]))

    def counted(word: str, own: Any) -> str:
        return f"{int(((said == word) & own).sum())} of {int(own.sum())}"

    error = np.median([abs(r["told_cost"] - r["cost"]) for r in rows])
    return (
        f"false within {counted('within', ratio > 1)}; shown below .7 {counted('within', ratio < 0.7)}; "
        f"false over {counted('over', ratio <= 1)}; over, shown {counted('over', ratio > 1.4)}; "
        f"coverage {held('reward'):.2f} / {held('cost'):.2f}; median error of cost {error:.3g}; "
        f"skill {rows[0]['model_skill']:.2f}, {rows[0]['behaviours_skill']:.2f}; {rows[0]['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ope_chance.csv")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in asked.worlds:
        rows += rows_of(name, asked.episodes, asked.seed)
        write_csv(asked.out, rows)
        print(f"{name}: {summary([r for r in rows if r['world'] == name])}", flush=True)
    for kind in (True, False):
        if own := [r for r in rows if r["designed_on"] == kind]:
            print(f"{'designed on' if kind else 'report'}: {summary(own)}")


if __name__ == "__main__":
    main()
