"""Algorithm 1 with soft cells on real-valued states: what each solver believes, and what is true.

    python benchmarks/function_classes.py         results/function_classes.csv, some minutes of one core

A walk in the unit square, pushed left, nowhere or right; the right pays, and costs in its upper part. One log of 40
episodes of 40 steps of random actions, one limit on (1−γ)J, γ = 0.95, seed 0; truth by 2,000 episodes of 150 steps.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from pdocrl import approximate
from pdocrl.approximate.softmax_policy import LinearPolicy
from pdocrl.files import write_csv

FILE = Path(__file__).parent / "results" / "function_classes.csv"
GAMMA = 0.95
CASES = (("cells", 64, "newton"), ("cells", 64, "optimistic"), ("cells", 64, "pdocrl"), ("trees", 64, "newton"))


def step(x: np.ndarray, a: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States [E, 2] and actions [E] to next states, rewards and costs."""
    pushed = x + np.stack([0.1 * (a - 1), 0.0 * a], axis=1) + 0.05 * rng.normal(size=x.shape)
    reward = x[:, 0] * (1 - 0.5 * np.abs(x[:, 1] - 0.5))
    return np.clip(pushed, 0, 1), reward, ((x[:, 0] > 0.7) & (x[:, 1] > 0.3)).astype(float)


def log(episodes: int, length: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, parts = rng.uniform(0, 1, (episodes, 2)), []
    for t in range(length):
        a = rng.choice(3, size=episodes, p=[0.3, 0.3, 0.4])
        y, r, c = step(x, a, rng)
        parts.append((x, a, y, r, c, np.full(episodes, t == 0)))
        x = y
    names = ("state", "action", "next_state", "reward", "costs", "initial")
    return dict(zip(names, (np.concatenate(part) for part in zip(*parts, strict=True)), strict=True))


def play(policy: LinearPolicy, episodes: int = 2000, length: int = 150, seed: int = 9) -> np.ndarray:
    """(1−γ)J of reward and cost."""
    rng = np.random.default_rng(seed)
    x, total = rng.uniform(0, 1, (episodes, 2)), np.zeros(2)
    for t in range(length):
        a = (policy.probabilities(x).cumsum(axis=1) > rng.random((episodes, 1))).argmax(axis=1)
        x, r, c = step(x, a, rng)
        total += (1 - GAMMA) * GAMMA**t * np.array([r.mean(), c.mean()])
    return total


def main() -> None:
    data, rows = log(40, 40, seed=0), []
    for features, size, method in CASES:
        begin = time.perf_counter()
        found = approximate.solve(data, GAMMA, ["cost<=0.1"], features=features, size=size, method=method)
        seconds = time.perf_counter() - begin
        reward, cost = play(found.policy)
        numbers = {"gap": found.gap, "believed reward": found.value, "believed cost": found.costs[0]}
        numbers |= {"true reward": reward, "true cost": cost, "multiplier": found.multipliers[0]}
        row = {"features": features, "size": size, "method": method, "seconds": round(seconds, 1)}
        rows.append(row | {name: f"{value:.4g}" for name, value in numbers.items()})
        print(rows[-1], flush=True)
        write_csv(FILE, rows)


if __name__ == "__main__":
    main()
