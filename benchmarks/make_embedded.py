"""Make the dataset that ships inside the package from the full re-collected BallRun file.

    python benchmarks/make_embedded.py SafetyBallRun-v0-80-1197.hdf5

400 of its 1,197 episodes. First every episode of cost ≤ 40 whose reward is within 2 % (of the range of rewards) of the
best at no more cost, so that the safe frontier is dense where the usual limits lie; the rest evenly over (cost, reward)
by the density filter with a fixed seed. Transitions are untouched, and the same input gives the same file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pdocrl.data
from pdocrl.data import Dataset, filters, load, make_dataset, save

EPISODES = 400
FRONTIER_COST, FRONTIER_SLACK = 40.0, 0.02
TARGET = Path(pdocrl.data.__file__).parent / "embedded" / "ballrun.hdf5"


def choose(full: Dataset) -> Dataset:
    """The frontier band, then evenly spread episodes up to the wanted number."""
    slack = FRONTIER_SLACK * np.ptp(full.reward_return)
    near_best = full.reward_return >= filters.best_within(full) - slack
    band = near_best & (full.cost_return[:, 0] <= FRONTIER_COST)
    others = full.episodes(np.flatnonzero(~band))
    return joined(full.episodes(np.flatnonzero(band)), filters.density(others, EPISODES - int(band.sum())))


def joined(first: Dataset, second: Dataset) -> Dataset:
    """The episodes of both."""
    fields = ("obs", "action", "reward", "cost", "next_obs", "terminal", "timeout")
    arrays = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in fields}
    return make_dataset(**arrays, name=first.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the re-collected file with all 1,197 episodes")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()

    full = load(options.source, "BallRun")
    chosen = choose(full)
    save(chosen, options.out)
    assert load(options.out, "BallRun").digest == chosen.digest
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, digest {chosen.digest}")
    print(f"{'':24}{'full':>10}{'chosen':>10}")
    for limit in (5, 10, 20, 40, 80):
        within = [(d, d.cost_return[:, 0] <= limit) for d in (full, chosen)]
        counts = [int(rows.sum()) for _, rows in within]
        best = [d.reward_return[rows].max() for d, rows in within]
        print(f"episodes of cost ≤ {limit:<5}{counts[0]:>10}{counts[1]:>10}")
        print(f"best reward at ≤ {limit:<7}{best[0]:>10.1f}{best[1]:>10.1f}")


if __name__ == "__main__":
    main()
