"""The statistical rate: how the error of the saddle program falls with the number of rows.

    python benchmarks/tabular_rate.py [--seeds 40]

Random CMDPs with S = 20, A = 4, γ = 0.9, one binding constraint; half of the data is the optimal policy's, half a
uniform policy's. err = max(suboptimality, violation) in (1−γ)J units, in the true CMDP. Theory: n^(−1/2).
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from pdocrl.console import print_table, progress
from pdocrl.files import atomic_path
from pdocrl.tabular import exact
from pdocrl.tabular.cmdp import evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.lagrangian import Lagrangian
from pdocrl.tabular.limits import as_limits
from pdocrl.tabular.solution import Setup, solve_saddle

SIZES = (1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
MULTIPLES = (1.0, 1.5, 3.0)  # of C*
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = parser.parse_args().seeds
    errors = np.zeros((len(MULTIPLES), len(SIZES), seeds))
    with progress() as bar:
        for seed in bar.track(range(seeds), description="seeds"):
            cmdp = random_cmdp(20, 4, 1, 0.9, seed=seed)
            best = exact.solve(cmdp)
            mu_D = (best.mu + occupancy(cmdp, np.full((20, 4), 1 / 4))) / 2
            C_star = float((best.mu / mu_D).max())
            for j, size in enumerate(SIZES):
                counts = Counts.sample(cmdp, mu_D, size, seed)
                limits = as_limits({"cost": -float(cmdp.tau[0])})
                L = Lagrangian.empirical(counts, cmdp.gamma, limits)
                for i, multiple in enumerate(MULTIPLES):
                    solution = solve_saddle(L, Setup(multiple * C_star))
                    errors[i, j, seed] = evaluate(cmdp, solution.policy).error(cmdp, best.value)
    mean = errors.mean(axis=2)
    slopes = [np.polyfit(np.log(SIZES), np.log(row), 1)[0] for row in mean]
    rows = [
        [f"{multiple:g}·C*", *(f"{x:.2g}" for x in row), f"{slope:.3f}"]
        for multiple, row, slope in zip(MULTIPLES, mean, slopes, strict=True)
    ]
    print_table(["C", *(f"n={n:,}" for n in SIZES), "slope"], rows, f"mean err over {seeds} seeds")
    with atomic_path(HERE / "results" / "tabular_rate.csv") as path, path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["C over C*", "n", "mean err", "median err", "worst err", "seeds"])
        for i, multiple in enumerate(MULTIPLES):
            for j, size in enumerate(SIZES):
                e = errors[i, j]
                writer.writerow([multiple, size, e.mean(), np.median(e), e.max(), seeds])


if __name__ == "__main__":
    main()
