"""Do 95 % intervals over trainings hold where one training in ten is a disaster? Mean cost, and share over the limit.

    python benchmarks/skewed_trainings.py [--tables 4000]

Writes results/skewed_trainings.csv. Every simulated table has n trainings, whose mean normalised costs are drawn; the
intervals are those of tables and pages: t for the mean (`Measured.interval`), Clopper–Pearson for the share of
trainings whose mean cost exceeds the limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.evaluation.intervals import binomial_interval, measured
from pdocrl.files import write_csv

Floats = NDArray[np.float64]
TRAININGS = (3, 5, 10, 20)
# costs over the limit of trainings: the true mean, the true share above 1, and n draws
KINDS: dict[str, tuple[float, float, Callable[[np.random.Generator, int], Floats]]] = {
    "normal, .8 ± .2": (0.8, 0.15866, lambda rng, n: rng.normal(0.8, 0.2, n)),
    "one in ten costs 5, others .5": (0.95, 0.1, lambda rng, n: np.where(rng.random(n) < 0.1, 5.0, 0.5)),
    "one in ten costs 30, others .5 ± .1": (
        3.45,
        0.1,
        lambda rng, n: np.where(rng.random(n) < 0.1, 30.0, rng.normal(0.5, 0.1, n)),
    ),
    "log-normal, median .5, σ = 1": (0.5 * np.exp(0.5), 0.24411, lambda rng, n: 0.5 * np.exp(rng.normal(0, 1, n))),
}


def covered(name: str, n: int, tables: int) -> dict[str, Any]:
    """How often both intervals held the truth, and their mean lengths."""
    mean, share, draw = KINDS[name]
    rng = np.random.default_rng([3, list(KINDS).index(name), n])
    held, low_held, exact, lengths = 0, 0, 0, []
    for _ in range(tables):
        costs = draw(rng, n)
        low, high = measured(float(costs.mean()), [costs / n], "trainings").interval(least=0.0) or (0.0, np.inf)
        held += low <= mean <= high
        low_held += mean <= high
        least, most = binomial_interval(int((costs > 1).sum()), n)
        exact += least <= share <= most
        lengths.append((high - low, most - least))
    of_mean, of_share = np.mean(lengths, axis=0)
    return {
        "costs": name,
        "trainings": n,
        "tables": tables,
        "mean_held": held / tables,
        "mean_below_upper_end": low_held / tables,
        "mean_length": round(float(of_mean), 3),
        "share_held": exact / tables,
        "share_length": round(float(of_share), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=4000)
    tables = parser.parse_args().tables
    rows = [covered(name, n, tables) for name in KINDS for n in TRAININGS]
    write_csv(Path(__file__).parent / "results" / "skewed_trainings.csv", rows)
    for row in rows:
        print(*row.values())


if __name__ == "__main__":
    main()
